"""Titanic as the IDA benchmark has it, and the Good, the Bad and the Ugly kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

import dmkl
from pipelines.common.data import data_file

Float64 = NDArray[np.float64]
LINEAR, CONSTANT = "linear", "constant"
WAYS = ("exp(-d^2 / (2 w^2))", "exp(-d^2 / w)", "exp(-w d^2)")  # what a Gaussian of width w may be
BAD, UGLY = 0.1, 100.0


@dataclass(frozen=True)
class Titanic:
    X: Float64  # class, age and sex, scaled
    y: NDArray[np.int64]
    splits: NDArray[np.int64]  # rows of training samples

    def parts(self, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Training and test samples."""
        train = self.splits[split]
        return train, np.setdiff1d(np.arange(len(self.y)), train)


@cache
def titanic() -> Titanic:
    found = np.load(data_file("titanic.npz", "the IDA benchmark's 2,201 rows and 100 splits; see ../shared/DATA.md"))
    return Titanic(found["X"].astype(np.float64), found["y"].astype(np.int64), found["train_idx"].astype(np.int64))


def kernel(name: str, X: Float64, Z: Float64) -> Float64:
    """(len(X), len(Z)): linear, constant, or "0.1 exp(-d^2 / w)", a width and what it means."""
    if name == LINEAR:
        return np.asarray(X @ Z.T)
    if name == CONSTANT:
        return np.ones((len(X), len(Z)))
    width, way = name.split(" ", 1)
    w = float(width)
    d2 = ((X[:, None] - Z) ** 2).sum(axis=2)  # zero between equal samples, whatever the rounding
    return np.asarray(np.exp(-d2 * {WAYS[0]: 0.5 / w**2, WAYS[1]: 1 / w, WAYS[2]: w}[way]))


def kernels(names: Sequence[str], X: Float64, Z: Float64) -> Float64:
    return np.array([kernel(name, X, Z) for name in names])


THREE = (LINEAR, f"{BAD} {WAYS[0]}", f"{UGLY} {WAYS[0]}")


def path(K: Float64, y: NDArray[np.int64], norm: str, lams: Float64, tol: float) -> list[dmkl.Fit]:
    """Fits for every lam, from the largest on."""
    stack = dmkl.KernelStack.from_array(K, workers=1)
    return list(dmkl.solve_path(stack, y, [dmkl.MIKL(norm, float(lam)) for lam in lams], tol=tol))


def scores(K: Float64, fit: dmkl.Fit) -> Float64:
    """Of new samples: K (s, training, new)."""
    return np.asarray(np.einsum("aij,ia->j", K, fit.coef))


def error(found: Float64, y: NDArray[np.int64]) -> float:
    """Percent of wrong signs."""
    return 100.0 * float(((found > 0) != (y > 0)).mean())
