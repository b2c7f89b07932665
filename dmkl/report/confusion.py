"""Which classes are taken for which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmkl.report.contents import Contents
from dmkl.report.images import BLUE, ORANGE, levels, picture, shades, shrink
from dmkl.report.markup import Raw, figure, number, paragraph, section, table

CELLS = 12  # classes whose counts are written out
DOTS = 300  # of a picture's side at most
PAIRS = 15


def confusion(contents: Contents) -> Raw:
    kept, model = contents.predictions, contents.model
    if kept is None or model is None or model.task not in ("binary", "multiclass"):
        return Raw("")
    m = len(model.classes)
    counts = np.bincount(m * kept.truth.values + model.predict(kept.scores).values, minlength=m * m).reshape(m, m)
    shown = _written(model.classes, counts) if m <= CELLS else _drawn(counts)
    return section("confusion", "Confusion", shown, _pairs(model.classes, counts))


def _written(classes: tuple[str, ...], counts: NDArray[np.int64]) -> Raw:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [
        (name, *(_cell(int(counts[i, j]), 0.65 * shares[i, j], i == j) for j in range(len(classes))))
        for i, name in enumerate(classes)
    ]
    return Raw(f'<div class="confusion">{table("True class in rows, answer in columns", ["", *classes], rows)}</div>')


def _cell(count: int, opacity: float, right: bool) -> Raw:
    red, green, blue = BLUE if right else ORANGE
    return Raw(
        f'<span style="background:rgba({red},{green},{blue},{opacity:.2f})">{number(count) if count else "·"}</span>'
    )


def _drawn(counts: NDArray[np.int64]) -> Raw:
    """One dot a pair of classes: right ones in one half of the colours, wrong ones in the other."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    right = np.diag(np.diag(shares))
    wrong, right = shrink(np.sqrt(shares - right), DOTS, DOTS), shrink(np.sqrt(right), DOTS, DOTS)  # 1 of 30 is seen
    places = np.where(wrong > right, 128 + levels(wrong) // 2, levels(right) // 2).astype(np.uint8)
    words = (
        f"True classes from top to bottom, answers from left to right, {len(counts):,} of each in the order of their "
        "names. Blue is right, orange is wrong; the stronger, the larger the share of the class."
    )
    return figure(words, picture(places, [*shades(BLUE, 128), *shades(ORANGE, 128)], words, square=True))


def _pairs(classes: tuple[str, ...], counts: NDArray[np.int64]) -> Raw:
    wrong = counts - np.diag(np.diag(counts))
    if not wrong.any():
        return paragraph("Every held-out sample was told rightly.")
    order = np.argsort(-wrong.ravel(), kind="stable")[: min(PAIRS, int((wrong > 0).sum()))]
    places = [divmod(int(place), len(classes)) for place in order]
    rows = [(classes[i], classes[j], int(counts[i, j]), int(counts[i].sum())) for i, j in places]
    return table("Most often confused", ["true class", "taken for", "times", "of"], rows)
