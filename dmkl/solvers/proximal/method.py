"""Proximal minimisation with Newton inside, for any convex loss (SpicyMKL; Suzuki and Tomioka 2009).

    min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

An outer step adds terms that pull w, b and the loss's slacks to where they are, weaker and weaker (`Steps` grow), and
minimises the sum through its dual, a smooth function of one rho a sample:

    phi(rho) = l*(-rho) + sum_a [||alpha_a + g rho||_a - g C]+^2 / (2 g (1 + g ridge)) + (b + g_b sum rho)^2 / (2 g_b)

by Newton's method with Armijo's rule. Only kernels with ||alpha_a + g rho||_a > g C have a gradient and curvature. Of
alpha_a nothing is kept but K_a alpha_a and its norm: in the end w_a = weight_a sum_i rho_i phi_a(x_i) for every kernel.

Two things make it work at weak regularisation, where the authors' code diverges. The inner problem is solved until what
is left of it is small against the outer step (else growing penalties amplify its error), and where the loss has kinks,
whose smooth part has no curvature, the Newton matrix is damped in proportion to the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.problems.losses import Loss, Slack, Smooth, balanced
from dmkl.solvers.proximal.newton import System
from dmkl.solvers.proximal.operators import Kernels
from dmkl.solvers.proximal.points import Found, Penalty, Start, better

OUTER_STEPS = 60
NEWTON_STEPS = 50  # in one outer step
INNER = 0.1  # what is left of the inner problem, against the outer step
DAMPING = 0.1  # of the largest gradient, where the loss has kinks
ARMIJO, HALVED, SHORTEST = 1e-4, 0.5, 1e-10
GROWTH = ((3, 4.0), (10, 2.0))  # of the penalty parameters after at most so many Newton steps
SLOW_GROWTH = 1.4  # and after more
STIFFER = 0.1  # but where Newton's method did not get there at all, less
WARM = 0.05  # of the penalty parameters that the run before ended with: what was added needs room to move
CG_TOL = 0.1  # of the gradient, when the system is solved by conjugate gradients
ROUNDING = 1e-14
PROGRESS = 0.99  # of the gap before: an outer step that leaves more gained nothing
STALLED = 6  # outer steps that gained nothing before beginning again, or giving up
POOR = 1e-3  # a gap that rounding does not explain
GENTLE = 0.01  # of the penalty parameter at which the kernels could take all of the loss in one step
GENTLER = 0.01  # of the penalty parameters, when beginning again


@dataclass(frozen=True)
class _Steps:
    """Penalty parameters of the kernels, the intercept and the slacks."""

    kernels: float
    intercept: float
    slacks: float

    def grown(self, newton_steps: int) -> _Steps:
        if newton_steps >= NEWTON_STEPS:
            return self.times(STIFFER)
        return self.times(next((factor for most, factor in GROWTH if newton_steps <= most), SLOW_GROWTH))

    def times(self, factor: float) -> _Steps:
        return _Steps(factor * self.kernels, factor * self.intercept, factor * self.slacks)


@dataclass(frozen=True)
class _Centre:
    """Where the proximal terms pull to."""

    products: Float64  # K_a alpha_a (kernels, n)
    squares: Float64  # ||alpha_a||_a^2
    intercept: float
    slacks: list[Float64]


@dataclass(frozen=True)
class _Look:
    """phi's ingredients at one rho; per kernel only numbers, so that a line search reads no kernel."""

    rho: Float64
    crossed: Float64  # rho' K_a alpha_a
    forms: Float64  # rho' K_a rho


def minimise(
    kernels: Kernels, y: Float64, loss: Loss, penalty: Penalty, tol: float, start: Start | None = None
) -> Found:
    """Solve to a relative gap of `tol` over these samples and kernels, or as far as rounding lets it."""
    return _Method(kernels, y, loss, penalty, tol).run(start)


