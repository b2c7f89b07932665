from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dmkl._util.types import Float64
from dmkl.kernels.functions.base import ExponentialKernel, Float32, Scales, exponential, fit_width


@dataclass(frozen=True)
class Rbf(ExponentialKernel):
    """Gaussian `exp(-|x - z|^2 / (2 width^2))`; 'scale' equals scikit-learn's gamma='scale'."""

    base: ClassVar[str] = "sqeuclidean"

    def fit(self, scales: Scales) -> Self:
        return replace(self, width=fit_width(self.width, scales, scale=(scales.spread / 2) ** 0.5))

    def evaluate(self, tile: Float64) -> Float32:
        return exponential(tile, -0.5 / float(self.width) ** 2)
