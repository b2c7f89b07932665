"""[1 - y f]+, of support vector machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.problems.losses.base import Loss, Slack, Smooth, balanced, lowest, sparse_clip


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
