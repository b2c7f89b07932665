"""Interior point for the compact problem of MIKL over some of its coefficients and samples.

Every regulariser of MIKL is a minimum over weights, one for each ball b of coefficients (a group, or one coefficient
where the inner norm is l1), so that alpha_b = eta_b V_b with V = K_y' u:

    pen(alpha) = min_eta  1/2 sum_b ||alpha_b||^2 / eta_b + cost(eta)

    (2,1), (1,1)   free weights     eta >= 0, cost lam^2/2 sum_b eta_b
    (1,2)          shared weights   eta >= 0, those of a group sum to 1/lam, no cost
    (2,2)          equal weights    eta = 1/lam, no cost

Only the quadratic forms q_b = ||V_b||^2 = u' Q_b u count, Q_b = K_b K_b', and the dual problem is one in u:

    min_{u >= 0}  u'u/4 - 1'u + sum_g r_g / (2 lam)    s.t.  slack_b = (r_b - q_b) / 2 >= 0,

r_b = lam^2 for free weights, without the sum; for shared weights r_b is the radius r_g of the group of b. The weights
are the multipliers of these constraints, and z >= 0 those of u >= 0. The conditions of the central path,

    u/2 - 1 + sum_b eta_b Q_b u - z = 0,     u_i z_i = mu,     eta_b slack_b = mu,

are solved by Mehrotra's predictor and corrector with one of Gondzio's corrections, in 5 to 20 steps whatever the norm,
lam and the kernels: none of them needs the rows to be well conditioned. A step forms and factors one matrix,

    I/2 + diag(z/u) + sum_b (eta_b Q_b + eta_b/slack_b w_b w_b') - (shared: the mean of w in each group),   w_b = Q_b u.

u stays feasible, so every step has a certificate. What makes the method fast is where it starts: at the solution of a
ridge problem, whose u is balanced between the directions in which kernels are large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array

from dmkl._util.machine import threads_of
from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, Samples
from dmkl.problems.norms import TINY, GroupNorm
from dmkl.solvers.certificate import relative_gap

Image: TypeAlias = Float64  # what a `Forms` keeps of u; linear in u


@dataclass(frozen=True)
class InteriorOptions:
    """Constants of the method."""

    max_steps: int = 100
    columns: int = 256  # of a block of a matrix product that one thread makes
    to_boundary: float = 0.99  # the share of the way to the nearest bound that a step may go
    shortest_step: float = 1e-4  # steps shorter than this, twice in a row, end the method
    centring: int = 3  # the power of the share of the products that the predictor leaves
    least_target: float = 1e-6  # of the mean product
    further: float = 0.3  # how much longer a step Gondzio's correction tries to make,
    gain: float = 0.03  # and how much longer it has to be
    band: float = 10.0  # products within this factor of their target are left alone
    # the start
    first_product: float = 0.5  # of the mean u: what u z would be if the margins were about 1
    least_u: float = 0.1  # of the mean u
    ridges: tuple[float, ...] = tuple(float(10.0**e) for e in range(-3, 13))  # times the mean diagonal
    ridge_rows: int = 2  # rows that make the ridge problem, for every sample
    worse: int = 2  # ridges with a worse bound, after which no more are tried


OPTIONS = InteriorOptions()


# Quadratic forms of u


class Forms(Protocol):
    """The quadratic forms q_b = u' Q_b u of all balls, and the Newton matrix that they make."""

    @property
    def n(self) -> int:
        """The number of samples."""

    def image(self, u: Float64) -> Image:
        """What the other questions need of u."""

    def inner(self, one: Image, other: Image) -> Float64:
        """(balls,): u' Q_b v."""

    def pull(self, c: Float64, image: Image) -> Float64:
        """(n,): sum_b c_b Q_b u."""

    def system(self, diagonal: Float64, curvature: Curvature, image: Image) -> System:
        """diag(diagonal) + sum_b (eta_b Q_b + steep_b w_b w_b') - sum_g (sum_b steep_b w_b)(...)' / steep_g."""

    def ridge(self, rows: int) -> Float64:
        """(n, n): sum_b Q_b, or an estimate of it from so many rows."""


@dataclass(frozen=True)
class Curvature:
    """The coefficients of a Newton matrix."""

    eta: Float64  # (balls,)
    steep: Float64  # (balls,): eta / slack
    groups: Samples | None = None  # (balls,): the group of each ball, where weights are shared


