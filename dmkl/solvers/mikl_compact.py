"""A compact MIKL problem: its kernel values, and the two methods that solve it.

The problem has a row of kernel values for each of its p coefficients and a column for each of n samples. `margins` is
K_y alpha (y times the scores) and `slopes` its adjoint K_y' u; the gradient of the loss and the dual are made of these
two products. Rows are held in memory, or every product is a pass over the stack.

Forward-backward splitting (`descend`), plain as in the paper (Algorithm 2) or accelerated, finds the neighbourhood:

    alpha+ = prox_{step pen}(z + step K_y' u),   u = 2 [1 - K_y z]+ ,     z = alpha, or extrapolated (FISTA)

The extrapolation restarts whenever a step turns against it (O'Donoghue and Candes 2015). The first step size comes from
a power iteration, which estimates the norm of K_y from below; so the size is halved wherever the quadratic upper bound
of the loss does not hold. Every u is dual feasible after scaling, so each step has a certificate at no further cost.

Proximal Newton steps (`polish`) then reach any gap:

    alpha+ = argmin  loss(K_y alpha) + pen(alpha) + 1/(2 sigma) ||alpha - alpha_k||^2
    min_{u >= 0}  psi(u) = sum u^2/4 - u + <p, V> - pen(p) - ||p - alpha_k||^2 / (2 sigma),
                  V = K_y' u,  p = prox_{sigma pen}(alpha_k + sigma V),  grad psi = u/2 - 1 + K_y p

psi is smooth and 1/2-strongly convex with Hessian I/2 + sigma K_y (d prox) K_y', so Newton's method projected on u >= 0
converges in a few steps where forward-backward splitting takes hundreds. With a growing sigma a few proximal steps are
enough too (as in Suzuki and Tomioka's DAL for another loss and norm). p and u certify each other at every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy.linalg
from scipy.sparse import coo_array, csr_array

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.problems.norms import TINY, GroupNorm, Jacobian
from dmkl.solvers.certificate import relative_gap
from dmkl.stack import KernelStack


@dataclass(frozen=True)
class Grams:
    """Products K_a' K_a of whole kernels, without labels: of each kernel apart, or the sum of all of them."""

    layers: Samples  # (balls,): the layer of a kernel, or of all kernels, in `values`; -1 where there is none
    values: Float64  # (layers, n, n)

    def over(self, balls: Samples, samples: Samples) -> Float64:
        """(balls, samples, samples): those of some balls over some samples."""
        layers, n = self.layers[balls], self.values.shape[1]
        if len(samples) < n:
            return self.values[np.ix_(layers, samples, samples)]
        return self.values if len(layers) == len(self.values) else self.values[layers]


@dataclass(frozen=True)
class RowOptions:
    """Sizes of what is computed from rows in memory."""

    copies: int = 3  # arrays of the size of the part that is cut out, while a Newton matrix is made
    chunk: int = 4_000_000  # values of float32 rows that are converted to float64 at a time


@dataclass(frozen=True)
class ForwardBackwardOptions:
    """Constants of forward-backward splitting."""

    power_steps: int = 12  # of the power iteration; the step size need not be exact
    rounding: float = 1e-12  # of the loss, by which it may exceed its quadratic bound


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
    direct_flops: float = 1e8  # a Newton matrix that takes more is replaced by conjugate gradients (some ten products)
    cg_steps: int = 200


ROWS = RowOptions()
FORWARD_BACKWARD = ForwardBackwardOptions()
NEWTON = NewtonOptions()


class KernelRows(Protocol):
    """p coefficients against n samples."""

    @property
    def p(self) -> int:
        """The number of coefficients."""

    @property
    def n(self) -> int:
        """The number of samples."""

    def has_room(self, members: int, samples: int) -> bool:
        """Whether so many rows and columns can be cut out to make the matrix of a Newton step."""

    def gram(self, weights: Mapping[int, float], samples: Samples) -> Float64 | None:
        """`sum_a weights[a] K_y,a K_y,a'` over some samples; None unless the products of these kernels are known."""

    def margins(self, alpha: Float64) -> Float64:
        """(n,): K_y alpha."""

    def slopes(self, u: Float64) -> Float64:
        """(p,): K_y' u."""

    def part(self, members: Samples, samples: Samples) -> Float64:
        """Some rows and columns of K_y', in float64."""


