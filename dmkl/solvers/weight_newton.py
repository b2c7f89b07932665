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
from dmkl.solvers.certificate import relative_gap
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
    fall: float = 1e-3  # of the objective: an evaluation that lowers it by as much gained something
    inner: float = 0.1  # the gap at fixed weights, as a share of the present gap,
    inner_most: float = 1e-2  # but at most so much
    inner_least: float = 0.1  # and not below this share of the tolerance,
    tighter: float = 0.1  # unless the gap shrinks slowly: each time by this factor
    slow: float = 0.5  # what a slow evaluation leaves of the gap
    degenerate: int = 2  # evaluations without gain, after which every active kernel has a weight
    floor: float = 0.05  # of the tolerance, that these weights cost
    same: float = 0.1  # of the tolerance: values that differ by less are the same
    unsolved: float = 0.1  # gap at fixed weights, as a share of the primal value, of a matrix lost to rounding,
    negative: float = 1e-6  # or one below minus this: the kernels are not semidefinite to the digits needed
    damping: float = 0.3  # at most, and no more than the gap
    damping_growth: float = 4.0  # after a step that did not descend; divided by it after one that did
    damping_again: float = 0.1  # at least, after a step that did not descend
    damping_least: float = 1e-3  # below it there is none
    leap: float = 100.0  # times that sqrt(D) may fall in one step, as planned
    ridge: float = 1e-10  # of a step's quadratic program: kernels may be copies of each other
    joining: float = 0.1  # of the mean norm: the norm by which kernels are damped that have less
    shortest: float = 0.03  # share of a step that did not descend,
    longest: float = 0.5
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
    method = WeightNewton(kernels, y, loss, penalty, tol, inner, options)
    warm = start is not None and start.weights.any()
    found = method.run(method.renewed(start) if start and warm else method.begun(threads))
    if found.gap <= tol or must_stop():
        return found
    return found.followed_by(proximal.minimise(kernels, y, loss, penalty, tol, found.start))


@dataclass(frozen=True)
class Evaluation:
    """What is known at one weight vector."""

    weights: Float64
    rho: Float64
    intercept: float
    products: Float64  # K_a rho (kernels, n)
    forms: Float64  # D_a
    norm: float  # sum of weights and forms, ||w||^2 of the sum
    value: float  # the objective at these weights, from below,
    slack: float  # and how far it may be above
    primal: float
    penalty: float
    dual: float
    scale: float  # of rho, to be feasible

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual)


@dataclass(frozen=True)
class Beginning:
    """Weights to evaluate first, points at which to begin there, and what is known before."""

    weights: Float64
    starts: list[Float64]
    known: Evaluation


