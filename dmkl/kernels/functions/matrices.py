"""The kernels of distance and kernel views, whose values come from the view's own matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl._util.types import Float64
from dmkl.kernels.functions.base import ExponentialKernel, Kernel


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
