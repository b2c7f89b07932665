"""Matrices as small pictures inside the page: PNG files of at most 256 colours, written by hand."""

from __future__ import annotations

import base64
import html
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from dmkl.report.markup import Raw

Colour = tuple[int, int, int, int]  # red, green, blue, opacity
BLUE, ORANGE = (58, 134, 201), (224, 112, 32)  # seen on light and dark ground, by the colour-blind too
SERIES = (BLUE, ORANGE, (0, 158, 115), (204, 121, 167), (150, 150, 150), (190, 160, 20), (120, 94, 240))  # as c1 ... c7


def shades(colour: tuple[int, int, int], levels: int = 256) -> list[Colour]:
    """From nothing to the colour: the ground of the page, light or dark, shows through."""
    return [(*colour, round(255 * level / (levels - 1))) for level in range(levels)]


def png(places: NDArray[np.uint8], palette: list[Colour]) -> bytes:
    """A picture whose dots are places in the palette."""
    height, width = places.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), places], axis=1)  # no filter in front of every row
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
) -> Raw:
    """The picture as wide as there is room, `height` pixels high or square."""
    source = base64.b64encode(png(places, palette)).decode()
    shape = "aspect-ratio:1" if square else f"height:{height}px"
    return Raw(f'<img class="dots" style="{shape}" alt="{html.escape(alt)}" src="data:image/png;base64,{source}">')


def levels(shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Shares from 0 to 1 as places among 256 shades."""
    return np.asarray(np.rint(255 * np.clip(shares, 0.0, 1.0)), dtype=np.uint8)


def shrink(values: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """At most so many rows and columns, each the largest of its neighbours."""
    for axis, most in enumerate((rows, columns)):
        if values.shape[axis] > most:
            starts = np.linspace(0, values.shape[axis], most, endpoint=False).astype(np.int64)
            values = np.maximum.reduceat(values, starts, axis=axis)
    return values
