from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.kernels.functions.base import Kernel, Scales, fit_multiple

HIGHEST = 1000  # degree: each is a multiplication


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
        if not (1 <= self.degree <= HIGHEST and self.coef0 >= 0):
            raise ConfigError(
                f"poly needs degree from 1 to {HIGHEST} and coef0 >= 0, not degree={self.degree}, coef0={self.coef0:g}"
            )

    def fit(self, scales: Scales) -> Self:
        return replace(self, gamma=fit_multiple("gamma", self.gamma, {"scale": 1 / scales.spread}))

    def evaluate(self, tile: Float64) -> Float64:
        inner = tile * float(self.gamma) + self.coef0
        values = inner.copy()
        for _ in range(self.degree - 1):
            values *= inner
        return values
