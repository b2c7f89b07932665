"""Questions about every kernel apart, symmetric or not, semidefinite or not.

With K_a[i, j] = k_a(x_i, x_j) the score of sample j is sum_a sum_i alpha[a, i] K_a[i, j]: `expand` is
sum_a K_a' alpha_a, and `correlate`, its adjoint, gives K_a beta of every kernel. A block row accounts for all of its
tiles or, where only tiles with j >= i are kept, for those and their mirror images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.stack.compiled import multiply_both_ways, rows_of
from dmkl.stack.few_samples import sparse_products
from dmkl.stack.score import SCORES
from dmkl.stack.sources import BlockRow, TileReader


def expand(reader: TileReader, alpha: Float64) -> Float64:
    """See `KernelStack.expand`."""
    kernels = np.flatnonzero(alpha.any(axis=(1, 2))).tolist()
    shared = reader.runtime.share(np.ascontiguousarray(alpha, dtype=np.float64))
    tasks = ((row, shared, kernels) for row in reader.source.rows)
    scores = reader.total(add, expand_block_row, tasks, reader.grid.blocks)
    reader.passes += 1
    return scores


def correlate(reader: TileReader, beta: Float64, kernels: Sequence[int] | None) -> Float64:
    """See `KernelStack.correlate`."""
    kernels, beta = list(range(reader.s)) if kernels is None else list(kernels), np.asarray(beta, dtype=np.float64)
    sparse = sparse_products(reader, beta, kernels)
    if sparse is not None:
        reader.passes += 1
        return sparse
    shared = reader.runtime.share(np.ascontiguousarray(beta))
    tasks = ((row, shared, kernels) for row in reader.source.rows)
    products: Float64 = reader.total(add_tails, correlate_block_row, tasks, reader.grid.blocks)
    reader.passes += 1
    return products


def row_norms(reader: TileReader) -> Float64:
    """See `KernelStack.row_norms`."""
    squares = reader.total(add_tails, square_block_row, ((row,) for row in reader.source.rows), reader.grid.blocks)
    reader.passes += 1
    return np.asarray(np.sqrt(squares))


def add(one: Float64, two: Float64) -> Float64:
    """The sum of arrays of the same shape."""
    return one + two


def add_tails(one: Float64, two: Float64) -> Float64:
    """The sum of arrays (kernels, samples, ...) of which one begins at an earlier sample; both end with the last."""
    total = one.copy()
    total[:, one.shape[1] - two.shape[1] :] += two
    return total


def reach(reader: TileReader, others: Samples, coef: Float64, weights: Float64 | None) -> Float64:
    """See `KernelStack.reach`; `others` are numbered as in the source that has all samples."""
    support = np.flatnonzero(coef.any(axis=1))
    used = range(reader.s) if weights is None else np.flatnonzero(np.atleast_2d(weights).any(axis=0)).tolist()
    held = reader.runtime.share(np.ascontiguousarray(coef[support]))
    arguments = used, reader.source.places(support), others, held, weights
    rows = reader.source.whole.rows
    scores = reader.total(add, reach_block_row, ((row, *arguments) for row in rows), len(rows))
    reader.passes += 1
    return scores


def pieces_of(row: BlockRow, kernels: Sequence[int]) -> Iterator[tuple[int, slice, slice, FloatArray]]:
    """Kernel, rows, columns, K_a[rows, columns]: place by place, so that kernels that are computed share a base."""
    grid, i = row.grid, row.i
    here = grid.span(i)
    for j in grid.kept(i):
        there = grid.span(j)
        for a, tile in zip(kernels, row.tiles(kernels, j), strict=True):
            yield a, here, there, tile
            if i != j and not grid.full:
                yield a, there, here, tile.T


def expand_block_row(row: BlockRow, alpha: Float64, kernels: Sequence[int]) -> Float64:
    """Contributions to `sum_a K_a' alpha[a]` (n, m) of coefficients (s, n, m)."""
    scores = np.zeros(alpha.shape[1:])
    for a, rows, columns, values in pieces_of(row, kernels):
        scores[columns] += _exact(values).T @ alpha[a, rows]
    return scores


def correlate_block_row(row: BlockRow, beta: Float64, kernels: Sequence[int]) -> Float64:
    """Contributions to `K_a beta` (len(kernels), n - start, m), for samples from the first of the block row on."""
    start = row.grid.span(row.i).start
    result = np.zeros((len(kernels), len(beta) - start, beta.shape[1]))
    place = {a: layer for layer, a in enumerate(kernels)}
    grid, m = row.grid, beta.shape[1]
    if not grid.full and m <= SCORES.few_classes:  # read once, as they are, for both ways
        coefs, users, ones = np.ascontiguousarray(beta[start:].T), np.arange(m), np.ones(m)
        scores = np.zeros((len(kernels), *coefs.shape))
        for j in grid.kept(row.i):
            span = grid.span(j).start - start, grid.span(j).stop - start
            for a, tile in zip(kernels, row.tiles(list(kernels), j), strict=True):
                multiply_both_ways(rows_of(tile), span, users, ones, coefs, scores[place[a]])
        return np.ascontiguousarray(scores.transpose(0, 2, 1))
    for a, rows, columns, values in pieces_of(row, kernels):
        result[place[a], _after(rows, start)] += _exact(values) @ beta[columns]
    return result


def square_block_row(row: BlockRow) -> Float64:
    """Contributions to `sum_j K_a[i, j]^2` (s, n - start)."""
    start = row.grid.span(row.i).start
    result = np.zeros((row.s, row.grid.n - start))
    for a, rows, _, values in pieces_of(row, range(row.s)):
        exact = _exact(values)
        result[a, _after(rows, start)] += np.einsum("ij,ij->i", exact, exact)
    return result


def _after(rows: slice, start: int) -> slice:
    return slice(rows.start - start, rows.stop - start)


def _exact(values: FloatArray) -> Float64:
    return np.asarray(values, dtype=np.float64)


def reach_block_row(
    row: BlockRow, kernels: Sequence[int], support: Samples, others: Samples, coef: Float64, weights: Float64 | None
) -> Float64:
    """Contributions of a block row to the scores of others by the support's coefficients."""
    s = row.s
    scores = np.zeros((len(others), coef.shape[1] if weights is not None else coef.shape[1] // s))
    for a, rows, columns, values in pieces_of(row, kernels):
        first, last = np.searchsorted(support, (rows.start, rows.stop))
        start, stop = np.searchsorted(others, (columns.start, columns.stop))
        if first < last and start < stop:
            part = values[support[first:last, None] - rows.start, others[start:stop] - columns.start]
            own = coef[first:last, a::s] if weights is None else coef[first:last] * weights[..., a]
            scores[start:stop] += part.T.astype(np.float64) @ own
    return scores
