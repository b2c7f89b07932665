"""Matrices as small pictures inside the page: PNG files of at most 256 colours.

The format is 20 lines with zlib; an image library would be a dependency for nothing else.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dmkl._util.types import Float64

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
