"""Kernel functions: parameters, the pairwise base they are computed from, and an elementwise map.

A kernel is one file with a `Kernel` and one line in the table here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.registry import Registry
from dmkl._util.types import Array, Float32, Float64
from dmkl.errors import ConfigError

STRIP = 256  # rows of a tile worked on together: 1 MB of float32 stays in a cache, and threads seldom wait at a call
EXPONENTS = 1024  # values whose exponentials are taken together, fixed when compiling


@dataclass(frozen=True)
class Scales:
    """Units of relative widths, measured on training samples.

    `median` and `mean` are those of the distances between samples; `spread` is the number of features times their
    variance (the divisor in scikit-learn's gamma='scale').
    """

    median: float
    mean: float
    spread: float


UNITS = Scales(1.0, 1.0, 1.0)  # a kernel that is fitted to them and stays as it is has numbers for parameters


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

    def precise(self, tile: Float64) -> Float64:
        """The same values in float64, where `evaluate` may round them to float32."""
        return np.asarray(self.evaluate(tile), dtype=np.float64)

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
    """`exp(factor * distance)`, by default `exp(-distance / width)`; the width is a number or a multiple like
    '0.5 median'."""

    width: float | str = "median"

    needs_scales: ClassVar[bool] = True

    def fit(self, scales: Scales) -> Self:
        return replace(self, width=fit_width(self.width, scales))

    @property
    def factor(self) -> float:
        """Of the distance in the exponential."""
        return -1.0 / float(self.width)

    def evaluate(self, tile: Float64) -> Float32:
        return exponential(tile, self.factor)

    def precise(self, tile: Float64) -> Float64:
        return np.asarray(np.exp(self.factor * tile))


def exponential(tile: Float64, factor: float) -> Float32:
    """`exp(factor * tile)` in float32: half the bytes of float64, and the precision that stores keep."""
    values = np.empty(tile.shape, np.float32)
    _exponential(np.ascontiguousarray(tile).reshape(-1), factor, values.reshape(-1))
    return values


@jit()
def _exponential(tile: Float64, factor: float, out: Float32) -> None:
    powers = np.empty(EXPONENTS, np.int32)
    for first in range(0, tile.shape[0], EXPONENTS):
        part = slice(first, min(first + EXPONENTS, tile.shape[0]))
        exponentiate(tile[part], factor, out[part], powers)


# contraction is decided when compiling: the same bits for a value wherever it stands
@jit(fastmath={"contract"})
def exponentiate(values: Float64, factor: float, out: Float32, powers: NDArray[np.int32]) -> None:
    """out = exp(factor * values), at most `EXPONENTS` of them, with an error of 0.7 units in the last place.

    x = k log 2 + r with |r| <= log(2) / 2, and exp(r) is a polynomial (Cephes' expf). 2^k is made of its bits, in the
    memory of `powers`. Below the smallest normal number the result is 0, above the largest it is infinite.
    """
    for j in range(values.shape[0]):
        x = np.float32(factor * values[j])
        x = np.float32(-88.0) if x < np.float32(-88.0) else x
        x = np.float32(89.0) if x > np.float32(89.0) else x
        k = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
        r = (x - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
        p = np.float32(1.9875691500e-4)
        p = p * r + np.float32(1.3981999507e-3)
        p = p * r + np.float32(8.3334519073e-3)
        p = p * r + np.float32(4.1665795894e-2)
        p = p * r + np.float32(1.6666665459e-1)
        p = p * r + np.float32(5.0000001201e-1)
        out[j] = (p * (r * r) + r) + np.float32(1.0)
        powers[j] = (np.int32(k) + np.int32(127)) << np.int32(23)
    scales = powers.view(np.float32)
    for j in range(values.shape[0]):
        out[j] *= scales[j]


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
