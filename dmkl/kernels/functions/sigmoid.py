from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dmkl._util.types import Float64
from dmkl.kernels.functions.base import Kernel, Scales, fit_multiple


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
        return replace(self, gamma=fit_multiple("gamma", self.gamma, {"scale": 1 / scales.spread}))

    def evaluate(self, tile: Float64) -> Float64:
        return np.tanh(tile * float(self.gamma) + self.coef0)
