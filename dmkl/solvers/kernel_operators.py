"""Products with kernels: those of a compact block, compiled, and kernels as linear operators.

An operator holds its kernels in memory as one block, or reads them from the stack at every product.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from dmkl._util.jit import jit
from dmkl._util.machine import Each, threads_of
from dmkl._util.types import Float64, FloatArray, FloatType, Mask, Samples
from dmkl.solvers.working_sets import BLOCK_MEMORY, threads_for
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


@jit(fastmath={"reassoc", "contract"})
def _sum_rows(
    K: FloatArray, kernels: Samples, weights: FloatArray, first: int, last: int, combined: FloatArray
) -> None:
    """Rows first to last of combined = sum_a weights[a] K[kernels[a]], in the type of `combined`."""
    s, n = kernels.shape[0], K.shape[1]
    fours = s - s % 4
    for i in range(first, last):
        row = combined[i]
        row[:] = 0
        for a in range(0, fours, 4):
            k0, k1 = K[kernels[a], i], K[kernels[a + 1], i]
            k2, k3 = K[kernels[a + 2], i], K[kernels[a + 3], i]
            w0, w1, w2, w3 = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
            for j in range(n):
                row[j] += (w0 * k0[j] + w1 * k1[j]) + (w2 * k2[j] + w3 * k3[j])
        for a in range(fours, s):
            k0, w0 = K[kernels[a], i], weights[a]
            for j in range(n):
                row[j] += w0 * k0[j]


@jit(fastmath={"reassoc", "contract"})
def _multiply_rows(K: FloatArray, a: int, vector: Float64, first: int, last: int, product: Float64) -> None:
    """product[first:last] = (K[a] vector)[first:last] in float64."""
    for i in range(first, last):
        row, total = K[a, i], 0.0
        for j in range(row.shape[0]):
            total += np.float64(row[j]) * vector[j]
        product[i] = total


@jit(fastmath={"reassoc", "contract"})
def _add_rows(K: FloatArray, a: int, rows: Samples, vector: Float64, first: int, last: int, product: Float64) -> None:
    """The same for a symmetric K[a], from the rows where the vector is not zero."""
    product[first:last] = 0.0
    count = rows.shape[0]
    fours = count - count % 4
    for r in range(0, fours, 4):
        i, j, k, m = rows[r], rows[r + 1], rows[r + 2], rows[r + 3]
        w0, w1, w2, w3 = vector[i], vector[j], vector[k], vector[m]
        k0, k1, k2, k3 = K[a, i], K[a, j], K[a, k], K[a, m]
        for t in range(first, last):
            product[t] += (w0 * np.float64(k0[t]) + w1 * np.float64(k1[t])) + (
                w2 * np.float64(k2[t]) + w3 * np.float64(k3[t])
            )
    for r in range(fours, count):
        w0, k0 = vector[rows[r]], K[a, rows[r]]
        for t in range(first, last):
            product[t] += w0 * np.float64(k0[t])


@jit()
def _cut(K: FloatArray, samples: Samples, block: FloatArray) -> None:
    for r in range(samples.shape[0]):
        row = K[samples[r]]
        for c in range(samples.shape[0]):
            block[r, c] = row[samples[c]]


class KernelOperator(Protocol):
    """Some kernels over n samples."""

    @property
    def n(self) -> int:
        """The number of samples."""

    @property
    def dtype(self) -> FloatType:
        """The type of the kernels' values."""

    def products(self, vector: Float64) -> Float64:
        """(kernels, n): every K_a times the vector (n,)."""

    def total(self, weights: Float64, vector: Float64) -> Float64:
        """(n,): the weighted sum of the kernels times the vector."""

    def matrix(self, weights: Float64, dtype: DTypeLike) -> FloatArray | None:
        """(n, n): the weighted sum of the kernels, valid until the next call; None if it does not fit in memory."""

    def restricted(self, samples: Samples) -> KernelOperator | None:
        """The same kernels over some of the samples, ascending, in memory; None if they do not fit."""

    def sum_over(self, samples: Samples, weights: Float64, dtype: DTypeLike) -> FloatArray:
        """(samples, samples): the weighted sum over some of the samples, ascending, no more than `largest_sum`."""

    @property
    def largest_sum(self) -> int:
        """The number of samples of which a weighted sum fits in memory."""

    def alone(self, weights: Float64, dtype: FloatType) -> KernelOperator | None:
        """The weighted sum as the only kernel, in this type; None where a product with it takes no less."""


