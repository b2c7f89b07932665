from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.kernels.functions.base import Float64, Kernel


@dataclass(frozen=True)
class Intersection(Kernel):
    """Histogram intersection `sum min(x, z)` (features >= 0)."""

    base: ClassVar[str] = "intersection"
    entry_ns: ClassVar[float] = 0.3

    def evaluate(self, tile: Float64) -> Float64:
        return tile
