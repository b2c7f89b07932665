"""What one shard contributes to a pass. Pure functions of a shard, so that any runtime can run them.

All sums are in float64, over tiles and kernels in ascending order: the same bits on any number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.stack.cuts import cut, mirror
from dmkl.stack.shards import Shard

Float64 = NDArray[np.float64]
Samples = NDArray[np.int64]
Mask = NDArray[np.bool_]
COMBINED = -1  # stands for a weighted sum where otherwise a kernel's number stands


@dataclass(frozen=True)
class ShardScores:
    """Contributions to the scores of all samples from the shard's first on, and to the quadratic forms."""

    scores: Float64
    forms: Float64 | None


def apply_shard(shard: Shard, coef: Float64, weights: Float64, asked: Mask | None) -> ShardScores:
    """Scores `sum_a weights[k, a] K_a coef[:, k]` of every class k, forms `coef[:, k]' K_a coef[:, k]` where asked."""
    grid, i = shard.grid, shard.i
    rows = grid.span(i)
    scores = np.zeros((grid.n - rows.start, coef.shape[1]))
    quadratic = None if asked is None else np.zeros(asked.shape)
    for j in range(i, grid.blocks):
        columns = grid.span(j)
        here, there = coef[rows], coef[columns]
        local = slice(columns.start - rows.start, columns.stop - rows.start)
        if asked is None and weights.ndim == 1:
            tile = combine_tile(shard, j, weights)
            scores[: len(here)] += tile @ there
            if i != j:
                scores[local] += tile.T @ here
            continue
        for a in range(shard.s):
            factor = np.broadcast_to(weights[..., a], coef.shape[1])
            forms = np.zeros(len(factor), dtype=bool) if asked is None else asked[:, a]
            users = np.flatnonzero((factor != 0) | forms)
            if not len(users):
                continue
            tile = np.ascontiguousarray(shard.tile(a, j), dtype=np.float64)
            product = tile @ there[:, users]
            if quadratic is not None:
                wanted = np.flatnonzero(forms)
                own = product[:, forms[users]]
                quadratic[wanted, a] += (1.0 if i == j else 2.0) * np.einsum("ik,ik->k", here[:, wanted], own)
            scores[: len(here), users] += product * factor[users]
            scored = np.flatnonzero(factor)
            if i != j and len(scored):
                scores[local, scored] += (tile.T @ here[:, scored]) * factor[scored]
    return ShardScores(scores, quadratic)


def combine_tile(shard: Shard, j: int, weights: Float64) -> Float64:
    """`sum_a weights[a] K_a` on one tile; kernels with weight zero are not read."""
    active = np.flatnonzero(weights)
    if not len(active):
        rows, columns = shard.grid.span(shard.i), shard.grid.span(j)
        return np.zeros((rows.stop - rows.start, columns.stop - columns.start))
    total: Float64 = np.multiply(shard.tile(int(active[0]), j), weights[active[0]], dtype=np.float64)
    scaled = np.empty_like(total)
    for a in active[1:]:
        total += np.multiply(shard.tile(int(a), j), weights[a], out=scaled, dtype=np.float64)
    return total


def gather_shard(
    shard: Shard, sets: Sequence[Samples], kernels: Sequence[Sequence[int]], weights: Float64 | None, dtype: Any
) -> list[NDArray[Any]]:
    """For each ascending sample set W and its kernels: the rows of W in this block row against W from here on.

    Shape (kernels, rows, columns), or (1, rows, columns) of the combination when weights are given.
    """
    grid, i = shard.grid, shard.i
    rows = grid.span(i)
    shares = [_split(W, rows) for W in sets]
    layers: list[dict[int, int]] = [{a: layer for layer, a in enumerate(chosen)} for chosen in kernels]
    if weights is not None:
        layers = [{COMBINED: 0} for _ in sets]
    sizes = [(len(order), len(mine), len(later)) for order, (mine, later) in zip(layers, shares, strict=True)]
    pieces = [np.empty(size, dtype) for size in sizes]
    for j in range(i, grid.blocks):
        columns = grid.span(j)
        for a in sorted(set().union(*layers)):
            tile = shard.tile(a, j) if weights is None else combine_tile(shard, j, weights)
            for piece, order, (mine, later) in zip(pieces, layers, shares, strict=True):
                if a in order:
                    left, right = np.searchsorted(later, (columns.start, columns.stop))
                    cut(tile, mine - rows.start, later[left:right] - columns.start, piece[order[a], :, left:right])
    return pieces


def _split(W: Samples, rows: slice) -> tuple[Samples, Samples]:
    """The members of W in this block row, and those from its first sample on."""
    start, stop = np.searchsorted(W, (rows.start, rows.stop))
    return W[start:stop], W[start:]


def place(blocks: list[NDArray[Any]], sets: Sequence[Samples], rows: slice, pieces: list[NDArray[Any]]) -> None:
    """Put one shard's pieces into the square blocks, and their mirror images."""
    for block, W, piece in zip(blocks, sets, pieces, strict=True):
        mirror(piece, block, int(np.searchsorted(W, rows.start)))


def gather_into(
    shard: Shard,
    sets: Sequence[Samples],
    kernels: Sequence[Sequence[int]],
    weights: Float64 | None,
    blocks: list[NDArray[Any]],
) -> None:
    """`gather_shard` and `place` in one task, for tasks that share memory: shards fill disjoint parts."""
    place(blocks, sets, shard.grid.span(shard.i), gather_shard(shard, sets, kernels, weights, blocks[0].dtype))


def assemble_matrix(n: int, rows: Sequence[slice], pieces: Sequence[list[NDArray[Any]]]) -> NDArray[Any]:
    """One whole combined matrix from the pieces of all shards."""
    everything = [np.arange(n)]
    block: NDArray[Any] = np.empty((1, n, n), pieces[0][0].dtype)
    for span, shard_pieces in zip(rows, pieces, strict=True):
        place([block], everything, span, shard_pieces)
    matrix: NDArray[Any] = block[0]
    return matrix


def rows_shard(shard: Shard, samples: Samples, kernels: Sequence[int], dtype: Any) -> list[tuple[slice, slice, Any]]:
    """Pieces (positions in `samples`, columns, values (kernels, positions, columns)) of whole kernel rows."""
    grid, i = shard.grid, shard.i
    here = grid.span(i)
    pieces = []
    for j in range(i, grid.blocks):
        there = grid.span(j)
        tiles = [shard.tile(a, j) for a in kernels] if _hits(samples, here, there) else []
        for own, other, turned in ((here, there, False), (there, here, True))[: 1 if i == j else 2]:
            start, stop = (int(p) for p in np.searchsorted(samples, (own.start, own.stop)))
            if start < stop:
                local = samples[start:stop] - own.start
                values = np.stack([(tile.T if turned else tile)[local] for tile in tiles]).astype(dtype, copy=False)
                pieces.append((slice(start, stop), other, values))
    return pieces


def _hits(samples: Samples, *spans: slice) -> bool:
    return any(np.searchsorted(samples, span.start) < np.searchsorted(samples, span.stop) for span in spans)
