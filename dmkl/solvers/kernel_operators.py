"""Products with kernels: those of a compact block, compiled, and kernels as linear operators.

An operator holds its kernels in memory as one block, or reads them from the stack at every product.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from dmkl._util.jit import jit
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.solvers.working_sets import BLOCK_MEMORY
from dmkl.stack import KernelStack
from dmkl.stack.compiled import cut, rows_of

SQUARE = 32


@dataclass(frozen=True)
class HeldOptions:
    """When kernels in memory are read by several threads."""

    values_a_thread: int = 4_000_000  # kernel values; fewer are read by one thread
    pieces: int = 4  # of a sum, for each thread


HELD = HeldOptions()


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
    forms = np.zeros(len(K))
    wanted = np.arange(len(K)) if layers is None else np.flatnonzero(layers)
    _forms(K, wanted, np.flatnonzero(beta), beta, forms)
    return np.maximum(forms, 0.0)


@jit(fastmath={"reassoc", "contract"})
def _forms(K: FloatArray, layers: Samples, rows: Samples, beta: Float64, forms: Float64) -> None:
    """What is right of the diagonal counts twice; rows begin at a multiple of SQUARE, where vector registers do."""
    for a in layers:
        form = 0.0
        for i in rows:
            first = i - i % SQUARE
            row, right = K[a, i, first:], beta[first:]
            total = square = 0.0
            for j in range(row.shape[0]):
                total += np.float64(row[j]) * right[j]
            for j in range(min(SQUARE, row.shape[0])):
                square += np.float64(row[j]) * right[j]
            form += beta[i] * (2.0 * total - square)
        forms[a] = form


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


@jit(fastmath={"reassoc", "contract"})
def sum_rows(K: FloatArray, kernels: Samples, weights: FloatArray, total: FloatArray, first: int, last: int) -> None:
    """Rows first to last of total = sum_a weights[a] K[kernels[a]], four kernels at a time, in the type of `total`."""
    n, count = total.shape[1], kernels.shape[0]
    fours = count - count % 4
    for i in range(first, last):
        row = total[i]
        row[:] = 0
        for p in range(0, fours, 4):
            k0, k1 = K[kernels[p], i], K[kernels[p + 1], i]
            k2, k3 = K[kernels[p + 2], i], K[kernels[p + 3], i]
            w0, w1, w2, w3 = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
            for j in range(n):
                row[j] += (w0 * k0[j] + w1 * k1[j]) + (w2 * k2[j] + w3 * k3[j])
        for p in range(fours, count):
            k0, w0 = K[kernels[p], i], weights[p]
            for j in range(n):
                row[j] += w0 * k0[j]


@jit(fastmath={"reassoc", "contract"})
def add_products(kernel: FloatArray, rows: Samples, beta: Float64, product: Float64) -> None:
    """product += kernel beta for a symmetric kernel: rows of the support, four at a time."""
    n, count = product.shape[0], rows.shape[0]
    fours = count - count % 4
    for p in range(0, fours, 4):
        k0, k1, k2, k3 = kernel[rows[p]], kernel[rows[p + 1]], kernel[rows[p + 2]], kernel[rows[p + 3]]
        b0, b1, b2, b3 = beta[rows[p]], beta[rows[p + 1]], beta[rows[p + 2]], beta[rows[p + 3]]
        for j in range(n):
            product[j] += (b0 * np.float64(k0[j]) + b1 * np.float64(k1[j])) + (
                b2 * np.float64(k2[j]) + b3 * np.float64(k3[j])
            )
    for p in range(fours, count):
        k0, b0 = kernel[rows[p]], beta[rows[p]]
        for j in range(n):
            product[j] += b0 * np.float64(k0[j])


class HeldKernels:
    """Kernels (s, n, n) in memory, symmetric, read by some threads; no sum depends on their number."""

    def __init__(self, K: FloatArray, threads: int = 1) -> None:
        self._K = K
        self._threads = threads if K.size > HELD.values_a_thread else 1
        self.dtype = K.dtype

    def sum_into(self, total: FloatArray, weights: Float64) -> None:
        """total (n, n) = sum_a weights[a] K_a, in the type of `total`; kernels without weight are not read."""
        kernels = np.flatnonzero(weights)
        factors = weights[kernels].astype(total.dtype)
        edges = np.linspace(0, len(total), HELD.pieces * self._threads + 1).astype(np.int64)
        self._each(sum_rows, ((self._K, kernels, factors, total, *span) for span in itertools.pairwise(edges)))

    def products(self, beta: Float64) -> Float64:
        """(s, n): K_a beta of every kernel, from the rows of the support."""
        rows, found = np.flatnonzero(beta), np.zeros(self._K.shape[:2])
        self._each(add_products, ((kernel, rows, beta, one) for kernel, one in zip(self._K, found, strict=True)))
        return found

    def part(self, samples: Samples) -> FloatArray:
        """(s, samples, samples), for ascending samples."""
        part = np.empty((len(self._K), len(samples), len(samples)), self.dtype)
        pairs = zip(self._K, part, strict=True)
        self._each(cut, ((rows_of(kernel), samples, samples, layer, 0, 0) for kernel, layer in pairs))
        return part

    def _each(self, function: Callable[..., None], tasks: Iterable[tuple[object, ...]]) -> None:
        if self._threads == 1:
            for task in tasks:
                function(*task)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            for _ in pool.map(lambda task: function(*task), tasks):
                pass


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
