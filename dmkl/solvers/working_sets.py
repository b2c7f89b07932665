"""Which samples enter a class's compact problem.

A sample outside the set has alpha = 0, which is optimal for it when its margin is at least 1. Sets only grow, so the
compact problem ends up right: at the latest when it holds every sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

START = 300  # random samples of either side to begin with
GROWTH = 0.5  # of the set's size, at most this share is added a round
LEAST_GROWTH = 200
NEAR = 1.05  # margins below this are taken along when there is room

Mask = NDArray[np.bool_]
Float64 = NDArray[np.float64]


def first_sets(Y: Float64, seed: int) -> Mask:
    """For every class the same seeded random order of samples; the first of either side."""
    order = np.random.default_rng(seed).permutation(len(Y))
    masks = np.zeros(Y.shape, dtype=bool)
    for k in range(Y.shape[1]):
        for side in (-1, 1):
            masks[order[Y[order, k] == side][:START], k] = True
    return masks


def grown(working: NDArray[np.bool_], margins: Float64) -> Mask:
    """One class's set with the samples that violate most added; all near ones when they fit."""
    room = max(LEAST_GROWTH, int(GROWTH * working.sum()))
    outside = np.flatnonzero(~working & (margins < NEAR))
    worst = outside[np.argsort(margins[outside], kind="stable")[:room]]
    result = working.copy()
    result[worst] = True
    return result


def batches(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Consecutive positions whose sizes fit in `room` together; one too large is alone, for others to refuse."""
    result: list[list[int]] = []
    used = 0
    for position, size in enumerate(sizes):
        if not result or used + size > room:
            result.append([])
            used = 0
        result[-1].append(position)
        used += size
    return result
