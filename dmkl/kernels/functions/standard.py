"""The kernels of feature views: functions of inner products, of distances, and of histograms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.kernels.functions import ExponentialKernel, Kernel, Scales, fit_multiple, fit_width

HIGHEST_DEGREE = 1000  # of a polynomial, which is computed by as many multiplications


def _inverse(spread: float) -> float:
    """1 / spread; infinite, which is refused as a unit, where all features are equal."""
    return 1.0 / spread if spread else np.inf


@dataclass(frozen=True)
class Linear(Kernel):
    """`x . z`."""

    base: ClassVar[str] = "dot"
    entry_ns: ClassVar[float] = 0.3

    def evaluate(self, tile: Float64) -> Float64:
        return tile


@dataclass(frozen=True)
class Poly(Kernel):
    """`(gamma x . z + coef0)^degree`; gamma='scale' divides by features times variance."""

    degree: int = 3
    gamma: float | str = 1.0
    coef0: float = 1.0

    base: ClassVar[str] = "dot"
    needs_scales: ClassVar[bool] = True
    entry_ns: ClassVar[float] = 2.6

    def __post_init__(self) -> None:
        if not (1 <= self.degree <= HIGHEST_DEGREE and self.coef0 >= 0):
            raise ConfigError(
                f"poly needs degree from 1 to {HIGHEST_DEGREE} and coef0 >= 0, "
                f"not degree={self.degree}, coef0={self.coef0:g}"
            )

    def fit(self, scales: Scales) -> Self:
        return replace(self, gamma=fit_multiple("gamma", self.gamma, {"scale": _inverse(scales.spread)}))

    def evaluate(self, tile: Float64) -> Float64:
        inner = tile * float(self.gamma) + self.coef0
        values = inner.copy()
        for _ in range(self.degree - 1):
            values *= inner
        return values


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """`tanh(gamma x . z + coef0)`: not positive semidefinite in general."""

    gamma: float | str = "scale"
    coef0: float = 0.0

    base: ClassVar[str] = "dot"
    needs_scales: ClassVar[bool] = True
    indefinite: ClassVar[bool] = True
    entry_ns: ClassVar[float] = 2.9

    def fit(self, scales: Scales) -> Self:
        return replace(self, gamma=fit_multiple("gamma", self.gamma, {"scale": _inverse(scales.spread)}))

    def evaluate(self, tile: Float64) -> Float64:
        return np.tanh(tile * float(self.gamma) + self.coef0)


@dataclass(frozen=True)
class Rbf(ExponentialKernel):
    """Gaussian `exp(-|x - z|^2 / (2 width^2))`; 'scale' equals scikit-learn's gamma='scale'."""

    base: ClassVar[str] = "sqeuclidean"

    def fit(self, scales: Scales) -> Self:
        return replace(self, width=fit_width(self.width, scales, scale=(scales.spread / 2) ** 0.5))

    @property
    def factor(self) -> float:
        return -0.5 / float(self.width) ** 2


@dataclass(frozen=True)
class Laplacian(ExponentialKernel):
    """`exp(-|x - z|_1 / width)`."""

    base: ClassVar[str] = "cityblock"


@dataclass(frozen=True)
class Chi2(ExponentialKernel):
    """`exp(-sum (x - z)^2 / (x + z) / width)` for histograms (features >= 0)."""

    base: ClassVar[str] = "chi2"


@dataclass(frozen=True)
class AdditiveChi2(Kernel):
    """`sum 2 x z / (x + z)` for histograms: the positive semidefinite form."""

    base: ClassVar[str] = "additive_chi2"
    entry_ns: ClassVar[float] = 0.3

    def evaluate(self, tile: Float64) -> Float64:
        return tile


@dataclass(frozen=True)
class Intersection(Kernel):
    """Histogram intersection `sum min(x, z)` (features >= 0)."""

    base: ClassVar[str] = "intersection"
    entry_ns: ClassVar[float] = 0.3

    def evaluate(self, tile: Float64) -> Float64:
        return tile


@dataclass(frozen=True)
class KullbackLeibler(ExponentialKernel):
    """`exp(-KL(x || z) / width)` of histograms (features >= 0); not symmetric."""

    base: ClassVar[str] = "kl"
    symmetric: ClassVar[bool] = False
    indefinite: ClassVar[bool] = True


@dataclass(frozen=True)
class Distance(ExponentialKernel):
    """`exp(-D / width)` of a matrix of distances."""

    base: ClassVar[str] = "matrix"
    view_kind: ClassVar[str] = "distance"


@dataclass(frozen=True)
class Precomputed(Kernel):
    """A kernel matrix as it is."""

    base: ClassVar[str] = "matrix"
    view_kind: ClassVar[str] = "kernel"
    unproven: ClassVar[bool] = True

    def evaluate(self, tile: Float64) -> Float64:
        return tile


@dataclass(frozen=True)
class Similarity(Precomputed):
    """A matrix of similarities, which need not be symmetric; `precomputed` becomes this on a nonsymmetric view."""

    indefinite: ClassVar[bool] = True
    unproven: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False
