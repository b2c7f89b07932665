"""Forward-backward splitting for MIKL, plain as in the paper (Algorithm 2) or accelerated.

    alpha+ = prox_{step pen}(z + step K_y' u),   u = 2 [1 - K_y z]+ ,     z = alpha, or extrapolated (FISTA)

The extrapolation starts again whenever the step turns against it (O'Donoghue and Candes 2015). The step starts from the
operator's norm as power iteration estimates it, from below, so it is halved wherever the quadratic bound that it stands
for does not hold. Every u is dual feasible once scaled: each step gives a certificate with no further product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.types import Float64
from dmkl.problems.proxes import TINY, GroupNorm
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.mikl.rows import Rows

POWER_STEPS = 12  # of the power iteration; the step need not be exact


@dataclass(frozen=True)
class Point:
    """Coefficients with their margins and objective, and the best dual point so far: u scaled, its bound."""

    alpha: Float64
    margins: Float64
    primal: float
    u: Float64
    dual: float
    step: float = 0.0  # of forward-backward; 0 before the first
    iterations: int = 0

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual)

    def with_bound(self, norm: GroupNorm, u: Float64, V: Float64) -> Point:
        """With the bound of u, if it is the better one; V = K_y' u."""
        dual, scale = lower_bound(norm, u, V)
        return replace(self, u=scale * u, dual=dual) if dual > self.dual else self


def lower_bound(norm: GroupNorm, u: Float64, V: Float64) -> tuple[float, float]:
    """max_t L(t u) and the t: t 1'u - t^2 (u'u/4 + pen*(V)) is concave in t, which pen* may bound."""
    linear, square = float(u.sum()), float(u @ u) / 4 + norm.conjugate(V)
    scale = min(linear / max(2 * square, TINY), norm.reach(V))
    return scale * (linear - scale * square), scale


def slack(margins: Float64) -> Float64:
    return np.maximum(1.0 - margins, 0.0)


def loss_of(margins: Float64) -> float:
    slacks = slack(margins)
    return float(slacks @ slacks)


def start_at(rows: Rows, norm: GroupNorm, alpha: Float64) -> Point:
    """No dual point yet but 0."""
    margins = rows.margins(alpha) if alpha.any() else np.zeros(rows.n)
    return Point(alpha, margins, loss_of(margins) + norm.value(alpha), np.zeros_like(margins), 0.0)


def first_step(rows: Rows) -> float:
    """1 / (2 ||K_y||^2), the norm from a power iteration with K_y and K_y'."""
    v = np.random.default_rng(0).normal(size=rows.n)
    size = 0.0
    for _ in range(POWER_STEPS):
        v = rows.margins(rows.slopes(v / np.linalg.norm(v)))
        size = float(np.linalg.norm(v))
        if size <= TINY:
            return 1.0
    return 1.0 / (2.0 * size)


def descend(rows: Rows, norm: GroupNorm, point: Point, tol: float, limit: int, *, accelerated: bool = True) -> Point:
    """At most `limit` steps, or until the certified relative gap is at most `tol`."""
    step = point.step or first_step(rows)
    z, margins_z, momentum = point.alpha, point.margins, 1.0
    for _ in range(limit):
        u = 2.0 * slack(margins_z)
        V = rows.slopes(u)
        alpha, margins, step = _forward_backward(rows, norm, (z, margins_z, V), step)
        primal = loss_of(margins) + norm.value(alpha)
        before = point
        point = replace(point, alpha=alpha, margins=margins, primal=primal, step=step, iterations=point.iterations + 1)
        point = point.with_bound(norm, u, V)
        if point.gap <= tol:
            break
        moved = alpha - before.alpha
        if not accelerated or (z - alpha) @ moved > 0:
            z, margins_z, momentum = alpha, margins, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        rate, momentum = (momentum - 1) / following, following
        z, margins_z = alpha + rate * moved, margins + rate * (margins - before.margins)
    return point


def _forward_backward(
    rows: Rows, norm: GroupNorm, at: tuple[Float64, Float64, Float64], step: float
) -> tuple[Float64, Float64, float]:
    """The next coefficients with their margins and the step that was safe; V is minus the gradient at z."""
    z, margins_z, V = at
    loss = loss_of(margins_z)
    while True:
        alpha = norm.prox(z + step * V, step)
        margins, moved = rows.margins(alpha), alpha - z
        bound = loss - float(V @ moved) + float(moved @ moved) / (2 * step)
        if loss_of(margins) <= bound + 1e-12 * max(loss, 1.0):
            return alpha, margins, step
        step /= 2
