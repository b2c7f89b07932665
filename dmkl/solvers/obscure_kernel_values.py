"""Kernel values for OBSCURE, asked for as rows of some samples against others: no n x n matrix is needed.

Three kinds of question. A batch of shuffled samples in the paper's stages (`batch_values`, also ahead of time). All
kernels on the samples of a working set (`KernelBlock`), in memory or asked for again whenever they are needed:

    combined(u) = sum_a u_a K_a          crossed([B_1 .. B_k], B)[a, c] = tr B_c' K_a B

Only the weighted sum has to fit in memory: that of 8,000 samples takes 256 MB, that of 12 kernels apart 3 GB. And the
forms and scores of coefficients over all samples (`forms_of`, `scores_of`), n times their support, piece by piece.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.stopping import Tasks
from dmkl._util.types import Float64, FloatArray, FloatType, Samples
from dmkl.runtime import Local, Runtime
from dmkl.solvers.precision import sum_dtype
from dmkl.stack import KernelStack, Source


@dataclass(frozen=True)
class KernelValueOptions:
    """Sizes of what is asked for at once."""

    small: int = 1 << 20  # kernel values of a batch that do not pay for tasks
    largest_ahead: int = 1 << 24  # kernel values of a batch and the one before (64 MB) that are asked for ahead
    rows: int = 256  # of a block in one task
    held_share: float = 0.4  # of the memory left that all kernels of a working set may take


OPTIONS = KernelValueOptions()
NO_SAMPLES: Samples = np.empty(0, dtype=np.int64)


# batches of the paper's stages


@dataclass(frozen=True)
class BatchValues:
    """Kernel values inside a batch, its scores without the part of the samples `before`, and values against those."""

    samples: Samples
    before: Samples
    K: FloatArray  # (s, batch, batch)
    G: Float64  # (s, batch, m)
    between: FloatArray  # (s, batch, before)

    def scores(self, coef: Float64) -> Float64:
        """(s, batch, m): scores under coefficients (n, m) of which only those of `before` have changed since."""
        nonzero = np.flatnonzero(coef[self.before].any(axis=1))
        if len(nonzero):
            self.G[...] += _product(self.between[:, :, nonzero], coef[self.before[nonzero]])
        return self.G


Later: TypeAlias = Callable[..., Callable[[], BatchValues]]


def may_run_ahead(stack: KernelStack, samples: Samples, before: Samples) -> bool:
    """Whether a batch may be asked for ahead. It depends on sizes only, so that workers do not change the sums."""
    return stack.s * len(samples) * (len(samples) + len(before)) <= OPTIONS.largest_ahead


def batch_values(stack: KernelStack, source: Source, coef: Float64, samples: Samples, before: Samples) -> BatchValues:
    """Ask all workers about one batch.

    The coefficients of the samples `before` are not used, and may change meanwhile: kernel values against these samples
    are asked for instead, and their part of the scores is added when their coefficients are known. The sums are the
    same, in the same order, whether a batch is asked for ahead or not.

    Parameters
    ----------
    stack : KernelStack
    source : Source
        Its kernel values.
    coef : array (n, m)
    samples : array (batch,)
    before : array
        The samples of the batch before, or no samples.

    Returns
    -------
    BatchValues
    """
    others = np.asarray(coef.any(axis=1))
    others[before] = False
    support = np.flatnonzero(others)
    pieces, chunks = source.pieces(samples), source.chunks(support) if len(support) else []
    inside = [samples, before] if len(before) else [samples]

    def tasks() -> Iterator[tuple[Source, Samples, Samples, Float64 | None]]:
        for rows in pieces:
            yield from ((source, rows, columns, None) for columns in inside)
            yield from ((source, rows, columns, coef[columns]) for columns in chunks)

    size, s = len(samples), stack.s
    small = size * (len(support) + size + len(before)) * s <= OPTIONS.small
    found = iter(itertools.starmap(_values_task, tasks()) if small else stack.runtime.map(_values_task, tasks()))
    values = [np.empty((s, size, len(columns)), stack.dtype) for columns in inside]
    G = np.zeros((s, size, coef.shape[1]))
    start = 0
    for rows in pieces:
        here = slice(start, start + len(rows))
        for block in values:
            block[:, here] = next(found)
        for _ in chunks:
            G[:, here] += next(found)
        start += len(rows)
    for _ in found:  # lets the runtime finish
        pass
    return BatchValues(samples, before, values[0], G, values[-1])


@contextmanager
def background(runtime: Runtime) -> Iterator[Later]:
    """A function that starts another one on a thread of its own and returns a function that waits for the result.

    With a single worker there are no threads, and the function runs at once.
    """
    if runtime.workers == 1 and not runtime.remote:
        yield _at_once
        return
    limited = Tasks()
    with ThreadPoolExecutor(1, thread_name_prefix="dmkl-ahead") as thread:
        try:
            yield lambda function, *arguments: thread.submit(limited.run, function, *arguments).result
        finally:
            limited.stop()


def _at_once(function: Callable[..., BatchValues], *arguments: Any) -> Callable[[], BatchValues]:
    found = function(*arguments)
    return lambda: found


def _values_task(source: Source, rows: Samples, columns: Samples, coef: Float64 | None) -> FloatArray:
    """Kernel values, or the scores that the coefficients of these columns give."""
    values = source.cross(rows, columns)
    return values if coef is None else _product(values, coef)


def _product(values: FloatArray, coef: Float64) -> FloatArray:
    return np.asarray(np.matmul(values, coef.astype(values.dtype)))


# all kernels on a working set


class KernelBlock(Protocol):
    """All kernels on the w samples of a working set."""

    def combined(self, weights: Float64) -> FloatArray:
        """(w, w): the weighted sum."""

    def crossed(self, points: Sequence[Float64], B: Float64) -> Float64:
        """(s, points): tr B_c' K_a B for every kernel a and every point B_c."""


