"""Proximal Newton steps for a compact MIKL problem, after forward-backward splitting has found its neighbourhood.

    alpha+ = argmin  loss(K_y alpha) + pen(alpha) + 1/(2 sigma) ||alpha - alpha_k||^2
    min_{u >= 0}  psi(u) = sum u^2/4 - u + <p, V> - pen(p) - ||p - alpha_k||^2 / (2 sigma),
                  V = K_y' u,  p = prox_{sigma pen}(alpha_k + sigma V),  grad psi = u/2 - 1 + K_y p

psi is smooth and 1/2-strongly convex with Hessian I/2 + sigma K_y (d prox) K_y', so Newton's method projected on u >= 0
converges in a few steps where forward-backward splitting takes hundreds. With a growing sigma a few proximal steps are
enough too (as in Suzuki and Tomioka's DAL for another loss and norm). p and u certify each other at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.sparse import coo_array, csr_array

from dmkl._util.types import Float64, Mask, Samples
from dmkl.problems.proxes import GroupNorm, Jacobian
from dmkl.solvers.per_kernel.forward_backward import CompactPoint, loss_of, slack
from dmkl.solvers.per_kernel.kernel_rows import KernelRows


@dataclass(frozen=True)
class NewtonOptions:
    """Constants of the proximal Newton method."""

    first_sigma: float = 100.0  # in units of the step size of forward-backward splitting
    largest_sigma: float = 1e8  # in the same units
    proximal_steps: int = 60
    newton_steps: int = 30  # for one proximal step
    halvings: int = 30  # of a Newton step
    growth: tuple[tuple[int, float], ...] = ((6, 10.0), (12, 3.0), (29, 1.0))  # of sigma, up to so many Newton steps
    fall: float = 0.2  # the factor of sigma after more Newton steps
    exactness: float = 1e-2  # of the gradient of psi at the end of a proximal step, relative to the gap
    descent: float = 1e-4  # share of the predicted decrease that a step has to reach
    direct_flops: float = 4e10  # a Newton matrix that takes more is replaced by conjugate gradients
    cg_steps: int = 200


NEWTON = NewtonOptions()


@dataclass(frozen=True)
class DualTrial:
    """A dual point u of one proximal problem, with V = K_y' u, the primal point p and the value of psi."""

    u: Float64
    V: Float64
    prox: Float64
    jacobian: Jacobian
    value: float


def polish(rows: KernelRows, norm: GroupNorm, point: CompactPoint, tol: float) -> CompactPoint:
    """Reduce the relative gap of a compact problem to `tol`, from a point of forward-backward splitting.

    Parameters
    ----------
    rows : KernelRows
        The kernel values of the compact problem.
    norm : GroupNorm
        Its regulariser.
    point : CompactPoint
        Where to start; its step size sets the scale of sigma.
    tol : float

    Returns
    -------
    CompactPoint
    """
    sigma = NEWTON.first_sigma * point.step
    u = 2.0 * slack(point.margins)
    for _ in range(NEWTON.proximal_steps):
        before = point
        point, u = _proximal_step(rows, norm, point, u, sigma, tol)
        if point.gap <= tol:
            break
        if sigma >= NEWTON.largest_sigma * point.step and point.gap >= before.gap:
            break  # the rest is rounding
        sigma = min(sigma * _growth(point.iterations - before.iterations), NEWTON.largest_sigma * point.step)
    return point


def _growth(steps: int) -> float:
    """The factor of sigma: proximal steps grow as long as Newton's method solves them in few steps."""
    return next((factor for most, factor in NEWTON.growth if steps <= most), NEWTON.fall)


def _proximal_step(
    rows: KernelRows, norm: GroupNorm, point: CompactPoint, u: Float64, sigma: float, tol: float
) -> tuple[CompactPoint, Float64]:
    centre = point.alpha
    at = _trial(rows, norm, centre, u, sigma)
    for _ in range(NEWTON.newton_steps):
        margins = rows.margins(at.prox)
        gradient = at.u / 2 - 1.0 + margins
        primal = loss_of(margins) + norm.value(at.prox)
        # the proximal point may be worse than the last one while u is far from optimal
        if primal < point.primal:
            point = replace(point, alpha=at.prox, margins=margins, primal=primal)
        point = replace(point.with_bound(norm, at.u, at.V), iterations=point.iterations + 1)
        free = (at.u > 0) | (gradient < 0)
        error = float(np.abs(gradient[free]).max(initial=0.0))
        if point.gap <= tol or error <= NEWTON.exactness * min(1.0, max(point.gap, tol)):
            break
        following = _newton_step(rows, norm, centre, at, gradient, free, sigma)
        if following is None:
            break
        at = following
    return point, at.u


