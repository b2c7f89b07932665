"""Ringnorm and splice, and Gaussians of random widths on random subsets of features (SpicyMKL, section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.common.data import data_file

RING_FEATURES = 20
RING_MEAN, RING_DEVIATION = 2 / np.sqrt(RING_FEATURES), 2.0
WIDTH_SCALE, NARROWEST = 5.0, 0.1

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Gaussian:
    """exp(-d^2 / (2 width^2)), d the distance in some columns."""

    columns: NDArray[np.int64]
    width: float

    def matrix(self, X: Float64, Z: Float64) -> Float64:
        X, Z = X[:, self.columns], Z[:, self.columns]
        D = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1) - 2 * (X @ Z.T)
        return np.asarray(np.exp(np.maximum(D, 0.0) * (-0.5 / self.width**2)))


def ringnorm(count: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Class +1 is N(0, 4 I), class -1 N(a, I)."""
    y = rng.choice([-1.0, 1.0], count)
    X = rng.normal(size=(count, RING_FEATURES))
    return np.where(y[:, None] > 0, RING_DEVIATION * X, X + RING_MEAN), y


def splice(count: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Sixty nucleotides around a point, as the numbers 1 to 4."""
    data = np.load(data_file("splice.npz", "IDA splice, keys X (3175, 60) and y in -1, +1"))
    taken = rng.permutation(len(data["y"]))[:count]
    return data["X"][taken].astype(np.float64), data["y"][taken].astype(np.float64)


SOURCES: dict[str, Callable[[int, np.random.Generator], tuple[Float64, Float64]]]
SOURCES = {"ringnorm": ringnorm, "splice": splice}


def gaussians(features: int, count: int, rng: np.random.Generator) -> list[Gaussian]:
    """Any first part of them is a smaller bank."""

    def one() -> Gaussian:
        columns = rng.permutation(features)[: rng.integers(1, features + 1)]
        return Gaussian(np.sort(columns), WIDTH_SCALE * float(rng.chisquare(1)) + NARROWEST)

    return [one() for _ in range(count)]


def stacked(bank: Sequence[Gaussian], X: Float64) -> Float32:
    """Kernels (s, n, n), not scaled: their diagonals are 1. In float32, as a store keeps them."""
    K = np.empty((len(bank), len(X), len(X)), np.float32)
    for a, kernel in enumerate(bank):
        K[a] = kernel.matrix(X, X)
        np.fill_diagonal(K[a], 1.0)
    return K
