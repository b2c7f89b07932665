"""What a kernel function is: parameters, the pairwise base it is computed from, and an elementwise map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.kernels import loops

Float32 = NDArray[np.float32]
STRIP = 256  # rows of a tile: 1 MB of float32, still in a cache, and few calls for threads to wait at


@dataclass(frozen=True)
class Scales:
    """What a width may be a multiple of, measured on training samples.

    `median` and `mean` are of the distances between samples; `spread` is the number of features times their variance
    (what scikit-learn's gamma='scale' divides by).
    """

    median: float
    mean: float
    spread: float


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel function. Its fields are its parameters; a frozen, fitted one is a recipe that can be stored."""

    base: ClassVar[str]
    view_kind: ClassVar[str] = "features"
    needs_scales: ClassVar[bool] = False
    indefinite: ClassVar[bool] = False
    unproven: ClassVar[bool] = False  # semidefinite or not: one has to look
    symmetric: ClassVar[bool] = True  # else k(x, z) is not k(z, x), and only MIKL takes it
    entry_ns: ClassVar[float] = 0.7  # nanoseconds `evaluate` takes for an entry, as measured (see `cost.py`)

    @abstractmethod
    def evaluate(self, tile: Float64) -> NDArray[Any]:
        """Kernel values for a tile (or diagonal) of the base; never changes its argument."""

    def fit(self, scales: Scales) -> Self:
        """The same kernel with every relative parameter turned into a number."""
        return self


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
    """`exp(factor * tile)` in float32: half the time and bytes of float64, and what the store keeps anyway."""
    values = np.empty(tile.shape, np.float32)
    rows, found = np.atleast_2d(tile), np.atleast_2d(values)
    for first in range(0, len(rows), STRIP):  # a strip is still in the cache when its exponentials are taken
        strip = found[first : first + STRIP]
        loops.multiply_rounded(rows[first : first + STRIP], factor, strip)
        np.exp(strip, out=strip)
    return values


def fit_width(width: float | str, scales: Scales, *, scale: float | None = None) -> float:
    """A width as a positive number; `scale` is what 'scale' stands for, where a kernel defines it."""
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
    number = float(value)
    if not (number > 0 and np.isfinite(number)):
        raise ConfigError(f"{what} should be positive and finite, not {value}")
    return number
