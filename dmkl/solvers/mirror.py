"""Entropic mirror descent over the product of simplices, with the block coordinate oracle of the VSKL paper.

Aflalo et al. (JMLR 2011), Algorithms 1 and 2: minimise G(lambda) = max over (alpha, gamma), one simplex of kernel
weights lambda for each group; the oracle alternates the SVM (alpha) and the closed form of gamma. With an exponent
across groups below 2 (LpMKL, VSKL with q < 1) the problem is a minimum over the weights too, and they have a closed
step: the SVM and the weights in turn, which the paper calls the wrapper approach.

There are two step rules. `paper` is section 3.2.1, s_t = A sqrt(log n_max) / (|G'| sqrt t), with the 1/2 that its
update line drops. `adaptive` moves lambda_a by exp(eta (D_a / max_in_group D - 1)); eta grows while the primal value
falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray
from dmkl.oracles import ORACLES, least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.automatic import Hopeless
from dmkl.solvers.certificate import CertifiedWeights, relative_gap
from dmkl.solvers.kernel_operators import combine, quadratic_forms


@dataclass(frozen=True)
class MirrorOptions:
    """Constants of the method."""

    rule: str = "adaptive"  # or "paper",
    step: float = 1.0  # whose constant A is this
    max_svm_calls: int = 5000
    patience: int = 100  # SVMs that leave more than `progress` of the gap, before the method gives up
    progress: float = 0.99
    max_block_steps: int = 20  # of the oracle, in one call
    grow: float = 1.15  # of eta, after a fall of the primal value
    cut: float = 0.5  # and after a rise
    svm_share: float = 0.05  # the SVM's tolerance as a share of the gap so far: its slacks count C times
    loose: float = 0.1  # the oracle's tolerance as a share of the gap, under the adaptive rule
    svm_steps: int = 1000  # of the SVM, a sample: weights of 1e6 and low rank would take any number
    oracle_tol: float = 1e-4  # and fixed, under the paper's
    negligible: float = 1e-12  # weights below this become zero for good
    flat: float = 1e-16  # sums of forms of a group are taken for this share of the largest at least


OPTIONS = MirrorOptions()


@dataclass(frozen=True)
class MirrorSolution(CertifiedWeights):
    """The best weights and the best lower bound that the method met."""

    gap: float = 1.0  # relative, on the block


@dataclass(frozen=True)
class MirrorIterate:
    """A point of the descent with the oracle's answer there."""

    lam: Float64  # (s,): the weights inside the groups, which sum to 1 in each
    sums: Float64  # (groups,): 1 / gamma
    alpha: Float64  # (n,)


class _Descent:
    """The state of one run on one block."""

    def __init__(
        self,
        K: FloatArray,
        y: Float64,
        C: Float64 | float,
        norm: MixedNorm,
        oracle: str,
        options: MirrorOptions,
        hopeless: Hopeless | None,
    ) -> None:
        self._K, self._y, self._C, self._norm = K, y, C, norm
        self._svm, self._hopeless, self.given_up = ORACLES[oracle], hopeless, False
        self.options = options
        self._combined = np.empty(K.shape[1:])
        self.alpha = np.zeros(len(y))
        self.forms = np.zeros(len(K))
        self.primal, self.dual = np.inf, -np.inf
        self.value = np.inf  # the primal value of the last point
        self.best = norm.uniform(), np.zeros(len(y))
        self.proof, self.proof_forms = np.zeros(len(y)), np.zeros(len(K))
        self.svm_calls = 0
        self._reached, self._since = np.inf, 0  # the gap when it last fell, and the number of SVMs then

    @property
    def ended(self) -> bool:
        """Whether SVMs are used up, nothing was gained for long, or the caller has given up hope."""
        if self.gap < self.options.progress * self._reached:
            self._reached, self._since = self.gap, self.svm_calls
        last = min(self.options.max_svm_calls, self._since + self.options.patience)
        return self.given_up or self.svm_calls >= last

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual) if self.primal < np.inf else 1.0

    def evaluate(self, weights: Float64) -> None:
        """One SVM at these effective weights, and the bounds that its solution gives."""
        combine(self._K, weights, self._combined)
        tol = max(min(self.options.svm_share * self.gap, 1e-2), 1e-13)
        steps = self.options.svm_steps * len(self._y)
        svm = self._svm(self._combined, self._y, self._C, alpha=self.alpha, tol=tol, max_steps=steps)
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
        self.given_up = self._hopeless is not None and self._hopeless(self.gap, svm.steps)

    def solution(self, oracle_calls: int) -> MirrorSolution:
        weights, beta = self.best
        return MirrorSolution(
            weights,
            beta,
            self.dual,
            self.proof,
            self.proof_forms,
            self.gap,
            svm_calls=self.svm_calls,
            oracle_calls=oracle_calls,
        )


