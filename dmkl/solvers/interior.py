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
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from dmkl.norms import MixedNorm
from dmkl.oracles import least_hinge
from dmkl.solvers.sweep import sweep

Float64 = NDArray[np.float64]
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


@dataclass
class Point:
    """Primal variables with their slacks, and multipliers. All but beta and b stay positive."""

    beta: Float64
    radii: Float64  # N
    slack: Float64  # of the kernels' constraints
    mu: Float64  # multipliers of the kernels' constraints
    lower: Float64  # multipliers of beta >= lo
    upper: Float64  # multipliers of beta <= hi
    b: float

    def moved(self, step: Point, primal: float, dual: float) -> Point:
        return Point(
            self.beta + primal * step.beta,
            self.radii + primal * step.radii,
            self.slack + primal * step.slack,
            self.mu + dual * step.mu,
            self.lower + dual * step.lower,
            self.upper + dual * step.upper,
            self.b + dual * step.b,
        )


def solve_interior(K: NDArray[Any], y: Float64, C: Float64 | float, norm: MixedNorm, tol: float) -> Interior:
    """Solve on a block K (s, n, n) to a relative gap of `tol`, or as far as rounding lets it."""
    machine = Machine(K, y, C, norm, np.arange(len(K)))
    found = follow(machine, machine.start(), tol)[0]
    if found.solved:
        return found
    again = follow(machine, machine.central(), tol)[0]
    again = replace(again, steps=found.steps + again.steps)
    return (
        again if again.primal - again.dual < found.primal - found.dual else found
    )  # the bounds are true, come what may


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
                point, length = machine.step(point, FLOOR * tol * abs(best.dual))
        except (np.linalg.LinAlgError, FloatingPointError):  # no digits left: what was found so far is what there is
            break
        idle = idle + 1 if length < STALLED else 0
    return best, point


