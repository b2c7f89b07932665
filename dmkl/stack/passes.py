"""What one shard contributes to a pass. Pure functions of a shard, so that any runtime can run them.

All sums are in float64, over tiles and kernels in ascending order: the same bits on any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmkl._util.types import Float64, Mask, Samples
from dmkl.stack.loops import TOGETHER, add_four, add_one, multiply_both_ways, rows_of
from dmkl.stack.shards import Shard, Tile

FEW = 8  # classes up to which reading a tile once in float32 is quicker than converting it for matrix products


@dataclass(frozen=True)
class ShardScores:
    """Contributions to the scores of all samples from the shard's first on, and to the quadratic forms."""

    scores: Float64
    forms: Float64 | None


def apply_shard(shard: Shard, coef: Float64, weights: Float64, asked: Mask | None) -> ShardScores:
    """Scores `sum_a weights[k, a] K_a coef[:, k]` of every class k, forms `coef[:, k]' K_a coef[:, k]` where asked."""
    grid, i = shard.grid, shard.i
    work = _Work(np.ascontiguousarray(coef[grid.span(i).start :].T), None if asked is None else np.zeros(asked.shape))
    m = coef.shape[1]
    everyone = np.arange(m)
    shared = asked is None and weights.ndim == 1 and m > 1
    kernels = [] if shared else list(_users(weights, asked, m))
    for j in range(i, grid.blocks):
        at = grid.span(j).start - grid.span(i).start
        if shared:
            work.add_tile(combine_tile(shard, j, weights), at, everyone, np.ones(m), everyone[:0], 0)
        for a, users, factor, askers in kernels:
            work.add_tile(shard.tile(a, j), at, users, factor, askers, a)
    return ShardScores(np.ascontiguousarray(work.scores.T), work.forms)


def _users(weights: Float64, asked: Mask | None, m: int) -> Iterator[tuple[int, Samples, Float64, Samples]]:
    """Each kernel that a class has a weight for or wants a form of: the classes, their weights, which want a form."""
    for a in range(weights.shape[-1]):
        factor = np.broadcast_to(weights[..., a], m)
        wanted = np.zeros(m, bool) if asked is None else asked[:, a]
        users = np.flatnonzero(wanted | (factor != 0))
        if len(users):
            yield a, users, factor[users], np.flatnonzero(wanted[users])


class _Work:
    """Sums of a block row, class after class: products are quicker that way round."""

    def __init__(self, coefs: Float64, forms: Float64 | None) -> None:
        self.coefs, self.forms = coefs, forms
        self.scores = np.zeros_like(coefs)
        self._exact: Float64 = np.empty((0, 0))

    def add_tile(self, tile: Tile, at: int, users: Samples, factor: Float64, askers: Samples, a: int) -> None:
        """What kernel a's tile, whose columns are the samples from `at` on, gives the classes that use it."""
        ways = self._few if len(users) <= FEW else self._many
        found = ways(tile, at, users, factor, askers)
        if self.forms is not None and len(askers):
            self.forms[users[askers], a] += (2.0 if at else 1.0) * found  # off the diagonal it is its mirror too

    def _few(self, tile: Tile, at: int, users: Samples, factor: Float64, askers: Samples) -> Float64:
        """Adds to the users' scores and returns the forms asked for; the tile is read once, as it is."""
        span = at, at + tile.shape[1]
        return multiply_both_ways(rows_of(tile), span, users, factor, self.coefs, self.scores)[askers]

    def _many(self, tile: Tile, at: int, users: Samples, factor: Float64, askers: Samples) -> Float64:
        """The same by two matrix products in float64."""
        exact = self._in_float64(tile)
        height, width = tile.shape
        if at:
            scored = np.flatnonzero(factor)
            own = self.coefs[_all_or(users[scored], len(self.coefs)), :height]
            turned = own @ exact
            turned *= factor[scored, None]
            self.scores[_all_or(users[scored], len(self.scores)), at : at + width] += turned
        products = self.coefs[_all_or(users, len(self.coefs)), at : at + width] @ exact.T
        found = np.einsum("ki,ki->k", self.coefs[users[askers], :height], products[askers])
        products *= factor[:, None]
        self.scores[_all_or(users, len(self.scores)), :height] += products
        return np.asarray(found)

    def _in_float64(self, tile: Tile) -> Float64:
        """The tile as it is, or in memory that is there: 8 MB anew for every tile take as long again."""
        if tile.dtype == np.float64:
            return tile
        if self._exact.shape != tile.shape:
            self._exact = np.empty(tile.shape)
        np.copyto(self._exact, tile)
        return self._exact


def _all_or(some: Samples, count: int) -> Samples | slice:
    """An index of these of `count` rows that copies nothing where it is all."""
    return slice(None) if len(some) == count else some


def combine_tile(shard: Shard, j: int, weights: Float64) -> Float64:
    """`sum_a weights[a] K_a` on one tile; kernels with weight zero are not read."""
    rows, columns = shard.grid.span(shard.i), shard.grid.span(j)
    total = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
    active = np.flatnonzero(weights)
    whole = len(active) - len(active) % TOGETHER
    for p in range(0, whole, TOGETHER):
        some = active[p : p + TOGETHER]
        first, second, third, fourth = (rows_of(shard.tile(int(a), j)) for a in some)
        add_four(total, first, second, third, fourth, weights[some])
    for a in active[whole:]:
        add_one(total, rows_of(shard.tile(int(a), j)), weights[a])
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
