"""(y - f)^2, of least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.problems.losses.base import Loss, Smooth


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

    def null(self, y: Float64) -> Float64:
        return np.asarray(2.0 * self.counts * (y - self.mean(y)))

    def intercept(self, y: Float64, scores: Float64) -> float:
        return self.mean(y - scores)
