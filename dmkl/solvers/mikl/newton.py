"""The exact end of a compact MIKL problem: proximal steps, each solved by Newton's method in the dual.

    alpha+ = argmin  loss(K_y alpha) + pen(alpha) + 1/(2 sigma) ||alpha - alpha_k||^2
    min_{u >= 0}  psi(u) = sum u^2/4 - u + <p, V> - pen(p) - ||p - alpha_k||^2 / (2 sigma),
                  V = K_y' u,  p = prox_{sigma pen}(alpha_k + sigma V),  grad psi = u/2 - 1 + K_y p

psi is smooth and 1/2-strongly convex with Hessian I/2 + sigma K_y (d prox) K_y', so Newton's method projected on u >= 0
ends in a few steps where forward-backward takes hundreds, and with sigma growing so do the proximal steps (Suzuki and
Tomioka's DAL for another loss and norm). p and u certify each other at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.problems.proxes import GroupNorm, Jacobian
from dmkl.solvers.mikl.descent import Point, loss_of, slack
from dmkl.solvers.mikl.rows import Rows, weighed

FIRST_SIGMA, LARGEST_SIGMA = 100.0, 1e8  # in units of the step of forward-backward
PROXIMAL_STEPS, NEWTON_STEPS, HALVINGS = 60, 30, 30
GROWTH = ((6, 10.0), (12, 3.0), (NEWTON_STEPS - 1, 1.0), (NEWTON_STEPS, 0.2))  # of sigma, by Newton steps taken
DIRECT = 4e10  # flops of making a Newton matrix up to which it is made; above, and without rows, conjugate gradients
CG_STEPS = 200


@dataclass(frozen=True)
class _Trial:
    """A dual point of one proximal problem."""

    u: Float64
    V: Float64
    prox: Float64
    jacobian: Jacobian
    value: float


def polish(rows: Rows, norm: GroupNorm, point: Point, tol: float, *, limit: int = PROXIMAL_STEPS) -> Point:
    """From a point of forward-backward to a relative gap of `tol`."""
    sigma = FIRST_SIGMA * point.step
    u = 2.0 * slack(point.margins)
    for _ in range(limit):
        before = point
        point, u = _proximal_step(rows, norm, point, u, sigma, tol)
        if point.gap <= tol:
            break
        if sigma >= LARGEST_SIGMA * point.step and point.gap >= before.gap:
            break  # rounding
        sigma = min(sigma * _growth(point.iterations - before.iterations), LARGEST_SIGMA * point.step)
    return point


def _growth(steps: int) -> float:
    """Larger proximal steps as long as Newton's method finds them easy."""
    return next(factor for most, factor in GROWTH if steps <= most)


def _proximal_step(
    rows: Rows, norm: GroupNorm, point: Point, u: Float64, sigma: float, tol: float
) -> tuple[Point, Float64]:
    centre = point.alpha
    at = _trial(rows, norm, centre, u, sigma)
    for _ in range(NEWTON_STEPS):
        margins = rows.margins(at.prox)
        gradient = at.u / 2 - 1.0 + margins
        primal = loss_of(margins) + norm.value(at.prox)
        # the proximal point may be the worse one while u is far off: keep whichever is better
        if primal < point.primal:
            point = replace(point, alpha=at.prox, margins=margins, primal=primal)
        point = replace(point.with_bound(norm, at.u, at.V), iterations=point.iterations + 1)
        free = (at.u > 0) | (gradient < 0)
        error = float(np.abs(gradient[free]).max(initial=0.0))
        if point.gap <= tol or error <= 1e-2 * min(1.0, max(point.gap, tol)):
            break
        following = _newton_step(rows, norm, centre, at, gradient, free, sigma)
        if following is None:
            break
        at = following
    return point, at.u


def _trial(rows: Rows, norm: GroupNorm, centre: Float64, u: Float64, sigma: float) -> _Trial:
    V = rows.slopes(u)
    prox, jacobian = norm.prox_jacobian(centre + sigma * V, sigma)
    moved = prox - centre
    inner = float(prox @ V) - norm.value(prox) - float(moved @ moved) / (2 * sigma)
    return _Trial(u, V, prox, jacobian, float(u @ u) / 4 - float(u.sum()) + inner)


