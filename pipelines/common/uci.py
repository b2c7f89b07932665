"""UCI data, the kernels the papers put on them, and problem A of ../shared/PEERS.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.common.data import data_file

WIDTHS = (0.5, 1, 2, 5, 7, 10, 12, 15, 17, 20)
DEGREES = (1, 2, 3)

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A problem of L1-MKL whose optimum is known, if it is."""

    name: str
    K: Float64  # (s, n, n), of mean diagonal 1
    y: Float64
    C: float
    optimum: float | None = None


def samples(name: str) -> tuple[Float64, Float64]:
    """Features as they are and labels in -1, +1 of liver, pima, ionosphere, wpbc or sonar."""
    data = np.load(data_file(f"{name}.npz", f"UCI {name}, keys X (samples, features) and y in -1, +1"))
    return data["X"].astype(np.float64), data["y"].astype(np.float64)


def standardised(X: Float64) -> Float64:
    """Mean 0 and deviation 1, without constant features."""
    X = X[:, X.std(axis=0) > 0]
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def gaussian(X: Float64, width: float) -> Float64:
    """exp(-d^2 / (2 width^2))."""
    inner = X @ X.T
    norms = np.diag(inner)
    return np.asarray(np.exp(-np.maximum(norms[:, None] + norms - 2 * inner, 0) / (2 * width**2)))


def polynomial(X: Float64, degree: int) -> Float64:
    """(x.z + 1)^degree, scaled to mean diagonal 1."""
    K = (X @ X.T + 1) ** degree
    return np.asarray(K * (len(K) / np.trace(K)))


@dataclass(frozen=True)
class Split:
    """A random part of the samples to train on and the others, in units of the deviations of the first."""

    X: Float64
    y: Float64
    test_X: Float64
    test_y: Float64

    @classmethod
    def draw(cls, name: str, share: float, rng: np.random.Generator) -> Split:
        X, y = samples(name)
        order = rng.permutation(len(y))
        train, test = np.split(order, [round(share * len(y))])
        X = X[:, X[train].std(axis=0) > 0]
        X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
        return cls(X[train], y[train], X[test], y[test])


@dataclass(frozen=True)
class Kernel:
    """A Gaussian of some width, or a polynomial of some degree, on some columns; of mean diagonal 1 over X."""

    function: Callable[[Float64, float], Float64]  # gaussian or polynomial
    columns: slice
    parameter: float

    def matrix(self, X: Float64) -> Float64:
        return self.function(X[:, self.columns], self.parameter)

    def between(self, new: Float64, X: Float64) -> Float64:
        """(new, X)."""
        both = self.function(np.concatenate([X, new])[:, self.columns], self.parameter)
        n = len(X)
        return np.asarray(both[n:, :n] * (n / np.trace(both[:n, :n])))


def kernels(features: int, widths: Sequence[float], degrees: Sequence[int] = DEGREES) -> list[Kernel]:
    """Gaussians and polynomials on all features jointly and on each alone."""
    return [
        Kernel(function, columns, parameter)
        for columns in parts(features)
        for function, parameters in ((gaussian, widths), (polynomial, degrees))
        for parameter in parameters
    ]


def stacked(bank: Sequence[Kernel], X: Float64, dtype: Any = np.float64) -> NDArray[Any]:
    """(s, n, n)."""
    K = np.empty((len(bank), len(X), len(X)), dtype)
    for a, kernel in enumerate(bank):
        K[a] = kernel.matrix(X)
    return K


def parts(features: int) -> list[slice]:
    """All features jointly, then each alone."""
    return [slice(None), *(slice(j, j + 1) for j in range(features))]


def bank(X: Float64, widths: Sequence[float] = WIDTHS, degrees: Sequence[int] = DEGREES) -> Float64:
    """Gaussians and polynomials on all features jointly and on each alone, (s, n, n)."""
    return stacked(kernels(X.shape[1], widths, degrees), X)


def ionosphere() -> Case:
    """Problem A: 442 kernels on 351 samples."""
    X, y = samples("ionosphere")
    return Case("A ionosphere", bank(standardised(X)), y, C=100 / len(y), optimum=22.1491587710)
