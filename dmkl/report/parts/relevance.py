"""Relevance maps: the coefficients of every kernel and support sample, as in figure 2 of the MIKL paper."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl.model import Model
from dmkl.report.contents import Contents, noun
from dmkl.report.images import BLUE, levels, picture, shades, shrink
from dmkl.report.markup import NOTHING, Section, block, paragraph, section, table

MAPS = 6  # outputs that are drawn
ACROSS = 300  # dots in a row; where samples share a dot, it shows the largest coefficient
KERNELS = 40  # rows, for the kernels with the largest coefficients


def relevance(contents: Contents) -> Section | None:
    """One map for each output; None for models whose kernels share their coefficients."""
    model = contents.model
    if model is None or not model.per_kernel or not len(model.coef):
        return None
    maps = [_map(model, k) for k in range(min(MAPS, len(model.outputs)))]
    more = len(model.outputs) - MAPS
    words = paragraph(f"The model has {more:,} more {noun(model, more)}.") if more > 0 else NOTHING
    return section(
        "Relevance",
        paragraph(
            "Support samples from left to right, kernels from top to bottom; "
            "a stronger colour means a larger coefficient."
        ),
        block("stripes", *maps),
        words,
    )


def _map(model: Model, k: int) -> Markup:
    sizes = np.abs(model.relevance(k)).T
    largest = sizes.max(axis=1)
    shown = np.sort(np.argsort(-largest, kind="stable")[:KERNELS])
    shares = shrink(sizes[shown] / max(float(largest.max()), 1e-300), KERNELS, ACROSS)
    rows = [
        (name, picture(levels(row[None]), shades(BLUE), f"coefficients of {name}", height=14))
        for name, row in zip((model.bank.kernels[a].name for a in shown), shares, strict=True)
    ]
    return table(f"Coefficients of {model.outputs[k]}", ["kernel", "support samples"], rows)
