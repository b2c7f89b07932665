"""Cutting compact blocks out of tiles, compiled and without the GIL: half of what a gather costs is this."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.jit import jit

SQUARE = 64  # columns compared together


@jit()
def cut(rows: NDArray[Any], mine: NDArray[Any], columns: NDArray[Any], out: NDArray[Any], top: int, left: int) -> None:
    """out[top:, left:] = K[mine][:, columns] of a tile K as `loops.rows_of` shows it; four rows at a time, so that
    memory is asked for the next while one is waited for."""
    height, width = mine.shape[0], columns.shape[0]
    for r in range(0, height - 3, 4):
        first, second, third, fourth = mine[r], mine[r + 1], mine[r + 2], mine[r + 3]
        for c in range(width):
            column = columns[c]
            out[top + r, left + c] = rows[first, column]
            out[top + r + 1, left + c] = rows[second, column]
            out[top + r + 2, left + c] = rows[third, column]
            out[top + r + 3, left + c] = rows[fourth, column]
    for r in range(height - height % 4, height):
        for c in range(width):
            out[top + r, left + c] = rows[mine[r], columns[c]]


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