def solve_mirror(
    K: FloatArray,
    y: Float64,
    C: Float64 | float,
    norm: MixedNorm,
    tol: float,
    oracle: str = "smo",
    options: MirrorOptions | None = None,
    hopeless: Hopeless | None = None,
    watch: Callable[[MirrorIterate], None] | None = None,
) -> MirrorSolution:
    """Descend on all kernels of a block.

    Parameters
    ----------
    K : array (s, n, n)
        The kernels over the samples of the block.
    y : array (n,)
        Signs -1/+1.
    C : float or array (n,)
        Bounds of alpha.
    norm : MixedNorm
        The regulariser of these kernels.
    tol : float
        The relative gap to reach on the block.
    oracle : str
        The SVM oracle.
    options : MirrorOptions, optional
        The step rule and the constants of the method.
    hopeless : callable, optional
        Is told the gap after every SVM and the SVM's steps, and says whether to give up.
    watch : callable, optional
        Is shown every iterate of mirror descent.

    Returns
    -------
    MirrorSolution
        With a gap of `tol`, or after as many SVMs as options and time allow.
    """
    options = options or OPTIONS
    descent = _Descent(K, y, C, norm, oracle, options, hopeless)
    if norm.rho > 2:
        return _closed_steps(descent, norm, tol)
    groups, sizes = norm.groups, np.bincount(norm.groups)
    lam, sums = (1.0 / sizes)[groups], norm.total(norm.uniform())
    eta, previous, calls = 1.0, np.inf, 0
    while not descent.ended:
        calls += 1
        adaptive = max(options.loose * descent.gap, options.loose * tol)
        exact = options.oracle_tol if options.rule == "paper" else adaptive
        sums = _maximised(descent, norm, lam, sums, exact, tol)
        if watch is not None:
            watch(MirrorIterate(lam, sums, descent.alpha))
        if descent.gap <= tol or must_stop():
            break
        if options.rule == "paper":
            slopes = 0.5 * sums[groups] * descent.forms
            exponent = options.step * np.sqrt(np.log(sizes.max()) / calls) * slopes / max(slopes.max(), 1e-300)
        else:
            eta *= options.cut if descent.value > previous else options.grow
            largest = np.maximum(norm.radii(descent.forms) ** 2, 1e-300)
            exponent = eta * (descent.forms / largest[groups] - 1.0)
        previous = descent.value
        lam = lam * np.exp(exponent - _largest_of_group(norm, exponent, lam)[groups])
        lam /= norm.total(lam)[groups]
        lam[lam < options.negligible] = 0.0
    return descent.solution(calls)


def _largest_of_group(norm: MixedNorm, exponent: Float64, lam: Float64) -> Float64:
    """The largest exponent of each group's kernels with weight: one of their new weights at least is not zero."""
    largest = np.full(norm.count, -np.inf)
    np.maximum.at(largest, norm.groups[lam > 0], exponent[lam > 0])
    return largest


def _maximised(descent: _Descent, norm: MixedNorm, lam: Float64, sums: Float64, exact: float, tol: float) -> Float64:
    """The oracle: alternate alpha (SVM) and gamma (closed form; sums = 1 / gamma) until gamma gains little."""
    for _ in range(descent.options.max_block_steps):
        descent.evaluate(lam * sums[norm.groups])
        totals = norm.total(lam * descent.forms)
        radii = np.sqrt(np.maximum(totals, max(descent.options.flat * totals.max(), 1e-300)))
        better = norm.slope(radii) / radii
        gain = 0.5 * float(totals @ (sums - better))  # of the inner maximum, by the better gamma
        sums = better
        if gain <= exact * abs(descent.dual) or descent.gap <= tol or descent.given_up or must_stop():
            break
    return sums


def _closed_steps(descent: _Descent, norm: MixedNorm, tol: float) -> MirrorSolution:
    """theta_a <- ||w_a|| / (dR/d||w_a||), which for lp is d ~ ||w||^(2/(p+1)) (Kloft et al., JMLR 2011)."""
    weights = norm.uniform()
    primal = MixedNorm(norm.groups, norm.sigma)
    while not descent.ended:
        descent.evaluate(weights)
        if descent.gap <= tol or must_stop():
            break
        norms = np.maximum(weights * np.sqrt(descent.forms), 1e-300)
        weights = norms / primal.slope(norm.total(norms))[norm.groups]
    return descent.solution(descent.svm_calls)
