"""Working sets: which samples are in a class's compact problem.

A sample outside the set has alpha = 0, which is optimal for it when its margin is at least 1. Sets lose samples only
after the first round, so the compact problem ends up right: at the latest when it holds every sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, Mask


@dataclass(frozen=True)
class WorkingSetOptions:
    """Sizes of the sets, and which margins let samples in and out."""

    whole_up_to: int = 800  # samples: with no more, the set is all of them from the start
    start: int = 300  # random samples of each side to begin with
    growth: float = 1.0  # samples that may be added in a round, as a share of the set
    least_growth: int = 500  # samples that may be added in any case
    enter: float = 1.05  # margins below this enter while there is room
    leave: float = 1.5  # margins above this leave again


OPTIONS = WorkingSetOptions()


def whole(n: int) -> bool:
    """Whether compact problems of n samples hold all of them, and all kernels, from the start."""
    return n <= OPTIONS.whole_up_to


def first_sets(Y: Float64, seed: int) -> Mask:
    """(n, m): the first samples of each side in a seeded random order, which is the same for every class."""
    if whole(len(Y)):
        return np.ones(Y.shape, dtype=bool)
    order = np.random.default_rng(seed).permutation(len(Y))
    masks = np.zeros(Y.shape, dtype=bool)
    for k in range(Y.shape[1]):
        for side in (-1, 1):
            masks[order[Y[order, k] == side][: OPTIONS.start], k] = True
    return masks


def settled_set(support: Mask, margins: Float64) -> Mask:
    """(n,): the set of a class whose margins are known to be nearly right."""
    return np.asarray(support | (margins < OPTIONS.enter)) if not whole(len(margins)) else np.ones(len(margins), bool)


def next_set(working: Mask, support: Mask, margins: Float64, *, drop: bool) -> Mask:
    """(n,): a class's set with the worst violators added; with `drop`, without samples far from the margin."""
    room = max(OPTIONS.least_growth, int(OPTIONS.growth * working.sum()))
    outside = np.flatnonzero(~working & (margins < OPTIONS.enter))
    worst = outside[np.argsort(margins[outside], kind="stable")[:room]]
    result = working.copy()
    if drop and not whole(len(working)):
        result &= support | (margins < OPTIONS.leave)
    result[worst] = True
    return result
