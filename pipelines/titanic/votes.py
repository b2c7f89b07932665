"""Why the Bad kernel's error is what it is: a vote among equal samples, on any number of realisations.

Titanic has 14 different samples. A Gaussian of width 0.1 is 1 between equal ones and below 1e-19 between others, so
its model says what most training samples of the same kind are, at every lam. Realisations are then counts of kinds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipelines.titanic.samples import Titanic

Counts = NDArray[np.int64]


def kinds(data: Titanic) -> Counts:
    """(2, kinds): how many of each kind survived, and how many did not."""
    _, kind = np.unique(data.X, axis=0, return_inverse=True)
    return np.array([np.bincount(kind[data.y == sign], minlength=kind.max() + 1) for sign in (1, -1)])


def draw(counts: Counts, train: int, number: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Test error % of the vote on so many drawn realisations: kinds with no majority told the commoner class, which is
    the second, and counted as wrong."""
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(counts.ravel(), train, size=number)
    yes, no = drawn.reshape(number, 2, -1).transpose(1, 0, 2)
    left_yes, left_no = counts[0] - yes, counts[1] - no
    told = np.where(yes > no, left_no, left_yes)
    wrong = np.where(yes == no, left_yes + left_no, told)
    share = 100.0 / (counts.sum() - train)
    return told.sum(axis=1) * share, wrong.sum(axis=1) * share