def open_block(
    stack: KernelStack,
    source: Source,
    samples: Samples,
    tol: float,
    known: tuple[Samples, KernelBlock] | None = None,
) -> KernelBlock:
    """The kernels on a working set: in memory if all of them fit, else asked for again in every question.

    Parameters
    ----------
    stack : KernelStack
    source : Source
        Its kernel values.
    samples : array (w,)
        The working set, ascending.
    tol : float
        The tolerance of the problem, which decides the precision of sums.
    known : pair, optional
        An earlier working set with its block; its values are used again.

    Returns
    -------
    KernelBlock

    Raises
    ------
    ResourceError
        If the weighted sum does not fit in memory.
    """
    w = len(samples)
    dtype = sum_dtype(stack.dtype, w, tol)
    stack.memory.require(w * w * dtype.itemsize, f"the weighted kernel of {w} samples")
    whole = w == stack.n and stack.in_one_array
    if whole:
        return HeldBlock(stack.block([samples])[0], dtype, stack.runtime)
    if stack.s * w * w * stack.dtype.itemsize <= OPTIONS.held_share * stack.memory.left:
        return HeldBlock(_gathered(stack, source, samples, known), dtype, stack.runtime)
    return StreamedBlock(stack, source, samples, dtype)


def _gathered(
    stack: KernelStack, source: Source, samples: Samples, known: tuple[Samples, KernelBlock] | None
) -> FloatArray:
    """K[:, samples, samples]; only rows of samples that are not known are asked for."""
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
    """All kernels (s, w, w) in memory."""

    def __init__(self, K: FloatArray, dtype: FloatType, runtime: Runtime) -> None:
        self.K, self._dtype = K, dtype
        self._runtime = Local() if runtime.remote else runtime  # the kernels are not sent anywhere

    def combined(self, weights: Float64) -> FloatArray:
        total: FloatArray = np.empty(self.K.shape[1:], self._dtype)
        starts = range(0, len(total), OPTIONS.rows)
        rows = [(self.K, weights, start, min(start + OPTIONS.rows, len(total)), total) for start in starts]
        for _ in self._runtime.map(_combine_rows, rows):
            pass
        return total

    def crossed(self, points: Sequence[Float64], B: Float64) -> Float64:
        return np.array(list(self._runtime.map(_cross_kernel, [(kernel, points, B) for kernel in self.K])))


class StreamedBlock:
    """Kernels whose values are asked for again in every question."""

    def __init__(self, stack: KernelStack, source: Source, samples: Samples, dtype: FloatType) -> None:
        self._stack, self._source, self._samples, self._dtype = stack, source, samples, dtype
        self._parts = source.pieces(samples)
        self._starts = np.cumsum([0, *map(len, self._parts)])

    def combined(self, weights: Float64) -> FloatArray:
        total: FloatArray = np.empty((len(self._samples),) * 2, self._dtype)
        tasks = ((self._source, part, self._samples, weights, self._dtype) for part in self._parts)
        for start, rows in zip(self._starts, self._stack.runtime.map(_sum_task, tasks), strict=False):
            total[start : start + len(rows)] = rows
        self._stack.passes += 1
        return total

    def crossed(self, points: Sequence[Float64], B: Float64) -> Float64:
        total = np.zeros((self._stack.s, len(points)))
        support = np.flatnonzero(B.any(axis=1))
        for part in self._stack.runtime.map(_cross_task, self._crossings(points, B, support)):
            total += part
        self._stack.passes += 1
        return total

    def _crossings(self, points: Sequence[Float64], B: Float64, support: Samples) -> Iterator[tuple[Any, ...]]:
        for start, part in zip(self._starts, self._parts, strict=False):
            used = np.flatnonzero(np.any([point[start : start + len(part)].any(axis=1) for point in points], axis=0))
            if len(used):
                mine = [point[start + used] for point in points]
                yield self._source, part[used], self._samples[support], mine, B[support]


