"""Held-out samples opened: what each kernel added to the score that won."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmkl.model import Model, Predictions
from dmkl.model.predictions import mistakes
from dmkl.report.contents import Contents
from dmkl.report.markup import Raw, number, paragraph, percent, section, table, two_sided

FOR_A_CLASS = (
    "What each kernel adds to the score of the answer; with the intercept it adds up to the score. Bars to the right "
    "speak for the answer, bars to the left against it. Chosen in training were the surest right answers, the surest "
    "wrong ones and the least sure."
)
FOR_A_TARGET = (
    "What each kernel adds to the prediction; with the intercept it adds up to it. Chosen in training were the best, "
    "the worst and middling predictions."
)
ASK = "Others are shown by dmkl report RUN --open-sample N; samples and rows are counted from 0."
KERNELS = 6  # with a row each; the others are summed


def samples(contents: Contents) -> Raw:
    kept, model = contents.predictions, contents.model
    if kept is None or model is None or not len(kept.opened.which):
        return Raw("")
    cards = "".join(_card(model, kept, place) for place in range(len(kept.opened.which)))
    words = FOR_A_TARGET if model.task == "regression" else FOR_A_CLASS
    return section(
        "samples", "Reasons for single answers", paragraph(words, ASK), Raw(f'<div class="cards">{cards}</div>')
    )


def _card(model: Model, kept: Predictions, place: int) -> Raw:
    opened, i = kept.opened, int(kept.opened.which[place])
    added = opened.added[place]
    order = np.argsort(-np.abs(added), kind="stable")
    shown = [a for a in order[:KERNELS] if added[a]]
    parts: list[tuple[str, float]] = [(model.bank.kernels[a].name, float(added[a])) for a in shown]
    rest = int((added[order[KERNELS:]] != 0).sum())
    if rest:
        parts.append((f"the other {rest:,}", float(added[order[KERNELS:]].sum())))
    parts.append(("intercept", float(opened.intercept[place])))
    total, largest = sum(value for _, value in parts), max(abs(value) for _, value in parts) or 1.0
    size = sum(abs(value) for _, value in parts) or 1.0
    rows: list[tuple[Any, ...]] = [
        (name, value, percent(abs(value) / size), two_sided(value / largest)) for name, value in parts
    ]
    title = f"Held-out sample {i:,} (row {int(kept.rows[i]):,} of the data): {_said(model, kept, place)}"
    total_words = "prediction" if model.task == "regression" else "score"
    caption = f"{title}; {total_words} {number(total)}"
    return Raw(f'<div class="card">{table(caption, ["kernel", "adds", "share", ""], rows)}</div>')


def _said(model: Model, kept: Predictions, place: int) -> str:
    i = int(kept.opened.which[place])
    if model.task == "regression":
        return f"true value {number(float(kept.truth.values[i]))}"
    winner = kept.opened.winners[place]
    wrong = mistakes(model, kept.scores[[i]], kept.truth.take([i]))[0]
    if model.task == "multilabel":
        real = [name for name, inside in zip(model.classes, kept.truth.values[i], strict=True) if inside]
        has = ", ".join(real[:KERNELS]) + (" ..." if len(real) > KERNELS else "") if real else "no label"
        return f"likeliest label {winner}, has {has}: {'not all labels right' if wrong else 'all labels right'}"
    true = model.classes[int(kept.truth.values[i])]
    return f"said {winner}, is {true}: wrong" if wrong else f"said {winner}, rightly"
