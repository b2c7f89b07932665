"""Entropic mirror descent over the product of simplices, with the block coordinate oracle of the VSKL paper.

Aflalo et al. (JMLR 2011), Algorithms 1 and 2: minimise G(lambda) = max over (alpha, gamma), one simplex of kernel
weights lambda for each group; the oracle alternates the SVM (alpha) and the closed form of gamma. With an exponent
across groups below 2 (LpMKL, VSKL with q < 1) the problem is a minimum over the weights too, and they have a closed
step: the SVM and the weights in turn, which the paper calls the wrapper approach.

There are two step rules. `paper` is section 3.2.1, s_t = A sqrt(log n_max) / (|G'| sqrt t), with the 1/2 that its
update line drops. `adaptive` moves lambda_a by exp(eta (D_a / max_in_group D - 1)); eta grows while the primal value
falls.

The kernels are a block in memory, or the stack itself (`StreamedKernels`): then an SVM takes two passes, one for the
combined matrix and one for the products of all kernels with its coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Array, Float64, FloatArray
from dmkl.oracles import ORACLES, least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.automatic import Hopeless
from dmkl.solvers.certificate import CertifiedWeights, relative_gap
from dmkl.solvers.kernel_operators import KernelOperator, combine, quadratic_forms
from dmkl.solvers.precision import sum_dtype
from dmkl.solvers.svm_by_parts import svm_by_parts


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
    penalty: float = 0.0  # of the best weights
    scores: Float64 | None = None  # (n,) of the best coefficients at the best weights


@dataclass(frozen=True)
class MirrorIterate:
    """A point of the descent with the oracle's answer there."""

    lam: Float64  # (s,): the weights inside the groups, which sum to 1 in each
    sums: Float64  # (groups,): 1 / gamma
    alpha: Float64  # (n,)


@dataclass(frozen=True)
class WeightedSvm:
    """The SVM at some weights of the kernels."""

    alpha: Float64  # (n,)
    scores: Float64  # (n,)
    forms: Float64  # (s,): D_a
    steps: int  # of the oracle


class Svms(Protocol):
    """The SVMs of one class."""

    def at(self, weights: Float64, alpha: Float64, tol: float, most_steps: int) -> WeightedSvm:
        """The SVM at these weights (s,), begun at this alpha (n,)."""


class SvmsOnBlock:
    """Of a block (s, n, n) in memory."""

    def __init__(self, K: FloatArray, y: Float64, C: Float64 | float, oracle: str) -> None:
        self._K, self._y, self._C, self._oracle = K, y, C, ORACLES[oracle]
        self._combined = np.empty(K.shape[1:])

    def at(self, weights: Float64, alpha: Float64, tol: float, most_steps: int) -> WeightedSvm:
        combine(self._K, weights, self._combined)
        svm = self._oracle(self._combined, self._y, self._C, alpha=alpha, tol=tol, max_steps=most_steps)
        return WeightedSvm(svm.alpha, svm.scores, quadratic_forms(self._K, svm.alpha * self._y), svm.steps)


class SvmsInPasses:
    """Of kernels that are read from the stack; by parts where the combined matrix does not fit in memory."""

    def __init__(self, kernels: KernelOperator, y: Float64, C: Float64, oracle: str, tol: float) -> None:
        self._kernels, self._y, self._C, self._oracle = kernels, y, C, ORACLES[oracle]
        self._dtype = sum_dtype(kernels.dtype, len(y), tol)

    def at(self, weights: Float64, alpha: Float64, tol: float, most_steps: int) -> WeightedSvm:
        combined, steps = self._kernels.matrix(weights, self._dtype), 0
        if combined is None:
            beta, products = svm_by_parts(self._kernels, weights, self._y, self._C, alpha, tol)
        else:
            svm = self._oracle(combined, self._y, self._C, alpha=alpha, tol=tol, max_steps=most_steps)
            beta, steps = svm.alpha * self._y, svm.steps
            products = self._kernels.products(beta)
        return WeightedSvm(beta * self._y, weights @ products, np.maximum(products @ beta, 0.0), steps)


# everything that the next step depends on: a run that reads the stack saves these after every step
NUMBERS = ("eta", "previous", "calls", "svm_calls", "primal", "dual", "value", "penalty", "_reached", "_since")
VECTORS = (
    "lam",
    "sums",
    "weights",
    "alpha",
    "forms",
    "best_weights",
    "best_beta",
    "best_scores",
    "proof",
    "proof_forms",
)


