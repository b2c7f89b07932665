"""Pairwise sums that are not matrix products, compiled, without the GIL.

The innermost loop runs over the samples of the other block, contiguous after a transposition, so that it fills vector
registers: 0.05 to 0.11 ns a term where a loop over features took 0.25.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.types import Float64

Fill = Callable[[Float64, Float64, Float64], None]


@jit()
def _add_cityblock(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                tile[i, j] += abs(X[i, k] - Zt[k, j])


@jit()
def _add_chi2(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                total = X[i, k] + Zt[k, j]
                difference = X[i, k] - Zt[k, j]
                tile[i, j] += difference * difference / total if total > 0 else 0.0


@jit()
def _add_additive_chi2(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                total = X[i, k] + Zt[k, j]
                tile[i, j] += 2.0 * X[i, k] * Zt[k, j] / total if total > 0 else 0.0


@jit()
def _add_intersection(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                tile[i, j] += min(X[i, k], Zt[k, j])


@jit()
def to_squared_distances(tile: Float64, row_norms: Float64, column_norms: Float64) -> None:
    """Turn inner products into squared distances, none below zero; once through memory instead of four times."""
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            tile[i, j] = max(-2.0 * tile[i, j] + row_norms[i] + column_norms[j], 0.0)


@jit()
def multiply_rounded(tile: Float64, factor: float, out: NDArray[Any]) -> None:
    """out = factor * tile, rounded once: numpy's own way through a buffer takes twice as long."""
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            out[i, j] = factor * tile[i, j]


@jit()
def all_finite(values: NDArray[Any]) -> bool:
    """Whether no value is infinite or NaN; once through memory, and nothing written."""
    bad = False
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            bad |= not abs(values[i, j]) < np.inf
    return not bad


@jit()
def mirror_upper(tile: Float64) -> None:
    """Make a square tile exactly symmetric by its upper half, in squares that stay in the cache."""
    n, side = tile.shape[0], 32
    for top in range(0, n, side):
        for left in range(0, top + 1, side):
            for i in range(top, min(top + side, n)):
                for j in range(left, min(left + side, i)):
                    tile[i, j] = tile[j, i]


def _filler(add: Fill) -> Callable[[Any, Any], Float64]:
    def tile(X: Float64, Z: Float64) -> Float64:
        result = np.zeros((X.shape[0], Z.shape[0]))
        add(X, np.ascontiguousarray(Z.T), result)
        return result

    return tile


cityblock = _filler(_add_cityblock)
chi2 = _filler(_add_chi2)
additive_chi2 = _filler(_add_additive_chi2)
intersection = _filler(_add_intersection)
