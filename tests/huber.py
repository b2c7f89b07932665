"""A loss with a parameter of its own, as somebody would add it: the conformance suite and the solvers run over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.problems.losses import Loss, Slack, Smooth, balanced


@dataclass(frozen=True)
class Huber(Loss):
    """r^2 / 2 for |r| <= delta, else delta |r| - delta^2 / 2, with r = y - f.

    rho in [-delta, delta] with conjugate rho^2 / 2 - y rho.
    """

    delta: float = 1.0
    regression: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.delta > 0 and np.isfinite(self.delta)):
            raise ConfigError(f"delta should be positive and finite, not {self.delta}")

    def total(self, y: Float64, f: Float64) -> float:
        inner = np.clip(y - f, -self.delta, self.delta)
        return float((self.counts * (0.5 * inner**2 + self.delta * np.abs(y - f - inner))).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        return float((rho * (0.5 * rho / self.counts - y)).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        return np.clip(rho, -self.delta * self.counts, self.delta * self.counts)

    def smooth(self, y: Float64, rho: Float64) -> Smooth:
        return Smooth(self.conjugate(y, rho), rho / self.counts - y, np.ones(len(y)) / self.counts)

    def slacks(self, y: Float64) -> list[Slack]:
        one = np.ones(len(y))
        return [Slack(sign * one, self.delta * self.counts, 0.0, np.inf) for sign in (1.0, -1.0)]

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        return [np.maximum(sign * (f - y) - self.delta, 0.0) for sign in (1.0, -1.0)]

    def null(self, y: Float64) -> Float64:
        return balanced(self.counts * np.clip(y - self.mean(y), -self.delta, self.delta))

    def intercept(self, y: Float64, scores: Float64) -> float:
        rest = y - scores
        if rest.min() == rest.max():
            return float(rest[0])

        def slope(b: float) -> float:
            return float((self.counts * np.clip(rest - b, -self.delta, self.delta)).sum())

        return float(brentq(slope, rest.min(), rest.max(), xtol=1e-14))
