"""How precision falls as more of a class is found; of a regression, what was predicted against what was true."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.report.charts import Axis, Point, Series, around, band, line_chart
from dmkl.report.contents import Contents, noun
from dmkl.report.markup import Raw, paragraph, section

RECALL = np.linspace(0.0, 1.0, 101)
DRAWN = 30  # faint curves; of more outputs a band holds most of them
DOTS = 1000


def curves(contents: Contents) -> Raw:
    kept, model = contents.predictions, contents.model
    if kept is None or model is None:
        return Raw("")
    if model.task == "regression":
        return _predicted(kept.scores[:, 0], kept.truth.values)
    inside = kept.truth.signs() > 0
    found = {k: precisions(kept.scores[:, k], inside[:, k]) for k in np.flatnonzero(inside.any(axis=0)).tolist()}
    if not found:
        return Raw("")
    order = sorted(found, key=lambda k: float(found[k].mean()))
    named = {order[0]: ("c2", "worst"), order[len(order) // 2]: ("c3", "middle"), order[-1]: ("c1", "best")}
    lines = [
        Series(f"{word}: {model.outputs[k]}" if len(order) > 1 else model.outputs[k], _points(found[k]), colour)
        for k, (colour, word) in named.items()
    ]
    several = np.array([found[k] for k in order])
    if len(order) > DRAWN:
        low, high = np.quantile(several, [0.1, 0.9], axis=0)
        others = [band(_points(low), _points(high))]
        words = f"The band holds 80 % of the {len(order):,} {noun(model, 2)}."
    else:
        others = [Series("", _points(found[k]), "c5", faint=True) for k in order if k not in named]
        words = f"The thin lines are the other {noun(model, 2)}." if others else ""
    caption = "Precision against recall on the held-out samples"
    axes = Axis("recall", 0.0, 1.0), Axis("precision", 0.0, 1.0)
    chart = line_chart(caption, [*others, *lines], *axes)
    return section("curves", "Precision and recall", chart, paragraph(words) if words else "")


def precisions(scores: Float64, inside: NDArray[np.bool_]) -> Float64:
    """The best precision at each recall of `RECALL` or more; samples of one score come together."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)
    right = np.cumsum(inside[order])[last]
    precision, recall = right / (np.flatnonzero(last) + 1), right / inside.sum()
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return np.asarray(best[np.searchsorted(recall, RECALL - 1e-12)])


def _points(values: Float64) -> list[Point]:
    return [(float(recall), round(float(value), 4)) for recall, value in zip(RECALL, values, strict=True)]


def _predicted(said: Float64, truth: Float64) -> Raw:
    chosen = np.random.default_rng(0).permutation(len(said))[:DOTS]
    dots = Series("", [(float(truth[i]), float(said[i])) for i in np.sort(chosen)], line=False)
    axes = around("true value", truth.tolist()), around("predicted", [*said.tolist(), *truth.tolist()])
    caption = "Predicted against true values of the held-out samples; on the dashed line they agree"
    return section("curves", "Predictions", line_chart(caption, [dots], *axes, diagonal=True))
