"""What is compared: how each method is fitted for growing C, and how a fit predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from dmkl.solvers.problem import Formulation

VSKLS = {f"VSKL q={q:g}": partial(dmkl.VSKL, q) for q in (1.0, 2.0, 3.0, np.inf)}
SINGLE = "best single kernel"
METHODS: dict[str, Callable[..., Formulation]] = VSKLS | {
    "L1MKL": dmkl.L1MKL,
    "average kernel": dmkl.UniformMKL,
    SINGLE: dmkl.UniformMKL,
}
INSIDE = 0.99  # of C: below this no sample is at the bound


def fits(
    stack: dmkl.KernelStack, y: NDArray[Any], method: str, Cs: tuple[float, ...], tol: float
) -> Iterator[dmkl.Fit]:
    """A fit for every C, ascending. Once no alpha is at its bound, every larger C has the same solution."""
    fit, path = None, dmkl.solve_path(stack, y, [METHODS[method](C=C) for C in Cs], tol=tol)
    for C in Cs:
        if fit is None or np.abs(fit.coef).max() >= INSIDE * fit.formulation.C:
            fit = next(path)
            assert fit.formulation.C == C
        yield fit


def predict(fit: dmkl.Fit, K: NDArray[np.float32], test: Any, train: Any) -> NDArray[np.int64]:
    """The class (its number) with the largest one-vs-rest score, for every sample of `test`."""
    weights = np.broadcast_to(np.atleast_2d(fit.weights), (fit.coef_matrix.shape[1], len(K)))
    scores = np.tile(np.asarray(fit.intercept, dtype=np.float64), (len(test), 1))
    for a, kernel in enumerate(K):
        users = np.flatnonzero(weights[:, a])
        if len(users):
            scores[:, users] += kernel[np.ix_(test, train)] @ (fit.coef_matrix[:, users] * weights[users, a])
    return scores.argmax(axis=1)


def class_accuracy(predicted: NDArray[np.int64], y: NDArray[Any]) -> float:
    """Mean over classes of the share that is right; `y` holds numbers of classes."""
    right = predicted == y
    return float(np.mean([right[y == label].mean() for label in np.unique(y)]))


def active_kernels(fit: dmkl.Fit) -> float:
    """How many kernels weigh more than a thousandth of the largest, in the mean over classes."""
    weights = np.atleast_2d(fit.weights)
    return float((weights > 1e-3 * weights.max(axis=1, keepdims=True)).sum(axis=1).mean())
