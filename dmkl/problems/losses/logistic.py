"""log(1 + exp(-y f)): scores are log odds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, xlogy

from dmkl._util.types import Float64
from dmkl.problems.losses.base import Loss, Smooth, balanced


@dataclass(frozen=True)
class LogisticOptions:
    """Numerical options of the logistic loss, whose conjugate has infinite slopes at the ends of its domain."""

    inside: float = 1e-10  # distance that dual values keep from the ends of the domain
    least: float = 1e-290  # smallest dual value with a finite reciprocal
    to_boundary: float = 0.9  # largest share of the way to an end of the domain that a step may take
    intercept_steps: int = 60  # of Newton's method or bisection


OPTIONS = LogisticOptions()


@dataclass(frozen=True)
class Logistic(Loss):
    """u = y rho in [0, 1] with conjugate u log u + (1 - u) log(1 - u)."""

    def total(self, y: Float64, f: Float64) -> float:
        return float((self.counts * np.logaddexp(0.0, -y * f)).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        u = y * rho / self.counts
        return float((self.counts * (xlogy(u, u) + xlogy(1.0 - u, 1.0 - u))).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        u = np.clip(y * rho / self.counts, OPTIONS.inside, 1.0 - OPTIONS.inside)
        return np.asarray(y * self.counts * u)

    def smooth(self, y: Float64, rho: Float64) -> Smooth | None:
        u = y * rho / self.counts
        if not ((u > OPTIONS.least) & (u < 1.0)).all():
            return None
        return Smooth(self.conjugate(y, rho), y * (np.log(u) - np.log1p(-u)), 1.0 / (u * (1.0 - u)) / self.counts)

    def shortened(self, y: Float64, rho: Float64, step: Float64) -> Float64:
        u = y * rho
        return np.asarray(y * np.clip(y * step, -OPTIONS.to_boundary * u, OPTIONS.to_boundary * (self.counts - u)))

    def null(self, y: Float64) -> Float64:
        return balanced(self.counts * y * expit(-y * self.intercept(y, np.zeros(len(y)))))

    def intercept(self, y: Float64, scores: Float64) -> float:
        """Newton's method on the monotone slope, with bisection where it leaves the bracket."""
        low, high = float((-scores).min()) - 50.0, float((-scores).max()) + 50.0
        b = 0.5 * (low + high) if not low < 0.0 < high else 0.0
        for _ in range(OPTIONS.intercept_steps):
            u = expit(-y * (scores + b))
            slope = -float((self.counts * y * u).sum())
            low, high = (b, high) if slope < 0 else (low, b)
            curvature = float((self.counts * u * (1.0 - u)).sum())
            newton = b - slope / curvature if curvature > 0 else np.inf
            step = (newton if low < newton < high else 0.5 * (low + high)) - b
            b += step
            if abs(step) <= 1e-14 * max(1.0, abs(b)):
                break
        return b
