"""Relevance maps: which coefficients of which kernels a model uses, as in figure 2 of the MIKL paper."""

from __future__ import annotations

import numpy as np

from dmkl.model import Model
from dmkl.report.contents import Contents, noun
from dmkl.report.images import BLUE, levels, picture, shades, shrink
from dmkl.report.markup import Raw, paragraph, section, table

MAPS = 6  # outputs that are drawn
ACROSS = 300  # dots in a row; more samples share dots, each showing its largest
KERNELS = 40  # rows: those with the largest coefficients


def relevance(contents: Contents) -> Raw:
    """A section with one map an output; nothing for models whose coefficients all kernels share."""
    model = contents.model
    if model is None or not model.per_kernel or not len(model.coef):
        return Raw("")
    maps = [_map(model, k) for k in range(min(MAPS, len(model.outputs)))]
    more = len(model.outputs) - MAPS
    words = paragraph(f"{more:,} more {noun(model, 2)} are in the model.") if more > 0 else ""
    return section(
        "relevance",
        "Relevance",
        paragraph(
            "Support samples from left to right, kernels from top to bottom; the stronger, the larger the coefficient."
        ),
        Raw(f'<div class="stripes">{"".join(maps)}</div>'),
        words,
    )


def _map(model: Model, k: int) -> Raw:
    sizes = np.abs(model.relevance(k)).T
    largest = sizes.max(axis=1)
    shown = np.sort(np.argsort(-largest, kind="stable")[:KERNELS])
    shares = shrink(sizes[shown] / max(float(largest.max()), 1e-300), KERNELS, ACROSS)
    rows = [
        (name, picture(levels(row[None]), shades(BLUE), f"coefficients of {name}", height=14))
        for name, row in zip((model.bank.kernels[a].name for a in shown), shares, strict=True)
    ]
    return table(f"Coefficients of {model.outputs[k]}", ["kernel", "support samples"], rows)
