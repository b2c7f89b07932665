"""The logistic, hinge, squared and epsilon-insensitive losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, xlogy

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.problems.losses import Loss, Slack, Smooth, balanced, lowest, sparse_clip


@dataclass(frozen=True)
class LogisticOptions:
    """Numerical options of the logistic loss, whose conjugate has infinite slopes at the ends of its domain."""

    inside: float = 1e-10  # distance that dual values keep from the ends of the domain
    least: float = 1e-290  # smallest dual value with a finite reciprocal
    most: float = 1e-15  # distance from 1 of the largest one
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

    def slopes(self, y: Float64, f: Float64) -> Float64:
        return np.asarray(y * self.counts * np.clip(expit(-y * f), OPTIONS.least, 1.0 - OPTIONS.most))

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


@dataclass(frozen=True)
class Hinge(Loss):
    """y rho in [0, 1] with conjugate -y rho, which is linear: its only kinks are the ends of the box."""

    sparse: ClassVar[bool] = True

    def total(self, y: Float64, f: Float64) -> float:
        return float((self.counts * np.maximum(1.0 - y * f, 0.0)).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        return -float((y * rho).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        return np.asarray(y * sparse_clip(y * rho, 0.0, self.counts))

    def smooth(self, y: Float64, rho: Float64) -> Smooth:
        return Smooth(self.conjugate(y, rho), -y, np.zeros(len(y)))

    def slacks(self, y: Float64) -> list[Slack]:
        return [Slack(-y, self.counts, 0.0, np.inf), Slack(y, 0.0, 0.0, np.inf)]

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        return [np.maximum(1.0 - y * f, 0.0), np.maximum(y * f - 1.0, 0.0)]

    def null(self, y: Float64) -> Float64:
        return balanced(self.counts * y)

    def intercept(self, y: Float64, scores: Float64) -> float:
        return lowest(y - scores, self.counts, float((self.counts * (y > 0)).sum()))

    def margins(self, y: Float64, f: Float64) -> Float64:
        return y * f


@dataclass(frozen=True)
class Squared(Loss):
    """rho = 2 (y - f), any real number, with conjugate rho^2 / 4 - y rho."""

    regression: ClassVar[bool] = True

    def total(self, y: Float64, f: Float64) -> float:
        return float((self.counts * (y - f) ** 2).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        return float((rho * (0.25 * rho / self.counts - y)).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        return rho

    def smooth(self, y: Float64, rho: Float64) -> Smooth:
        return Smooth(self.conjugate(y, rho), 0.5 * rho / self.counts - y, np.full(len(y), 0.5) / self.counts)

    def slopes(self, y: Float64, f: Float64) -> Float64:
        return np.asarray(2.0 * self.counts * (y - f))

    def null(self, y: Float64) -> Float64:
        return np.asarray(2.0 * self.counts * (y - self.mean(y)))

    def intercept(self, y: Float64, scores: Float64) -> float:
        return self.mean(y - scores)


@dataclass(frozen=True)
class Epsilon(Loss):
    """rho in [-1, 1] with conjugate epsilon |rho| - y rho: a box, and a kink at zero."""

    epsilon: float = 0.1
    regression: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and np.isfinite(self.epsilon)):
            raise ConfigError(f"epsilon should be at least 0 and finite, not {self.epsilon}")

    def total(self, y: Float64, f: Float64) -> float:
        return float((self.counts * np.maximum(np.abs(y - f) - self.epsilon, 0.0)).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        return float((self.epsilon * np.abs(rho) - y * rho).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        return sparse_clip(rho, -self.counts, self.counts)

    def smooth(self, y: Float64, rho: Float64) -> Smooth:
        return Smooth(-float((y * rho).sum()), -y, np.zeros(len(y)))

    def slacks(self, y: Float64) -> list[Slack]:
        one = np.ones(len(y))
        return [
            Slack(one, self.counts, 0.0, np.inf),
            Slack(-one, self.counts, 0.0, np.inf),
            Slack(one, 0.0, -self.epsilon, self.epsilon),
        ]

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        off, rim = f - y, self.epsilon
        return [np.maximum(off - rim, 0.0), np.maximum(-off - rim, 0.0), np.clip(off, -rim, rim)]

    def null(self, y: Float64) -> Float64:
        rest = y - self.mean(y)
        return np.asarray(self.counts * rest / max(float(np.abs(rest).max()), 1e-300))

    def intercept(self, y: Float64, scores: Float64) -> float:
        rest = y - scores
        if np.ptp(rest) <= 2.0 * self.epsilon:
            return 0.5 * float(rest.min() + rest.max())  # no sample is outside the tube, whatever the rounding
        counts = np.broadcast_to(self.counts, rest.shape)
        breaks = np.concatenate([rest - self.epsilon, rest + self.epsilon])
        return lowest(breaks, np.concatenate([counts, counts]), float(counts.sum()))

    def margins(self, y: Float64, f: Float64) -> Float64:
        """2 in the middle of the tube, 1 at its rim."""
        return 2.0 - np.abs(y - f) / max(self.epsilon, 1e-300)