class Machine:
    """The problem with these kernels of a block, and what was last read of them."""

    def __init__(
        self, K: NDArray[Any], y: Float64, C: Float64 | float, norm: MixedNorm, kernels: NDArray[np.int64]
    ) -> None:
        C = np.broadcast_to(C, y.shape)
        self.K, self.y, self.C, self.norm = K, y, C, norm.among(kernels)
        self.kernels, self.g = kernels, self.norm.groups
        self.lo, self.hi = np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)
        s, n = len(kernels), len(y)
        self.weights = self.norm.uniform()
        self.products = np.empty((s, n))  # K_a beta
        self.combined = np.empty((n, n))  # sum_a weights_a K_a
        self.forms = np.empty(s)  # beta' K_a beta

    def start(self) -> Point:
        """The best multiple of the class-balanced alpha, well inside the box, its products balanced."""
        positive = self.y > 0
        relative, largest = self.C / self.C.max(), float(self.C.max())
        sides = np.where(positive, relative[positive].sum(), relative[~positive].sum())
        alpha = relative * (sides.min() / sides)
        sweep(self.K, self.kernels, alpha * self.y, self.weights, self.combined, self.products)
        ray = self.norm.conjugate(self.products @ (alpha * self.y))
        scale = min(0.5 * largest, max(0.5 * alpha.sum() / max(ray, 1e-300), 1e-6 * largest))
        alpha *= scale
        beta = alpha * self.y
        forms = self.products @ beta * scale  # the products are of the alpha before
        radii = np.full(self.norm.count, 1.5 * np.sqrt(max(forms.max(), 1e-300)))
        mu = (self.norm.slope(radii) / np.bincount(self.g))[self.g]
        slack = np.maximum(0.5 * (radii[self.g] - forms / radii[self.g]), 1e-8 * radii[self.g])
        room = alpha / (self.C - alpha)
        lower, upper = np.where(positive, 1.0, room), np.where(positive, room, 1.0)
        return Point(beta, radii, slack, mu, lower, upper, 0.0)

    def central(self) -> Point:
        """Half way through the box, each product of slack and multiplier as large as what is wrong with the point.

        This takes more steps than from `start`, and leads away from bounds where that one's run into them: where C is
        large and many samples end there."""
        positive = self.y > 0
        sides = np.where(positive, self.C[positive].sum(), self.C[~positive].sum())
        alpha = 0.5 * self.C * (sides.min() / sides)
        beta = alpha * self.y
        sweep(self.K, self.kernels, beta, self.weights, self.combined, self.products)
        forms = self.products @ beta
        radii = np.full(self.norm.count, 1.5 * np.sqrt(max(forms.max(), 1e-300)))
        mu = (self.norm.slope(radii) / np.bincount(self.g))[self.g]
        slack = np.maximum(0.5 * (radii[self.g] - forms / radii[self.g]), 1e-8 * radii[self.g])
        wrong = float(np.abs((mu / radii[self.g]) @ self.products - self.y).max())
        size = max(wrong * float(alpha.max()), float((mu * slack).max()))
        lower, upper = size / alpha, size / (self.C - alpha)
        return Point(
            beta, radii, size / mu, mu, np.where(positive, lower, upper), np.where(positive, upper, lower), 0.0
        )

    def read(self, point: Point) -> None:
        """Everything of the block that depends on the point, in one sweep."""
        self.weights = point.mu / point.radii[self.g]
        sweep(self.K, self.kernels, point.beta, self.weights, self.combined, self.products)
        self.forms = np.maximum(self.products @ point.beta, 0.0)

    def bounds(self, point: Point) -> tuple[float, float]:
        """Primal value of the weights with the exact intercept, and the dual value of beta."""
        scores = self.weights @ self.products
        primal = self.norm.regulariser(self.weights * np.sqrt(self.forms)) + least_hinge(scores, self.y, self.C)[0]
        # the iterate sums to zero only in the limit: its dual value counts once it does
        balanced = abs(point.beta.sum()) <= 1e-12 * np.abs(point.beta).sum()
        dual = float(self.y @ point.beta) - self.norm.conjugate(self.forms)
        return primal, dual if balanced else -np.inf

    def complementarity(self, point: Point) -> float:
        """The sum of all products of slacks and multipliers: the duality gap once the point is feasible."""
        return float(sum(product.sum() for product in self._products(point)))

    def residual(self, point: Point) -> float:
        """Complementarity and, in the same units, how far N is from stationary: zero at the solution only."""
        by_radius = 0.5 * (self.forms / point.radii[self.g] ** 2 + 1.0)
        radius = self.norm.slope(point.radii) - self.norm.total(point.mu * by_radius)
        return self.complementarity(point) + float(np.abs(radius) @ point.radii)

    def _products(self, point: Point) -> tuple[Float64, Float64, Float64]:
        box = point.lower * (point.beta - self.lo), point.upper * (self.hi - point.beta)
        return point.mu * point.slack, *box

    def step(self, point: Point, floor: float) -> tuple[Point, float]:
        """One predictor-corrector step and its length; it does not aim at a complementarity below `floor`."""
        system = _System(self, point)
        products = self._products(point)
        count = sum(map(len, products))
        mean = sum(float(product.sum()) for product in products) / count
        ahead = system.direction(*products)
        primal, dual = self.lengths(point, ahead)
        seen = point.moved(ahead, primal, dual)
        target = max((self.complementarity(seen) / count / mean) ** 3, 1e-8) * mean
        target = max(target, floor / count) if np.isfinite(floor) else target
        step = system.direction(
            products[0] + ahead.mu * ahead.slack - target,
            products[1] + ahead.lower * ahead.beta - target,
            products[2] - ahead.upper * ahead.beta - target,
        )
        length = TO_BOUNDARY * min(self.lengths(point, step))
        return point.moved(step, length, length), length

    def lengths(self, point: Point, step: Point) -> tuple[float, float]:
        """How far primal variables and multipliers can go."""
        primal = (
            (point.slack, step.slack),
            (point.radii, step.radii),
            (point.beta - self.lo, step.beta),
            (self.hi - point.beta, -step.beta),
        )
        dual = ((point.mu, step.mu), (point.lower, step.lower), (point.upper, step.upper))
        return min(_room(*pair) for pair in primal), min(_room(*pair) for pair in dual)


def _room(values: Float64, steps: Float64) -> float:
    shrinking = steps < 0
    return min(1.0, float((-values[shrinking] / steps[shrinking]).min())) if shrinking.any() else 1.0


