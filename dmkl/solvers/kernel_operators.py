"""Kernels as linear operators: held in memory as one block, or read from the stack at every product."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.solvers import blocks
from dmkl.solvers.sweep import combine, multiply
from dmkl.stack import KernelStack


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
        if blocks.OPTIONS.in_flight * self.n**2 * np.dtype(dtype).itemsize > self._room:
            return None
        return self._stack.block([self._samples], weights=weights @ self._sums, dtype=dtype)[0]

    def _spread(self, vector: Float64) -> Float64:
        whole = np.zeros(self._stack.n)
        whole[self._samples] = vector
        return whole
