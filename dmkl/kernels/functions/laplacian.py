from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.kernels.functions.base import ExponentialKernel


@dataclass(frozen=True)
class Laplacian(ExponentialKernel):
    """`exp(-|x - z|_1 / width)`."""

    base: ClassVar[str] = "cityblock"