class _System:
    """The Newton equations at a point, reduced to (beta, N) and the intercept, factored once for both directions."""

    def __init__(self, machine: Machine, point: Point) -> None:
        norm, g, n = machine.norm, machine.g, len(machine.y)
        self._machine, self._point, self._n = machine, point, n
        radii = point.radii[g]
        self._ratio = machine.forms / radii
        self._by_beta = machine.products / radii[:, None]  # gradients of the constraints
        self._by_radius = -0.5 * (self._ratio / radii + 1.0)
        self._box = point.lower / (point.beta - machine.lo) + point.upper / (machine.hi - point.beta)
        self._factor = self._factored()
        self._ones = np.zeros(n + norm.count)
        self._ones[:n] = 1.0
        self._toward: Float64 | None = None  # where the intercept pulls; solved for beside the first direction

    def _matrix(self) -> Float64:
        """The lower triangle of the equations in (beta, N)."""
        machine, point, n = self._machine, self._point, self._n
        norm, g = machine.norm, machine.g
        radii = point.radii[g]
        matrix = np.empty((n + norm.count, n + norm.count), order="F")
        matrix[:n, :n] = machine.combined.T  # symmetric, and this way round it is a plain copy
        matrix[np.arange(n), np.arange(n)] += self._box
        cross = machine.products * (-point.mu / radii**2)[:, None]
        for j in range(norm.count):
            matrix[n + j, :n] = cross[g == j].sum(axis=0)
        matrix[n:, n:] = norm.curvature(point.radii)
        ends = np.arange(n, n + norm.count)
        matrix[ends, ends] += norm.total(point.mu * self._ratio / radii**2)
        gradients = np.zeros((len(g), n + norm.count))  # of the kernels' constraints, in (beta, N)
        gradients[:, :n] = self._by_beta
        gradients[np.arange(len(g)), n + g] = self._by_radius
        gradients *= np.sqrt(point.mu / point.slack)[:, None]
        return np.asarray(dsyrk(1.0, gradients.T, beta=1.0, c=matrix, lower=1, overwrite_c=1))

    def _factored(self) -> Any:
        """Cholesky; a matrix that rounding made indefinite is pushed back by as little as helps."""
        push = 0.0
        while True:
            matrix = self._matrix()
            diagonal = matrix.diagonal().copy()
            matrix[np.diag_indices(len(matrix))] = diagonal * (1.0 + push) + push * diagonal.mean()
            try:
                return scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                if push > 1e-2:
                    raise
                push = max(100.0 * push, 1e-14)

    def direction(self, kernels: Float64, lower: Float64, upper: Float64) -> Point:
        """The step that takes the three sets of products, to first order, down by these amounts."""
        machine, point, n, g = self._machine, self._point, self._n, self._machine.g
        stationary = machine.weights @ machine.products - machine.y + point.b + point.upper - point.lower
        radius = _power_law_residual(machine.norm.slope(point.radii), -machine.norm.total(point.mu * self._by_radius))
        feasible = 0.5 * (self._ratio - point.radii[g]) + point.slack
        pull = (point.mu * feasible - kernels) / point.slack
        right = np.empty(n + machine.norm.count)
        right[:n] = -stationary - pull @ self._by_beta
        right[:n] += upper / (machine.hi - point.beta) - lower / (point.beta - machine.lo)
        right[n:] = -radius - machine.norm.total(pull * self._by_radius)
        if self._toward is None:  # both in one reading of the factor
            x, self._toward = self._solved(np.column_stack([right, self._ones])).T
        else:
            x = self._solved(right)
        b = float((self._ones @ x + point.beta.sum()) / (self._ones @ self._toward))
        x -= b * self._toward
        beta, radii = x[:n], x[n:]
        slack = -feasible - self._by_beta @ beta - self._by_radius * radii[g]
        return Point(
            beta,
            radii,
            slack,
            -(kernels + point.mu * slack) / point.slack,
            -(lower + point.lower * beta) / (point.beta - machine.lo),
            -(upper - point.upper * beta) / (machine.hi - point.beta),
            b,
        )

    def _solved(self, right: Float64) -> Float64:
        return np.asarray(scipy.linalg.cho_solve(self._factor, right, check_finite=False))


def _power_law_residual(slope: Float64, wanted: Float64) -> Float64:
    """slope - wanted, or slope * log(slope / wanted) where the slope is too large.

    The slope is a power of N, up to the hundredth for p near 1: Newton on the power itself would shrink N by a fixed
    small share a step; on its logarithm, to which this is equal near the solution, it gets there at once.
    """
    ratio = np.maximum(slope / np.maximum(wanted, 1e-300), 1.0)
    return np.where(ratio > 1.0, slope * np.log(ratio), slope - wanted)