class System(Protocol):
    """A factored positive definite matrix."""

    def solve(self, right: Float64) -> Float64:
        """Its inverse times a vector."""


class Cholesky:
    """A matrix by its Cholesky factor; of the matrix only the lower triangle is read, and it is overwritten."""

    def __init__(self, matrix: Float64) -> None:
        self._factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, right: Float64) -> Float64:
        return np.asarray(scipy.linalg.cho_solve(self._factor, right, check_finite=False))


class FewRows:
    """diag(d) + B'B by the identity of Woodbury, for B with fewer rows than columns."""

    def __init__(self, d: Float64, B: Float64, threads: int) -> None:
        self._d, self._B = d, B
        inner = _gram((B / np.sqrt(d)).T, threads)
        inner[np.diag_indices(len(B))] += 1.0
        self._inner = Cholesky(inner)

    def solve(self, right: Float64) -> Float64:
        x = self._once(right)
        return x + self._once(right - self._d * x - (self._B @ x) @ self._B)  # what cancelled in the first

    def _once(self, right: Float64) -> Float64:
        scaled = right / self._d
        return np.asarray(scaled - (self._inner.solve(self._B @ scaled) @ self._B) / self._d)


def _gram(B: Float64, threads: int) -> Float64:
    """The lower triangle of B'B. Its blocks are shared out among threads; the bits are those of any number of them."""
    starts = range(0, B.shape[1], OPTIONS.columns)
    matrix = np.zeros((B.shape[1], B.shape[1]))

    def filled(piece: tuple[int, int]) -> None:
        i, j = piece
        rows, columns = slice(i, i + OPTIONS.columns), slice(j, j + OPTIONS.columns)
        matrix[rows, columns] = B[:, rows].T @ B[:, columns]

    with threads_of(threads if len(starts) > 1 else 1) as each:
        each(filled, [(i, j) for i in starts for j in starts if j <= i])
    return matrix


