"""[|y - f| - epsilon]+, of support vector regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.problems.losses.base import Loss, Slack, Smooth, lowest, sparse_clip


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
        counts = np.broadcast_to(self.counts, rest.shape)
        breaks = np.concatenate([rest - self.epsilon, rest + self.epsilon])
        return lowest(breaks, np.concatenate([counts, counts]), float(counts.sum()))

    def margins(self, y: Float64, f: Float64) -> Float64:
        """2 in the middle of the tube, 1 at its rim."""
        return 2.0 - np.abs(y - f) / max(self.epsilon, 1e-300)
