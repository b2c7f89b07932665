from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.kernels.functions.base import ExponentialKernel


@dataclass(frozen=True)
class KullbackLeibler(ExponentialKernel):
    """`exp(-KL(x || z) / width)` of histograms (features >= 0): how well z stands in for x, and not x for z."""

    base: ClassVar[str] = "kl"
    symmetric: ClassVar[bool] = False
    indefinite: ClassVar[bool] = True
