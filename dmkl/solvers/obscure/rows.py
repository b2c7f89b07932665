"""Dual coordinate ascent on the rows of B for one fixed kernel: a multiclass SVM, or hinges column by column.

    max  sum_i b_i - 1/2 tr B' K B      b_i = B[i, y_i], rows B[i] <= C e_{y_i} and of sum zero (multiclass loss);
                                        b_i = sum_r |B[i, r]|, 0 <= B[i, r] y_ir <= C              (hinge)

A row's problem is solved exactly: for the multiclass loss it is a projection on a simplex (Crammer and Singer 2001).
Scores F = (K B)' are kept for all rows, so that looking at a row costs m and changing it m vectors at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.types import Float64

IDLE = 1e-15  # a change of this share of C is rounding


@jit()
def onto_simplex(v: Float64, total: float, out: Float64) -> None:
    """out = the point nearest to v with entries >= 0 and of this sum (Michelot: drop what is negative, again). Members
    only get fewer: one that is zero up to rounding could come back and leave for ever."""
    m = v.shape[0]
    shift, members = -np.inf, m + 1
    while True:
        count, mass = 0, 0.0
        for r in range(m):
            if v[r] > shift:
                count += 1
                mass += v[r]
        if count >= members or count == 0:
            break
        members = count
        shift = (mass - total) / count
    for r in range(m):
        out[r] = max(v[r] - shift, 0.0)


@jit()
def best_row(
    old: Float64, scores: Float64, own: float, signs: Float64, label: int, C: float, v: Float64, out: Float64
) -> None:
    """out = the best row given all others; `own` is K_ii, `label` the class, or -1 for hinges on `signs`."""
    m = old.shape[0]
    if label < 0:
        for r in range(m):
            alpha = (old[r] + (signs[r] - scores[r]) / own) * signs[r]
            out[r] = signs[r] * min(max(alpha, 0.0), C)
        return
    for r in range(m):
        v[r] = scores[r] / own - old[r]
    v[label] += C - 1.0 / own
    onto_simplex(v, C, out)
    for r in range(m):
        out[r] = -out[r]
    out[label] += C


@jit()
def onto_sets(B: Float64, Y: Float64, labels: NDArray[np.int64], C: float, out: Float64) -> None:
    """out = every row of B put on the nearest point of its set."""
    n, m = B.shape
    v = np.empty(m)
    for i in range(n):
        if labels[i] < 0:
            for r in range(m):
                out[i, r] = Y[i, r] * min(max(B[i, r] * Y[i, r], 0.0), C)
            continue
        for r in range(m):
            v[r] = -B[i, r]
        v[labels[i]] += C
        onto_simplex(v, C, out[i])
        for r in range(m):
            out[i, r] = -out[i, r]
        out[i, labels[i]] += C


@jit(fastmath={"reassoc", "contract"})
def ascend(
    K: NDArray[Any],
    Y: Float64,
    labels: NDArray[np.int64],
    C: float,
    order: NDArray[np.int64],
    B: Float64,
    F: Float64,
) -> int:
    """One exact step on each row of `order`; B (n, m) and F (m, n) are changed. Returns how many rows moved."""
    n, m = B.shape
    v, new, scores, moved = np.empty(m), np.empty(m), np.empty(m), 0
    for i in order:
        own = max(np.float64(K[i, i]), 1e-300)
        for r in range(m):
            scores[r] = F[r, i]
        best_row(B[i], scores, own, Y[i], labels[i], C, v, new)
        changed = False
        for r in range(m):
            step = new[r] - B[i, r]
            if abs(step) > IDLE * C:
                changed = True
                B[i, r] = new[r]
                for j in range(n):
                    F[r, j] += step * K[i, j]
        moved += changed
    return moved
