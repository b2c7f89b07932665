"""Precision against recall of every class or label; for a regression, predicted against true values."""

from __future__ import annotations

import numpy as np

from dmkl._util.types import Float64, Mask
from dmkl.report.charts import Axis, Point, Series, around, band, line_chart
from dmkl.report.contents import Contents, noun
from dmkl.report.markup import NOTHING, Section, paragraph, section

RECALL = np.linspace(0.0, 1.0, 101)
DRAWN = 30  # faint curves; a band replaces them when there are more outputs
DOTS = 1000  # samples of a regression that are drawn


def curves(contents: Contents) -> Section | None:
    kept, model = contents.predictions, contents.model
    if kept is None or model is None:
        return None
    if model.task == "regression":
        return _predicted(kept.scores[:, 0], kept.truth.values)
    inside = kept.truth.signs() > 0
    found = {k: precisions(kept.scores[:, k], inside[:, k]) for k in np.flatnonzero(inside.any(axis=0)).tolist()}
    if not found:
        return None
    order = sorted(found, key=lambda k: float(found[k].mean()))
    named = {order[0]: ("c2", "worst"), order[len(order) // 2]: ("c3", "median"), order[-1]: ("c1", "best")}
    lines = [
        Series(f"{word}: {model.outputs[k]}" if len(order) > 1 else model.outputs[k], _points(found[k]), colour)
        for k, (colour, word) in named.items()
    ]
    several = np.array([found[k] for k in order])
    if len(order) > DRAWN:
        low, high = np.quantile(several, [0.1, 0.9], axis=0)
        others = [band(_points(low), _points(high))]
        words = f"At every recall, the band contains 80 % of the {len(order):,} {noun(model, 2)}."
    else:
        others = [Series("", _points(found[k]), "c5", faint=True) for k in order if k not in named]
        words = f"The thin lines belong to the other {noun(model, 2)}." if others else ""
    caption = "Precision against recall on the held-out samples"
    axes = Axis("recall", 0.0, 1.0), Axis("precision", 0.0, 1.0)
    chart = line_chart(caption, [*others, *lines], *axes)
    return section("Precision and recall", chart, paragraph(words) if words else NOTHING)


def precisions(scores: Float64, inside: Mask) -> Float64:
    """The best precision at each recall of `RECALL` or above; samples with equal scores are counted together."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)
    right = np.cumsum(inside[order])[last]
    precision, recall = right / (np.flatnonzero(last) + 1), right / inside.sum()
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return np.asarray(best[np.searchsorted(recall, RECALL - 1e-12)])


def _points(values: Float64) -> list[Point]:
    return [(float(recall), round(float(value), 4)) for recall, value in zip(RECALL, values, strict=True)]


def _predicted(predicted: Float64, truth: Float64) -> Section:
    chosen = np.random.default_rng(0).permutation(len(predicted))[:DOTS]
    dots = Series("", [(float(truth[i]), float(predicted[i])) for i in np.sort(chosen)], line=False)
    axes = around("true value", truth.tolist()), around("predicted", [*predicted.tolist(), *truth.tolist()])
    caption = "Predicted against true values of the held-out samples; they are equal on the dashed line"
    return section("Predictions", line_chart(caption, [dots], *axes, diagonal=True))
