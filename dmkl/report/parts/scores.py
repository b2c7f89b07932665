"""The scores on held-out samples: beside the baselines, output by output, confusions, curves, and single samples."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Float64, Mask, Samples
from dmkl.model import Model, Predictions, support_per_class
from dmkl.model.predictions import mistakes
from dmkl.report.charts import (
    BLUE,
    ORANGE,
    Axis,
    Point,
    Series,
    around,
    band,
    levels,
    line_chart,
    picture,
    shades,
    shrink,
)
from dmkl.report.markup import (
    NOTHING,
    Cell,
    Figures,
    Section,
    bar,
    block,
    details,
    figure,
    number,
    paragraph,
    percent,
    section,
    table,
    two_sided,
)
from dmkl.report.parts import Contents, metric_title, metric_value, noun

SHOWN = 20  # with more outputs only the worst are visible at first
WORST = 10  # outputs that are visible then
CELLS = 12  # classes whose counts are written out
DOTS = 300  # the largest side of a picture of the counts
PAIRS = 15  # of confused classes
RECALL = np.linspace(0.0, 1.0, 101)  # at which precision is drawn
DRAWN = 30  # faint curves; a band replaces them when there are more outputs
SCATTER_DOTS = 1000  # samples of a regression that are drawn
FOR_A_CLASS = (
    "Each table shows what the kernels contribute to the score of the prediction; together with the intercept the "
    "contributions add up to the score. Bars to the right support the prediction, bars to the left oppose it. By "
    "default, these are the most confident correct predictions, the most confident errors and the least confident "
    "predictions."
)
FOR_A_TARGET = (
    "Each table shows what the kernels contribute to the prediction; together with the intercept the contributions add "
    "up to it. By default, these are the best, the worst and average predictions."
)
OTHERS = "To see others, run dmkl report RUN --open-sample N. Samples and rows are counted from 0."
KERNELS = 6  # with a row of their own in an explanation; the others are summed in one


def score(contents: Contents) -> Section:
    found = contents.score
    if not found:
        if contents.finished:
            return section("Score", paragraph("No samples were held out, so there is no score."))
        return section("Score", paragraph("The model has not been scored yet."))
    rows = [("this model", *_values(found["metrics"]))]
    note = NOTHING
    if "best_single" in found:
        best = found["best_single"]
        rows.append(("average kernel", *_values(found["average"]["metrics"])))
        rows.append((f"best single kernel: {best['kernel']}", *_values(best["metrics"])))
        note = paragraph(
            "The best single kernel was selected on these same held-out samples, so its score is optimistic."
        )
    heads = ["", *(metric_title(name) for name in found["metrics"])]
    return section(
        f"Score on {found['n']:,} held-out samples", table("This model and simpler models", heads, rows), note
    )


def _values(metrics: dict[str, float | None]) -> list[Figures]:
    return [metric_value(name, value) for name, value in metrics.items()]


def outputs(contents: Contents) -> Section | None:
    model = contents.model
    if model is None:
        return None
    heads, rows, order = _rows(contents, model)
    ranking = "lowest average precision" if "average precision" in heads else "largest certified gap"
    words = noun(model, len(rows))
    if len(rows) <= SHOWN:
        return section(words.capitalize(), table(f"All {words}" if len(rows) > 1 else f"The {words}", heads, rows))
    worst = [rows[k] for k in order[:WORST]]
    every = f"All {len(rows):,} {words}"
    return section(
        f"{len(rows):,} {words}",
        table(f"The {WORST} {words} with the {ranking}", heads, worst),
        details(every, table(every, heads, rows)),
    )


def _rows(contents: Contents, model: Model) -> tuple[list[str], list[tuple[Cell, ...]], list[int]]:
    """Heads, rows, and the rows' numbers from the worst to the best."""
    names, about = model.outputs, model.about
    columns: dict[str, list[Cell]] = {}
    precision = {row["class"]: row["average_precision"] for row in contents.score.get("per_class", [])}
    if precision:
        columns["average precision"] = [precision.get(name) for name in names]
        columns[""] = [bar(precision[name]) if precision.get(name) is not None else "" for name in names]
    if contents.predictions is not None and model.task != "regression":
        columns |= _counts(model, contents.predictions)
    columns["support samples"] = list(support_per_class(model))
    columns["kernels used"] = (np.abs(model.weights) > 0).sum(axis=1).tolist()
    if len(about["objective"]) == len(names):  # otherwise the outputs share one objective
        columns |= {"objective": about["objective"], "certified gap": about["gap"]}
    rows = [(name, *(column[k] for column in columns.values())) for k, name in enumerate(names)]
    ranked = [precision.get(name, 2.0) for name in names] if precision else [-gap for gap in about["gap"]]
    return ["", *columns], rows, [int(k) for k in np.argsort(ranked, kind="stable")]


def _counts(model: Model, kept: Predictions) -> dict[str, list[Cell]]:
    """Held-out samples of each output, recall and precision."""
    truth = kept.truth.signs() > 0
    predicted = model.predict(kept.scores).signs() > 0
    right, real, claimed = ((truth & predicted).sum(axis=0), truth.sum(axis=0), predicted.sum(axis=0))
    return {
        "held-out samples": real.tolist(),
        "recall": [float(r / n) if n else None for r, n in zip(right, real, strict=True)],
        "precision": [float(r / n) if n else None for r, n in zip(right, claimed, strict=True)],
    }


