"""All kernels on the samples of a working set: in memory, or asked for again whenever they are needed.

    combined(u) = sum_a u_a K_a          crossed(B_1 .. B_k, B)[a, c] = tr B_c' K_a B

Only the weighted sum has to fit in memory: that of 8,000 samples takes 256 MB, 12 kernels 3 GB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.types import Float64, Samples
from dmkl.runtime import Runtime
from dmkl.solvers.precision import sum_dtype
from dmkl.stack import KernelStack, Source

ROWS = 256  # of a block in one task
HELD_SHARE = 0.4  # of the memory left that all kernels of a working set may take


class Block(Protocol):
    """What a solver asks of a working set's kernels."""

    def combined(self, weights: Float64) -> NDArray[Any]:
        """The weighted sum (w, w)."""

    def crossed(self, points: Sequence[Float64], B: Float64) -> Float64:
        """(s, k)."""


def open_block(
    stack: KernelStack, source: Source, samples: Samples, tol: float, known: tuple[Samples, Block] | None = None
) -> Block:
    """Held if all kernels fit, else asked for. `known` is the block of some of the samples: its values are kept."""
    w = len(samples)
    dtype = sum_dtype(stack.dtype, w, tol)
    stack.memory.require(w * w * dtype.itemsize, f"the weighted kernel of {w} samples")
    whole = w == stack.n and stack.in_one_array
    if whole:
        return HeldBlock(stack.block([samples])[0], dtype, stack.runtime)
    if stack.s * w * w * stack.dtype.itemsize <= HELD_SHARE * stack.memory.left:
        return HeldBlock(_gathered(stack, source, samples, known), dtype, stack.runtime)
    return AskedBlock(stack, source, samples, dtype)


def _gathered(
    stack: KernelStack, source: Source, samples: Samples, known: tuple[Samples, Block] | None
) -> NDArray[Any]:
    """K[:, samples, samples]: only rows of new samples are asked for."""
    block = np.empty((stack.s, len(samples), len(samples)), stack.dtype)
    new = np.ones(len(samples), dtype=bool)
    if known is not None and isinstance(known[1], HeldBlock) and np.isin(known[0], samples).all():
        old = np.searchsorted(samples, known[0])
        new[old] = False
        block[:, old[:, None], old] = known[1].K
    parts = source.pieces(samples[new])
    tasks = ((part, samples) for part in parts)
    for part, values in zip(parts, stack.runtime.map(source.cross, tasks), strict=True):
        rows = np.searchsorted(samples, part)
        block[:, rows] = values
        block[:, :, rows] = values.transpose(0, 2, 1)
    stack.passes += 1
    return block


class HeldBlock:
    """All kernels in memory."""

    def __init__(self, K: NDArray[Any], dtype: np.dtype[Any], runtime: Runtime) -> None:
        self.K, self._dtype = K, dtype
        self._map = map if runtime.remote else runtime.map  # what is here is not sent anywhere

    def combined(self, weights: Float64) -> NDArray[Any]:
        total = np.empty(self.K.shape[1:], self._dtype)
        tasks = [(self.K, weights, start, min(start + ROWS, len(total)), total) for start in range(0, len(total), ROWS)]
        _run(self._map, _combine_rows, tasks)
        return total

    def crossed(self, points: Sequence[Float64], B: Float64) -> Float64:
        tasks = [(self.K[a], points, B) for a in range(len(self.K))]
        return np.array(_run(self._map, _cross_kernel, tasks))


class AskedBlock:
    """Kernel values that are asked for again for every question."""

    def __init__(self, stack: KernelStack, source: Source, samples: Samples, dtype: np.dtype[Any]) -> None:
        self._stack, self._source, self._samples, self._dtype = stack, source, samples, dtype
        self._parts = source.pieces(samples)
        self._starts = np.cumsum([0, *map(len, self._parts)])

    def combined(self, weights: Float64) -> NDArray[Any]:
        total = np.empty((len(self._samples),) * 2, self._dtype)
        tasks = ((self._source, part, self._samples, weights, self._dtype) for part in self._parts)
        for start, rows in zip(self._starts, self._stack.runtime.map(_asked_sum, tasks), strict=False):
            total[start : start + len(rows)] = rows
        self._stack.passes += 1
        return total

    def crossed(self, points: Sequence[Float64], B: Float64) -> Float64:
        total = np.zeros((self._stack.s, len(points)))
        support = np.flatnonzero(B.any(axis=1))
        for part in self._stack.runtime.map(_asked_cross, self._crossings(points, B, support)):
            total += part
        self._stack.passes += 1
        return total

    def _crossings(self, points: Sequence[Float64], B: Float64, support: Samples) -> Iterator[tuple[Any, ...]]:
        for start, part in zip(self._starts, self._parts, strict=False):
            used = np.flatnonzero(np.any([point[start : start + len(part)].any(axis=1) for point in points], axis=0))
            if len(used):
                mine = [point[start + used] for point in points]
                yield self._source, part[used], self._samples[support], mine, B[support]


def _run(mapped: Any, function: Any, tasks: list[tuple[Any, ...]]) -> list[Any]:
    if mapped is map:
        return [function(*task) for task in tasks]
    return list(mapped(function, tasks))


@jit(fastmath={"reassoc", "contract"})
def _combine_rows(K: NDArray[Any], weights: Float64, start: int, stop: int, total: NDArray[Any]) -> None:
    for i in range(start, stop):
        for j in range(K.shape[2]):
            total[i, j] = 0.0
        for a in range(K.shape[0]):
            weight = weights[a]
            if weight != 0.0:
                for j in range(K.shape[2]):
                    total[i, j] += weight * K[a, i, j]


def _cross_kernel(K: NDArray[Any], points: Sequence[Float64], B: Float64) -> list[float]:
    support = np.flatnonzero(B.any(axis=1))
    totals = np.zeros(len(points))
    for start in range(0, len(K), ROWS):
        rows = slice(start, start + ROWS)
        product = K[rows, support].astype(np.float64) @ B[support]
        totals += [np.vdot(point[rows], product) for point in points]
    return [float(total) for total in totals]


def _asked_sum(source: Source, rows: Samples, columns: Samples, weights: Float64, dtype: Any) -> NDArray[Any]:
    return weighted(source, rows, columns, weights).astype(dtype, copy=False)


def weighted(source: Source, rows: Samples, columns: Samples, weights: Float64) -> Float64:
    """sum_a u_a K_a[rows, columns]."""
    values = source.cross(rows, columns)
    return np.asarray(np.tensordot(weights, values.reshape(len(values), -1), 1).reshape(len(rows), len(columns)))


def _asked_cross(source: Source, rows: Samples, columns: Samples, points: Sequence[Float64], B: Float64) -> Float64:
    product = np.matmul(source.cross(rows, columns).astype(np.float64), B)
    return np.array([[np.vdot(point, layer) for point in points] for layer in product])
