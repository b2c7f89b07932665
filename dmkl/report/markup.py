"""Pieces of HTML.

`Markup` is markupsafe's: `Markup("<p>{}</p>").format(value)` and `Markup("").join(values)` escape everything that
is not `Markup` already. A name from a file becomes markup only if it is wrapped by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

BARS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7")  # colours of the style sheet, distinct for the colour-blind too
NOTHING = Markup("")


class Figures(str):
    """A number as text; table cells align it to the right as they do numbers."""


Cell = str | float | np.int64 | None


@dataclass(frozen=True)
class Section:
    """What a part of the report returns: a title and the markup below it. A section without markup is left out."""

    title: str
    body: Markup


def section(title: str, *pieces: Markup) -> Section:
    return Section(title, Markup("\n").join(piece for piece in pieces if piece))


def number(value: float | np.int64 | None) -> str:
    """A number in few characters, "-" if it is unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.4g}"


def percent(share: float) -> Figures:
    """'12.3 %', with at least two significant digits."""
    if not share:
        return Figures("0 %")
    return Figures(f"{100 * share:#.2g} %" if abs(share) < 0.0995 else f"{100 * share:.1f} %")


def paragraph(*words: str) -> Markup:
    return Markup("<p>{}</p>").format(Markup(" ").join(words))


def heading(title: str) -> Markup:
    return Markup("<h3>{}</h3>").format(title)


def code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def details(summary: str, *pieces: Markup) -> Markup:
    """A part that is closed at first; it opens without a script."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, NOTHING.join(pieces))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Markup:
    """A table that scrolls in a box of its own; the first cell of a row is its heading."""
    rows = list(rows)
    sides = [_side(value) for value in rows[0]] if rows else [NOTHING] * len(heads)
    sides[:1] = [NOTHING]
    head = NOTHING.join(
        Markup('<th scope="col"{}>{}</th>').format(side, name) for name, side in zip(heads, sides, strict=True)
    )
    body = NOTHING.join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(_shown(row[0]), NOTHING.join(map(_cell, row[1:])))
        for row in rows
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{0}"><table>'
        "<caption>{0}</caption><thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>"
    ).format(caption, head, body)


def _cell(value: Cell) -> Markup:
    return Markup("<td{}>{}</td>").format(_side(value), _shown(value))


def _side(value: Cell) -> Markup:
    return Markup(' class="number"') if isinstance(value, Figures) or not isinstance(value, str) else NOTHING


def _shown(value: Cell) -> str:
    return value if isinstance(value, str) else number(value)


def bar(share: float, colour: str = "c1") -> Markup:
    """A bar from the left. Screen readers skip it, because the number stands beside it."""
    if not share:
        return NOTHING
    return Markup('<span class="bar" aria-hidden="true"><i class="{}" style="width:{:.1f}%"></i></span>').format(
        colour, 100 * share
    )


def two_sided(share: float) -> Markup:
    """A bar from the middle, to the right for positive shares."""
    side, colour = ("left", "c1") if share >= 0 else ("right", "c2")
    return Markup(
        '<span class="bar two" aria-hidden="true"><i class="{}" style="{}:50%;width:{:.1f}%"></i></span>'
    ).format(colour, side, 50 * abs(share))


def legend(names: Iterable[tuple[str, str]]) -> Markup:
    """Colours with the names of what they stand for."""
    items = (Markup('<li><i class="{}" aria-hidden="true"></i>{}</li>').format(*pair) for pair in names)
    return Markup('<ul class="legend">{}</ul>').format(NOTHING.join(items))


def figure(caption: str, *pieces: Markup) -> Markup:
    return Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(NOTHING.join(pieces), caption)


def block(name: str, *pieces: Markup) -> Markup:
    """Pieces in a box with a class of the style sheet."""
    return Markup('<div class="{}">{}</div>').format(name, NOTHING.join(pieces))
