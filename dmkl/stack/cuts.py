"""Cutting compact blocks out of tiles, compiled and without the GIL: half of what a gather costs is this."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.jit import jit

SQUARE = 64  # columns compared together
STRIP = 16  # columns mirrored together: a cache line read, as many rows written side by side


@jit()
def cut(tile: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any], out: NDArray[Any]) -> None:
    """out = tile[rows][:, columns]."""
    for r in range(rows.shape[0]):
        for c in range(columns.shape[0]):
            out[r, c] = tile[rows[r], columns[c]]


@jit()
def mirror(block: NDArray[Any], start: int, height: int) -> None:
    """Rows start to start + height of symmetric matrices (layers, r, c), there from the diagonal on, as columns too."""
    layers, width = block.shape[0], block.shape[1]
    for a in range(layers):
        for left in range(start + height, width, STRIP):
            right = min(left + STRIP, width)
            for r in range(start, start + height):
                for c in range(left, right):
                    block[a, c, r] = block[a, r, c]


@jit()
def asymmetry(kernel: NDArray[Any], start: int, stop: int) -> tuple[float, float, int, int]:
    """Of these rows: the largest entry in size, the largest difference from the mirror entry, and where that is."""
    n = len(kernel)
    largest, worst, at, other = 0.0, -1.0, 0, 0
    for left in range(0, n, SQUARE):  # squares, so that both of a pair are in cache
        for i in range(start, stop):
            for j in range(left, min(left + SQUARE, n)):
                value = np.float64(kernel[i, j])
                largest = max(largest, abs(value))
                difference = abs(value - np.float64(kernel[j, i]))
                if difference > worst:
                    worst, at, other = difference, i, j
    return largest, worst, at, other
