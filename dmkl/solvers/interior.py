"""Interior point for the dual of a mixed-norm machine on one compact block.

    min_{beta, N}  1/2 ||N||_rho^2 - y'beta    s.t.  (beta' K_a beta / N_g(a) - N_g(a)) / 2 <= 0  for every kernel a,
                                                    0 <= y * beta <= C,  sum(beta) = 0

(FORMULATIONS section 1 with M_j = N_j^2; dividing by N makes the constraint convex.) The multipliers mu_a of the
constraints are the kernels: at the optimum the effective weight of kernel a is mu_a / N_g(a). A primal-dual method with
Mehrotra's predictor and corrector takes 10 to 15 steps whatever the number of kernels, where methods that alternate
between SVM and weights stall when many kernels are near-active: a step moves the active samples and the active
kernels at once. Each step reads the block once (`sweep`) and factors one matrix of its size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.interior_equations import Equations
from dmkl.solvers.interior_point import Machine, Point

MAX_STEPS = 60
TO_BOUNDARY = 0.99  # share of the way to the nearest bound that a step may go
OPTIMAL = 0.01  # complementarity below this share of the tolerance is as good as the gap (with C slacks, C large,
# the primal value of an interior point lags behind; the caller's SVM makes up for it)
FLOOR = 1e-3  # and below this share it only costs digits
STALLED = 1e-3  # a step length below this, twice in a row, ends the method


@dataclass(frozen=True)
class Interior:
    """The weights found, the point they were found at, and the bounds it proves on the block."""

    weights: Float64
    beta: Float64
    primal: float
    dual: float
    proof: Float64  # the beta that proves `dual`
    proof_forms: Float64
    steps: int
    solved: bool = False  # else rounding, or a point it could not get away from, ended it
    svm_calls: int = 0
    oracle_calls: int = 0


def solve_interior(K: NDArray[Any], y: Float64, C: Float64 | float, norm: MixedNorm, tol: float) -> Interior:
    """Solve on a block K (s, n, n) to a relative gap of `tol`, or as far as rounding lets it."""
    machine = Machine(K, y, C, norm, np.arange(len(K)))
    found = follow(machine, machine.start(), tol)[0]
    if found.solved:
        return found
    again = follow(machine, machine.central(), tol)[0]
    again = replace(again, steps=found.steps + again.steps)
    better = again.primal - again.dual < found.primal - found.dual  # both are true bounds, whatever ended the method
    return again if better else found


def follow(machine: Machine, point: Point, tol: float) -> tuple[Interior, Point]:
    """Steps from this point on, and where they ended; everything a kernel is of the machine's kernels only."""
    nothing = np.zeros(len(machine.y))
    best = Interior(machine.norm.uniform(), nothing, np.inf, -np.inf, nothing, np.zeros(len(machine.g)), 0)
    idle = 0
    for number in range(1, MAX_STEPS + 1):
        machine.read(point)
        primal, dual = machine.bounds(point)
        best = replace(best, steps=number)
        if primal < best.primal:
            best = replace(best, weights=machine.weights, beta=point.beta, primal=primal)
        if dual > best.dual:
            best = replace(best, dual=dual, proof=point.beta, proof_forms=machine.forms)
        if best.primal - best.dual <= tol * abs(best.primal):
            best = replace(best, solved=True)
            break
        solved = np.isfinite(best.dual) and machine.residual(point) <= OPTIMAL * tol * abs(best.dual)
        if idle == 2 or solved:
            best = replace(best, weights=machine.weights, beta=point.beta, primal=primal, solved=solved)
            break
        try:
            with np.errstate(divide="raise", invalid="raise"):
                point, length = _step(machine, point, FLOOR * tol * abs(best.dual))
        except (np.linalg.LinAlgError, FloatingPointError):  # no digits left: what was found so far is what there is
            break
        idle = idle + 1 if length < STALLED else 0
    return best, point


def _step(machine: Machine, point: Point, floor: float) -> tuple[Point, float]:
    """One predictor-corrector step and its length; it does not aim at a complementarity below `floor`."""
    system = Equations(machine, point)
    products = machine.each(point)
    count = sum(map(len, products))
    mean = sum(float(product.sum()) for product in products) / count
    ahead = system.direction(*products)
    primal, dual = _lengths(machine, point, ahead)
    seen = point.moved(ahead, primal, dual)
    target = max((machine.complementarity(seen) / count / mean) ** 3, 1e-8) * mean
    target = max(target, floor / count) if np.isfinite(floor) else target
    step = system.direction(
        products[0] + ahead.mu * ahead.slack - target,
        products[1] + ahead.lower * ahead.beta - target,
        products[2] - ahead.upper * ahead.beta - target,
    )
    length = TO_BOUNDARY * min(_lengths(machine, point, step))
    return point.moved(step, length, length), length


def _lengths(machine: Machine, point: Point, step: Point) -> tuple[float, float]:
    """How far primal variables and multipliers can go."""
    primal = (
        (point.slack, step.slack),
        (point.radii, step.radii),
        (point.beta - machine.lo, step.beta),
        (machine.hi - point.beta, -step.beta),
    )
    dual = ((point.mu, step.mu), (point.lower, step.lower), (point.upper, step.upper))
    return min(_room(*pair) for pair in primal), min(_room(*pair) for pair in dual)


def _room(values: Float64, steps: Float64) -> float:
    shrinking = steps < 0
    return min(1.0, float((-values[shrinking] / steps[shrinking]).min())) if shrinking.any() else 1.0
