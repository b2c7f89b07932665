"""Charts as inline SVG, drawn for the width of a phone and scaled up from there, and heat maps as PNG images."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.report.markup import NOTHING, figure, legend, number

WIDTH, HEIGHT = 380, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 36  # room for axes
TICKS = 5
MARKED = 40  # a line with more points is drawn without dots

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """Points joined by a line, in one of the style sheet's colours; faint series are not in the legend."""

    name: str
    points: Sequence[Point]
    colour: str = "c1"
    faint: bool = False
    line: bool = True  # or dots alone


@dataclass(frozen=True)
class Axis:
    """A range of values with its name, linear or logarithmic."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False  # ticks at whole numbers only

    def place(self, value: float) -> float:
        """The position of a value, from 0 at the low end to 1 at the high end."""
        low, high, value = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1, max(1, (last - first + TICKS) // TICKS))]
        rough = max((self.high - self.low) / TICKS or 1.0, 1.0 if self.whole else 0.0)
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def around(name: str, values: Iterable[float], *, log: bool = False, whole: bool = False) -> Axis:
    """An axis that contains all finite values: with a margin, between powers of ten (`log`), or from 0 (`whole`)."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
    low, high = min(finite), max(finite)
    if log:
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return Axis(name, low, high * 10 if high == low else high, log=True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return Axis(name, 0.0, max(high, 1.0), whole=True) if whole else Axis(name, low - room, high + room)


def line_chart(
    caption: str, series: Sequence[Series], x: Axis, y: Axis, *, level: float | None = None, diagonal: bool = False
) -> Markup:
    """Lines over a grid, with a legend if there is more than one. A dashed line is drawn at `level`, or where x = y."""
    parts = [_grid(x, y)]
    if level is not None and y.low <= level <= y.high:
        height = _down(y, level)
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
    if diagonal:
        ends = [(max(x.low, y.low),) * 2, (min(x.high, y.high),) * 2]
        parts.append(f'<polyline class="level" points="{_path(ends, x, y)}"/>')
    parts += [_drawn(line, x, y) for line in series]
    named = [(line.colour, line.name) for line in series if not line.faint]
    return figure(caption, _svg(caption, parts), legend(named) if len(named) > 1 else NOTHING)


def band(low: Sequence[Point], high: Sequence[Point]) -> Series:
    """The area between two lines."""
    return Series("band", [*low, *reversed(high)], faint=True)


def histogram(caption: str, name: str, counted: str, counts: Sequence[int], edges: Sequence[float]) -> Markup:
    """The number of items, named `counted` on the axis, with a value between neighbouring edges."""
    x, y = Axis(name, edges[0], edges[-1]), around(f"number of {counted}", [0.0, *counts], whole=True)
    parts = [_grid(x, y)]
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        left, right, height = _across(x, low), _across(x, high), _down(y, count)
        parts.append(
            f'<rect class="c1" x="{left}" y="{height}" width="{max(1.0, right - left - 1):.1f}" '
            f'height="{HEIGHT - BOTTOM - height:.1f}"/>'
        )
    return figure(caption, _svg(caption, parts))


def _svg(caption: str, parts: Sequence[str]) -> Markup:
    """The pieces, which hold numbers and escaped texts only, as one drawing."""
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, caption, Markup("".join(parts))
    )


def _drawn(line: Series, x: Axis, y: Axis) -> str:
    points = [(a, b) for a, b in line.points if math.isfinite(a) and math.isfinite(b) and (b > 0 or not y.log)]
    if line.name == "band":
        return f'<polygon class="band {line.colour}" points="{_path(points, x, y)}"/>'
    kind = f"faint {line.colour}" if line.faint else line.colour
    drawn = f'<polyline class="{kind}" points="{_path(points, x, y)}"/>' if line.line else ""
    if not line.line or (len(points) <= MARKED and not line.faint):
        size = "2.5" if line.line else "2"
        dots = (f'<circle cx="{_across(x, a)}" cy="{_down(y, b)}" r="{size}"/>' for a, b in points)
        drawn += f'<g class="{line.colour}">{"".join(dots)}</g>'
    return drawn


def _grid(x: Axis, y: Axis) -> str:
    parts = []
    for tick in y.ticks():
        height = _down(y, tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(f'<text class="end" x="{LEFT - 5}" y="{height + 3.5:.1f}">{_tick(tick)}</text>')
    for tick in x.ticks():
        parts.append(f'<text class="mid" x="{_across(x, tick)}" y="{HEIGHT - BOTTOM + 14}">{_tick(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="mid" x="{middle}" y="{HEIGHT - 5}">{escape(x.name)}</text>')
    upright = f"translate(10 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
    parts.append(f'<text class="mid" transform="{upright}">{escape(y.name)}</text>')
    return f'<g class="grid">{"".join(parts)}</g>'


def _tick(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return number(int(value)) if float(value).is_integer() else f"{value:.4g}"


def _path(points: Iterable[Point], x: Axis, y: Axis) -> str:
    return " ".join(f"{_across(x, a)},{_down(y, b)}" for a, b in points)


def _across(axis: Axis, value: float) -> float:
    return round(LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT), 1)


def _down(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM), 1)


Colour = tuple[int, int, int, int]  # red, green, blue, opacity
# visible on light and dark backgrounds, distinct for the colour-blind too
BLUE, ORANGE = (58, 134, 201), (224, 112, 32)
SERIES = (BLUE, ORANGE, (0, 158, 115), (204, 121, 167), (150, 150, 150), (190, 160, 20), (120, 94, 240))  # as c1 ... c7


def shades(colour: tuple[int, int, int], levels: int = 256) -> list[Colour]:
    """Shades from transparent to the colour, so that they suit a light and a dark page."""
    return [(*colour, round(255 * level / (levels - 1))) for level in range(levels)]


def png(places: NDArray[np.uint8], palette: list[Colour]) -> bytes:
    """A PNG file; `places` are positions in the palette."""
    height, width = places.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), places], axis=1)  # each row starts with its filter: none
    colours = bytes(part for colour in palette for part in colour[:3])
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", colours),
            _chunk(b"tRNS", bytes(colour[3] for colour in palette)),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(
    places: NDArray[np.uint8], palette: list[Colour], alt: str, *, height: int = 0, square: bool = False
) -> Markup:
    """A picture as wide as its container, `height` pixels high or square."""
    source = base64.b64encode(png(places, palette)).decode()
    shape = "aspect-ratio:1" if square else f"height:{height}px"
    return Markup('<img class="dots" style="{}" alt="{}" src="data:image/png;base64,{}">').format(shape, alt, source)


def levels(shares: Float64) -> NDArray[np.uint8]:
    """Shares from 0 to 1 as positions among 256 shades."""
    return np.asarray(np.rint(255 * np.clip(shares, 0.0, 1.0)), dtype=np.uint8)


def shrink(values: Float64, rows: int, columns: int) -> Float64:
    """At most `rows` x `columns` values, each the largest of those that it replaces."""
    for axis, most in enumerate((rows, columns)):
        if values.shape[axis] > most:
            starts = np.linspace(0, values.shape[axis], most, endpoint=False).astype(np.int64)
            values = np.maximum.reduceat(values, starts, axis=axis)
    return values
