"""Proximal minimisation with Newton's method inside, for any convex loss (SpicyMKL; Suzuki and Tomioka 2009).

    min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

An outer step adds terms that pull w, b and the slacks of the loss to their present values, with penalty parameters g
that grow, and minimises the sum through its dual, a smooth function of one rho for each sample:

    phi(rho) = l*(-rho) + sum_a [||alpha_a + g rho||_a - g C]+^2 / (2 g (1 + g ridge)) + (b + g_b sum rho)^2 / (2 g_b)

by Newton's method with Armijo's rule. Only kernels with ||alpha_a + g rho||_a > g C have a gradient and curvature. Of
alpha_a only K_a alpha_a and its norm are kept: in the end w_a = weight_a sum_i rho_i phi_a(x_i) for every kernel.

Two things make it work at weak regularisation, where the authors' code diverges. The inner problem is solved until its
remaining error is small against the outer step (else growing penalties amplify the error), and where the loss has
kinks, so that its smooth part has no curvature, the Newton matrix is damped in proportion to the gradient.

The kernels are linear operators (`kernel_operators`): a block in memory, or the stack itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, Mask
from dmkl.problems.losses import Loss, Slack, Smooth, balanced
from dmkl.solvers.kernel_operators import KernelOperator
from dmkl.solvers.loss_problem import Penalty, Solution, Start


@dataclass(frozen=True)
class ProximalOptions:
    """Constants of the method. Penalty parameters are those of the proximal terms."""

    outer_steps: int = 60  # at most
    newton_steps: int = 50  # at most, in one outer step
    inner: float = 0.1  # the error of an inner problem, as a share of the outer step
    damping: float = 0.1  # of the Newton matrix, as a share of the largest gradient, where the loss has kinks
    armijo: float = 1e-4  # the share of the promised fall that a step has to achieve
    halving: float = 0.5  # of a step that does not
    shortest: float = 1e-10  # step; below it rounding hides any fall
    rounding: float = 1e-14  # of the value of phi
    growth: tuple[tuple[int, float], ...] = ((3, 4.0), (10, 2.0))  # of penalty parameters, by Newton steps at most
    slow_growth: float = 1.4  # after more Newton steps
    setback: float = 0.1  # after an inner problem that was not solved
    warm: float = 0.05  # of the last run's penalty parameters: kernels that were added need room to move
    cold: float = 0.01  # of the penalty parameter at which the kernels could take all of the loss in one step
    again: float = 0.01  # of the penalty parameters, when the method begins again
    progress: float = 0.99  # an outer step that leaves more of the gap than this gained nothing
    stalled: int = 6  # outer steps without gain before the method begins again, or gives up
    poor: float = 1e-3  # a gap that rounding does not explain: worth beginning again
    cholesky_up_to: int = 4000  # samples whose Newton matrix is factored; conjugate gradients beyond
    jitter: float = 1e-10  # of the mean diagonal, because kernels are semidefinite only up to rounding
    jitter_growth: float = 1e3  # while a factorisation fails
    cg_steps: int = 200  # at most
    cg_tol: float = 0.1  # of the gradient's norm
    cg_exact: float = 1e-6  # where conjugate gradients stand in for a factorisation


OPTIONS = ProximalOptions()
_NO_TRACE = np.empty((0, 3))


# Newton systems.


@dataclass(frozen=True)
class NewtonSystem:
    """(D + sum_a w_a K_a + U'U) x = right, D diagonal, U with few rows; the matrix is not put together yet.

    Up to `cholesky_up_to` samples the matrix is factored. Beyond, conjugate gradients with the diagonal as
    preconditioner: on the weighted sum of the kernels where one such matrix (float32) fits in memory, else on the
    kernels themselves, a pass for each product. On one thread factoring n = 4,000 costs as much as 60 products.
    """

    kernels: KernelOperator
    weights: Float64  # (kernels,)
    diagonal: Float64  # (n,)
    factors: Float64  # U (few, n)
    options: ProximalOptions

    def solve(self, right: Float64) -> Float64:
        """x to the relative residual `cg_tol` or better, or as far as rounding allows."""
        if len(right) <= self.options.cholesky_up_to:
            return self._by_cholesky(right)
        tol = self.options.cg_tol
        combined = self.kernels.matrix(self.weights, np.float32)
        if combined is None:
            return self._by_gradients(right, tol, lambda x: self.kernels.total(self.weights, x))
        return self._by_gradients(right, tol, lambda x: (combined @ x.astype(combined.dtype)).astype(np.float64))

    def _by_cholesky(self, right: Float64) -> Float64:
        matrix = self.kernels.matrix(self.weights, np.float64)
        if matrix is None:
            return self._by_gradients(right, self.options.cg_exact, lambda x: self.kernels.total(self.weights, x))
        matrix += self.factors.T @ self.factors
        plain = matrix.diagonal() + self.diagonal
        jitter = self.options.jitter * max(float(plain.mean()), 1e-300)
        while True:
            matrix[np.diag_indices(len(right))] = plain + jitter
            try:
                factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                jitter *= self.options.jitter_growth
                continue
            return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))

    def _by_gradients(self, right: Float64, tol: float, product: Callable[[Float64], Float64]) -> Float64:
        """Preconditioned conjugate gradients; every iterate is a descent direction."""
        scale = 1.0 / (self.diagonal + (self.factors**2).sum(axis=0) + max(float(self.diagonal.mean()), 1e-300))
        x, residual = np.zeros(len(right)), right.copy()
        scaled = scale * residual
        direction, size = scaled.copy(), float(residual @ scaled)
        wanted = tol * float(np.linalg.norm(right))
        for _ in range(self.options.cg_steps):
            image = self.diagonal * direction + product(direction) + self.factors.T @ (self.factors @ direction)
            curvature = float(direction @ image)
            if not curvature > 0 or must_stop():
                break
            x += (size / curvature) * direction
            residual -= (size / curvature) * image
            if np.linalg.norm(residual) <= wanted:
                break
            scaled = scale * residual
            before, size = size, float(residual @ scaled)
            direction = scaled + (size / before) * direction
        return x


# The method.


@dataclass(frozen=True)
class _PenaltyParameters:
    """Of the proximal terms of the kernels, the intercept and the slacks."""

    kernels: float
    intercept: float
    slacks: float

    def grown(self, newton_steps: int, options: ProximalOptions) -> _PenaltyParameters:
        if newton_steps >= options.newton_steps:
            return self.times(options.setback)
        factors = (factor for most, factor in options.growth if newton_steps <= most)
        return self.times(next(factors, options.slow_growth))

    def times(self, factor: float) -> _PenaltyParameters:
        return _PenaltyParameters(factor * self.kernels, factor * self.intercept, factor * self.slacks)


@dataclass(frozen=True)
class _Centre:
    """Where the proximal terms pull to."""

    products: Float64  # K_a alpha_a (kernels, n)
    squares: Float64  # ||alpha_a||_a^2
    intercept: float
    slacks: list[Float64]


@dataclass(frozen=True)
class _Iterate:
    """What phi depends on at one rho; only numbers for each kernel, so that a line search reads no kernel."""

    rho: Float64
    crossed: Float64  # rho' K_a alpha_a
    forms: Float64  # rho' K_a rho


def minimise(
    kernels: KernelOperator,
    y: Float64,
    loss: Loss,
    penalty: Penalty,
    tol: float,
    start: Start | None = None,
    options: ProximalOptions | None = None,
) -> Solution:
    """Minimise over some samples and kernels.

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
        A point to begin at; without it the method begins at the model without kernels.
    options : ProximalOptions, optional
        Constants of the method.

    Returns
    -------
    Solution
        With a gap of `tol`, or as far as rounding and time allow.
    """
    return _Method(kernels, y, loss, penalty, tol, options or OPTIONS).run(start)


class _Method:
    def __init__(
        self, kernels: KernelOperator, y: Float64, loss: Loss, penalty: Penalty, tol: float, options: ProximalOptions
    ) -> None:
        self.kernels, self.y, self.loss, self.penalty, self.tol = kernels, y, loss, penalty, tol
        self.slacks: list[Slack] = loss.slacks(y)
        self.options = options

    def run(self, start: Start | None) -> Solution:
        options = self.options
        rho, products, centre, parameters, best = self._begin(start)
        trace, idle, again = [], 0, False
        for _ in range(options.outer_steps):
            if best.gap <= self.tol or (idle >= options.stalled and (again or best.gap < options.poor)) or must_stop():
                break
            if idle >= options.stalled:  # penalties that grow while nothing is gained end in rounding
                rho, products, centre, parameters, _ = self._begin(None)
                parameters, idle, again = parameters.times(options.again), 0, True
            rho, products, newton_steps = self._inner(rho, products, centre, parameters)
            centre, norms = self._moved(rho, products, centre, parameters)
            before = best.gap
            best = best.or_better(self._solution(rho, products, norms))
            idle = 0 if best.gap < options.progress * before else idle + 1
            trace.append((best.gap, np.count_nonzero(norms), newton_steps))
            parameters = parameters.grown(newton_steps, options)
        rows = np.array(trace, dtype=np.float64).reshape(-1, 3)
        return replace(best, trace=rows, step=parameters.kernels)

    def _begin(self, start: Start | None) -> tuple[Float64, Float64, _Centre, _PenaltyParameters, Solution]:
        """rho with its products, the first centre and penalty parameters, and the better of start and no model."""
        y, loss, penalty, options = self.y, self.loss, self.penalty, self.options
        b = loss.intercept(y, np.zeros(len(y)))
        nothing = loss.total(y, np.full(len(y), b))
        cold = start is None or not start.weights.any()
        rho = loss.null(y) if start is None or cold else loss.into_domain(y, start.rho)
        products = self.kernels.products(rho)
        forms = np.maximum(products @ rho, 0.0)
        weights = np.zeros(len(products)) if start is None or cold else start.weights
        b = b if start is None or cold else start.intercept
        f = weights @ products + b
        centre = _Centre(weights[:, None] * products, weights**2 * forms, b, loss.slack_values(y, f))
        none = np.zeros(len(products))
        best = Solution(none, rho, b, nothing, 0.0, -np.inf, rho, forms, _NO_TRACE)
        best = best.or_better(self._solution(rho, products, weights * np.sqrt(forms)))
        # scaled towards the feasible set, so that the first Newton steps stay short, also for kernels just added
        if penalty.C > 0:
            scale = min(1.0, penalty.C / max(float(np.sqrt(forms.max())), 1e-300))
            rho, products = scale * rho, scale * products
        units = _root_mean_square(y - y.mean()) / max(_root_mean_square(rho), 1e-300)
        step = options.cold * nothing / max(penalty.C**2, 1e-300) if cold else float(weights.sum())
        step = min(step, 1.0 / penalty.ridge) if penalty.ridge > 0 else step
        parameters = _PenaltyParameters(max(step, 1e-300), units / len(y), units)
        if start is not None and start.step > 0:
            parameters = parameters.times(options.warm * start.step / parameters.kernels)
        return rho, products, centre, parameters, best

    def _inner(
        self, rho: Float64, products: Float64, centre: _Centre, parameters: _PenaltyParameters
    ) -> tuple[Float64, Float64, int]:
        """Newton's method on phi: rho with its products, and the number of steps."""
        taken, last = 0, False
        while taken < self.options.newton_steps and not last and not must_stop():
            taken += 1
            here = _Iterate(rho, centre.products @ rho, np.maximum(products @ rho, 0.0))
            direction, fall = self._direction(here, products, centre, parameters)
            near = 0.5 * fall <= self.options.inner * self._distance(here, centre, parameters)
            turned = self.kernels.products(direction)
            length = self._length(here, direction, fall, products, turned, centre, parameters)
            if length == 0.0:
                break
            rho, products = rho + length * direction, products + length * turned
            last = near and length == 1.0
        return rho, products, taken

    def _direction(
        self, here: _Iterate, products: Float64, centre: _Centre, parameters: _PenaltyParameters
    ) -> tuple[Float64, float]:
        """Newton's step, and how far phi falls along it to first order."""
        g, softened = parameters.kernels, 1.0 + parameters.kernels * self.penalty.ridge
        norms = self._norms(here, centre, parameters)
        active = np.flatnonzero(norms > g * self.penalty.C)
        share = g * self.penalty.C / norms[active]
        turned = centre.products[active] + g * products[active]
        smooth = self.loss.smooth(self.y, here.rho)
        assert smooth is not None
        gradient = smooth.gradient + ((1 - share) / softened) @ turned
        gradient += centre.intercept + parameters.intercept * here.rho.sum()
        curvature = smooth.curvature.copy()
        for slack, value in zip(self.slacks, centre.slacks, strict=True):
            free, moved = _slack_at(slack, value, here.rho, parameters.slacks)
            gradient -= slack.sign * moved
            curvature += np.where(free, parameters.slacks, 0.0)
        if self.slacks:
            curvature += self.options.damping * float(np.abs(gradient).max())
        weights = np.zeros(len(norms))
        weights[active] = g * (1 - share) / softened
        bends = np.sqrt(g * share / softened)[:, None] * turned / norms[active][:, None]
        constant = np.full((1, len(self.y)), np.sqrt(parameters.intercept))
        system = NewtonSystem(self.kernels, weights, curvature, np.vstack([bends, constant]), self.options)
        direction = -system.solve(gradient)
        # otherwise a few samples near the ends of their range would shorten the step of all samples
        shortened = self.loss.shortened(self.y, here.rho, direction)
        direction = shortened if gradient @ shortened < 0 else direction
        return direction, -float(gradient @ direction)

    def _norms(self, here: _Iterate, centre: _Centre, parameters: _PenaltyParameters) -> Float64:
        """||alpha_a + g rho||_a."""
        g = parameters.kernels
        return np.sqrt(np.maximum(centre.squares + 2 * g * here.crossed + g**2 * here.forms, 0.0))

    def _value(self, here: _Iterate, centre: _Centre, parameters: _PenaltyParameters) -> float:
        """phi."""
        smooth: Smooth | None = self.loss.smooth(self.y, here.rho)
        if smooth is None:
            return np.inf
        g, C = parameters.kernels, self.penalty.C
        over = np.maximum(self._norms(here, centre, parameters) - g * C, 0.0)
        value = smooth.value + float((over**2).sum()) / (2 * g * (1 + g * self.penalty.ridge))
        value += (centre.intercept + parameters.intercept * float(here.rho.sum())) ** 2 / (2 * parameters.intercept)
        for slack, old in zip(self.slacks, centre.slacks, strict=True):
            _, moved = _slack_at(slack, old, here.rho, parameters.slacks)
            value -= float(((slack.cost + slack.sign * here.rho) * moved).sum())
            value -= float(((moved - old) ** 2).sum()) / (2 * parameters.slacks)
        return value

    def _length(
        self,
        here: _Iterate,
        direction: Float64,
        fall: float,
        products: Float64,
        turned: Float64,
        centre: _Centre,
        parameters: _PenaltyParameters,
    ) -> float:
        """The length of the step by Armijo's rule; 0 when rounding hides any fall."""
        options = self.options
        value = self._value(here, centre, parameters)
        across, along, twice = centre.products @ direction, products @ direction, turned @ direction
        length = 1.0
        while length >= options.shortest:
            forms = np.maximum(here.forms + 2 * length * along + length**2 * twice, 0.0)
            there = _Iterate(here.rho + length * direction, here.crossed + length * across, forms)
            least = value - options.armijo * length * fall + options.rounding * abs(value)
            if self._value(there, centre, parameters) <= least:
                return length
            length *= options.halving
        return 0.0

    def _distance(self, here: _Iterate, centre: _Centre, parameters: _PenaltyParameters) -> float:
        """The proximal terms after an outer step from here: sum of ||change||^2 / (2 g)."""
        g = parameters.kernels
        kept = self._kept(self._norms(here, centre, parameters), parameters)
        change = (
            (kept - 1) ** 2 * centre.squares + 2 * (kept - 1) * kept * g * here.crossed + (kept * g) ** 2 * here.forms
        )
        total = float(np.maximum(change, 0.0).sum()) / (2 * g)
        total = total + 0.5 * parameters.intercept * float(here.rho.sum()) ** 2
        for slack, old in zip(self.slacks, centre.slacks, strict=True):
            _, moved = _slack_at(slack, old, here.rho, parameters.slacks)
            total += float(((moved - old) ** 2).sum()) / (2 * parameters.slacks)
        return total

    def _kept(self, norms: Float64, parameters: _PenaltyParameters) -> Float64:
        """The factor that the soft threshold leaves of alpha_a + g rho."""
        g = parameters.kernels
        left = np.maximum(1.0 - g * self.penalty.C / np.maximum(norms, 1e-300), 0.0)
        return np.asarray(left / (1.0 + g * self.penalty.ridge))

    def _moved(
        self, rho: Float64, products: Float64, centre: _Centre, parameters: _PenaltyParameters
    ) -> tuple[_Centre, Float64]:
        """The outer step: the next centre and the norms ||w_a||."""
        here = _Iterate(rho, centre.products @ rho, np.maximum(products @ rho, 0.0))
        norms = self._norms(here, centre, parameters)
        kept = self._kept(norms, parameters)
        pairs = zip(self.slacks, centre.slacks, strict=True)
        slacks = [_slack_at(slack, old, rho, parameters.slacks)[1] for slack, old in pairs]
        moved = kept[:, None] * (centre.products + parameters.kernels * products)
        intercept = centre.intercept + parameters.intercept * float(rho.sum())
        after = kept * norms
        return _Centre(moved, after**2, intercept, slacks), after

    def _solution(self, rho: Float64, products: Float64, norms: Float64) -> Solution:
        """Both values at the nearest feasible rho, kernels weighed so that their functions have these norms."""
        loss, y = self.loss, self.y
        feasible = balanced(loss.into_domain(y, rho))
        if not np.array_equal(feasible, rho):
            products = self.kernels.products(feasible)
        forms = np.maximum(products @ feasible, 0.0)
        radii = np.sqrt(forms)
        weights = np.where(radii > 0, norms / np.maximum(radii, 1e-300), 0.0)
        scores = weights @ products
        b = loss.intercept(y, scores)
        penalty = self.penalty.primal(weights * radii)
        primal = loss.total(y, scores + b) + penalty
        dual, scale = self.penalty.dual(loss, y, feasible, forms)
        proof, proof_forms = scale * feasible, scale**2 * forms
        return Solution(weights, feasible, b, primal, penalty, dual, proof, proof_forms, _NO_TRACE)


def _slack_at(slack: Slack, old: Float64, rho: Float64, step: float) -> tuple[Mask, Float64]:
    """Where a slack goes from `old` at this rho, and whether it moves freely there."""
    wanted = old - step * (slack.cost + slack.sign * rho)
    moved = np.clip(wanted, slack.low, slack.high)
    return np.asarray((wanted == moved) & (slack.low < slack.high)), moved


def _root_mean_square(values: Float64) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
