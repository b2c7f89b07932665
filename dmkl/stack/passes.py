"""What one shard contributes to a pass. Pure functions of a shard, so that any runtime can run them.

All sums are in float64, over tiles and kernels in ascending order: the same bits on any number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.stack.shards import Shard

Float64 = NDArray[np.float64]
Samples = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
