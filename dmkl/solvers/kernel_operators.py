"""Products with kernels: those of a compact block, compiled, and kernels as linear operators.

An operator holds its kernels in memory as one block, or reads them from the stack at every product.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from dmkl._util.jit import jit
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.solvers.working_sets import BLOCK_MEMORY
from dmkl.stack import KernelStack
from dmkl.stack.compiled import quadratic_forms_of


# reassociation lets the sums run in vector registers; the order is fixed when compiling, not at run time
@jit(fastmath={"reassoc", "contract"})
def sweep(
    K: FloatArray, kernels: Samples, beta: Float64, weights: Float64, combined: Float64, products: Float64
) -> None:
    """combined = sum_a weights[a] K[kernels[a]] and products[a] = K[kernels[a]] beta, in float64 whatever K is.

    Four kernels at a time: beta and the row of the sum are loaded and stored a fourth as often, and that takes most of
    the time where memory is fast enough.
    """
    s, n = kernels.shape[0], K.shape[1]
    fours = s - s % 4
    for i in range(n):
        row = combined[i]
        row[:] = 0.0
        for a in range(0, fours, 4):
            k0, k1 = K[kernels[a], i], K[kernels[a + 1], i]
            k2, k3 = K[kernels[a + 2], i], K[kernels[a + 3], i]
            w0, w1, w2, w3 = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
            t0 = t1 = t2 = t3 = 0.0
            for j in range(n):
                v0, v1, v2, v3 = np.float64(k0[j]), np.float64(k1[j]), np.float64(k2[j]), np.float64(k3[j])
                t0 += v0 * beta[j]
                t1 += v1 * beta[j]
                t2 += v2 * beta[j]
                t3 += v3 * beta[j]
                row[j] += (w0 * v0 + w1 * v1) + (w2 * v2 + w3 * v3)
            products[a, i], products[a + 1, i], products[a + 2, i], products[a + 3, i] = t0, t1, t2, t3
        for a in range(fours, s):
            k0, w0, t0 = K[kernels[a], i], weights[a], 0.0
            for j in range(n):
                v0 = np.float64(k0[j])
                t0 += v0 * beta[j]
                row[j] += w0 * v0
            products[a, i] = t0


@jit(fastmath={"reassoc", "contract"})
def multiply(K: FloatArray, rows: Samples, beta: Float64, products: Float64) -> None:
    """products[a, r] = (K[a] beta)[rows[r]]."""
    s, n = K.shape[0], K.shape[1]
    for a in range(s):
        for r in range(rows.shape[0]):
            total = 0.0
            for j in range(n):
                total += np.float64(K[a, rows[r], j]) * beta[j]
            products[a, r] = total


def quadratic_forms(K: FloatArray, beta: Float64, layers: Mask | None = None) -> Float64:
    """beta' K_a beta of every layer, or of these and zero for others, never negative; K is symmetric. Rows of its
    support, from the diagonal on: this is faster than picking columns."""
    wanted = np.arange(len(K)) if layers is None else np.flatnonzero(layers)
    found, forms = np.empty(len(wanted)), np.zeros(len(K))
    quadratic_forms_of(K, wanted, np.flatnonzero(beta), beta, found)
    forms[wanted] = np.maximum(found, 0.0)
    return forms


@jit()
def combine(K: FloatArray, weights: Float64, combined: Float64) -> None:
    """combined = sum_a weights[a] K[a] in float64, K symmetric or not; layers without weight are not read."""
    s, n = K.shape[0], K.shape[1]
    for i in range(n):
        for j in range(n):
            combined[i, j] = 0.0
        for a in range(s):
            weight = weights[a]
            if weight != 0.0:
                for j in range(n):
                    combined[i, j] += weight * np.float64(K[a, i, j])


class KernelOperator(Protocol):
    """Some kernels over n samples."""

    @property
    def n(self) -> int:
        """The number of samples."""

    def products(self, vector: Float64) -> Float64:
        """(kernels, n): every K_a times the vector (n,)."""

    def total(self, weights: Float64, vector: Float64) -> Float64:
        """(n,): the weighted sum of the kernels times the vector."""

    def matrix(self, weights: Float64, dtype: DTypeLike) -> FloatArray | None:
        """(n, n): the weighted sum of the kernels; None if it does not fit in memory."""


class BlockKernels:
    """A block (kernels, n, n) in memory."""

    def __init__(self, block: FloatArray) -> None:
        self._block = block

    @property
    def n(self) -> int:
        return int(self._block.shape[1])

    def products(self, vector: Float64) -> Float64:
        products = np.empty(self._block.shape[:2])
        multiply(self._block, np.arange(self.n), vector, products)
        return products

    def total(self, weights: Float64, vector: Float64) -> Float64:
        return np.asarray(weights @ self.products(vector))

    def matrix(self, weights: Float64, dtype: DTypeLike) -> Float64:
        combined = np.empty((self.n, self.n))
        combine(self._block, weights, combined)
        return combined


class StreamedKernels:
    """Weighted sums of a stack's kernels, one for each row of `sums` (kernels, s); each product is a pass."""

    def __init__(self, stack: KernelStack, sums: Float64, samples: Samples, room: int) -> None:
        self._stack, self._sums, self._samples, self._room = stack, sums, samples, room

    @property
    def n(self) -> int:
        return len(self._samples)

    def products(self, vector: Float64) -> Float64:
        spread = np.tile(self._spread(vector)[:, None], (1, len(self._sums)))
        return np.ascontiguousarray(self._stack.apply(spread, self._sums, forms=False).scores[self._samples].T)

    def total(self, weights: Float64, vector: Float64) -> Float64:
        scores = self._stack.apply(self._spread(vector)[:, None], weights @ self._sums, forms=False).scores
        return np.asarray(scores[self._samples, 0])

    def matrix(self, weights: Float64, dtype: DTypeLike) -> FloatArray | None:
        if BLOCK_MEMORY.in_flight * self.n**2 * np.dtype(dtype).itemsize > self._room:
            return None
        return self._stack.block([self._samples], weights=weights @ self._sums, dtype=dtype)[0]

    def _spread(self, vector: Float64) -> Float64:
        whole = np.zeros(self._stack.n)
        whole[self._samples] = vector
        return whole
