"""Blocks with kernels of low rank: the cone method, then its primal point as a model stores it.

A model is one coefficient vector beta and one weight theta_a a kernel, w_a = theta_a Phi_a' beta, where the cone method
has any w_a. Three ways lead back, tried in turn until the certificate holds, each judged by its primal value alone:

* the interior point's beta, its active set made exact: the SVM at theta_a = u_a / N_a with sparse alpha;
* the SVM itself, from there;
* where N_a is nearly zero, so that theta_a would be infinite, or rounding spoils K_a beta: theta_a = u_a / N_a with N_a
  raised, and the smallest beta with Phi_a' beta = w_a / theta_a for all a at once. It is dense, and no longer feasible
  in the dual, which a primal point need not be.

Quadratic forms are those of the factors, as far as they agree with the kernels' own within the rounding of float64:
beta' K_a beta cancels to nothing where N_a is small. Values in float32 are taken as they are, as all other methods do:
their rounding is part of the problem, and two methods that rounded it away differently would contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.oracles import ORACLES, least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.certificate import CertifiedWeights, best_multiple
from dmkl.solvers.cone import ConeProblem, ConeSolution, Factors, factor_of, factored, follow, rounding
from dmkl.solvers.interior_point import solve_screened
from dmkl.solvers.kernel_operators import combine, quadratic_forms


@dataclass(frozen=True)
class LowRankOptions:
    """Where the cone method is used, how near to the optimum it goes, and how its point is stored."""

    sampled: int = 64  # samples over which ranks are estimated
    low: float = 0.5  # sums of ranks up to this share of the samples are low
    largest: float = 5e7  # entries of all factors

    tighter: float = 1e-3  # the method's tolerance, as a share of the block's
    negligible: float = 0.01  # kernels whose part of the scores is below this times the tolerance are dropped
    # N_a is raised to these shares of what it would be if nothing cancelled, in turn: more costs a bias, less digits
    cancelled: tuple[float, ...] = (1e-8, 1e-7, 1e-9, 1e-6)
    corrections: int = 8  # of the weights, by the norms that the coefficients have with them, at most
    spoilt: float = 1e-3  # a primal value larger than the method's by this share may be that of a wrong active set
    repairs: int = 15  # of the active set, where a margin or
    slack: float = 1e-7  # a bound is violated by this much
    svm_steps: int = 100  # steps of the SVM, a sample
    svm_share: float = 0.02  # of the tolerance, for the SVM
    cuts: tuple[float, ...] = (1e-10, 1e-8)  # singular values below these shares of the largest are taken for zero


OPTIONS = LowRankOptions()


@dataclass(frozen=True)
class CertifiedPoint(CertifiedWeights):
    """A primal point ready to be stored: `weights` and `beta`, which need not be feasible in the dual."""

    penalty: float  # the regulariser of the point
    primal: float
    steps: int


def solve_any_rank(
    K: FloatArray, y: Float64, C: Float64 | float, norm: MixedNorm, tol: float, oracle: str
) -> CertifiedWeights:
    """The block's problem by the method that suits the ranks of its kernels."""
    low = has_low_rank(estimated_ranks(K, norm), K.shape[1], norm)
    return (solve_low_rank if low else solve_full_rank)(K, y, C, norm, tol, oracle)


def solve_full_rank(
    K: FloatArray, y: Float64, C: Float64 | float, norm: MixedNorm, tol: float, oracle: str
) -> CertifiedWeights:
    """The block's problem by the interior point method, and by the cone method where that one stalls."""
    found = solve_screened(K, y, C, norm, tol, oracle)
    if found.solved or K.size > OPTIONS.largest:
        return found
    point = solve_low_rank(K, y, C, norm, tol, oracle)
    return point if point.primal - point.dual < found.primal - found.dual else found


def estimated_ranks(K: FloatArray, norm: MixedNorm) -> Samples:
    """(s,): the ranks over some samples; n for a kernel of full rank there, or where ranks no longer matter."""
    s, n, several = len(K), K.shape[1], norm.count > 1
    W = np.unique(np.linspace(0, n - 1, min(n, OPTIONS.sampled)).astype(np.int64))
    ranks, total = np.full(s, n), 0
    if not several and s > OPTIONS.low * n:
        return ranks
    for a, kernel in enumerate(K):
        rank = factor_of(kernel[np.ix_(W, W)], rounding(K)).shape[1]
        ranks[a] = rank if rank < len(W) else n
        total += ranks[a]
        if not several and total > OPTIONS.low * n:
            break
    return ranks


def has_low_rank(ranks: Samples, n: int, norm: MixedNorm) -> bool:
    """Whether all ranks together are small, or some kernel's form can be zero in a norm that has a kink there."""
    total = int(ranks.sum())
    singular = norm.count > 1 and (ranks <= OPTIONS.low * min(n, OPTIONS.sampled)).any()
    return bool(n * total <= OPTIONS.largest and (total <= OPTIONS.low * n or singular))


