"""The SVM of one weighted sum of kernels whose matrix does not fit in memory, by decomposition.

    max_beta  y'beta - 1/2 beta' K beta,     0 <= y beta <= C,  sum(beta) = 0,      K = sum_a theta_a K_a

where sum(beta) is free if there is no intercept.

A round solves for a part of the samples, the others staying where they are: those outside at alpha = C pull on the
part through its linear term. The part holds the free samples and those that violate the optimality conditions most, as
many as fit. A pass then brings the scores of all samples up to date, and with them the certificate. So samples at
either bound need no memory, and the free ones with those that still change have to fit.

Where the tiles of the weighted sum fit, here or on the workers of a cluster, they are made first and held: then a round
reads one matrix in place of s, and only the first and the last pass read the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, Samples
from dmkl.oracles import relative_gap, svm_bounds
from dmkl.oracles.base import balance, fresh_scores
from dmkl.oracles.smo import maximised
from dmkl.solvers.kernel_operators import KernelOperator
from dmkl.solvers.precision import sum_dtype


@dataclass(frozen=True)
class PartOptions:
    """Constants of the decomposition."""

    rounds: int = 12  # at most
    steps: int = 100  # of the oracle, for each sample of the part
    share: float = 0.3  # of the tolerance, for a part: the samples outside need the rest,
    least: float = 0.01  # and of the gap so far at least
    free: float = 1e-8  # alpha counts as free further than this share of its bound from both bounds


OPTIONS = PartOptions()


def svm_by_parts(
    kernels: KernelOperator,
    theta: Float64,
    y: Float64,
    C: Float64,
    alpha: Float64,
    tol: float,
    products: Float64 | None = None,
    *,
    intercept: bool = True,
) -> tuple[Float64, Float64]:
    """The SVM at these weights.

    Parameters
    ----------
    kernels : KernelOperator
        The kernels over n samples.
    theta : array (s,)
        Their weights.
    y, C : arrays (n,)
        Signs -1/+1, and bounds of alpha.
    alpha : array (n,)
        Where to start.
    tol : float
        The relative gap to reach; less precise after the most rounds, or where the time is over.
    products : array (s, n), optional
        K_a (alpha y) of every kernel, where they are known of a feasible alpha.
    intercept : bool
        Whether the machine has a free intercept.

    Returns
    -------
    beta : array (n,)
        Feasible.
    products : array (s, n)
        K_a beta of every kernel.
    """
    if products is None:
        alpha = np.clip(alpha, 0.0, C)
        if intercept:
            balance(alpha, y, C)
        products = kernels.products(alpha * y) if alpha.any() else np.zeros((len(theta), len(y)))
    beta = first = alpha * y
    scores, most = theta @ products, kernels.largest_sum
    total: KernelOperator | None = None  # the weighted sum, once it is worth holding
    reached = -np.inf
    for _ in range(OPTIONS.rounds):
        primal, dual, level = svm_bounds(beta, scores, y, C, 1.0, intercept)
        gap, before, reached = relative_gap(primal, dual), reached, dual
        if gap <= tol or dual <= before or must_stop():
            break
        part = _movable(beta, y - scores - level, y, C, most)
        total = total or kernels.alone(theta, sum_dtype(kernels.dtype, kernels.n, tol))
        summed, weights = (kernels, theta) if total is None else (total, np.ones(1))
        K = summed.sum_over(part, weights, np.dtype(np.float32))
        view = K.view()
        view.flags.writeable = False  # as the oracle's compiled variant has it
        own = beta[part].copy()
        here = fresh_scores(K, own)
        pull = y[part] - (scores[part] - here)
        value = float(pull @ own) - 0.5 * float(own @ here)  # of the part's own problem, whose gap is relative to it
        wanted = max(OPTIONS.share * tol, OPTIONS.least * gap)
        exact = wanted * abs(primal) / (abs(value) + min(gap, 1.0) * abs(primal))
        low, high = np.minimum(y[part], 0.0) * C[part], np.maximum(y[part], 0.0) * C[part]
        whole = (pull, own, low, high, K.diagonal().astype(np.float64))
        maximised(view, whole, intercept, False, exact, OPTIONS.steps * len(part))
        change = np.zeros(len(y))
        change[part] = own - beta[part]
        beta = beta + change
        if total is None:
            products = products + kernels.products(change)
            scores = theta @ products
        else:
            scores = scores + total.products(change)[0]
    if total is not None:
        products = products + kernels.products(beta - first)
    return beta, products


def _movable(beta: Float64, slope: Float64, y: Float64, C: Float64, most: int) -> Samples:
    """The samples that violate the conditions of optimality most, as many as fit; `slope` is y - K beta - b.

    Of a free sample the slope is zero at the optimum, of one at a bound it has the sign that keeps the sample there.
    """
    alpha, edge = beta * y, OPTIONS.free * C
    can_rise = np.where(y > 0, alpha < C - edge, alpha > edge)
    can_fall = np.where(y > 0, alpha > edge, alpha < C - edge)
    rising = np.argsort(np.where(can_rise, -slope, np.inf), kind="stable")
    falling = np.argsort(np.where(can_fall, slope, np.inf), kind="stable")
    order = np.column_stack([rising, falling]).ravel()  # in pairs: sum(beta) stays zero
    first = np.sort(np.unique(order, return_index=True)[1])[:most]
    return np.sort(order[first])
