"""Newton's method in the kernel weights, for any loss with a block-l1 norm or an elastic net (SpicyMKL).

    min_w      sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2
    = min_t    V(t) + C^2/2 sum_a t_a / (1 - ridge t_a)        t >= 0,  ridge t < 1
    V(t)       = min_w  sum of losses + 1/2 sum_a ||w_a||^2 / t_a
               = max_rho  -l*(-rho) - 1/2 sum_a t_a D_a(rho)   D_a(rho) = rho' K_a rho

V is the problem with the one kernel matrix sum_a t_a K_a (`one_kernel`), and w_a = t_a sum_i rho_i phi_a(x_i). Its
derivatives are -D_a / 2, and its second derivatives H come with the solution. An evaluation of weights t sums the
kernels, solves for the sum, and multiplies every kernel by rho. It gives a primal point, and a dual point once rho is
made feasible, so the gap is known.

At the optimum sqrt(D_a) (1 - ridge t_a) = C for every kernel with weight. Newton's rule is applied to 1 / sqrt(D_a),
which is nearly linear in t where D_a itself falls by orders of magnitude (as for the norm constraint of a trust region;
Hebden 1973): neither a start that is much too small nor one that is much too large delays it. As weights may not be
negative, a step is a quadratic program with bounds. A share of H, the damping, is replaced by diag(D_a / t_a), which is
never smaller than H: with all of it replaced, a step is the fixed-point iteration t_a = ||w_a|| / C, which always
descends. A step that does not descend is shortened by the secant rule, and the next ones are damped more.

Where there are many samples, a third of them is solved first, and a third of those before, each roughly: what is left
for all samples are the last few evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatType, Samples
from dmkl.problems.losses import Loss, balanced
from dmkl.solvers import one_kernel, proximal
from dmkl.solvers.kernel_operators import KernelOperator
from dmkl.solvers.loss_problem import Penalty, Solution, Start
from dmkl.solvers.one_kernel import OneKernel
from dmkl.solvers.precision import sum_dtype


@dataclass(frozen=True)
class WeightNewtonOptions:
    """Constants of the method."""

    evaluations: int = 100  # at most
    stalled: int = 8  # evaluations that leave more than `progress` of the gap, before another method goes on
    progress: float = 0.9
    inner: float = 0.1  # the gap at fixed weights, as a share of the present gap,
    inner_most: float = 1e-2  # but at most so much
    inner_least: float = 0.1  # and not below this share of the tolerance,
    tighter: float = 0.1  # unless the gap shrinks slowly: each time by this factor
    slow: float = 0.5  # what a slow evaluation leaves of the gap
    damping: float = 0.3  # at most, and no more than the gap
    damping_growth: float = 4.0  # after a step that did not descend; divided by it after one that did
    damping_again: float = 0.1  # at least, after a step that did not descend
    damping_least: float = 1e-3  # below it there is none
    ridge: float = 1e-10  # of a step's quadratic program: kernels may be copies of each other
    joining: float = 0.1  # of the mean norm: the norm by which kernels are damped that have less
    shortest: float = 0.1  # share of a step that did not descend
    near: float = 0.5  # of the largest slope: kernels that have weight in a cold start
    lost: float = 0.1  # of the tolerance, that a float32 sum may cost before sums are float64
    coarse: int = 900  # samples, from where on a third of them is solved first,
    coarse_tol: float = 0.03  # to this gap


OPTIONS = WeightNewtonOptions()
COARSER = 3  # times fewer samples
QP_STEPS, QP_EXACT, QP_SHORTEST = 100, 1e-12, 1e-10  # of a step's quadratic program


def minimise(
    kernels: KernelOperator,
    y: Float64,
    loss: Loss,
    penalty: Penalty,
    tol: float,
    start: Start | None = None,
    threads: int = 1,
    options: WeightNewtonOptions = OPTIONS,
) -> Solution:
    """Minimise over some samples and kernels.

    The proximal method goes on where this one stalls, where no matrix fits in memory, and for losses that
    `one_kernel` has no method for.

    Parameters
    ----------
    kernels : KernelOperator
        The kernels over n samples.
    y : array (n,)
        Signs -1/+1, or real targets.
    loss : Loss
        The loss, which may count samples several times.
    penalty : Penalty
        The regulariser.
    tol : float
        The relative gap to reach, over these samples and kernels.
    start : Start, optional
        A point to begin at.
    threads : int
        Threads for factorisations; the operator has its own.
    options : WeightNewtonOptions, optional
        Constants of the method.

    Returns
    -------
    Solution
        With a gap of `tol`, or as far as rounding and time allow.
    """
    inner = one_kernel.solver_of(loss, y, threads)
    if inner is None:
        return proximal.minimise(kernels, y, loss, penalty, tol, start)
    if start is None or not start.weights.any():
        start = _coarse_start(kernels, y, loss, penalty, tol, threads, options)
    method = WeightNewton(kernels, y, loss, penalty, tol, inner, options)
    found = method.run(start)
    if found.gap <= tol or must_stop():
        return found
    return found.followed_by(proximal.minimise(kernels, y, loss, penalty, tol, found.start))


def _coarse_start(
    kernels: KernelOperator,
    y: Float64,
    loss: Loss,
    penalty: Penalty,
    tol: float,
    threads: int,
    options: WeightNewtonOptions,
) -> Start | None:
    """A start from the solution for a third of the samples, which have every third target each.

    There the same w fits about as well if the penalty is a third, and its t is three times as large. The w of fewer
    samples is smaller, however, about by the root of three.
    """
    n = len(y)
    if n < options.coarse:
        return None
    order = np.random.default_rng(0).permutation(n)
    samples = np.sort(order[np.argsort(y[order], kind="stable")][1::COARSER])
    part = kernels.restricted(samples)
    if part is None:
        return None
    some = loss.counting(np.broadcast_to(loss.counts, y.shape)[samples])
    share = len(samples) / n
    less = Penalty(share * penalty.C, share * penalty.ridge)
    inner = one_kernel.solver_of(some, y[samples], threads)
    assert inner is not None
    start = _coarse_start(part, y[samples], some, less, tol, threads, options)
    method = WeightNewton(part, y[samples], some, less, max(tol, options.coarse_tol), inner, options)
    found = method.run(start)
    if not found.weights.any():
        return None
    rho = np.zeros(n)
    rho[samples] = found.rho
    rho = inner.extended(loss, y, rho, kernels.total(found.weights, rho) + found.intercept)
    plain = np.sqrt(share) * found.weights / (1.0 - less.ridge * found.weights)
    return Start(rho, plain / (1.0 + penalty.ridge * plain), found.intercept)


@dataclass(frozen=True)
class Evaluation:
    """What is known at one weight vector."""

    weights: Float64
    rho: Float64
    intercept: float
    products: Float64  # K_a rho (kernels, n)
    forms: Float64  # D_a
    value: float  # the objective at these weights, from below,
    slack: float  # and how far it may be above
    primal: float
    penalty: float
    dual: float
    scale: float  # of rho, to be feasible


class WeightNewton:
    """The method on one problem."""

    def __init__(
        self,
        kernels: KernelOperator,
        y: Float64,
        loss: Loss,
        penalty: Penalty,
        tol: float,
        inner: OneKernel,
        options: WeightNewtonOptions,
    ) -> None:
        self._kernels, self._y, self._loss, self._penalty, self._tol = kernels, y, loss, penalty, tol
        self._inner, self._options = inner, options
        self._dtype: FloatType = sum_dtype(kernels.dtype, len(y), tol)
        self._exactness = 1.0  # factor of the gaps wanted at fixed weights
        self._svm_calls = 0

    def run(self, start: Start | None) -> Solution:
        """From the start, or cold, until the gap is reached, time is up, or nothing is gained any more."""
        options = self._options
        here = self._evaluated(None, self._loss.null(self._y))
        best = self._solution(here)
        trace: list[tuple[float, int, int]] = []
        weights, starts = self._first(here) if start is None else (start.weights, [start.rho])
        centre: Evaluation | None = None
        damping, idle = options.damping, 0
        while best.gap > self._tol and idle < options.stalled and len(trace) < options.evaluations and not must_stop():
            found = self._at(weights, starts, best.gap)
            if found is None:
                break
            here, steps = found
            before, best = best.gap, best.or_better(self._solution(here))
            trace.append((best.gap, int(np.count_nonzero(best.weights)), steps))
            idle = 0 if best.gap < options.progress * before else idle + 1
            self._exactness *= 1.0 if best.gap < options.slow * before else options.tighter
            if best.gap <= self._tol:
                break
            if centre is None or here.value <= centre.value + max(here.slack, 0.0):
                damping = min(damping if centre is None else damping / options.damping_growth, best.gap)
                damping = damping if damping >= options.damping_least else 0.0
                centre = here
                active = np.flatnonzero((weights > 0) | (here.forms > self._penalty.C**2))
                H = self._inner.curvature(here.products[active])
                step = np.zeros(len(weights))
                step[active] = self._step(centre, active, H, damping)
                change = step[active] @ centre.products[active]
                moved = self._loss.into_domain(self._y, centre.rho + self._inner.response(change))
                starts = [balanced(moved), centre.rho]
            else:
                damping = max(options.damping_growth * damping, options.damping_again)
                ahead, back = float(self._slopes(centre) @ step), float(self._slopes(here) @ step)
                share = ahead / (ahead - back) if ahead < 0 < back else 0.5
                step = float(np.clip(share, options.shortest, 0.5)) * step
                starts = [centre.rho, here.rho]
            weights = centre.weights + step
        rows = np.array(trace, dtype=np.float64).reshape(-1, 3)
        return replace(
            best,
            trace=rows,
            handed_over=np.zeros(len(rows), dtype=bool),
            svm_calls=self._svm_calls,
            evaluations=len(trace),
        )

    def _first(self, here: Evaluation) -> tuple[Float64, list[Float64]]:
        """Where to begin: small weights for the kernels along which the loss falls fastest."""
        penalty, forms = self._penalty, here.forms
        if penalty.C == 0:
            return np.full(len(forms), 1.0 / penalty.ridge), [here.rho]
        largest = float(forms.max())
        if largest == 0:
            return np.zeros(len(forms)), [here.rho]
        near = forms >= self._options.near**2 * largest
        plain = np.where(near, here.primal / np.maximum(forms, 1e-300), 0.0) / np.count_nonzero(near)
        return plain / (1.0 + penalty.ridge * plain), [here.rho]

    def _at(self, weights: Float64, starts: list[Float64], gap: float) -> tuple[Evaluation, int] | None:
        """The evaluation of these weights and its steps, exact enough for the present gap; None without a matrix."""
        options = self._options
        K = self._kernels.matrix(weights, self._dtype)
        if K is None:
            return None
        tol = max(min(options.inner * gap, options.inner_most), options.inner_least * self._tol)
        if self._penalty.C == 0:
            tol = 0.5 * self._tol  # there is nothing else to do
        found = self._inner.solve(K, starts, self._exactness * tol)
        self._svm_calls += found.svm_calls
        here = self._evaluated(weights, found.rho)
        lost = here.slack - (found.primal - found.dual)
        if self._dtype == np.float32 and lost > options.lost * self._tol * abs(here.primal):
            self._dtype = np.dtype(np.float64)
        return here, found.steps + found.svm_calls

    def _evaluated(self, weights: Float64 | None, rho: Float64) -> Evaluation:
        """Everything at rho and these weights, or no weights; with all kernels read once."""
        loss, y, penalty = self._loss, self._y, self._penalty
        products = self._kernels.products(rho)
        forms = np.maximum(products @ rho, 0.0)
        weights = np.zeros(len(forms)) if weights is None else weights
        scores = weights @ products
        b = loss.intercept(y, scores)
        losses, conjugate = loss.total(y, scores + b), loss.conjugate(y, rho)
        regulariser = penalty.primal(weights * np.sqrt(forms))
        dual, scale = penalty.dual(loss, y, rho, forms)
        bound = 0.0
        if penalty.C > 0:
            bound = 0.5 * penalty.C**2 * float((weights / (1.0 - penalty.ridge * weights)).sum())
        norm = 0.5 * float(weights @ forms)
        return Evaluation(
            weights,
            rho,
            b,
            products,
            forms,
            -conjugate - norm + bound,
            losses + conjugate + 2 * norm,
            losses + regulariser,
            regulariser,
            dual,
            scale,
        )

    def _solution(self, here: Evaluation) -> Solution:
        primal = here.weights, here.rho, here.intercept, here.primal, here.penalty
        proof = here.dual, here.scale * here.rho, here.scale**2 * here.forms
        return Solution(*primal, *proof, np.empty((0, 3)), np.empty(0, dtype=bool))

    def _slopes(self, here: Evaluation) -> Float64:
        """The derivatives of the objective."""
        bound = self._penalty.C / (1.0 - self._penalty.ridge * here.weights)
        return np.asarray(0.5 * (bound**2 - here.forms))

    def _step(self, here: Evaluation, active: Samples, H: Float64, damping: float) -> Float64:
        """The change of the weights of active kernels: the equations sqrt(D) (1 - ridge t) = C, linear in 1 / sqrt(D).

        They are in the changes of t sqrt(D), the norms of the w_a: kernels may differ in scale by any factor.
        """
        options, C, ridge = self._options, self._penalty.C, self._penalty.ridge
        radii = np.sqrt(np.maximum(here.forms[active], 1e-300))
        norms = here.weights[active] * radii
        left = 1.0 - ridge * here.weights[active]
        typical = norms.sum() / max(np.count_nonzero(norms), 1)
        majorant = C * radii / np.maximum(np.maximum(norms, options.joining * typical), 1e-300)
        matrix = C * (1.0 - damping) * H / np.outer(radii, radii)
        matrix[np.diag_indices(len(matrix))] += (damping + options.ridge) * majorant + ridge * radii
        right = radii * (left * radii - C)
        high = radii * left / ridge * (1 - 1e-12) if ridge > 0 else np.full(len(radii), np.inf)
        return bounded_minimum(matrix, right, -norms, high) / radii


def bounded_minimum(matrix: Float64, right: Float64, low: Float64, high: Float64) -> Float64:
    """The x within bounds, low <= 0 <= high, with the least 1/2 x' matrix x - right' x, by projected Newton steps."""
    x, gradient = np.zeros(len(right)), -right
    for _ in range(QP_STEPS):
        free = np.flatnonzero(~(((x <= low) & (gradient >= 0)) | ((x >= high) & (gradient <= 0))))
        if not len(free) or np.abs(gradient[free]).max() <= QP_EXACT * np.abs(right).max():
            break
        part = matrix[np.ix_(free, free)]
        try:
            factor = scipy.linalg.cho_factor(part, check_finite=False)
            move = -scipy.linalg.cho_solve(factor, gradient[free], check_finite=False)
        except np.linalg.LinAlgError:
            move = -np.linalg.lstsq(part, gradient[free], rcond=QP_EXACT)[0]
        value, length = 0.5 * float(x @ (gradient - right)), 1.0
        while True:
            there = x.copy()
            there[free] = np.clip(x[free] + length * move, low[free], high[free])
            slopes = matrix @ there - right
            if 0.5 * float(there @ (slopes - right)) <= value or length < QP_SHORTEST:
                break
            length *= 0.5
        if np.array_equal(there, x) or length < QP_SHORTEST:
            break
        x, gradient = there, slopes
    return x