def _newton_step(
    rows: Rows,
    norm: GroupNorm,
    centre: Float64,
    at: _Trial,
    gradient: Float64,
    free: NDArray[np.bool_],
    sigma: float,
) -> _Trial | None:
    """A projected step that lowers psi enough, or None where rounding forbids any."""
    F = np.flatnonzero(free)
    direction = np.zeros_like(at.u)
    direction[F] = -_solve(rows, norm, at.jacobian, F, gradient[F], sigma)
    size = 1.0
    for _ in range(HALVINGS):
        u = np.maximum(at.u + size * direction, 0.0)
        following = _trial(rows, norm, centre, u, sigma)
        if following.value <= at.value + 1e-4 * float(gradient @ (u - at.u)):
            return following
        size /= 2
    return None


def _solve(
    rows: Rows, norm: GroupNorm, jacobian: Jacobian, F: NDArray[np.int64], right: Float64, sigma: float
) -> Float64:
    """(I/2 + sigma A' J A)^-1 right, A the rows with J != 0 and the columns F; in the smaller of the two dimensions."""
    A = np.flatnonzero(jacobian.diagonal)
    system = _from_grams(rows, norm, jacobian, F)
    if system is not None:
        return np.asarray(
            scipy.linalg.solve(0.5 * np.eye(len(F)) + sigma * system, right, assume_a="pos", check_finite=False)
        )
    few, many = sorted((len(A), len(F)))
    if float(few) * few * many > DIRECT or not rows.has_room(len(A), len(F)):
        return _conjugate_gradients(rows, norm, jacobian, F, right, sigma)
    part = rows.part(A, F)
    groups = norm.groups[A]
    inside = Jacobian(jacobian.diagonal[A], jacobian.factor, jacobian.vector[A])
    if len(A) < len(F):
        system = sigma * weighed(inside, groups, part @ part.T)
        system[np.diag_indices(len(A))] += 0.5
        found = scipy.linalg.solve(system, weighed(inside, groups, part @ right), check_finite=False)
        return np.asarray(2.0 * (right - sigma * (found @ part)))
    system = sigma * (part.T @ weighed(inside, groups, part))
    system[np.diag_indices(len(F))] += 0.5
    return np.asarray(scipy.linalg.solve(system, right, assume_a="pos", check_finite=False))


def _from_grams(rows: Rows, norm: GroupNorm, jacobian: Jacobian, F: NDArray[np.int64]) -> Float64 | None:
    """A' J A where a derivative weighs all rows of a kernel alike and products of whole kernels are at hand."""
    if (norm.inner, norm.outer) != (2, 1):
        return None
    weights = np.zeros(norm.count)
    weights[norm.groups] = jacobian.diagonal
    used = np.flatnonzero(weights)
    system = rows.gram({int(a): float(weights[a]) for a in used}, F)
    if system is not None:
        for a in used:
            image = rows.margins(np.where(norm.groups == a, jacobian.vector, 0.0))[F]
            system += jacobian.factor[a] * np.outer(image, image)
    return system


def _conjugate_gradients(
    rows: Rows, norm: GroupNorm, jacobian: Jacobian, F: NDArray[np.int64], right: Float64, sigma: float
) -> Float64:
    """As exact as the step is worth: to the root of the gradient's size."""
    size = float(np.linalg.norm(right))
    goal = size * min(0.1, np.sqrt(size))
    x, residual = np.zeros_like(right), right.copy()
    direction, power = residual.copy(), size**2
    for _ in range(CG_STEPS):
        image = 0.5 * direction + sigma * _through(rows, norm, jacobian, F, direction)
        length = power / float(direction @ image)
        x += length * direction
        residual -= length * image
        following = float(residual @ residual)
        if np.sqrt(following) <= goal:
            break
        direction = residual + (following / power) * direction
        power = following
    return x


def _through(rows: Rows, norm: GroupNorm, jacobian: Jacobian, F: NDArray[np.int64], v: Float64) -> Float64:
    full = np.zeros(rows.n)
    full[F] = v
    return rows.margins(weighed(jacobian, norm.groups, rows.slopes(full)))[F]
