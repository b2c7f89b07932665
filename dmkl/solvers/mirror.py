"""Entropic mirror descent over the product of simplices, with the block coordinate oracle of the VSKL paper.

Aflalo et al. (JMLR 2011), Algorithms 1 and 2: minimise G(lambda) = max over (alpha, gamma), one simplex of kernel
weights lambda a group; the oracle alternates the SVM (alpha) and the closed form of gamma. With one kernel a group and
an exponent below 2 (LpMKL) there is nothing to descend on and the weights have a closed step of their own.

Two step rules. `paper` is section 3.2.1, s_t = sqrt(log n_max) / (|G'| sqrt t), with the 1/2 that its update line
drops. `adaptive` moves lambda_a by exp(eta (D_a / max_in_group D - 1)), eta growing while the primal value falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.oracles import ORACLES, least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.sweep import combine, quadratic_forms

MAX_SVM_CALLS = 5000
MAX_BLOCK_STEPS = 20
GROW, CUT = 1.15, 0.5  # of eta, after a fall and after a rise of the primal value
SVM_SHARE = 0.05  # the SVM's tolerance as a share of the gap so far: slacks count C times
LOOSE = 0.1  # the oracle's tolerance as a share of the gap, under the adaptive rule
ORACLE_TOL = 1e-4  # and fixed, under the paper's
NEGLIGIBLE = 1e-12  # weights below this leave for good


@dataclass(frozen=True)
class Mirror:
    """The best weights, the beta they came with, a lower bound with the beta that proves it, and what it took."""

    weights: Float64
    beta: Float64
    dual: float
    proof: Float64
    proof_forms: Float64
    gap: float
    svm_calls: int
    oracle_calls: int


class _Descent:
    """The state of one run on one block."""

    def __init__(self, K: NDArray[Any], y: Float64, C: Float64 | float, norm: MixedNorm, oracle: str) -> None:
        self._K, self._y, self._C, self._norm = K, y, C, norm
        self._svm = ORACLES[oracle]
        self._combined = np.empty(K.shape[1:])
        self.alpha = np.zeros(len(y))
        self.forms = np.zeros(len(K))
        self.primal, self.dual = np.inf, -np.inf
        self.value = np.inf  # primal value of the last point
        self.best = norm.uniform(), np.zeros(len(y))
        self.proof, self.proof_forms = np.zeros(len(y)), np.zeros(len(K))
        self.svm_calls = 0

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual) if self.primal < np.inf else 1.0

    def evaluate(self, weights: Float64) -> None:
        """One SVM at these effective weights, and the bounds its solution gives."""
        combine(self._K, weights, self._combined)
        tol = max(min(SVM_SHARE * self.gap, 1e-2), 1e-13)
        svm = self._svm(self._combined, self._y, self._C, alpha=self.alpha, tol=tol)
        self.svm_calls += 1
        self.alpha, beta = svm.alpha, svm.alpha * self._y
        self.forms = quadratic_forms(self._K, beta)
        penalty = self._norm.regulariser(weights * np.sqrt(self.forms))
        self.value = penalty + least_hinge(svm.scores, self._y, self._C)[0]
        dual = float(svm.alpha.sum()) - self._norm.conjugate(self.forms)
        if dual > self.dual:
            self.dual, self.proof, self.proof_forms = dual, beta, self.forms
        if self.value < self.primal:
            self.primal, self.best = self.value, (weights, beta)

    def result(self, oracle_calls: int) -> Mirror:
        weights, beta = self.best
        calls = self.svm_calls, oracle_calls
        return Mirror(weights, beta, self.dual, self.proof, self.proof_forms, self.gap, *calls)


def solve_mirror(
    K: NDArray[Any],
    y: Float64,
    C: Float64 | float,
    norm: MixedNorm,
    tol: float,
    *,
    oracle: str = "smo",
    rule: str = "adaptive",
    max_calls: int = MAX_SVM_CALLS,
) -> Mirror:
    """Descend on a block K (s, n, n) until its relative gap is at most `tol`."""
    descent = _Descent(K, y, C, norm, oracle)
    if norm.rho > 2:
        return _closed_steps(descent, norm, tol, max_calls)
    groups, sizes = norm.groups, np.bincount(norm.groups)
    lam, sums = (1.0 / sizes)[groups], norm.total(norm.uniform())
    eta, previous, calls = 1.0, np.inf, 0
    while descent.svm_calls < max_calls:
        calls += 1
        exact = ORACLE_TOL if rule == "paper" else max(LOOSE * descent.gap, LOOSE * tol)
        sums = _maximised(descent, norm, lam, sums, exact, tol)
        if descent.gap <= tol:
            break
        if rule == "paper":
            slopes = 0.5 * sums[groups] * descent.forms
            exponent = np.sqrt(np.log(sizes.max()) / calls) * slopes / max(slopes.max(), 1e-300)
        else:
            eta *= CUT if descent.value > previous else GROW
            largest = np.maximum(norm.radii(descent.forms) ** 2, 1e-300)
            exponent = eta * (descent.forms / largest[groups] - 1.0)
        previous = descent.value
        lam = lam * np.exp(exponent - exponent.max())
        lam /= norm.total(lam)[groups]
        lam[lam < NEGLIGIBLE] = 0.0
    return descent.result(calls)


def _maximised(descent: _Descent, norm: MixedNorm, lam: Float64, sums: Float64, exact: float, tol: float) -> Float64:
    """The oracle: alternate alpha (SVM) and gamma (closed form; sums = 1 / gamma) until gamma gains little."""
    for _ in range(MAX_BLOCK_STEPS):
        descent.evaluate(lam * sums[norm.groups])
        totals = np.maximum(norm.total(lam * descent.forms), 1e-300)
        radii = np.sqrt(totals)
        better = norm.slope(radii) / radii
        gain = 0.5 * float(totals @ (sums - better))  # of the inner maximum: what the old gamma gave away
        sums = better
        if gain <= exact * abs(descent.dual) or descent.gap <= tol:
            break
    return sums


def _closed_steps(descent: _Descent, norm: MixedNorm, tol: float, max_calls: int) -> Mirror:
    """d_a <- ||w_a|| / (dR/d||w_a||), which for lp is d ~ ||w||^(2/(p+1)) (Kloft et al., JMLR 2011)."""
    weights = norm.uniform()
    primal = MixedNorm(norm.groups, norm.sigma)
    while descent.svm_calls < max_calls:
        descent.evaluate(weights)
        if descent.gap <= tol:
            break
        norms = np.maximum(weights * np.sqrt(descent.forms), 1e-300)
        weights = norms / primal.slope(norms)
    return descent.result(descent.svm_calls)