def _trial(rows: KernelRows, norm: GroupNorm, centre: Float64, u: Float64, sigma: float) -> DualTrial:
    V = rows.slopes(u)
    prox, jacobian = norm.prox_jacobian(centre + sigma * V, sigma)
    moved = prox - centre
    inner = float(prox @ V) - norm.value(prox) - float(moved @ moved) / (2 * sigma)
    return DualTrial(u, V, prox, jacobian, float(u @ u) / 4 - float(u.sum()) + inner)


def _newton_step(
    rows: KernelRows,
    norm: GroupNorm,
    centre: Float64,
    at: DualTrial,
    gradient: Float64,
    free: Mask,
    sigma: float,
) -> DualTrial | None:
    """A projected step that lowers psi enough, or None if rounding prevents any."""
    F = np.flatnonzero(free)
    direction = np.zeros_like(at.u)
    direction[F] = -_solve(rows, norm, at.jacobian, F, gradient[F], sigma)
    size = 1.0
    for _ in range(NEWTON.halvings):
        u = np.maximum(at.u + size * direction, 0.0)
        following = _trial(rows, norm, centre, u, sigma)
        if following.value <= at.value + NEWTON.descent * float(gradient @ (u - at.u)):
            return following
        size /= 2
    return None


def _solve(rows: KernelRows, norm: GroupNorm, jacobian: Jacobian, F: Samples, right: Float64, sigma: float) -> Float64:
    """(I/2 + sigma A' J A)^-1 right, A the rows with J != 0 and the columns F; in the smaller of the two dimensions."""
    A = np.flatnonzero(jacobian.diagonal)
    system = _from_grams(rows, norm, jacobian, F)
    if system is not None:
        return np.asarray(
            scipy.linalg.solve(0.5 * np.eye(len(F)) + sigma * system, right, assume_a="pos", check_finite=False)
        )
    few, many = sorted((len(A), len(F)))
    if float(few) * few * many > NEWTON.direct_flops or not rows.has_room(len(A), len(F)):
        return _conjugate_gradients(rows, norm, jacobian, F, right, sigma)
    part = rows.part(A, F)
    groups = norm.groups[A]
    inside = Jacobian(jacobian.diagonal[A], jacobian.factor, jacobian.vector[A])
    if len(A) < len(F):
        system = sigma * _times_jacobian(inside, groups, part @ part.T)
        system[np.diag_indices(len(A))] += 0.5
        found = scipy.linalg.solve(system, _times_jacobian(inside, groups, part @ right), check_finite=False)
        return np.asarray(2.0 * (right - sigma * (found @ part)))
    system = sigma * (part.T @ _times_jacobian(inside, groups, part))
    system[np.diag_indices(len(F))] += 0.5
    return np.asarray(scipy.linalg.solve(system, right, assume_a="pos", check_finite=False))


def _from_grams(rows: KernelRows, norm: GroupNorm, jacobian: Jacobian, F: Samples) -> Float64 | None:
    """A' J A where the derivative is constant over the rows of a kernel and the products of whole kernels are known."""
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
    rows: KernelRows, norm: GroupNorm, jacobian: Jacobian, F: Samples, right: Float64, sigma: float
) -> Float64:
    """Solve the same system to a residual of the size of the gradient to the power 1.5."""
    size = float(np.linalg.norm(right))
    goal = size * min(0.1, np.sqrt(size))
    x, residual = np.zeros_like(right), right.copy()
    direction, power = residual.copy(), size**2
    for _ in range(NEWTON.cg_steps):
        image = 0.5 * direction + sigma * _system_times(rows, norm, jacobian, F, direction)
        length = power / float(direction @ image)
        x += length * direction
        residual -= length * image
        following = float(residual @ residual)
        if np.sqrt(following) <= goal:
            break
        direction = residual + (following / power) * direction
        power = following
    return x


def _system_times(rows: KernelRows, norm: GroupNorm, jacobian: Jacobian, F: Samples, v: Float64) -> Float64:
    full = np.zeros(rows.n)
    full[F] = v
    return rows.margins(_times_jacobian(jacobian, norm.groups, rows.slopes(full)))[F]


def _times_jacobian(jacobian: Jacobian, groups: Samples, v: Float64) -> Float64:
    """The derivative of the proximal map times v, or times every column of v."""
    wide = v if v.ndim == 2 else v[:, None]
    result = jacobian.diagonal[:, None] * wide
    if jacobian.factor.any():
        shape = len(jacobian.factor), len(groups)
        sums = csr_array(coo_array((jacobian.vector, (groups, np.arange(len(groups)))), shape=shape))
        result += sums.T @ (jacobian.factor[:, None] * (sums @ wide))
    return np.asarray(result if v.ndim == 2 else result[:, 0])