class _Method:
    def __init__(self, kernels: Kernels, y: Float64, loss: Loss, penalty: Penalty, tol: float) -> None:
        self.kernels, self.y, self.loss, self.penalty, self.tol = kernels, y, loss, penalty, tol
        self.slacks: list[Slack] = loss.slacks(y)

    def run(self, start: Start | None) -> Found:
        rho, products, centre, steps, best = self._begin(start)
        trace, idle, again = [], 0, False
        for _ in range(OUTER_STEPS):
            if best.gap <= self.tol or (idle >= STALLED and (again or best.gap < POOR)):
                break
            if idle >= STALLED:  # penalties that grow while nothing is gained end in rounding
                rho, products, centre, steps, _ = self._begin(None)
                steps, idle, again = steps.times(GENTLER), 0, True
            rho, products, newton_steps = self._inner(rho, products, centre, steps)
            centre, norms = self._moved(rho, products, centre, steps)
            seen = self._judged(rho, products, norms)
            before = best.gap
            best = better(best, seen)
            idle = 0 if best.gap < PROGRESS * before else idle + 1
            trace.append((best.gap, np.count_nonzero(norms), newton_steps))
            steps = steps.grown(newton_steps)
        counted = sum(int(row[2]) for row in trace)
        return replace(best, trace=np.array(trace).reshape(-1, 3), newton_steps=counted, step=steps.kernels)

    def _begin(self, start: Start | None) -> tuple[Float64, Float64, _Centre, _Steps, Found]:
        y, loss, penalty = self.y, self.loss, self.penalty
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
        best = Found(np.zeros(len(products)), rho, b, nothing, 0.0, -np.inf, rho, forms, np.empty((0, 3)), 0)
        best = better(best, self._judged(rho, products, weights * np.sqrt(forms)))
        # near enough to feasible that the first Newton steps are no leaps, also for kernels just added
        if penalty.C > 0:
            scale = min(1.0, penalty.C / max(float(np.sqrt(forms.max())), 1e-300))
            rho, products = scale * rho, scale * products
        units = _rms(y - y.mean()) / max(_rms(rho), 1e-300)
        step = GENTLE * nothing / max(penalty.C**2, 1e-300) if cold else float(weights.sum())
        step = min(step, 1.0 / penalty.ridge) if penalty.ridge > 0 else step
        steps = _Steps(max(step, 1e-300), units / len(y), units)
        if start is not None and start.step > 0:
            steps = steps.times(WARM * start.step / steps.kernels)
        return rho, products, centre, steps, best

    def _inner(self, rho: Float64, products: Float64, centre: _Centre, steps: _Steps) -> tuple[Float64, Float64, int]:
        """Newton's method on phi; rho with its products, and how many steps it took."""
        taken, last = 0, False
        while taken < NEWTON_STEPS and not last:
            taken += 1
            here = _Look(rho, centre.products @ rho, np.maximum(products @ rho, 0.0))
            direction, fall = self._direction(here, products, centre, steps)
            near = 0.5 * fall <= INNER * self._distance(here, centre, steps)
            turned = self.kernels.products(direction)
            length = self._length(here, direction, fall, products, turned, centre, steps)
            if length == 0.0:
                break
            rho, products = rho + length * direction, products + length * turned
            last = near and length == 1.0
        return rho, products, taken

    def _direction(self, here: _Look, products: Float64, centre: _Centre, steps: _Steps) -> tuple[Float64, float]:
        """Newton's step, and how far phi falls along it to first order."""
        g, softened = steps.kernels, 1.0 + steps.kernels * self.penalty.ridge
        norms = self._norms(here, centre, steps)
        active = np.flatnonzero(norms > g * self.penalty.C)
        share = g * self.penalty.C / norms[active]
        turned = centre.products[active] + g * products[active]
        smooth = self.loss.smooth(self.y, here.rho)
        assert smooth is not None
        gradient = smooth.gradient + ((1 - share) / softened) @ turned
        gradient += centre.intercept + steps.intercept * here.rho.sum()
        curvature = smooth.curvature.copy()
        for slack, value in zip(self.slacks, centre.slacks, strict=True):
            free, moved = _slack_at(slack, value, here.rho, steps.slacks)
            gradient -= slack.sign * moved
            curvature += np.where(free, steps.slacks, 0.0)
        if self.slacks:
            curvature += DAMPING * float(np.abs(gradient).max())
        weights = np.zeros(len(norms))
        weights[active] = g * (1 - share) / softened
        bends = np.sqrt(g * share / softened)[:, None] * turned / norms[active][:, None]
        constant = np.full((1, len(self.y)), np.sqrt(steps.intercept))
        system = System(self.kernels, weights, curvature, np.vstack([bends, constant]))
        direction = -system.solve(gradient, CG_TOL)
        # a few samples near the ends of their range would else shorten the step of all of them
        shortened = self.loss.shortened(self.y, here.rho, direction)
        direction = shortened if gradient @ shortened < 0 else direction
        return direction, -float(gradient @ direction)

    def _norms(self, here: _Look, centre: _Centre, steps: _Steps) -> Float64:
        """||alpha_a + g rho||_a."""
        g = steps.kernels
        return np.sqrt(np.maximum(centre.squares + 2 * g * here.crossed + g**2 * here.forms, 0.0))

    def _value(self, here: _Look, centre: _Centre, steps: _Steps) -> float:
        smooth: Smooth | None = self.loss.smooth(self.y, here.rho)
        if smooth is None:
            return np.inf
        g, C = steps.kernels, self.penalty.C
        over = np.maximum(self._norms(here, centre, steps) - g * C, 0.0)
        value = smooth.value + float((over**2).sum()) / (2 * g * (1 + g * self.penalty.ridge))
        value += (centre.intercept + steps.intercept * float(here.rho.sum())) ** 2 / (2 * steps.intercept)
        for slack, old in zip(self.slacks, centre.slacks, strict=True):
            _, moved = _slack_at(slack, old, here.rho, steps.slacks)
            value -= float(((slack.cost + slack.sign * here.rho) * moved).sum())
            value -= float(((moved - old) ** 2).sum()) / (2 * steps.slacks)
        return value

    def _length(
        self,
        here: _Look,
        direction: Float64,
        fall: float,
        products: Float64,
        turned: Float64,
        centre: _Centre,
        steps: _Steps,
    ) -> float:
        """How far to go, by halving; 0 when rounding hides any fall."""
        value = self._value(here, centre, steps)
        across, along, twice = centre.products @ direction, products @ direction, turned @ direction
        length = 1.0
        while length >= SHORTEST:
            forms = np.maximum(here.forms + 2 * length * along + length**2 * twice, 0.0)
            there = _Look(here.rho + length * direction, here.crossed + length * across, forms)
            if self._value(there, centre, steps) <= value - ARMIJO * length * fall + ROUNDING * abs(value):
                return length
            length *= HALVED
        return 0.0

    def _distance(self, here: _Look, centre: _Centre, steps: _Steps) -> float:
        """What the proximal terms would be after an outer step from here: sum of ||change||^2 / (2 g)."""
        g = steps.kernels
        kept = self._kept(self._norms(here, centre, steps), steps)
        change = (
            (kept - 1) ** 2 * centre.squares + 2 * (kept - 1) * kept * g * here.crossed + (kept * g) ** 2 * here.forms
        )
        total = float(np.maximum(change, 0.0).sum()) / (2 * g) + 0.5 * steps.intercept * float(here.rho.sum()) ** 2
        for slack, old in zip(self.slacks, centre.slacks, strict=True):
            _, moved = _slack_at(slack, old, here.rho, steps.slacks)
            total += float(((moved - old) ** 2).sum()) / (2 * steps.slacks)
        return total

    def _kept(self, norms: Float64, steps: _Steps) -> Float64:
        """What the soft threshold leaves of alpha_a + g rho."""
        g = steps.kernels
        left = np.maximum(1.0 - g * self.penalty.C / np.maximum(norms, 1e-300), 0.0)
        return np.asarray(left / (1.0 + g * self.penalty.ridge))

    def _moved(self, rho: Float64, products: Float64, centre: _Centre, steps: _Steps) -> tuple[_Centre, Float64]:
        """The outer step: the next centre and the norms ||w_a||."""
        here = _Look(rho, centre.products @ rho, np.maximum(products @ rho, 0.0))
        norms = self._norms(here, centre, steps)
        kept = self._kept(norms, steps)
        slacks = [_slack_at(s, old, rho, steps.slacks)[1] for s, old in zip(self.slacks, centre.slacks, strict=True)]
        moved = kept[:, None] * (centre.products + steps.kernels * products)
        after = kept * norms
        return _Centre(moved, after**2, centre.intercept + steps.intercept * float(rho.sum()), slacks), after

    def _judged(self, rho: Float64, products: Float64, norms: Float64) -> Found:
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
        return Found(weights, feasible, b, primal, penalty, dual, proof, proof_forms, np.empty((0, 3)), 0)


def _slack_at(slack: Slack, old: Float64, rho: Float64, step: float) -> tuple[NDArray[np.bool_], Float64]:
    """Where a slack goes from `old` at this rho, and whether it moves freely there."""
    wanted = old - step * (slack.cost + slack.sign * rho)
    moved = np.clip(wanted, slack.low, slack.high)
    return np.asarray((wanted == moved) & (slack.low < slack.high)), moved


def _rms(values: Sequence[float] | Float64) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