class WeightNewton:
    """The method on one problem.

    A step leads from the centre, the best weights so far, to the next ones.
    """

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
        self._centre: Evaluation | None = None
        self._active: Samples = np.empty(0, dtype=np.int64)  # kernels that have weight there, or should have
        self._H: Float64 = np.empty((0, 0))  # over those
        self._damping, self._straight = options.damping, False  # whether the last step was not shortened
        self._least = 0.0  # the norm that every active kernel keeps
        self._step: Float64 = np.empty(0)

    # Where it begins.

    def renewed(self, start: Start) -> Beginning:
        """From a point of a neighbouring problem, with the weights that are best for its functions."""
        known = self._evaluated(start.weights, balanced(self._loss.into_domain(self._y, start.rho)))
        norms = known.weights * np.sqrt(known.forms)
        share = self._penalty.ridge * norms + self._penalty.C
        return Beginning(norms / np.maximum(share, 1e-300), [known.rho], known)

    def begun(self, threads: int) -> Beginning:
        """From the solution for some of the samples, or small weights for the kernels along which the loss falls."""
        penalty, rho = self._penalty, self._loss.null(self._y)
        known = self._evaluated(None, rho)
        largest = float(known.forms.max())
        if penalty.C == 0:
            return Beginning(np.full(len(known.forms), 1.0 / penalty.ridge), [rho], known)
        if largest == 0 or known.gap <= self._tol:
            return Beginning(known.weights, [rho], known)
        if (coarse := self._coarse(threads)) is not None:
            return Beginning(*coarse, known)
        near = known.forms >= self._options.near**2 * largest
        plain = np.where(near, known.primal / np.maximum(known.forms, 1e-300), 0.0) / np.count_nonzero(near)
        return Beginning(plain / (1.0 + penalty.ridge * plain), [rho], known)

    def _coarse(self, threads: int) -> tuple[Float64, list[Float64]] | None:
        """Weights and rho from the solution for a third of the samples, which have every third target each.

        There the same w fits about as well if the penalty is a third, and its weights are three times as large. The w
        of fewer samples is smaller, however, about by the root of three.
        """
        y, penalty, options, n = self._y, self._penalty, self._options, len(self._y)
        if n < options.coarse:
            return None
        order = np.random.default_rng(0).permutation(n)
        samples = np.sort(order[np.argsort(y[order], kind="stable")][1::COARSER])
        part = self._kernels.restricted(samples)
        if part is None:
            return None
        some = self._loss.counting(np.broadcast_to(self._loss.counts, y.shape)[samples])
        share = len(samples) / n
        less = Penalty(share * penalty.C, share * penalty.ridge)
        inner = one_kernel.solver_of(some, y[samples], threads)
        assert inner is not None
        method = WeightNewton(part, y[samples], some, less, max(self._tol, options.coarse_tol), inner, options)
        found = method.run(method.begun(threads))
        self._svm_calls += found.svm_calls
        if not found.weights.any():
            return None
        plain = np.sqrt(share) * found.weights / (1.0 - less.ridge * found.weights)
        rho = np.zeros(n)
        rho[samples] = found.rho / np.sqrt(share)  # with these weights, the same scores
        return plain / (1.0 + penalty.ridge * plain), [rho]

    # Where it goes.

    def run(self, beginning: Beginning) -> Solution:
        """Until the gap is reached, time is up, or nothing is gained any more."""
        options, here = self._options, beginning.known
        best, trace = self._solution(here), list[tuple[float, int, int]]()
        weights, starts, idle = beginning.weights, beginning.starts, 0
        while best.gap > self._tol and idle < options.stalled and len(trace) < options.evaluations and not must_stop():
            share = 1.0 if self._centre is None else min(1.0, here.norm / max(abs(here.primal), 1e-300))
            found = self._at(weights, starts, share * best.gap)
            if found is None:
                break
            here, steps = found
            before, best = best.gap, best.or_better(self._solution(here))
            trace.append((best.gap, int(np.count_nonzero(best.weights)), steps))
            fell = self._centre is None or self._centre.value - here.value >= options.fall * abs(self._centre.value)
            idle = 0 if fell or best.gap < options.progress * before else idle + 1
            idle += options.stalled // 3 if self._unsolved(here) else 0
            self._exactness *= 1.0 if best.gap < options.slow * before else options.tighter
            if best.gap > self._tol:
                degenerate = idle >= options.degenerate and not self._inner.unique
                weights, starts = self._next(here, best, degenerate)
        rows = np.array(trace, dtype=np.float64).reshape(-1, 3)
        return replace(
            best,
            trace=rows,
            svm_calls=self._svm_calls,
            evaluations=len(trace),
        )

    def _next(self, here: Evaluation, best: Solution, degenerate: bool) -> tuple[Float64, list[Float64]]:
        """The next weights and where to begin there: on from here, or back towards the centre."""
        options, centre = self._options, self._centre
        if centre is None or self._better(here, centre):
            damping = self._damping / options.damping_growth if self._straight else self._damping
            self._damping = min(damping, best.gap) if min(damping, best.gap) >= options.damping_least else 0.0
            self._centre, self._straight = here, True
            self._active = np.flatnonzero((here.weights > 0) | (here.forms > self._penalty.C**2))
            self._H = self._inner.curvature(here.products[self._active])
            if degenerate:
                self._keep(best)
            self._step = self._newton_step(here)
            change = self._step[self._active] @ here.products[self._active]
            moved = self._loss.into_domain(self._y, here.rho + self._inner.response(change))
            return np.maximum(here.weights + self._step, 0.0), [balanced(moved), here.rho]
        self._damping, self._straight = max(options.damping_growth * self._damping, options.damping_again), False
        if degenerate and self._least == 0:
            self._keep(best)
            self._step = self._newton_step(centre)
        else:
            self._step = self._share(centre, here) * self._step
        return np.maximum(centre.weights + self._step, 0.0), [centre.rho, here.rho]

    def _keep(self, best: Solution) -> None:
        """From now on all active kernels keep some weight, which costs a small share of the tolerance.

        Where few samples are free, many rho are optimal for the kernels with weight, and the one that is found need
        not be feasible for the others: the objective has a kink where their weights are zero.
        """
        cost = self._options.floor * self._tol * abs(best.primal)
        self._least = cost / max(len(self._active) * self._penalty.C, 1e-300)

    def _unsolved(self, here: Evaluation) -> bool:
        """Whether the evaluation was lost to rounding."""
        share = here.slack / max(abs(here.primal), 1e-300)
        return not -self._options.negative <= share <= self._options.unsolved

    def _better(self, here: Evaluation, centre: Evaluation) -> bool:
        """Whether the objective is lower, or as low but for what does not count and the dual value higher."""
        change = here.value - centre.value
        same = abs(change) <= self._options.same * self._tol * abs(centre.primal)
        lower = here.dual > centre.dual if same else change <= max(centre.slack, 0.0)
        return lower and not self._unsolved(here)

    def _share(self, centre: Evaluation, here: Evaluation) -> float:
        """The share of the step from the centre to here at which the objective is least along it.

        What the loss gains along the step is a form of rho, too: 1 / sqrt of it is taken as linear. Where the objective
        has a kink at the centre, it rises sooner than its slope there says.
        """
        step = self._step
        bound = 0.5 * float((self._penalty.C / (1.0 - self._penalty.ridge * centre.weights)) ** 2 @ step)
        first, last = 0.5 * float(centre.forms @ step), 0.5 * float(here.forms @ step)
        ahead, back = first - bound, bound - last
        share = 0.5
        if ahead > 0 and back > 0:
            powers = [value**-0.5 for value in (first, bound, last) if value > 0]
            share = (powers[1] - powers[0]) / (powers[2] - powers[0]) if len(powers) == 3 else ahead / (ahead + back)
            share = min(share, 2.0 * (back - here.value + centre.value) / (ahead + back))  # 1 for a parabola
        return float(np.clip(share, self._options.shortest, self._options.longest))

    def _newton_step(self, here: Evaluation) -> Float64:
        """The change of the weights: the equations sqrt(D) (1 - ridge t) = C of active kernels, linear in 1 / sqrt(D).

        They are in the changes of t sqrt(D), the norms of the w_a: kernels may differ in scale by any factor.
        """
        options, C, ridge, active = self._options, self._penalty.C, self._penalty.ridge, self._active
        damping = min(self._damping, 1.0)
        radii = np.sqrt(np.maximum(here.forms[active], 1e-300))
        norms = here.weights[active] * radii
        left = 1.0 - ridge * here.weights[active]
        if len(active):
            C = max(C, float((left * radii).max()) / options.leap)
        typical = norms.sum() / max(np.count_nonzero(norms), 1)
        majorant = C * radii / np.maximum(np.maximum(norms, options.joining * typical), 1e-300)
        matrix = C * (1.0 - damping) * self._H / np.outer(radii, radii)
        matrix[np.diag_indices(len(matrix))] += (damping + options.ridge) * majorant + ridge * radii
        high = radii * left / ridge * (1 - 1e-12) if ridge > 0 else np.full(len(radii), np.inf)
        low = np.minimum(self._least, 0.5 * high) - norms
        step = np.zeros(len(here.weights))
        step[active] = bounded_minimum(matrix, radii * (left * radii - C), low, high) / radii
        return step

    # What is known at some weights.

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
        """Everything at these weights, or none, and a rho; all kernels are read once."""
        loss, y, penalty = self._loss, self._y, self._penalty
        products = self._kernels.products(rho)
        forms = np.maximum(products @ rho, 0.0)
        weights = np.zeros(len(forms)) if weights is None else weights
        scores, norm = weights @ products, float(weights @ forms)
        b = loss.intercept(y, scores)
        losses, conjugate = loss.total(y, scores + b), loss.conjugate(y, rho)
        dual, scale = penalty.dual(loss, y, rho, forms)
        regulariser = penalty.primal(weights * np.sqrt(forms))
        bound = 0.0
        if penalty.C > 0:
            bound = 0.5 * penalty.C**2 * float((weights / (1.0 - penalty.ridge * weights)).sum())
        return Evaluation(
            weights,
            rho,
            b,
            products,
            forms,
            norm,
            value=bound - conjugate - 0.5 * norm,
            slack=losses + conjugate + norm,
            primal=losses + regulariser,
            penalty=regulariser,
            dual=dual,
            scale=scale,
        )

    def _solution(self, here: Evaluation) -> Solution:
        primal = here.weights, here.rho, here.intercept, here.primal, here.penalty
        proof = here.dual, here.scale * here.rho, here.scale**2 * here.forms
        return Solution(*primal, *proof, np.empty((0, 3)))


def bounded_minimum(matrix: Float64, right: Float64, low: Float64, high: Float64) -> Float64:
    """The x within bounds, with the least 1/2 x' matrix x - right' x, by projected Newton steps."""
    x = np.clip(0.0, low, high)
    gradient = matrix @ x - right
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
    return np.asarray(x)
