"""Forward-backward splitting for a compact MIKL problem, plain as in the paper (Algorithm 2) or accelerated.

    alpha+ = prox_{step pen}(z + step K_y' u),   u = 2 [1 - K_y z]+ ,     z = alpha, or extrapolated (FISTA)

The extrapolation restarts whenever a step turns against it (O'Donoghue and Candes 2015). The first step size comes from
a power iteration, which estimates the norm of K_y from below; so the size is halved wherever the quadratic upper bound
of the loss does not hold. Every u is dual feasible after scaling, so each step has a certificate at no further cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.types import Float64
from dmkl.problems.proxes import TINY, GroupNorm
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.per_kernel.kernel_rows import KernelRows


@dataclass(frozen=True)
class ForwardBackwardOptions:
    """Constants of forward-backward splitting."""

    power_steps: int = 12  # of the power iteration; the step size need not be exact
    rounding: float = 1e-12  # of the loss, by which it may exceed its quadratic bound


FORWARD_BACKWARD = ForwardBackwardOptions()


@dataclass(frozen=True)
class CompactPoint:
    """A point of a compact problem, primal and dual."""

    alpha: Float64  # (p,): coefficients
    margins: Float64  # (n,)
    primal: float
    u: Float64  # (n,): the best dual point so far, scaled to be feasible
    dual: float  # its lower bound
    step: float = 0.0  # step size of forward-backward splitting; 0 before the first step
    iterations: int = 0

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual)

    def with_bound(self, norm: GroupNorm, u: Float64, V: Float64) -> CompactPoint:
        """With u as dual point if its bound is better; V = K_y' u."""
        dual, scale = lower_bound(norm, u, V)
        return replace(self, u=scale * u, dual=dual) if dual > self.dual else self


def lower_bound(norm: GroupNorm, u: Float64, V: Float64) -> tuple[float, float]:
    """max_t L(t u) and the maximising t, with V = K_y' u.

    L(t u) = t 1'u - t^2 (u'u/4 + pen*(V)) is concave in t; for Q = 1 t is bounded, because pen* is finite only there.
    """
    linear, square = float(u.sum()), float(u @ u) / 4 + norm.conjugate(V)
    scale = min(linear / max(2 * square, TINY), norm.reach(V))
    return scale * (linear - scale * square), scale


def slack(margins: Float64) -> Float64:
    """[1 - margins]+."""
    return np.maximum(1.0 - margins, 0.0)


def loss_of(margins: Float64) -> float:
    """The squared hinge loss."""
    slacks = slack(margins)
    return float(slacks @ slacks)


def start_at(rows: KernelRows, norm: GroupNorm, alpha: Float64) -> CompactPoint:
    """The point at these coefficients, with u = 0 as dual point."""
    margins = rows.margins(alpha) if alpha.any() else np.zeros(rows.n)
    return CompactPoint(alpha, margins, loss_of(margins) + norm.value(alpha), np.zeros_like(margins), 0.0)


def first_step(rows: KernelRows) -> float:
    """The step size 1 / (2 ||K_y||^2), with the norm by power iteration."""
    v = np.random.default_rng(0).normal(size=rows.n)
    size = 0.0
    for _ in range(FORWARD_BACKWARD.power_steps):
        v = rows.margins(rows.slopes(v / np.linalg.norm(v)))
        size = float(np.linalg.norm(v))
        if size <= TINY:
            return 1.0
    return 1.0 / (2.0 * size)


def descend(
    rows: KernelRows, norm: GroupNorm, point: CompactPoint, tol: float, limit: int, *, accelerated: bool = True
) -> CompactPoint:
    """Take forward-backward steps until the certified relative gap is at most `tol`, at most `limit` of them.

    Parameters
    ----------
    rows : KernelRows
        The kernel values of the compact problem.
    norm : GroupNorm
        Its regulariser.
    point : CompactPoint
        Where to start.
    tol : float
    limit : int
    accelerated : bool
        Whether to extrapolate.

    Returns
    -------
    CompactPoint
    """
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
    rows: KernelRows, norm: GroupNorm, at: tuple[Float64, Float64, Float64], step: float
) -> tuple[Float64, Float64, float]:
    """The next coefficients, their margins and the step size that held; V is minus the gradient at z."""
    z, margins_z, V = at
    loss = loss_of(margins_z)
    while True:
        alpha = norm.prox(z + step * V, step)
        margins, moved = rows.margins(alpha), alpha - z
        bound = loss - float(V @ moved) + float(moved @ moved) / (2 * step)
        if loss_of(margins) <= bound + FORWARD_BACKWARD.rounding * max(loss, 1.0):
            return alpha, margins, step
        step /= 2