@dataclass(frozen=True)
class ThreadOptions:
    """How products are cut into pieces for threads; the bits do not depend on it."""

    columns: int = 1024  # of a product: a piece of it stays in the first cache
    rows: int = 64  # of a sum
    least: int = 2_000_000  # kernel values: fewer are read by one thread
    sparse: float = 0.5  # of the entries of a vector: up to here, only their rows are read, which costs twice as much


THREADS = ThreadOptions()


class BlockKernels:
    """A block (layers, n, n) in memory, or some of its layers.

    Parameters
    ----------
    block : array (layers, n, n)
    layers : array (kernels,), optional
        The kernels among the layers, all if left out.
    threads : int
        Threads that products and sums may use.
    """

    def __init__(self, block: FloatArray, layers: Samples | None = None, threads: int = 1) -> None:
        self._block = block
        self._layers = np.arange(len(block)) if layers is None else layers
        self._threads = threads
        self._sum: FloatArray = np.empty((0, 0))

    @property
    def n(self) -> int:
        return int(self._block.shape[1])

    @property
    def dtype(self) -> FloatType:
        return self._block.dtype

    def products(self, vector: Float64) -> Float64:
        products = np.empty((len(self._layers), self.n))
        rows = np.flatnonzero(vector)
        sparse = len(rows) <= THREADS.sparse * self.n
        pieces = [(a, start) for a in range(len(self._layers)) for start in range(0, self.n, THREADS.columns)]

        def multiplied(piece: tuple[int, int]) -> None:
            a, start = piece
            part = start, min(start + THREADS.columns, self.n), products[a]
            if sparse:
                _add_rows(self._block, self._layers[a], rows, vector, *part)
            else:
                _multiply_rows(self._block, self._layers[a], vector, *part)

        with self._each(len(self._layers)) as each:
            each(multiplied, pieces)
        return products

    def total(self, weights: Float64, vector: Float64) -> Float64:
        chosen = np.flatnonzero(weights)
        part = BlockKernels(self._block, self._layers[chosen], self._threads)
        return np.asarray(weights[chosen] @ part.products(vector))

    def matrix(self, weights: Float64, dtype: DTypeLike) -> FloatArray:
        dtype = np.result_type(dtype, self.dtype)
        if self._sum.shape != (self.n, self.n) or self._sum.dtype != dtype:
            self._sum = np.empty((self.n, self.n), dtype)  # new memory takes as long to get as it takes to fill
        chosen = np.flatnonzero(weights)
        layers, factors = self._layers[chosen], weights[chosen].astype(dtype)

        def combined(start: int) -> None:
            _sum_rows(self._block, layers, factors, start, min(start + THREADS.rows, self.n), self._sum)

        with self._each(len(chosen)) as each:
            each(combined, range(0, self.n, THREADS.rows))
        return self._sum

    def restricted(self, samples: Samples) -> BlockKernels:
        part = np.empty((len(self._layers), len(samples), len(samples)), self._block.dtype)
        with self._each(len(self._layers)) as each:
            each(lambda a: _cut(self._block[self._layers[a]], samples, part[a]), range(len(part)))
        return BlockKernels(part, threads=self._threads)

    def sum_over(self, samples: Samples, weights: Float64, dtype: DTypeLike) -> FloatArray:
        return self.matrix(weights, dtype)[samples[:, None], samples]

    @property
    def largest_sum(self) -> int:
        return self.n

    def alone(self, weights: Float64, dtype: FloatType) -> None:
        return None

    def _each(self, kernels: int) -> AbstractContextManager[Each]:
        return threads_of(self._threads if kernels * self.n**2 >= THREADS.least else 1)


