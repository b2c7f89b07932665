"""Kernel functions: parameters, the pairwise base they are computed from, and an elementwise map.

A kernel is one file with a `Kernel` and one line in the table here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.registry import Registry
from dmkl._util.types import Array, Float32, Float64
from dmkl.errors import ConfigError

STRIP = 256  # rows of a tile worked on together: 1 MB of float32 stays in a cache, and threads seldom wait at a call


@dataclass(frozen=True)
class Scales:
    """Units of relative widths, measured on training samples.

    `median` and `mean` are those of the distances between samples; `spread` is the number of features times their
    variance (the divisor in scikit-learn's gamma='scale').
    """

    median: float
    mean: float
    spread: float


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel function; its fields are its parameters.

    `fit` replaces relative parameters ("0.5 median") by numbers. A fitted kernel can be stored as plain values.
    """

    base: ClassVar[str]  # name of the distance or similarity it is a function of (`distances.BASES`)
    view_kind: ClassVar[str] = "features"
    needs_scales: ClassVar[bool] = False  # whether `fit` has to measure the training samples
    indefinite: ClassVar[bool] = False  # known not to be positive semidefinite in general
    unproven: ClassVar[bool] = False  # may or may not be semidefinite: the values have to be checked
    symmetric: ClassVar[bool] = True  # where k(x, z) is not k(z, x), only MIKL takes the kernel
    entry_ns: ClassVar[float] = 0.7  # measured nanoseconds of `evaluate` for one entry (see `plan.Costs`)

    @abstractmethod
    def evaluate(self, tile: Float64) -> Array:
        """Kernel values for a tile (or a diagonal) of the base; the argument is not changed."""

    def fit(self, scales: Scales) -> Self:
        """The same kernel with every relative parameter turned into a number."""
        return self


KERNELS: Registry[type[Kernel]] = Registry("kernel")
KERNELS.register("linear", "dmkl.kernels.functions.standard:Linear")
KERNELS.register("poly", "dmkl.kernels.functions.standard:Poly")
KERNELS.register("rbf", "dmkl.kernels.functions.standard:Rbf")
KERNELS.register("laplacian", "dmkl.kernels.functions.standard:Laplacian")
KERNELS.register("chi2", "dmkl.kernels.functions.standard:Chi2")
KERNELS.register("additive_chi2", "dmkl.kernels.functions.standard:AdditiveChi2")
KERNELS.register("intersection", "dmkl.kernels.functions.standard:Intersection")
KERNELS.register("sigmoid", "dmkl.kernels.functions.standard:Sigmoid")
KERNELS.register("kl", "dmkl.kernels.functions.standard:KullbackLeibler")
KERNELS.register("distance", "dmkl.kernels.functions.standard:Distance")
KERNELS.register("precomputed", "dmkl.kernels.functions.standard:Precomputed")
KERNELS.register("similarity", "dmkl.kernels.functions.standard:Similarity")


@dataclass(frozen=True)
class ExponentialKernel(Kernel):
    """`exp(-distance / width)`; the width is a number or a multiple like '0.5 median'."""

    width: float | str = "median"

    needs_scales: ClassVar[bool] = True

    def fit(self, scales: Scales) -> Self:
        return replace(self, width=fit_width(self.width, scales))

    def evaluate(self, tile: Float64) -> Float32:
        return exponential(tile, -1.0 / float(self.width))


def exponential(tile: Float64, factor: float) -> Float32:
    """`exp(factor * tile)` in float32: half the time and bytes of float64, and the precision that stores keep."""
    values = np.empty(tile.shape, np.float32)
    rows, result = np.atleast_2d(tile), np.atleast_2d(values)
    for first in range(0, len(rows), STRIP):  # a strip is still in the cache when its exponentials are taken
        strip = result[first : first + STRIP]
        _multiply_rounded(rows[first : first + STRIP], factor, strip)
        np.exp(strip, out=strip)
    return values


@jit()
def _multiply_rounded(tile: Float64, factor: float, out: Array) -> None:
    """out = factor * tile, rounded once; numpy goes through a buffer, which takes twice as long."""
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            out[i, j] = factor * tile[i, j]


def fit_width(width: float | str, scales: Scales, *, scale: float | None = None) -> float:
    """A width as a positive number.

    Parameters
    ----------
    width : a number, or a multiple of a measured distance such as "0.5 median".
    scales : distances measured on the training samples.
    scale : the value of the unit 'scale', for kernels that define it.
    """
    units = {"median": scales.median, "mean": scales.mean}
    if scale is not None:
        units["scale"] = scale
    return fit_multiple("width", width, units)


def fit_multiple(what: str, value: float | str, units: dict[str, float]) -> float:
    """A number, or a multiple of a unit ('median', '0.5 median'), as a positive finite number."""
    try:
        return positive(what, value)
    except ValueError:
        pass
    factor, _, unit = str(value).strip().rpartition(" ")
    if unit not in units:
        known = ", ".join(f"'0.5 {name}'" for name in units)
        raise ConfigError(f"{what} '{value}' is not understood", f"use a number or a multiple: {known}")
    try:
        number = positive(what, factor or 1.0)
    except ValueError:
        raise ConfigError(f"{what} '{value}' is not a multiple of {unit}") from None
    if not (units[unit] > 0 and np.isfinite(units[unit])):
        raise ConfigError(f"{what} '{value}': the {unit} is {units[unit]:g}", "use a number, or leave the view out")
    return number * units[unit]


def positive(what: str, value: float | str) -> float:
    """The value as a positive finite number; ValueError if it is no number, ConfigError if it is out of range."""
    number = float(value)
    if not (number > 0 and np.isfinite(number)):
        raise ConfigError(f"{what} should be positive and finite, not {value}")
    return number
