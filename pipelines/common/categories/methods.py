"""The methods: how each is fitted for increasing C, and how a fit predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from dmkl.problems import Formulation
from pipelines.common.banks import scores_of

VSKLS = {f"VSKL q={q:g}": partial(dmkl.VSKL, q) for q in (1.0, 2.0, 3.0, np.inf)}
L1, SUM, SINGLE, SHARED = "L1MKL", "SVM on the sum", "best single kernel", "SharedMKL"
METHODS: dict[str, Callable[..., Formulation]] = VSKLS | {
    L1: dmkl.L1MKL,
    "LpMKL p=2": partial(dmkl.LpMKL, 2.0),
    SHARED: dmkl.SharedMKL,
    SUM: dmkl.UniformMKL,  # on the average: the same SVM, its C in other units
    SINGLE: dmkl.UniformMKL,
}
INSIDE = 0.99  # of C: below this no sample is at the bound


def fits(stack: dmkl.KernelStack, y: NDArray[Any], method: str, Cs: Sequence[float], tol: float) -> Iterator[dmkl.Fit]:
    """A fit for every C, ascending. Once no alpha is at its bound, every larger C has the same solution."""
    fit, path = None, dmkl.solve_path(stack, y, [METHODS[method](C=C) for C in Cs], tol=tol)
    for C in Cs:
        if fit is None or np.abs(fit.coef).max() >= INSIDE * fit.formulation.C:
            fit = next(path)
            assert fit.formulation.C == C
        yield fit


def predict(fit: dmkl.Fit, K: Sequence[NDArray[np.float32]]) -> NDArray[np.int64]:
    """The class (its number) with the largest one-vs-rest score, for every row of kernels (new, trained on)."""
    return scores_of(fit, K).argmax(axis=1)


def class_accuracy(predicted: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Percentage of correct predictions, averaged over classes; both arrays hold class numbers."""
    right = predicted == truth
    return 100.0 * float(np.mean([right[truth == label].mean() for label in np.unique(truth)]))


def active_kernels(fit: dmkl.Fit) -> float:
    """The number of kernels with more than a thousandth of the largest weight, averaged over classes."""
    weights = np.atleast_2d(fit.weights)
    return float((weights > 1e-3 * weights.max(axis=1, keepdims=True)).sum(axis=1).mean())
