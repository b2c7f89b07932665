"""UCI data, the kernels the papers put on them, and problem A of ../shared/PEERS.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def parts(features: int) -> list[slice]:
    """All features jointly, then each alone."""
    return [slice(None), *(slice(j, j + 1) for j in range(features))]


def bank(X: Float64, widths: Sequence[float] = WIDTHS, degrees: Sequence[int] = DEGREES) -> Float64:
    """Gaussians and polynomials on all features jointly and on each alone, (s, n, n)."""
    kernels = []
    for columns in parts(X.shape[1]):
        kernels += [gaussian(X[:, columns], width) for width in widths]
        kernels += [polynomial(X[:, columns], degree) for degree in degrees]
    return np.array(kernels)


def ionosphere() -> Case:
    """Problem A: 442 kernels on 351 samples."""
    X, y = samples("ionosphere")
    return Case("A ionosphere", bank(standardised(X)), y, C=100 / len(y), optimum=22.1491587710)