class Descent:
    """One run of the method. `lam` are the weights inside the groups, `sums` is 1 / gamma; `weights` those of the next
    closed step."""

    def __init__(
        self,
        svms: Svms,
        y: Float64,
        C: Float64 | float,
        norm: MixedNorm,
        tol: float,
        options: MirrorOptions | None = None,
        hopeless: Hopeless | None = None,
        watch: Callable[[MirrorIterate], None] | None = None,
    ) -> None:
        self._svms, self._y, self._C, self._norm, self._tol = svms, y, C, norm, tol
        self._options, self._hopeless, self._watch = options or OPTIONS, hopeless, watch
        n, s = len(y), len(norm.groups)
        self._sizes = np.bincount(norm.groups)
        self.lam, self.sums = (1.0 / self._sizes)[norm.groups], norm.total(norm.uniform())
        self.weights = norm.uniform()
        self.alpha, self.forms = np.zeros(n), np.zeros(s)
        self.primal, self.dual, self.penalty = np.inf, -np.inf, 0.0
        self.value = self.previous = np.inf  # the primal values of the last points
        self.best_weights, self.best_beta, self.best_scores = norm.uniform(), np.zeros(n), np.zeros(n)
        self.proof, self.proof_forms = np.zeros(n), np.zeros(s)
        self.eta, self.calls, self.svm_calls, self.given_up = 1.0, 0, 0, False
        self._reached, self._since = np.inf, 0  # the gap when it last fell, and the number of SVMs then

    def arrays(self) -> dict[str, Array]:
        """Everything as arrays, with which another run goes on."""
        found = {name: np.asarray(getattr(self, name)) for name in NUMBERS + VECTORS}
        return found | {"evaluations": np.asarray(self.svm_calls), "going": np.asarray(not self.ended)}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from these."""
        for name in NUMBERS:
            setattr(self, name, arrays[name].item())
        for name in VECTORS:
            setattr(self, name, arrays[name])

    @property
    def ended(self) -> bool:
        """Whether the gap is at the tolerance, SVMs are used up, nothing was gained for long, or the caller has given
        up hope."""
        if self.gap < self._options.progress * self._reached:
            self._reached, self._since = self.gap, self.svm_calls
        last = min(self._options.max_svm_calls, self._since + self._options.patience)
        return self.gap <= self._tol or self.given_up or self.svm_calls >= last

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual) if self.primal < np.inf else 1.0

    def step(self) -> None:
        """One call of the oracle, and the move that it calls for."""
        norm = self._norm
        self.calls += 1
        if norm.rho > 2:
            self._closed_step()
            return
        self._maximise()
        if self._watch is not None:
            self._watch(MirrorIterate(self.lam, self.sums, self.alpha))
        if self.gap <= self._tol or must_stop():
            return
        exponent = self._exponent()
        self.previous = self.value
        lam = self.lam * np.exp(exponent - _largest_of_group(norm, exponent, self.lam)[norm.groups])
        lam /= norm.total(lam)[norm.groups]
        lam[lam < self._options.negligible] = 0.0
        self.lam = lam

    def _exponent(self) -> Float64:
        """(s,): by the exponential of which the weights inside the groups move."""
        options, norm, groups = self._options, self._norm, self._norm.groups
        if options.rule == "paper":
            slopes, size = 0.5 * self.sums[groups] * self.forms, np.log(self._sizes.max()) / self.calls
            return np.asarray(options.step * np.sqrt(size) * slopes / max(slopes.max(), 1e-300))
        self.eta *= options.cut if self.value > self.previous else options.grow
        largest = np.maximum(norm.radii(self.forms) ** 2, 1e-300)
        return np.asarray(self.eta * (self.forms / largest[groups] - 1.0))

    def _maximise(self) -> None:
        """The oracle: alternate alpha (SVM) and gamma (closed form) until gamma gains little."""
        options, norm = self._options, self._norm
        adaptive = max(options.loose * self.gap, options.loose * self._tol)
        exact = options.oracle_tol if options.rule == "paper" else adaptive
        for _ in range(options.max_block_steps):
            self._evaluate(self.lam * self.sums[norm.groups])
            totals = norm.total(self.lam * self.forms)
            radii = np.sqrt(np.maximum(totals, max(options.flat * totals.max(), 1e-300)))
            better = norm.slope(radii) / radii
            gain = 0.5 * float(totals @ (self.sums - better))  # of the inner maximum, by the better gamma
            self.sums = better
            if gain <= exact * abs(self.dual) or self.gap <= self._tol or self.given_up or must_stop():
                break

    def _closed_step(self) -> None:
        """theta_a <- ||w_a|| / (dR/d||w_a||), which for lp is d ~ ||w||^(2/(p+1)) (Kloft et al., JMLR 2011)."""
        norm = self._norm
        self._evaluate(self.weights)
        if self.gap <= self._tol or must_stop():
            return
        norms = np.maximum(self.weights * np.sqrt(self.forms), 1e-300)
        self.weights = norms / MixedNorm(norm.groups, norm.sigma).slope(norm.total(norms))[norm.groups]

    def _evaluate(self, weights: Float64) -> None:
        """One SVM at these effective weights, and the bounds that its solution gives."""
        tol = max(min(self._options.svm_share * self.gap, 1e-2), 1e-13)
        svm = self._svms.at(weights, self.alpha, tol, self._options.svm_steps * len(self._y))
        self.svm_calls += 1
        self.alpha, self.forms, beta = svm.alpha, svm.forms, svm.alpha * self._y
        penalty = self._norm.regulariser(weights * np.sqrt(svm.forms))
        self.value = penalty + least_hinge(svm.scores, self._y, self._C)[0]
        dual = float(svm.alpha.sum()) - self._norm.conjugate(svm.forms)
        if dual > self.dual:
            self.dual, self.proof, self.proof_forms = dual, beta, svm.forms
        if self.value < self.primal:
            self.primal, self.penalty = self.value, penalty
            self.best_weights, self.best_beta, self.best_scores = weights, beta, svm.scores
        self.given_up = self._hopeless is not None and self._hopeless(self.gap, svm.steps)

    def solution(self) -> MirrorSolution:
        """The best weights, and the best lower bound."""
        return MirrorSolution(
            self.best_weights,
            self.best_beta,
            self.dual,
            self.proof,
            self.proof_forms,
            self.gap,
            self.penalty,
            self.best_scores,
            svm_calls=self.svm_calls,
            oracle_calls=self.calls,
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
    descent = Descent(SvmsOnBlock(K, y, C, oracle), y, C, norm, tol, options, hopeless, watch)
    while not (descent.ended or (descent.calls and must_stop())):
        descent.step()
    return descent.solution()


def _largest_of_group(norm: MixedNorm, exponent: Float64, lam: Float64) -> Float64:
    """The largest exponent of each group's kernels with weight: one of their new weights at least is not zero."""
    largest = np.full(norm.count, -np.inf)
    np.maximum.at(largest, norm.groups[lam > 0], exponent[lam > 0])
    return largest
