"""The search of `dmkl tune`: the points that were tried, and their drawing."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Table
from dmkl.report.markup import NOTHING, Section, figure, paragraph, section, table
from dmkl.report.parts import Contents, metric_title
from dmkl.solvers import describe
from dmkl.tuning import Tuned
from dmkl.tuning.search import SEARCHED
from dmkl.tuning.selection import PointScore

SHOWN = 100  # points, the best first
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 200, 24, 48
COLOURS = ("#3b82c4", "#d97706", "#059669", "#b91c1c", "#7c3aed", "#0891b2", "#a16207", "#be185d")


def tuning(contents: Contents) -> Section | None:
    found = contents.tuning
    if not found:
        return None
    words = (
        f"{len(found['table']):,} points were compared by {metric_title(found['metric'])} in {found['folds']}-fold "
        f"cross-validation. The rule “{found['rule']}” chose {found['table'][found['chosen']]['point']}."
    )
    drawn = _drawing(contents.tuning_drawing) if contents.tuning_drawing else NOTHING
    return section("Tuning", paragraph(words), drawn, _table(found))


def _table(found: Table) -> Markup:
    sign = 1.0 if found.get("larger_is_better", True) else -1.0  # runs of older versions lack it: larger was better
    # the best mean first, points without a mean last
    ranked = sorted(enumerate(found["table"]), key=lambda e: (e[1]["mean"] is None, -sign * (e[1]["mean"] or 0.0)))
    rows = ranked[:SHOWN]
    names = [name for name in found["table"][0] if all(isinstance(row[name], int | float | None) for _, row in rows)]
    listed = [
        (row["point"], *(row[name] for name in names), "chosen" if place == found["chosen"] else "")
        for place, row in rows
    ]
    points = len(found["table"])
    caption = "All points" if points <= SHOWN else f"The best {SHOWN} of {points:,} points"
    return table(caption, ["point", *(name.replace("_", " ") for name in names), ""], listed)


def _drawing(svg: str) -> Markup:
    """The drawing as an image, so that nothing inside the file runs or is fetched."""
    source = base64.b64encode(svg.encode()).decode()
    alt = "mean scores of the points with their standard errors"
    image = Markup('<img class="drawing" alt="{}" src="data:image/svg+xml;base64,{}">').format(alt, source)
    return figure("Mean scores in cross-validation", image)


def draw_tuning(tuned: Tuned) -> str:
    """A complete SVG file; the values of the constant are equally spaced."""
    axis = _axis(tuned.rows)
    places = sorted({_value(row, axis) for row in tuned.rows})
    low = min(row.mean - row.se for row in tuned.rows)
    high = max(row.mean + row.se for row in tuned.rows)
    margin = 0.05 * (high - low) or 0.01
    low, high = low - margin, high + margin

    def x(row: PointScore) -> float:
        return LEFT + (places.index(_value(row, axis)) + 0.5) * (WIDTH - LEFT - RIGHT) / len(places)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 15, metric_title(tuned.metric)), _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, axis)]
    for value in np.linspace(low, high, 5):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#8884"/>')
        parts.append(_text(LEFT - 8, y(value) + 4, f"{value:.3f}", anchor="end"))
    for place, value in enumerate(places):
        at = LEFT + (place + 0.5) * (WIDTH - LEFT - RIGHT) / len(places)
        parts.append(_text(at, HEIGHT - BOTTOM + 18, f"{value:g}", anchor="middle"))
    for number, (name, rows) in enumerate(_lines(tuned.rows, axis).items()):
        colour = COLOURS[number % len(COLOURS)]
        rows = sorted(rows, key=lambda row: _value(row, axis))
        points = " ".join(f"{x(row):.1f},{y(row.mean):.1f}" for row in rows)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for row in rows:
            ends = f'y1="{y(row.mean - row.se):.1f}" y2="{y(row.mean + row.se):.1f}"'
            parts.append(f'<line x1="{x(row):.1f}" x2="{x(row):.1f}" {ends} stroke="{colour}" stroke-opacity="0.5"/>')
            parts.append(f'<circle cx="{x(row):.1f}" cy="{y(row.mean):.1f}" r="2.5" fill="{colour}"/>')
        if TOP + 18 * number < HEIGHT - BOTTOM:
            parts.append(_text(WIDTH - RIGHT + 16, TOP + 18 * number + 4, name, colour=colour))
    chosen = tuned.rows[tuned.chosen]
    parts.append(f'<circle cx="{x(chosen):.1f}" cy="{y(chosen.mean):.1f}" r="7" fill="none" stroke="currentColor"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">'
        f"<title>{html.escape(metric_title(tuned.metric))} in cross-validation; a circle marks the chosen point</title>"
        + "".join(parts)
        + "</svg>\n"
    )


def _axis(rows: Sequence[PointScore]) -> str:
    """The constant on the horizontal axis: the first that varies, preferably one that every formulation has."""
    varied = [name for name in SEARCHED if len({_value(row, name) for row in rows}) > 1]
    shared = [name for name in varied if all(hasattr(row.formulation, name) for row in rows)]
    return (shared or varied or ["C"])[0]


def _value(row: PointScore, axis: str) -> float:
    value = getattr(row.formulation, axis, None)
    return float(value) if value is not None else 0.0


def _lines(rows: Sequence[PointScore], axis: str) -> dict[str, list[PointScore]]:
    """Rows that differ only in the constant of the axis, by the rest of their description."""
    lines: dict[str, list[PointScore]] = {}
    for row in rows:
        lines.setdefault(describe(row.formulation, without=axis), []).append(row)
    return lines


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "currentColor") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'
