"""How few kernels and samples the model needs."""

from __future__ import annotations

import numpy as np

from dmkl._util.types import Samples
from dmkl.model import support_per_class
from dmkl.report.charts import Axis, Series, histogram, line_chart
from dmkl.report.contents import Contents, noun
from dmkl.report.markup import NOTHING, Section, block, section, table

ENOUGH = 10  # outputs or kernels from which on a distribution is drawn


def sparsity(contents: Contents) -> Section | None:
    model = contents.model
    if model is None:
        return None
    used = (np.abs(model.weights) > 0).sum(axis=1)
    support = np.array(list(support_per_class(model)))
    rows = [
        (
            "kernels with non-zero weight",
            int((np.abs(model.weights) > 0).any(axis=0).sum()),
            len(model.bank),
            *_spread(used),
        ),
        ("support samples", int(np.any(model.coef, axis=1).sum()), model.bank.n, *_spread(support)),
    ]
    heads = ["", "total", "of", *(f"{word} per {noun(model)}" for word in ("fewest", "median", "most"))]
    shown = len(heads) if len(used) > 1 else 3
    charts = []
    share = np.sort(np.abs(model.weights).mean(axis=0))[::-1]
    if len(share) >= ENOUGH and share.sum() > 0:
        total = np.concatenate([[0.0], np.cumsum(share) / share.sum()])
        picked = np.unique(np.linspace(0, len(share), 121).astype(int))
        curve = Series("", [(float(k), float(total[k])) for k in picked])
        axes = Axis("kernels, the largest weight first", 0, len(share)), Axis("share of the total weight", 0, 1)
        charts.append(line_chart("Cumulative share of the kernels with the largest weights", [curve], *axes))
    if len(support) >= ENOUGH and support.min() < support.max():
        counts, edges = np.histogram(support, bins=min(20, len(np.unique(support))))
        caption = f"Distribution of the number of support samples per {noun(model)}"
        charts.append(histogram(caption, "support samples", noun(model, 2), counts.tolist(), edges.tolist()))
    shown_rows = [row[:shown] for row in rows]
    return section(
        "Sparsity",
        table("Kernels and samples that the model uses", heads[:shown], shown_rows),
        block("pair", *charts) if charts else NOTHING,
    )


def _spread(counts: Samples) -> tuple[int, float, int]:
    return int(counts.min()), float(np.median(counts)), int(counts.max())