class RowForms:
    """Balls of coefficients, each with a row of kernel values times labels.

    Parameters
    ----------
    rows : array (p, n)
        Signed rows K_y'.
    balls : array (p,)
        The number of the ball of each row.
    count : int
        The number of balls; `p` balls are the rows themselves.
    threads : int
        Threads that products of matrices may use.
    """

    def __init__(self, rows: Float64, balls: Samples, count: int, threads: int = 1) -> None:
        self.rows, self._balls, self._count, self._threads = rows, balls, count, threads
        self._single = count == len(rows)

    @property
    def n(self) -> int:
        return int(self.rows.shape[1])

    def image(self, u: Float64) -> Image:
        return np.asarray(self.rows @ u)

    def inner(self, one: Image, other: Image) -> Float64:
        product = one * other
        return np.asarray(product if self._single else np.bincount(self._balls, product, self._count), dtype=np.float64)

    def pull(self, c: Float64, image: Image) -> Float64:
        return np.asarray((self.each(c) * image) @ self.rows)

    def each(self, c: Float64) -> Float64:
        """(p,): the value of its ball for every row."""
        return c if self._single else c[self._balls]

    def system(self, diagonal: Float64, curvature: Curvature, image: Image) -> System:
        B = self._root(curvature, image)
        if len(B) < len(diagonal):
            return FewRows(diagonal, B, self._threads)
        matrix = _gram(B, self._threads)
        matrix[np.diag_indices(len(diagonal))] += diagonal
        return Cholesky(matrix)

    def _root(self, curvature: Curvature, V: Image) -> Float64:
        """B with B'B = sum_b (eta_b Q_b + steep_b w_b w_b') - ..."""
        eta, steep, groups = curvature.eta, curvature.steep, curvature.groups
        if not self._single:
            sums = csr_array((V, (self._balls, np.arange(len(V)))), shape=(self._count, len(V))) @ self.rows
            return np.concatenate([np.sqrt(self.each(eta))[:, None] * self.rows, np.sqrt(steep)[:, None] * sums])
        d = eta + steep * V * V
        root = np.sqrt(d)
        if groups is None:
            return np.asarray(root[:, None] * self.rows)
        # D - v v' / steep_g = D^1/2 (I - (1 - c) w w') (...)' D^1/2 with |w| = 1 in each group; c^2 sums what is left
        count = int(groups.max()) + 1
        vector = steep * V / np.maximum(root, TINY)
        size = np.bincount(groups, vector * vector, count)
        left = np.bincount(groups, steep * eta / np.maximum(d, TINY), count)
        total = np.maximum(np.bincount(groups, steep, count), TINY)
        shrink = (1.0 - np.sqrt(np.minimum(left / total, 1.0))) / np.maximum(size, TINY)
        sums = csr_array((vector * root, (groups, np.arange(len(V)))), shape=(count, len(V))) @ self.rows
        sums *= shrink[:, None]
        return np.asarray(root[:, None] * self.rows - vector[:, None] * sums[groups])

    def ridge(self, rows: int) -> Float64:
        step = max(1, len(self.rows) // rows)
        some = self.rows[::step]
        return _gram(some, self._threads) * (len(self.rows) / len(some))


class GramForms:
    """Balls with many coefficients, by their matrices Q_b; the image of u is Q_b u of every ball, and u.

    Parameters
    ----------
    grams : array (balls, n, n)
        Q_b without labels.
    y : array (n,)
        Signs -1/+1.
    """

    def __init__(self, grams: Float64, y: Float64) -> None:
        self._grams, self._y = grams, y

    @property
    def n(self) -> int:
        return len(self._y)

    def image(self, u: Float64) -> Image:
        products = self._grams.reshape(-1, self.n) @ (self._y * u)
        return np.concatenate([products.reshape(-1, self.n) * self._y, u[None]])

    def inner(self, one: Image, other: Image) -> Float64:
        return np.asarray(one[:-1] @ other[-1])

    def pull(self, c: Float64, image: Image) -> Float64:
        return np.asarray(c @ image[:-1])

    def system(self, diagonal: Float64, curvature: Curvature, image: Image) -> System:
        matrix = self._weighted(curvature.eta)
        steep = np.sqrt(curvature.steep)[:, None] * image[:-1]
        matrix += steep.T @ steep
        matrix[np.diag_indices(self.n)] += diagonal
        return Cholesky(matrix.T)

    def ridge(self, rows: int) -> Float64:
        return self._weighted(np.ones(len(self._grams))).T

    def _weighted(self, c: Float64) -> Float64:
        total = (c @ self._grams.reshape(len(c), -1)).reshape(self.n, self.n)
        return np.asarray(total * self._y * self._y[:, None])


# Weights


@dataclass(frozen=True)
class WeightStep:
    """A direction of the weights and slacks; along it a slack is `slack + t * slope - t^2 * bend`."""

    eta: Float64
    slope: Float64
    bend: Float64
    radius: Float64


class FreeWeights:
    """Weights of balls whose constraint is q_b <= lam^2. `pairs` is the number of products eta slack."""

    groups: Samples | None = None

    def __init__(self, lam: float, count: int) -> None:
        self.lam, self.pairs = lam, count
        self.eta, self.slack = np.zeros(count), np.zeros(count)
        self.radius = np.full(1, lam * lam)  # (groups,), or one of all

    def value(self, q: Float64) -> float:
        """pen(alpha) of alpha_b = eta_b V_b."""
        return self.lam * float(self.eta @ np.sqrt(q))

    def conjugate(self, q: Float64) -> float:
        """pen*(V)."""
        return 0.0

    def reach(self, q: Float64) -> float:
        """The largest factor of V with a finite pen*."""
        return self.lam / max(float(np.sqrt(q.max(initial=0.0))), TINY)

    def begin(self, q: Float64, mu: float) -> None:
        """The weights whose products with the slacks are mu."""
        self._see(q)
        self.eta = mu / self.slack

    def push(self, target: Float64) -> Float64:
        """(balls,): c for which sum_b c_b Q_b u is the part of the right-hand side that does not depend on u."""
        return (target - self.eta * self.slack) / self.slack

    def follow(self, target: Float64, inner: Float64, bend: Float64) -> WeightStep:
        """The direction that belongs to a change of u with u' Q_b du = inner and du' Q_b du = 2 bend."""
        return WeightStep(self.push(target) + self.eta / self.slack * inner, -inner, bend, np.zeros(1))

    def move(self, step: WeightStep, t: float, q: Float64) -> None:
        """Go t times the step, after which the forms are q."""
        self.eta = self.eta + t * step.eta
        self.radius = self.radius + t * step.radius
        self._see(q)

    def _see(self, q: Float64) -> None:
        self.slack = (self.radius - q) / 2


class SharedWeights(FreeWeights):
    """Weights that sum to 1/lam in each group; the radius of a group bounds all of its forms."""

    def __init__(self, lam: float, groups: Samples) -> None:
        super().__init__(lam, len(groups))
        self.groups: Samples = np.unique(groups, return_inverse=True)[1]
        self._count = int(self.groups.max()) + 1

    def _sum(self, values: Float64) -> Float64:
        return np.asarray(np.bincount(self.groups, values, self._count), dtype=np.float64)

    def _largest(self, q: Float64) -> Float64:
        largest = np.zeros(self._count)
        np.maximum.at(largest, self.groups, q)
        return largest

    def value(self, q: Float64) -> float:
        return self.lam / 2 * float(np.square(self._sum(self.eta * np.sqrt(q))).sum())

    def conjugate(self, q: Float64) -> float:
        return float(self._largest(q).sum()) / (2 * self.lam)

    def reach(self, q: Float64) -> float:
        return np.inf

    def begin(self, q: Float64, mu: float) -> None:
        self.radius = self._largest(q) + 2 * mu * self.lam * self._sum(np.ones(len(q)))
        super().begin(q, mu)
        self.eta /= self.lam * self._sum(self.eta)[self.groups]

    def push(self, target: Float64) -> Float64:
        free = super().push(target)
        steep = self.eta / self.slack
        return free - steep * self._radius_step(free, steep)[self.groups]

    def _radius_step(self, free: Float64, steep: Float64) -> Float64:
        """(groups,): half the change of the radius that keeps the sums, at a fixed u."""
        missing = 1.0 / self.lam - self._sum(self.eta)
        return (self._sum(free) - missing) / np.maximum(self._sum(steep), TINY)

    def follow(self, target: Float64, inner: Float64, bend: Float64) -> WeightStep:
        free, steep = super().push(target), self.eta / self.slack
        half = self._radius_step(free, steep) + self._sum(steep * inner) / np.maximum(self._sum(steep), TINY)
        slope = half[self.groups] - inner
        return WeightStep(free - steep * slope, slope, bend, 2 * half)

    def _see(self, q: Float64) -> None:
        self.slack = (self.radius[self.groups] - q) / 2


class EqualWeights(FreeWeights):
    """Weights that are all 1/lam."""

    def __init__(self, lam: float, count: int) -> None:
        super().__init__(lam, count)
        self.pairs = 0
        self.eta, self.slack = np.full(count, 1.0 / lam), np.full(count, np.inf)

    def value(self, q: Float64) -> float:
        return float(q.sum()) / (2 * self.lam)

    def conjugate(self, q: Float64) -> float:
        return float(q.sum()) / (2 * self.lam)

    def reach(self, q: Float64) -> float:
        return np.inf

    def begin(self, q: Float64, mu: float) -> None:
        pass

    def push(self, target: Float64) -> Float64:
        return np.zeros(len(self.eta))

    def follow(self, target: Float64, inner: Float64, bend: Float64) -> WeightStep:
        none = np.zeros(len(self.eta))
        return WeightStep(none, none, none, np.zeros(1))

    def move(self, step: WeightStep, t: float, q: Float64) -> None:
        pass


def weights_of(norm: GroupNorm, count: int) -> FreeWeights:
    """The weights of a norm over so many balls, which are its groups or, for P = 1, single coefficients."""
    if (norm.inner, norm.outer) == (2, 2):
        return EqualWeights(norm.lam, count)
    return SharedWeights(norm.lam, norm.groups) if norm.outer == 2 else FreeWeights(norm.lam, count)


# The method


@dataclass(frozen=True)
class InteriorPoint:
    """A primal point, alpha_b = eta_b V_b, and a feasible dual point u with the bounds that they prove."""

    eta: Float64  # (balls,)
    image: Image  # of the u that V belongs to
    primal: float
    u: Float64
    dual: float
    steps: int = 0
    end: str = ""

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual)


