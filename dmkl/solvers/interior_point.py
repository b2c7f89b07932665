"""A point of the interior point method (`interior.py`), and what is read of a block there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.oracles import least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.sweep import sweep


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
        positive, largest = self.y > 0, float(self.C.max())
        alpha = self._balanced(self.C / largest)
        sweep(self.K, self.kernels, alpha * self.y, self.weights, self.combined, self.products)
        ray = self.norm.conjugate(self.products @ (alpha * self.y))
        scale = min(0.5 * largest, max(0.5 * alpha.sum() / max(ray, 1e-300), 1e-6 * largest))
        alpha *= scale
        beta = alpha * self.y
        forms = self.products @ beta * scale  # the products are of the alpha before
        radii, mu, slack = self._loose(forms)
        room = alpha / (self.C - alpha)
        lower, upper = np.where(positive, 1.0, room), np.where(positive, room, 1.0)
        return Point(beta, radii, slack, mu, lower, upper, 0.0)

    def central(self) -> Point:
        """Half way through the box, each product of slack and multiplier as large as what is wrong with the point.

        This takes more steps than from `start`, and leads away from bounds where that one's run into them: where C is
        large and many samples end there."""
        positive = self.y > 0
        alpha = 0.5 * self._balanced(self.C)
        beta = alpha * self.y
        sweep(self.K, self.kernels, beta, self.weights, self.combined, self.products)
        radii, mu, slack = self._loose(self.products @ beta)
        wrong = float(np.abs((mu / radii[self.g]) @ self.products - self.y).max())
        size = max(wrong * float(alpha.max()), float((mu * slack).max()))
        lower, upper = size / alpha, size / (self.C - alpha)
        return Point(
            beta, radii, size / mu, mu, np.where(positive, lower, upper), np.where(positive, upper, lower), 0.0
        )

    def _balanced(self, bounds: Float64) -> Float64:
        """As much of these bounds that both classes have the same sum, the smaller one all of it."""
        positive = self.y > 0
        sides = np.where(positive, bounds[positive].sum(), bounds[~positive].sum())
        return np.asarray(bounds * (sides.min() / sides))

    def _loose(self, forms: Float64) -> tuple[Float64, Float64, Float64]:
        """N large enough for every kernel, the multipliers for which it is stationary but for a factor, and slacks."""
        radii = np.full(self.norm.count, 1.5 * np.sqrt(max(forms.max(), 1e-300)))
        mu = (self.norm.slope(radii) / np.bincount(self.g))[self.g]
        return radii, mu, np.maximum(0.5 * (radii[self.g] - forms / radii[self.g]), 1e-8 * radii[self.g])

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
        return float(sum(product.sum() for product in self.each(point)))

    def residual(self, point: Point) -> float:
        """Complementarity and, in the same units, how far N is from stationary: zero at the solution only."""
        by_radius = 0.5 * (self.forms / point.radii[self.g] ** 2 + 1.0)
        radius = self.norm.slope(point.radii) - self.norm.total(point.mu * by_radius)
        return self.complementarity(point) + float(np.abs(radius) @ point.radii)

    def each(self, point: Point) -> tuple[Float64, Float64, Float64]:
        """All products of slacks and multipliers: of kernels, of beta >= lo, of beta <= hi."""
        box = point.lower * (point.beta - self.lo), point.upper * (self.hi - point.beta)
        return point.mu * point.slack, *box