class HeldRows:
    """Rows in memory; sums are in float64, whatever the type of the rows.

    Parameters
    ----------
    rows : array (p, n)
        Kernel values.
    y : array (n,)
        Signs -1/+1.
    room : float
        Bytes that a Newton matrix may take while it is made.
    grams : Grams, optional
        The products of whole kernels, for norms whose balls they are.
    threads : int
        Threads that products of matrices may use.
    """

    def __init__(
        self, rows: FloatArray, y: Float64, room: float = np.inf, grams: Grams | None = None, threads: int = 1
    ) -> None:
        self._rows, self._y, self._room, self.grams, self.threads = rows, y, room, grams, threads

    @property
    def y(self) -> Float64:
        return self._y

    @property
    def p(self) -> int:
        return len(self._rows)

    @property
    def n(self) -> int:
        return len(self._y)

    def _chunks(self) -> Iterator[tuple[slice, Float64]]:
        p, n = self._rows.shape
        step = max(p, 1) if self._rows.dtype == np.float64 else max(1, ROWS.chunk // n)
        for start in range(0, p, step):
            span = slice(start, min(start + step, p))
            yield span, np.asarray(self._rows[span], dtype=np.float64)

    def margins(self, alpha: Float64) -> Float64:
        scores = np.zeros(self._rows.shape[1])
        for span, rows in self._chunks():
            part = alpha[span]
            some = np.flatnonzero(part)
            if 2 * len(some) < len(part):  # rows of coefficients that are zero need not be read
                scores += part[some] @ rows[some]
            else:
                scores += part @ rows
        return scores * self._y

    def slopes(self, u: Float64) -> Float64:
        signed = u * self._y
        return np.concatenate([rows @ signed for _, rows in self._chunks()] or [np.zeros(0)])

    def has_room(self, members: int, samples: int) -> bool:
        return self.has_bytes(8 * ROWS.copies * members * samples)

    def has_bytes(self, needed: int) -> bool:
        """Whether so many bytes may be allocated."""
        return needed <= self._room

    def gram(self, weights: Mapping[int, float], samples: Samples) -> Float64 | None:
        if self.grams is None or not weights or (self.grams.layers[list(weights)] < 0).any():
            return None
        total = np.zeros((len(samples), len(samples)))
        for a, weight in weights.items():
            total += weight * self.grams.over(np.array([a]), samples)[0]
        signs = self._y[samples]
        return total * signs * signs[:, None]

    def part(self, members: Samples, samples: Samples) -> Float64:
        return np.asarray(self._rows[np.ix_(members, samples)] * self._y[samples], dtype=np.float64)


class StreamedRows:
    """Rows that do not fit in memory: every product is a pass over the stack.

    Parameters
    ----------
    stack : KernelStack
    members : mask (s, n)
        Which coefficients the problem has.
    y : array (n,)
        Signs -1/+1.
    """

    def __init__(self, stack: KernelStack, members: Mask, y: Float64) -> None:
        self._stack, self._members, self._y = stack, members, y

    @property
    def p(self) -> int:
        return int(self._members.sum())

    @property
    def n(self) -> int:
        return len(self._y)

    def margins(self, alpha: Float64) -> Float64:
        full = np.zeros(self._members.shape)
        full[self._members] = alpha
        return np.asarray(self._stack.expand(full[:, :, None])[:, 0] * self._y)

    def slopes(self, u: Float64) -> Float64:
        kernels = np.flatnonzero(self._members.any(axis=1))
        found = self._stack.correlate((u * self._y)[:, None], kernels=kernels.tolist())[:, :, 0]
        return np.asarray(found[self._members[kernels]])

    def has_room(self, members: int, samples: int) -> bool:
        return False

    def gram(self, weights: Mapping[int, float], samples: Samples) -> Float64 | None:
        return None

    def part(self, members: Samples, samples: Samples) -> Float64:
        raise NotImplementedError("`has_room` refuses every part")


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
    handovers: int = 0  # from the interior point method to Newton's

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
        if point.gap <= tol or must_stop():
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
        if point.gap <= tol or must_stop():
            break
        if sigma >= NEWTON.largest_sigma * point.step and point.gap >= before.gap:
            break  # the rest is rounding
        # proximal steps grow as long as Newton's method solves them in few steps
        taken = point.iterations - before.iterations
        growth = next((factor for most, factor in NEWTON.growth if taken <= most), NEWTON.fall)
        sigma = min(sigma * growth, NEWTON.largest_sigma * point.step)
    return point


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
        if point.gap <= tol or error <= NEWTON.exactness * min(1.0, max(point.gap, tol)) or must_stop():
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
        full = np.zeros(rows.n)
        full[F] = direction
        curved = rows.margins(_times_jacobian(jacobian, norm.groups, rows.slopes(full)))[F]
        image = 0.5 * direction + sigma * curved
        length = power / float(direction @ image)
        x += length * direction
        residual -= length * image
        following = float(residual @ residual)
        if np.sqrt(following) <= goal:
            break
        direction = residual + (following / power) * direction
        power = following
    return x


def _times_jacobian(jacobian: Jacobian, groups: Samples, v: Float64) -> Float64:
    """The derivative of the proximal map times v, or times every column of v."""
    wide = v if v.ndim == 2 else v[:, None]
    result = jacobian.diagonal[:, None] * wide
    if jacobian.factor.any():
        shape = len(jacobian.factor), len(groups)
        sums = csr_array(coo_array((jacobian.vector, (groups, np.arange(len(groups)))), shape=shape))
        result += sums.T @ (jacobian.factor[:, None] * (sums @ wide))
    return np.asarray(result if v.ndim == 2 else result[:, 0])
