"""Pieces of HTML. Every text that comes from outside is escaped here and nowhere else."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

BARS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7")  # colours of the style sheet, told apart by the colour-blind too


class Raw(str):
    """Markup of our own."""


class Figures(str):
    """A number that is written out already; in tables it stands where numbers do."""


def text(value: Any) -> str:
    """A value as text that cannot be taken for markup; markup of our own as it is."""
    return value if isinstance(value, Raw) else html.escape(str(value))


def number(value: Any) -> str:
    """A number in few characters; a dash for what is not known."""
    if value is None or (isinstance(value, float | np.floating) and not math.isfinite(value)):
        return "-"
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.4g}"


def percent(share: float) -> Figures:
    """'12.3 %': two digits at least."""
    if not share:
        return Figures("0 %")
    return Figures(f"{100 * share:#.2g} %" if abs(share) < 0.0995 else f"{100 * share:.1f} %")


def section(identity: str, title: str, *parts: str) -> Raw:
    """A part of the page with its heading; nothing when there is nothing to say."""
    body = "\n".join(part for part in parts if part)
    return Raw(f'<section id="{identity}"><h2>{text(title)}</h2>\n{body}\n</section>') if body else Raw("")


def paragraph(*words: Any) -> Raw:
    return Raw(f"<p>{' '.join(map(text, words))}</p>")


def heading(title: str) -> Raw:
    return Raw(f"<h3>{text(title)}</h3>")


def details(summary: str, *parts: str) -> Raw:
    """What few want to see: closed at first, and there without any script."""
    return Raw(f"<details><summary>{text(summary)}</summary>{''.join(parts)}</details>")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Raw:
    """A table that scrolls in a box of its own; the first cell of a row is its heading."""
    rows = list(rows)
    sides = [_side(value) for value in rows[0]] if rows else [""] * len(heads)
    sides[:1] = [""]
    head = "".join(f'<th scope="col"{side}>{text(name)}</th>' for name, side in zip(heads, sides, strict=True))
    body = "".join(f'<tr><th scope="row">{_shown(row[0])}</th>{"".join(map(_cell, row[1:]))}</tr>' for row in rows)
    return Raw(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    return f"<td{_side(value)}>{_shown(value)}</td>"


def _side(value: Any) -> str:
    """Numbers stand to the right."""
    return ' class="number"' if isinstance(value, Figures) or not isinstance(value, str) else ""


def _shown(value: Any) -> str:
    return text(value) if isinstance(value, str) else number(value)


def bar(share: float, colour: str = "c1") -> Raw:
    """A bar from the left; the number stands beside it, so readers aloud pass over it."""
    if not share:
        return Raw("")
    return Raw(f'<span class="bar" aria-hidden="true"><i class="{colour}" style="width:{100 * share:.1f}%"></i></span>')


def two_sided(share: float) -> Raw:
    """A bar from the middle, to the right for positive shares."""
    width = 50 * abs(share)
    side = f"left:50%;width:{width:.1f}%" if share >= 0 else f"right:50%;width:{width:.1f}%"
    colour = "c1" if share >= 0 else "c2"
    return Raw(f'<span class="bar two" aria-hidden="true"><i class="{colour}" style="{side}"></i></span>')


def legend(names: Iterable[tuple[str, str]]) -> Raw:
    """Colours with what they stand for."""
    items = "".join(f'<li><i class="{colour}" aria-hidden="true"></i>{text(name)}</li>' for colour, name in names)
    return Raw(f'<ul class="legend">{items}</ul>')


def figure(caption: str, *parts: str) -> Raw:
    return Raw(f"<figure>{''.join(parts)}<figcaption>{text(caption)}</figcaption></figure>")
