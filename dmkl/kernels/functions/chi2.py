from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl._util.types import Float64
from dmkl.kernels.functions.base import ExponentialKernel, Kernel


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
