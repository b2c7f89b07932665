"""Kernels as a Newton method uses them: products with a vector, and weighted sums. In memory, or read as it goes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.solvers.sweep import combine, multiply
from dmkl.stack import KernelStack

PIECES = 2.0  # bytes in flight while a matrix is put together, as a multiple of its own


class Kernels(Protocol):
    """Some kernels over some samples."""

    @property
    def n(self) -> int: ...

    def products(self, vector: Float64) -> Float64:
        """(kernels, n): every K_a times the vector."""

    def total(self, weights: Float64, vector: Float64) -> Float64:
        """The weighted sum of the kernels, times the vector."""

    def matrix(self, weights: Float64, dtype: Any) -> NDArray[Any] | None:
        """The weighted sum of the kernels; None if it does not fit in memory."""


class Held:
    """A block (kernels, n, n) in memory."""

    def __init__(self, block: NDArray[Any]) -> None:
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

    def matrix(self, weights: Float64, dtype: Any) -> NDArray[Any]:
        combined = np.empty((self.n, self.n))
        combine(self._block, weights, combined)
        return combined


class Streamed:
    """Sums of kernels of a stack, a row of `sums` (kernels, s) each: every question is a pass over those it needs."""

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

    def matrix(self, weights: Float64, dtype: Any) -> NDArray[Any] | None:
        if PIECES * self.n**2 * np.dtype(dtype).itemsize > self._room:
            return None
        return self._stack.block([self._samples], weights=weights @ self._sums, dtype=dtype)[0]

    def _spread(self, vector: Float64) -> Float64:
        whole = np.zeros(self._stack.n)
        whole[self._samples] = vector
        return whole