def solve_low_rank(
    K: FloatArray, y: Float64, C: Float64 | float, norm: MixedNorm, tol: float, oracle: str
) -> CertifiedPoint:
    """The block's problem by the cone method; K (s, n, n), y (n,) signs, C bounds of alpha, `tol` a relative gap."""
    C = np.broadcast_to(np.asarray(C, dtype=np.float64), y.shape)
    factors = factored(K)
    if (y == y[0]).all() or not len(factors.kernels):
        return _without_kernels(y, C, norm)
    problem = ConeProblem(K, factors, y, C, norm)
    found = follow(problem, OPTIONS.tighter * tol)
    forms = exact_forms(K, factors, found.proof)
    dual = float(y @ found.proof) - norm.conjugate(forms)
    best, calls = CertifiedPoint(norm.uniform(), found.proof, dual, found.proof, forms, 0.0, np.inf, found.steps), 0
    for point in _Points(K, problem, found, norm, tol).all(oracle):
        calls += point.svm_calls
        if point.primal < best.primal:
            best = replace(best, weights=point.weights, beta=point.beta, primal=point.primal, penalty=point.penalty)
        if best.primal - dual <= tol * abs(best.primal) or must_stop():
            break
    return replace(best, svm_calls=calls, oracle_calls=calls)


def exact_forms(K: FloatArray, factors: Factors, beta: Float64) -> Float64:
    """beta' K_a beta by the factors, where the kernels' own values agree within float64; beta sums to zero."""
    plain, exact = quadratic_forms(K, beta), np.zeros(len(K))
    squares = np.square(factors.Phi.T @ beta)
    exact[factors.kernels] = np.bincount(factors.owner, squares, len(factors.kernels))
    roots = np.sqrt(np.maximum(np.stack([kernel.diagonal() for kernel in K]).astype(np.float64), 0.0))
    error = 8.0 * np.finfo(np.float64).eps * np.square(roots @ np.abs(beta))
    return np.where(np.abs(plain - exact) <= error, exact, plain)


def _without_kernels(y: Float64, C: Float64, norm: MixedNorm) -> CertifiedPoint:
    """The solution where no kernel tells samples apart, or there is nothing to tell: w = 0."""
    positive = y > 0
    sides = np.where(positive, C[positive].sum(), C[~positive].sum())
    alpha = C * (sides.min() / sides) if positive.any() and not positive.all() else np.zeros(len(y))
    beta, value, forms = alpha * y, float(alpha.sum()), np.zeros(len(norm.groups))
    return CertifiedPoint(norm.uniform(), beta, value, beta, forms, penalty=0.0, primal=value, steps=0)


@dataclass(frozen=True)
class _Point:
    """Weights and coefficients, their primal value, the regulariser in it, and the number of SVMs solved for them."""

    weights: Float64
    beta: Float64
    primal: float
    penalty: float
    svm_calls: int


