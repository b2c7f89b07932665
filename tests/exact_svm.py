"""An SVM solved to the last digits, so that two implementations of an outer algorithm have the same inner answers.

A solver that is good to seven digits finds which alpha are free; their values then solve a linear system.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from sklearn.svm import SVC

from dmkl.oracles.base import PreparedKernel, SvmResult, checked_kernel, svm_bounds

Vector = NDArray[np.float64]


def exact_alpha(K: Vector, y: Vector, C: float, *, intercept: bool = True) -> Vector:
    """argmax over 0 <= alpha <= C of 1'alpha - 1/2 (alpha y)' K (alpha y), with y'alpha = 0 if there is an intercept.

    K is positive definite, and no optimal alpha is nearly at a bound.
    """
    alpha = libsvm_alpha(K, y, C) if intercept else _by_least_squares(K, y, C)
    free, above = (alpha > 1e-6 * C) & (alpha < (1 - 1e-6) * C), alpha >= (1 - 1e-6) * C
    beta, F = np.where(above, C * y, 0.0), np.flatnonzero(free)
    system, right = K[np.ix_(F, F)], y[F] - K[F] @ beta
    if intercept:
        edge = np.ones((len(F), 1))
        system, right = np.block([[system, edge], [edge.T, np.zeros((1, 1))]]), np.append(right, -beta.sum())
    solved = np.linalg.solve(system, right)
    beta[F] = solved[: len(F)]
    margins = y * (K @ beta + (solved[-1] if intercept else 0.0)) - 1.0
    alpha = beta * y
    assert (margins[~free & ~above] > 0).all()
    assert (margins[above] < 0).all()
    assert ((alpha >= 0) & (alpha <= C)).all()
    return alpha


def libsvm_alpha(K: Vector, y: Vector, C: float) -> Vector:
    """The same with an intercept, to some nine digits."""
    svm = SVC(kernel="precomputed", C=C, tol=1e-9).fit(K, y)
    alpha = np.zeros(len(y))
    alpha[svm.support_] = np.abs(svm.dual_coef_[0])
    return alpha


def _by_least_squares(K: Vector, y: Vector, C: float) -> Vector:
    """1/2 alpha' Q alpha - 1'alpha is 1/2 ||L'alpha - L^-1 1||^2 but for a constant, where Q = LL'."""
    L = np.linalg.cholesky(K * np.outer(y, y))
    found = lsq_linear(L.T, np.linalg.solve(L, np.ones(len(y))), bounds=(0.0, C), method="bvls", tol=1e-15)
    return np.asarray(found.x)


class ExactOracle:
    """`exact_alpha` as an oracle of dmkl."""

    name = "exact"
    supports = frozenset({"no_intercept"})
    copies = False

    def prepare(self, K: Any) -> PreparedKernel:
        return K if isinstance(K, PreparedKernel) else checked_kernel(K)

    def __call__(self, K: Any, y: Vector, upper: Any, *, intercept: bool = True, **others: object) -> SvmResult:
        K, C = K.K if isinstance(K, PreparedKernel) else K, float(np.max(upper))
        alpha = exact_alpha(K, y, C, intercept=intercept)
        scores = K @ (alpha * y)
        primal, dual, b = svm_bounds(alpha * y, scores, y, C, 1.0, intercept)
        return SvmResult(alpha, b, primal, dual, 1, scores)