@dataclass(frozen=True)
class StreamOptions:
    """What is said before kernels are read in passes: how many of them noisy labels took (n = 16,000 to 54,000); and
    when kernels are added up first."""

    passes: int = 10  # where the weighted sum fits in memory,
    passes_by_parts: int = 15  # and where it does not: 14 to 39, many of them over some of the samples
    many: int = 3  # kernels with weight, from which on a pass that adds them up saves later passes


STREAMS = StreamOptions()


class StreamedKernels:
    """Weighted sums of a stack's kernels, one for each row of `sums` (kernels, s); each product is a pass."""

    def __init__(self, stack: KernelStack, sums: Float64, samples: Samples, room: int) -> None:
        self._stack, self._sums, self._samples, self._room = stack, sums, samples, room

    @property
    def n(self) -> int:
        return len(self._samples)

    @property
    def dtype(self) -> FloatType:
        return self._stack.dtype

    @property
    def plan(self) -> str:
        """How many passes there will be, and what one of them takes, in words."""
        number = f"some {STREAMS.passes}" if self._fits(np.dtype(np.float32)) else f"{STREAMS.passes_by_parts} or more"
        size, seconds = self._stack.source.tile_bytes / 1e9, self._stack.pass_seconds
        took = f" (the last one took {seconds:.0f} s)" if seconds else ""
        return f"the kernels are read in {number} passes of {size:,.1f} GB{took}"

    def products(self, vector: Float64) -> Float64:
        single = self._single
        if single is not None:
            found = self._stack.correlate(self._spread(vector)[:, None], kernels=single.tolist())[:, :, 0]
            return np.ascontiguousarray(found[:, self._samples])
        spread = np.tile(self._spread(vector)[:, None], (1, len(self._sums)))
        return np.ascontiguousarray(self._stack.apply(spread, self._sums, forms=False).scores[self._samples].T)

    def total(self, weights: Float64, vector: Float64) -> Float64:
        scores = self._stack.apply(self._spread(vector)[:, None], weights @ self._sums, forms=False).scores
        return np.asarray(scores[self._samples, 0])

    def matrix(self, weights: Float64, dtype: DTypeLike) -> FloatArray | None:
        if not self._fits(dtype):
            return None
        return self._stack.block([self._samples], weights=weights @ self._sums, dtype=dtype, passing=True)[0]

    def restricted(self, samples: Samples) -> BlockKernels | None:
        single, chosen = self._single, self._samples[samples]
        if single is None or len(single) * len(chosen) ** 2 * self.dtype.itemsize > self._room:
            return None
        block = self._stack.block([chosen], kernels=[single.tolist()])[0]
        return BlockKernels(block, threads=threads_for(self._stack.runtime, 1))

    def sum_over(self, samples: Samples, weights: Float64, dtype: DTypeLike) -> FloatArray:
        return self._stack.block([self._samples[samples]], weights=weights @ self._sums, dtype=dtype)[0]

    @property
    def largest_sum(self) -> int:
        fits = int(np.sqrt(self._room / (BLOCK_MEMORY.in_flight * np.dtype(np.float32).itemsize)))
        return min(self.n, max(fits, BLOCK_MEMORY.smallest_part))

    def alone(self, weights: Float64, dtype: FloatType) -> StreamedKernels | None:
        total = weights @ self._sums
        if np.count_nonzero(total) < STREAMS.many:
            return None
        stack = self._stack.summed(total, dtype, self._room)
        return None if stack is None else StreamedKernels(stack, np.ones((1, 1)), self._samples, self._room)

    @property
    def _single(self) -> Samples | None:
        """The kernels' numbers in the stack, if no sum has more than one."""
        if ((self._sums != 0).sum(axis=1) == 1).all() and (self._sums.max(axis=1) == 1).all():
            return np.asarray(self._sums.argmax(axis=1))
        return None

    def _fits(self, dtype: DTypeLike) -> bool:
        """Whether a weighted sum over all samples fits in memory."""
        return BLOCK_MEMORY.in_flight * self.n**2 * np.dtype(dtype).itemsize <= self._room

    def _spread(self, vector: Float64) -> Float64:
        whole = np.zeros(self._stack.n)
        whole[self._samples] = vector
        return whole