@dataclass(frozen=True)
class Direction:
    """A Newton direction, and how far it stays inside all bounds."""

    u: Float64
    z: Float64
    image: Image
    weights: WeightStep
    reach: float


@dataclass(frozen=True)
class Targets:
    """What the products and the residual are to be after a step, in its linear model."""

    uz: Float64 | float
    pairs: Float64 | float
    residual: Float64 | float = 0.0


def interior_point(
    forms: Forms, weights: FreeWeights, start: Float64 | None, above: float, tol: float
) -> InteriorPoint:
    """Reduce the relative gap to `tol`.

    Parameters
    ----------
    forms : Forms
        The quadratic forms of the balls.
    weights : FreeWeights
        The weights of the balls; their values change.
    start : array (n,), optional
        Where to start if its bound is better than those of ridge problems.
    above : float
        A primal value that is known, at most the number of samples.
    tol : float

    Returns
    -------
    InteriorPoint
        The best point. `end` says why the method stopped before the tolerance, if it did.
    """
    none = np.zeros(forms.n)
    best = InteriorPoint(np.zeros(len(weights.eta)), forms.image(none), float(forms.n), none, 0.0)
    flat = np.full(forms.n, 2.0)
    u, image, q = _scaled(forms, weights, flat)
    best = _with_bound(best, weights, u, q)
    if best.gap <= tol:
        return best
    u, image, q = _start(forms, weights, start)
    bound = _with_bound(best, weights, u, q).dual
    spare = max(min(above, forms.n) - bound, tol * forms.n) / (forms.n + weights.pairs)
    mu = min(OPTIONS.first_product * float(u.mean()), spare)
    z = mu / u
    weights.begin(q, mu)
    short = 0
    for taken in range(OPTIONS.max_steps + 1):
        margins = forms.pull(weights.eta, image)
        slack = np.maximum(1.0 - margins, 0.0)
        primal = float(slack @ slack) + weights.value(q)
        best = replace(_with_bound(best, weights, u, q), steps=taken)
        if primal < best.primal:
            best = replace(best, primal=primal, eta=weights.eta, image=image)
        if best.gap <= tol or must_stop():
            return best
        residual = u / 2 - 1.0 + margins - z
        steep = np.zeros(len(weights.eta)) if weights.pairs == 0 else weights.eta / weights.slack
        try:
            system = forms.system(0.5 + z / u, Curvature(weights.eta, steep, weights.groups), image)
        except np.linalg.LinAlgError:
            return replace(best, end="rounding")
        newton = Newton(forms, weights, system, u, z, image, residual)
        direction = newton.direction()
        t = min(1.0, OPTIONS.to_boundary * direction.reach)
        short = short + 1 if t < OPTIONS.shortest_step else 0
        if short == 2 or not np.isfinite(t):
            return replace(best, end="no step")
        u, z = u + t * direction.u, z + t * direction.z
        image = image + t * direction.image
        q = forms.inner(image, image)
        weights.move(direction.weights, t, q)
        if weights.pairs and weights.slack.min() <= 0:
            return replace(best, end="rounding")
    return replace(best, end="too many steps")