def confusion(contents: Contents) -> Section | None:
    kept, model = contents.predictions, contents.model
    if kept is None or model is None or model.task not in ("binary", "multiclass"):
        return None
    m = len(model.classes)
    counts = np.bincount(m * kept.truth.values + model.predict(kept.scores).values, minlength=m * m).reshape(m, m)
    shown = _written(model.classes, counts) if m <= CELLS else _drawn(counts)
    return section("Confusion", shown, _pairs(model.classes, counts))


def _written(classes: tuple[str, ...], counts: Samples) -> Markup:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [
        (name, *(_cell(int(counts[i, j]), 0.65 * shares[i, j], i == j) for j in range(len(classes))))
        for i, name in enumerate(classes)
    ]
    return block("confusion", table("True classes in rows, predicted classes in columns", ["", *classes], rows))


def _cell(count: int, opacity: float, right: bool) -> Markup:
    red, green, blue = BLUE if right else ORANGE
    return Markup('<span style="background:rgba({},{},{},{:.2f})">{}</span>').format(
        red, green, blue, opacity, number(count) if count else "·"
    )


def _drawn(counts: Samples) -> Markup:
    """One dot a pair of classes: the palette has one half for correct predictions, one for errors."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    right = np.diag(np.diag(shares))
    wrong, right = (
        shrink(np.sqrt(shares - right), DOTS, DOTS),
        shrink(np.sqrt(right), DOTS, DOTS),
    )  # the root keeps rare errors visible
    places = np.where(wrong > right, 128 + levels(wrong) // 2, levels(right) // 2).astype(np.uint8)
    words = (
        f"True classes from top to bottom, predicted classes from left to right, {len(counts):,} of each in the order "
        "of their names. Blue marks correct predictions, orange marks errors; a stronger colour means a larger share "
        "of the true class."
    )
    return figure(words, picture(places, [*shades(BLUE, 128), *shades(ORANGE, 128)], words, square=True))


def _pairs(classes: tuple[str, ...], counts: Samples) -> Markup:
    wrong = counts - np.diag(np.diag(counts))
    if not wrong.any():
        return paragraph("Every held-out sample was classified correctly.")
    order = np.argsort(-wrong.ravel(), kind="stable")[: min(PAIRS, int((wrong > 0).sum()))]
    places = [divmod(int(place), len(classes)) for place in order]
    rows = [(classes[i], classes[j], int(counts[i, j]), int(counts[i].sum())) for i, j in places]
    return table("Most often confused", ["true class", "predicted as", "samples", "of"], rows)


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
    chosen = np.random.default_rng(0).permutation(len(predicted))[:SCATTER_DOTS]
    dots = Series("", [(float(truth[i]), float(predicted[i])) for i in np.sort(chosen)], line=False)
    axes = around("true value", truth.tolist()), around("predicted", [*predicted.tolist(), *truth.tolist()])
    caption = "Predicted against true values of the held-out samples; they are equal on the dashed line"
    return section("Predictions", line_chart(caption, [dots], *axes, diagonal=True))


def samples(contents: Contents) -> Section | None:
    kept, model = contents.predictions, contents.model
    if kept is None or model is None or not len(kept.explained.samples):
        return None
    cards = [_card(model, kept, place) for place in range(len(kept.explained.samples))]
    words = FOR_A_TARGET if model.task == "regression" else FOR_A_CLASS
    return section("Explanations of single predictions", paragraph(words, OTHERS), block("cards", *cards))


def _card(model: Model, kept: Predictions, place: int) -> Markup:
    explained, i = kept.explained, int(kept.explained.samples[place])
    added = explained.contributions[place]
    order = np.argsort(-np.abs(added), kind="stable")
    shown = [a for a in order[:KERNELS] if added[a]]
    parts: list[tuple[str, float]] = [(model.bank.kernels[a].name, float(added[a])) for a in shown]
    rest = int((added[order[KERNELS:]] != 0).sum())
    if rest:
        parts.append(
            (f"the other {rest:,} kernels" if rest > 1 else "the other kernel", float(added[order[KERNELS:]].sum()))
        )
    parts.append(("intercept", float(explained.intercept[place])))
    total, largest = sum(value for _, value in parts), max(abs(value) for _, value in parts) or 1.0
    size = sum(abs(value) for _, value in parts) or 1.0
    rows: list[tuple[Cell, ...]] = [
        (name, value, percent(abs(value) / size), two_sided(value / largest)) for name, value in parts
    ]
    title = f"Held-out sample {i:,} (row {int(kept.rows[i]):,} of the data): {_outcome(model, kept, place)}"
    total_words = "prediction" if model.task == "regression" else "score"
    caption = f"{title}; {total_words} {number(total)}"
    return block("card", table(caption, ["kernel", "contribution", "share", ""], rows))


def _outcome(model: Model, kept: Predictions, place: int) -> str:
    i = int(kept.explained.samples[place])
    if model.task == "regression":
        return f"true value {number(float(kept.truth.values[i]))}"
    output = kept.explained.outputs[place]
    wrong = mistakes(model, kept.scores[[i]], kept.truth.take([i]))[0]
    if model.task == "multilabel":
        real = [name for name, inside in zip(model.classes, kept.truth.values[i], strict=True) if inside]
        labels = ", ".join(real[:KERNELS]) + (" ..." if len(real) > KERNELS else "") if real else "none"
        verdict = "not all labels predicted correctly" if wrong else "all labels predicted correctly"
        return f"highest-scoring label: {output}, true labels: {labels} ({verdict})"
    true = model.classes[int(kept.truth.values[i])]
    return f"predicted {output}, true class: {true} (wrong)" if wrong else f"predicted {output} (correct)"
