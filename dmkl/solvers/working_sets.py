"""Which samples enter a class's compact problem.

A sample outside the set has alpha = 0, which is optimal for it when its margin is at least 1. Sets lose samples only
after the first round, so the compact problem ends up right: at the latest when it holds every sample.
"""

from __future__ import annotations

import numpy as np

from dmkl._util.types import Float64, Mask
from dmkl.problems.losses import Loss
from dmkl.solvers.problem import Problem

SMALL = 800  # up to so many samples the set is all of them from the start
START = 300  # random samples of either side to begin with
GROWTH = 1.0  # of the set's size, at most this share is added a round
LEAST_GROWTH = 500
NEAR = 1.05  # margins below this are taken along when there is room
FAR = 1.5  # margins above this leave the set again


def whole(n: int) -> bool:
    """Whether compact problems of n samples hold all of them, and all kernels, from the start."""
    return n <= SMALL


def first_sets(Y: Float64, seed: int) -> Mask:
    """For every class the same seeded random order of samples; the first of either side."""
    if whole(len(Y)):
        return np.ones(Y.shape, dtype=bool)
    order = np.random.default_rng(seed).permutation(len(Y))
    masks = np.zeros(Y.shape, dtype=bool)
    for k in range(Y.shape[1]):
        for side in (-1, 1):
            masks[order[Y[order, k] == side][:START], k] = True
    return masks


def first_samples(problem: Problem, loss: Loss) -> Mask:
    """(n, m): all of them, or random ones of either side where the loss lets most of them go."""
    if whole(problem.n) or not loss.sparse:
        return np.ones(problem.Y.shape, dtype=bool)
    return first_sets(np.where(np.median(problem.Y, axis=0) < problem.Y, 1.0, -1.0), problem.seed)


def settled_set(support: Mask, margins: Float64) -> Mask:
    """The set of a class whose margins are known to be nearly right."""
    return np.asarray(support | (margins < NEAR)) if not whole(len(margins)) else np.ones(len(margins), dtype=bool)


def next_set(working: Mask, support: Mask, margins: Float64, *, drop: bool) -> Mask:
    """One class's set with the samples that violate most added; with `drop`, without those far from the margin."""
    room = max(LEAST_GROWTH, int(GROWTH * working.sum()))
    outside = np.flatnonzero(~working & (margins < NEAR))
    worst = outside[np.argsort(margins[outside], kind="stable")[:room]]
    result = working.copy()
    if drop and not whole(len(working)):
        result &= support | (margins < FAR)
    result[worst] = True
    return result
