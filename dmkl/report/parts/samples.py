"""Explanations of single held-out samples: what each kernel contributed to the score of the prediction."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl.model import Model, Predictions
from dmkl.model.predictions import mistakes
from dmkl.report.contents import Contents
from dmkl.report.markup import Cell, Section, block, number, paragraph, percent, section, table, two_sided

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
KERNELS = 6  # with a row of their own; the others are summed in one


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
