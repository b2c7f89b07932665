"""Which classes are confused with which."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Samples
from dmkl.report.contents import Contents
from dmkl.report.images import BLUE, ORANGE, levels, picture, shades, shrink
from dmkl.report.markup import Section, block, figure, number, paragraph, section, table

CELLS = 12  # classes whose counts are written out
DOTS = 300  # the largest side of a picture
PAIRS = 15  # of confused classes


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