class Newton:
    """The Newton equations at one point."""

    def __init__(
        self,
        forms: Forms,
        weights: FreeWeights,
        system: System,
        u: Float64,
        z: Float64,
        image: Image,
        residual: Float64,
    ) -> None:
        self._forms, self._weights, self._system = forms, weights, system
        self._u, self._z, self._image, self._residual = u, z, image, residual

    def direction(self) -> Direction:
        """Mehrotra's corrected direction, improved by one of Gondzio's corrections if that makes the step longer."""
        weights, paired = self._weights, self._weights.pairs > 0
        total = float(self._u @ self._z) + (float(weights.eta @ weights.slack) if paired else 0.0)
        mean = total / (len(self._u) + weights.pairs)
        predictor = self._towards(Targets(0.0, 0.0))
        uz, pairs = self._products(predictor, min(1.0, predictor.reach))
        left = (float(uz.sum()) + float(pairs.sum())) / total
        target = mean * max(min(max(left, 0.0), 1.0) ** OPTIONS.centring, OPTIONS.least_target)
        step = predictor.weights
        second = target - step.eta * step.slope + weights.eta * step.bend if paired else 0.0
        bent = self._forms.pull(step.eta, predictor.image) if paired else 0.0
        targets = Targets(target - predictor.u * predictor.z, second, bent)
        found = self._towards(targets)
        if found.reach >= 1.0:
            return found
        uz, pairs = self._products(found, min(1.0, found.reach + OPTIONS.further))
        corrected = self._towards(
            Targets(targets.uz + _correction(uz, target), targets.pairs + _correction(pairs, target), bent)
        )
        return corrected if corrected.reach >= found.reach + OPTIONS.gain else found

    def _towards(self, targets: Targets) -> Direction:
        forms, weights, u, z = self._forms, self._weights, self._u, self._z
        right = targets.uz / u - z - self._residual - targets.residual
        if weights.pairs:
            right -= forms.pull(weights.push(np.asarray(targets.pairs)), self._image)
        du = self._system.solve(right)
        dz = (targets.uz - z * du) / u - z
        image = forms.image(du)
        step = weights.follow(np.asarray(targets.pairs), forms.inner(self._image, image), forms.inner(image, image) / 2)
        reach = min(_to_zero(u, du), _to_zero(z, dz))
        if weights.pairs:
            reach = min(reach, _to_zero(weights.eta, step.eta), _to_root(weights.slack, step.slope, step.bend))
        return Direction(du, dz, image, step, reach)

    def _products(self, d: Direction, t: float) -> tuple[Float64, Float64]:
        """u z and eta slack after a step t."""
        uz = (self._u + t * d.u) * (self._z + t * d.z)
        if not self._weights.pairs:
            return uz, np.zeros(0)
        slack = self._weights.slack + t * d.weights.slope - t * t * d.weights.bend
        return uz, (self._weights.eta + t * d.weights.eta) * slack


