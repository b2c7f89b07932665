"""The three-class problem of the paper's section 5.2: kernels 1 to 3 tell one class from the others, kernel 4 all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import dmkl
from pipelines.common.experiment import Row

EACH = 100  # samples a class
ALONE, APART = 5.0, 7.0  # how far one class is from the others in features 1 to 3, and from the middle in feature 4
TOLD = (2, 0, 1)  # the class that kernels 1, 2 and 3 tell
KERNELS = ("kernel 1", "kernel 2", "kernel 3", "kernel 4")


def kernels(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(4, 300, 300) and the classes: Gaussian clusters in the plane, exp(-d^2 / mean d^2)."""
    rng, y = np.random.default_rng(seed), np.repeat(np.arange(3), EACH)
    angles = np.array([90.0, 210.0, 330.0]) * np.pi / 180
    corners = APART * np.column_stack([np.cos(angles), np.sin(angles)])
    centres = [np.outer(y == told, [ALONE, 0.0]) for told in TOLD] + [corners[y]]
    K = []
    for centre in centres:
        X = centre + rng.normal(size=(len(y), 2))
        distances = ((X[:, None] - X) ** 2).sum(axis=2)
        K.append(np.exp(-distances / distances.mean()))
    return np.array(K), y


def compared(C: float, tol: float, seed: int) -> list[Row]:
    """Weights of one multiclass problem with p = 1.0001, and of L1-MKL of every class against the others."""
    K, y = kernels(seed)
    stack = dmkl.KernelStack.from_array(K, workers=2, memory=10**9)
    joint = dmkl.solve(stack, y, dmkl.Obscure(p=1.0001, C=C), tol=tol)
    apart = dmkl.solve(stack, y, dmkl.L1MKL(C=C), tol=tol)
    named = {"OBSCURE, all classes": joint.weights}
    named |= {f"L1-MKL, class {k + 1}": weights for k, weights in enumerate(apart.weights)}
    paper = [1, 2, 2, 2]
    rows = []
    for (name, weights), kept in zip(named.items(), paper, strict=True):
        share = weights / weights.sum()
        row = {"problem": name, **dict(zip(KERNELS, share.tolist(), strict=True))}
        rows.append(row | {"kernels above 1 %": int((share > 0.01).sum()), "paper": kept})
    return rows
