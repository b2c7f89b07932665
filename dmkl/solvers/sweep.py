"""Reading a compact block once for both things a second-order step needs of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Sweep = Callable[[NDArray[Any], Float64, Float64, Float64, Float64], None]


def _compiled(function: Sweep) -> Sweep:
    # reassociation lets the sums run in vector registers; the order is fixed when compiling, not at run time
    return cast(Sweep, njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})(function))


@_compiled
def sweep(K: NDArray[Any], beta: Float64, weights: Float64, combined: Float64, products: Float64) -> None:
    """combined = sum_a weights[a] K[a] and products[a] = K[a] beta, in float64 whatever K is."""
    s, n = K.shape[0], K.shape[1]
    for i in range(n):
        for j in range(n):
            combined[i, j] = 0.0
        for a in range(s):
            weight = weights[a]
            total = 0.0
            for j in range(n):
                value = np.float64(K[a, i, j])
                total += value * beta[j]
                combined[i, j] += weight * value
            products[a, i] = total