def _correction(products: Float64, target: float) -> Float64:
    """What brings products back to within the band, not by more than the band (Gondzio 1996)."""
    band = OPTIONS.band
    return np.maximum(np.clip(products, target / band, target * band) - products, -target * band)


def _to_zero(values: Float64, steps: Float64) -> float:
    """The longest step that keeps positive values positive."""
    falling = steps < 0
    return float((-values[falling] / steps[falling]).min(initial=np.inf))


def _to_root(slack: Float64, slope: Float64, bend: Float64) -> float:
    """The longest step with slack + t slope - t^2 bend > 0."""
    root = np.sqrt(slope * slope + 4 * bend * slack)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(slope < 0, 2 * slack / (root - slope), (slope + root) / (2 * bend))
    return float(np.nanmin(reach, initial=np.inf))


def _start(forms: Forms, weights: FreeWeights, given: Float64 | None) -> tuple[Float64, Image, Float64]:
    """The interior u with the best bound among solutions of ridge problems, and a given one; its image and its q."""
    ridge = forms.ridge(OPTIONS.ridge_rows * forms.n)
    scale = max(float(np.trace(ridge)) / forms.n, TINY)
    best, found = -np.inf, None
    candidates = [] if given is None else [given]
    worse = 0
    for factor in OPTIONS.ridges:
        matrix = ridge * (factor / scale)
        matrix[np.diag_indices(forms.n)] += 0.5
        try:
            candidates.append(Cholesky(matrix).solve(np.ones(forms.n)))
        except np.linalg.LinAlgError:  # rounding
            break
        for u in candidates:
            u = np.maximum(u, OPTIONS.least_u * float(np.abs(u).mean()))
            u, image, q = _scaled(forms, weights, u)
            bound = _bound(weights, u, q)[0]
            if bound > best:
                best, found, worse = bound, (u, image, q), -1
        candidates = []
        worse += 1
        if worse == OPTIONS.worse or must_stop():
            break
    if found is None:
        found = _scaled(forms, weights, np.ones(forms.n))
    u, image, q = found
    inside = min(1.0, (1.0 - OPTIONS.least_u) * weights.reach(q))
    return inside * u, inside * image, inside**2 * q


def _scaled(forms: Forms, weights: FreeWeights, u: Float64) -> tuple[Float64, Image, Float64]:
    """The best multiple of u, its image and its forms."""
    image = forms.image(u)
    q = forms.inner(image, image)
    scale = _bound(weights, u, q)[1]
    return scale * u, scale * image, scale**2 * q


def _bound(weights: FreeWeights, u: Float64, q: Float64) -> tuple[float, float]:
    """max_t L(t u) and the maximising t."""
    linear, square = float(u.sum()), float(u @ u) / 4 + weights.conjugate(np.maximum(q, 0.0))
    scale = min(linear / max(2 * square, TINY), weights.reach(q))
    return scale * (linear - scale * square), scale


def _with_bound(point: InteriorPoint, weights: FreeWeights, u: Float64, q: Float64) -> InteriorPoint:
    dual, scale = _bound(weights, u, q)
    return replace(point, u=scale * u, dual=dual) if dual > point.dual else point
