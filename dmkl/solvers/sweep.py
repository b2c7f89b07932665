"""Reading a compact block once for both things a second-order step needs of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.jit import jit

Float64 = NDArray[np.float64]


# reassociation lets the sums run in vector registers; the order is fixed when compiling, not at run time
@jit(fastmath={"reassoc", "contract"})
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


@jit(fastmath={"reassoc", "contract"})
def multiply(K: NDArray[Any], rows: NDArray[Any], beta: Float64, products: Float64) -> None:
    """products[a, r] = (K[a] beta)[rows[r]]."""
    s, n = K.shape[0], K.shape[1]
    for a in range(s):
        for r in range(rows.shape[0]):
            total = 0.0
            for j in range(n):
                total += np.float64(K[a, rows[r], j]) * beta[j]
            products[a, r] = total


def quadratic_forms(K: NDArray[Any], beta: Float64) -> Float64:
    """beta' K_a beta of every layer, over the support of beta only; never negative."""
    support = np.flatnonzero(beta)
    parts = (layer[support[:, None], support].astype(np.float64) for layer in K)
    return np.maximum([beta[support] @ part @ beta[support] for part in parts], 0.0)


@jit()
def combine(K: NDArray[Any], weights: Float64, combined: Float64) -> None:
    """combined = sum_a weights[a] K[a] in float64; layers without weight are not read."""
    s, n = K.shape[0], K.shape[1]
    for i in range(n):
        for j in range(n):
            combined[i, j] = 0.0
        for a in range(s):
            weight = weights[a]
            if weight != 0.0:
                for j in range(n):
                    combined[i, j] += weight * np.float64(K[a, i, j])