@jit(fastmath={"reassoc", "contract"})
def _combine_rows(K: FloatArray, weights: Float64, start: int, stop: int, total: FloatArray) -> None:
    for i in range(start, stop):
        for j in range(K.shape[2]):
            total[i, j] = 0.0
        for a in range(K.shape[0]):
            weight = weights[a]
            if weight != 0.0:
                for j in range(K.shape[2]):
                    total[i, j] += weight * K[a, i, j]


def _cross_kernel(K: FloatArray, points: Sequence[Float64], B: Float64) -> list[float]:
    support = np.flatnonzero(B.any(axis=1))
    totals = np.zeros(len(points))
    for start in range(0, len(K), OPTIONS.rows):
        rows = slice(start, start + OPTIONS.rows)
        product = K[rows, support].astype(np.float64) @ B[support]
        totals += [np.vdot(point[rows], product) for point in points]
    return [float(total) for total in totals]


def _sum_task(source: Source, rows: Samples, columns: Samples, weights: Float64, dtype: FloatType) -> FloatArray:
    """sum_a u_a K_a[rows, columns]."""
    values = source.cross(rows, columns)
    total = np.tensordot(weights, values.reshape(len(values), -1), 1).reshape(len(rows), len(columns))
    return np.asarray(total).astype(dtype, copy=False)


def _cross_task(source: Source, rows: Samples, columns: Samples, points: Sequence[Float64], B: Float64) -> Float64:
    product = np.matmul(source.cross(rows, columns).astype(np.float64), B)
    return np.array([[np.vdot(point, layer) for point in points] for layer in product])


# forms and scores over all samples


def forms_of(stack: KernelStack, source: Source, points: Sequence[Float64]) -> list[Float64]:
    """(s,) for each of several points B (n, m): the forms D_a = tr B' K_a B."""
    support = _support(points)
    tasks = (
        (source, rows, columns, [B[rows] for B in points], [B[columns] for B in points])
        for rows in source.pieces(support)
        for columns in source.chunks(support)
    )
    totals = np.zeros((len(points), stack.s))
    for part in stack.runtime.map(_forms_task, tasks):
        totals += part
    stack.passes += 1
    return list(np.maximum(totals, 0.0))


def scores_of(
    stack: KernelStack, source: Source, points: Sequence[Float64], weights: Sequence[Float64]
) -> list[Float64]:
    """(n, m) for each of several points B (n, m) with weights u (s,): sum_a u_a K_a B over all samples."""
    support = _support(points)
    result = [np.zeros(B.shape) for B in points]
    parts = [(rows, columns) for rows in source.pieces(np.arange(stack.n)) for columns in source.chunks(support)]
    tasks = ((source, rows, columns, weights, [B[columns] for B in points]) for rows, columns in parts)
    for (rows, _), found in zip(parts, stack.runtime.map(_scores_task, tasks), strict=True):
        for total, part in zip(result, found, strict=True):
            total[rows] += part
    stack.passes += 1
    return result


def _support(points: Sequence[Float64]) -> Samples:
    return np.flatnonzero(np.any([B.any(axis=1) for B in points], axis=0))


def _forms_task(
    source: Source, rows: Samples, columns: Samples, here: Sequence[Float64], there: Sequence[Float64]
) -> Float64:
    values = source.cross(rows, columns).astype(np.float64)
    return np.array([np.einsum("ir,air->a", A, np.matmul(values, B)) for A, B in zip(here, there, strict=True)])


def _scores_task(
    source: Source, rows: Samples, columns: Samples, weights: Sequence[Float64], there: Sequence[Float64]
) -> list[Float64]:
    values = source.cross(rows, columns)
    flat = values.reshape(len(values), -1)
    sums = (np.tensordot(u, flat, 1).reshape(len(rows), len(columns)) for u in weights)
    return [K @ B for K, B in zip(sums, there, strict=True)]
