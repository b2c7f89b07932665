"""Cutting compact blocks out of tiles, compiled and without the GIL: half of what a gather costs is this."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit

SQUARE = 64  # columns compared together


@jit()
def cut(rows: NDArray[Any], mine: NDArray[Any], columns: NDArray[Any], out: NDArray[Any], top: int, left: int) -> None:
    """out[top:, left:] = K[mine][:, columns] of a tile K as `loops.rows_of` shows it; eight rows at a time, so that
    memory is asked for the next while one is waited for."""
    height, width = mine.shape[0], columns.shape[0]
    for r in range(0, height - 7, 8):
        a, b, c, d = rows[mine[r]], rows[mine[r + 1]], rows[mine[r + 2]], rows[mine[r + 3]]
        e, f, g, h = rows[mine[r + 4]], rows[mine[r + 5]], rows[mine[r + 6]], rows[mine[r + 7]]
        here = out[top + r : top + r + 8, left : left + width]
        for k in range(width):
            column = columns[k]
            here[0, k], here[1, k], here[2, k], here[3, k] = a[column], b[column], c[column], d[column]
            here[4, k], here[5, k], here[6, k], here[7, k] = e[column], f[column], g[column], h[column]
    for r in range(height - height % 8, height):
        row = rows[mine[r]]
        for k in range(width):
            out[top + r, left + k] = row[columns[k]]


def mirror(layer: NDArray[Any], top: int, bottom: int, left: int, right: int) -> None:
    """A rectangle of a symmetric matrix, rows top to bottom, as columns too; numpy writes row after row, which takes
    half as long as compiled loops in squares."""
    layer[left:right, top:bottom] = layer[top:bottom, left:right].T


@jit(fastmath={"reassoc", "contract"})
def one_sided(kernel: NDArray[Any], probe: NDArray[np.float64], difference: NDArray[np.float64]) -> float:
    """The largest entry of (K - K') probe in size, NaN or infinite if one of K is; K is read once, row after row."""
    n = len(kernel)
    difference[:] = 0.0
    for i in range(n):
        row, own, total = kernel[i], probe[i], 0.0
        for j in range(n):
            value = np.float64(row[j])
            total += value * probe[j]
            difference[j] -= own * value
        difference[i] += total
    worst = 0.0
    for i in range(n):
        if not abs(difference[i]) <= worst:
            worst = abs(difference[i])
            if not worst < np.inf:
                break
    return worst


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