class _Points:
    """Primal points as a model stores them, near to the one that the cone method found."""

    def __init__(self, K: FloatArray, problem: ConeProblem, found: ConeSolution, norm: MixedNorm, tol: float) -> None:
        self._K, self._problem, self._found, self._norm, self._tol = K, problem, found, norm, tol
        self._kernels = problem.factors.kernels
        self._roots = np.sqrt(np.stack([K[a].diagonal() for a in self._kernels]).astype(np.float64))
        norms = problem.cones.norms(found.point.w)
        parts = norms * self._roots.max(axis=1)  # the most that a kernel adds to a score
        self._norms = np.where(parts > OPTIONS.negligible * tol * parts.max(), norms, 0.0)
        self._radii = found.point.radii[problem.g]

    def all(self, oracle: str) -> Iterator[_Point]:
        """The SVM by its active set, its weights corrected while that helps; the SVM by an oracle; least squares."""
        y, C, start = self._problem.y, self._problem.C, self._found.point.beta
        sizes = self._roots @ np.abs(start)
        chosen, beta, least = self._weighted(np.maximum(self._radii, OPTIONS.cancelled[0] * sizes))[0], start, np.inf
        for share in OPTIONS.cancelled:
            radii, last = np.maximum(self._radii, share * sizes), np.inf
            for _ in range(OPTIONS.corrections):
                weights, combined = self._weighted(radii)
                point = self._certified(weights, combined, self._active_set(combined), 1)
                yield point
                spoilt = point.primal > (1.0 + OPTIONS.spoilt) * self._found.primal
                if spoilt and not point.primal < last:
                    break
                last = point.primal
                if not spoilt and point.primal < least:
                    chosen, beta, least = weights, point.beta, point.primal
                radii = self._problem.cones.norms(self._problem.factors.Phi.T @ point.beta)
        combined = np.empty(self._K.shape[1:])
        combine(self._K, chosen, combined)
        steps, exact = OPTIONS.svm_steps * len(y), OPTIONS.svm_share * self._tol
        svm = ORACLES[oracle](combined, y, C, alpha=np.clip(beta * y, 0.0, C), tol=exact, max_steps=steps)
        yield self._certified(chosen, combined, svm.alpha * y, 1)
        yield from self._least_squares()

    def _certified(self, weights: Float64, combined: Float64, beta: Float64, svm_calls: int) -> _Point:
        forms = exact_forms(self._K, self._problem.factors, beta)
        penalty = self._norm.regulariser(weights * np.sqrt(forms))
        factors, y, C = self._problem.factors, self._problem.y, self._problem.C
        exact = factors.Phi @ (weights[factors.kernels][factors.owner] * (factors.Phi.T @ beta))
        by_values = best_multiple(penalty, beta, combined @ beta, y, C).primal
        by_factors = best_multiple(penalty, beta, exact, y, C).primal  # large weights may turn rounding into scores
        return _Point(weights, beta, max(by_values, by_factors), penalty, svm_calls)

    def _weighted(self, radii: Float64) -> tuple[Float64, Float64]:
        """Weights u / N for these N, and the sum of the kernels with them."""
        weights, combined = np.zeros(len(self._K)), np.empty(self._K.shape[1:])
        weights[self._kernels] = self._norms / np.where(radii > 0, radii, 1.0)
        combine(self._K, weights, combined)
        return weights, combined

    def _active_set(self, combined: Float64) -> Float64:
        """The SVM whose free coefficients are those of the interior point, repaired where that turns out wrong."""
        point, y, C = self._found.point, self._problem.y, self._problem.C
        alpha = point.beta * y
        below, above = np.where(y > 0, [point.lower, point.upper], [point.upper, point.lower])
        zero, full = alpha < below * C, C - alpha < above * C
        for _ in range(OPTIONS.repairs):
            alpha = np.where(zero, 0.0, np.where(full, C, alpha))
            beta = _with_margins(combined, alpha * y, np.flatnonzero(~(zero | full)), y, rounding(self._K))
            alpha, scores = beta * y, combined @ beta
            short = 1.0 - y * (scores + least_hinge(scores, y, C)[1])
            outside = (alpha < -OPTIONS.slack * C, alpha > (1.0 + OPTIONS.slack) * C)
            wrong = zero & (short > OPTIONS.slack), full & (short < -OPTIONS.slack)
            alpha = np.clip(alpha, 0.0, C)
            if not any(some.any() for some in (*outside, *wrong)):
                break
            zero, full = (zero | outside[0]) & ~wrong[0], (full | outside[1]) & ~wrong[1]
        return np.asarray(alpha * y)

    def _least_squares(self) -> Iterator[_Point]:
        """The smallest beta with Phi_a' beta = w_a / weights_a, made exact in the kernels' own values."""
        factors, w = self._problem.factors, self._found.point.w
        scores = factors.Phi @ w
        sizes = self._problem.cones.norms(np.sqrt(np.square(factors.Phi).sum(axis=0)))
        largest = (self._radii / sizes)[self._norms > 0].max()
        weights, combined = self._weighted(np.maximum(self._radii, largest * sizes))
        roots = np.sqrt(weights[self._kernels])[factors.owner]
        some = roots > 0
        if some.sum() > len(scores):
            return  # there is no choice of beta
        left, values, right = np.linalg.svd(factors.Phi[:, some] * roots[some], full_matrices=False)
        turned = right @ (w[some] / roots[some])
        for cut in OPTIONS.cuts:
            kept = values > cut * values[0]
            beta = left[:, kept] @ (turned[kept] / values[kept])
            for _ in range(3):
                yield self._certified(weights, combined, beta, 0)
                missing = scores - combined @ beta
                missing -= missing.mean()
                beta = beta + left[:, kept] @ ((left[:, kept].T @ missing) / values[kept] ** 2)


def _with_margins(combined: Float64, beta: Float64, free: Samples, y: Float64, cut: float) -> Float64:
    """beta with free coefficients such that their samples' scores, with an intercept, are y, and the sum is zero."""
    matrix = np.zeros((len(free) + 1, len(free) + 1))
    matrix[:-1, :-1] = combined[np.ix_(free, free)]
    size = float(np.abs(matrix.diagonal()).max()) or 1.0
    matrix[-1, :-1] = matrix[:-1, -1] = size
    for _ in range(3):  # and corrected by what rounding left
        missing = np.append((y - combined @ beta)[free], -size * beta.sum())
        beta = beta.copy()
        beta[free] += scipy.linalg.lstsq(matrix, missing, cond=cut, lapack_driver="gelsy", check_finite=False)[0][:-1]
    return beta
