"""Scores and quadratic forms of coefficients that all kernels share: the question of every certificate.

All sums are in float64, over tiles and kernels in ascending order: the same bits on any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.errors import SolverError
from dmkl.runtime.base import itself
from dmkl.stack.compiled import TOGETHER, add_four, add_one, multiply_both_ways, rows_of
from dmkl.stack.sources import BlockRow, TileReader


@dataclass(frozen=True)
class Applied:
    """Scores (n, m) and, if they were asked for, quadratic forms (m, s)."""

    scores: Float64
    forms: Float64 | None


def apply(reader: TileReader, coef: Float64, weights: Float64, forms: bool | Mask) -> Applied:
    """See `KernelStack.apply`."""
    coef = np.ascontiguousarray(coef, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    _check_shapes(reader, coef, weights)
    shared = reader.runtime.hold(itself, coef)
    asked = np.broadcast_to(forms, (coef.shape[1], reader.s)) if np.any(forms) else None
    scores = np.zeros(coef.shape)
    total = None if asked is None else np.zeros(asked.shape)
    for i, part in enumerate(reader.each_row(score_block_row, shared, weights, asked)):
        scores[reader.grid.span(i).start :] += part.scores
        if total is not None and part.forms is not None:
            total += part.forms
    reader.passes += 1
    return Applied(scores, total)


def _check_shapes(reader: TileReader, coef: Float64, weights: Float64) -> None:
    n, s = reader.n, reader.s
    classes = coef.shape[1] if coef.ndim == 2 else 0
    if coef.ndim != 2 or coef.shape[0] != n or weights.shape not in ((s,), (classes, s)):
        raise SolverError(
            f"coefficients {coef.shape} and weights {weights.shape} do not fit a stack of {s} kernels over {n} samples",
            f"use coefficients (n, m) and weights (m, s) or (s,), n = {n}, s = {s}",
        )


@dataclass(frozen=True)
class ScoreOptions:
    """How a tile is multiplied by coefficients.

    Attributes
    ----------
    few_classes : up to this many classes a tile is read once as it is; for more, converting it for matrix products in
        float64 is faster
    """

    few_classes: int = 8


SCORES = ScoreOptions()


@dataclass(frozen=True)
class BlockRowScores:
    """Contributions to the scores of all samples from the first of the block row on, and to the quadratic forms."""

    scores: Float64
    forms: Float64 | None


def score_block_row(row: BlockRow, coef: Float64, weights: Float64, asked: Mask | None) -> BlockRowScores:
    """Scores `sum_a weights[k, a] K_a coef[:, k]` of every class k, forms `coef[:, k]' K_a coef[:, k]` where asked."""
    grid, i = row.grid, row.i
    work = _Work(np.ascontiguousarray(coef[grid.span(i).start :].T), None if asked is None else np.zeros(asked.shape))
    m = coef.shape[1]
    everyone = np.arange(m)
    shared = asked is None and weights.ndim == 1 and m > 1
    kernels = [] if shared else list(_users(weights, asked, m))
    for j in range(i, grid.blocks):
        at = grid.span(j).start - grid.span(i).start
        if shared:
            work.add_tile(combine_tile(row, j, weights), at, everyone, np.ones(m), everyone[:0], 0)
        for a, users, factor, askers in kernels:
            work.add_tile(row.tile(a, j), at, users, factor, askers, a)
    return BlockRowScores(np.ascontiguousarray(work.scores.T), work.forms)


def _users(weights: Float64, asked: Mask | None, m: int) -> Iterator[tuple[int, Samples, Float64, Samples]]:
    """For each kernel in use: its number, the classes that use it, their weights, the positions of those that want its
    form."""
    for a in range(weights.shape[-1]):
        factor = np.broadcast_to(weights[..., a], m)
        wanted = np.zeros(m, bool) if asked is None else asked[:, a]
        users = np.flatnonzero(wanted | (factor != 0))
        if len(users):
            yield a, users, factor[users], np.flatnonzero(wanted[users])


class _Work:
    """Sums of a block row, with one row for each class: products are faster in this layout."""

    def __init__(self, coefs: Float64, forms: Float64 | None) -> None:
        self.coefs, self.forms = coefs, forms
        self.scores = np.zeros_like(coefs)
        self._exact: Float64 = np.empty((0, 0))

    def add_tile(self, tile: FloatArray, at: int, users: Samples, factor: Float64, askers: Samples, a: int) -> None:
        """Add the products of kernel a's tile, with columns from sample `at` on, for the classes that use it."""
        ways = self._few if len(users) <= SCORES.few_classes else self._many
        found = ways(tile, at, users, factor, askers)
        if self.forms is not None and len(askers):
            self.forms[users[askers], a] += (
                2.0 if at else 1.0
            ) * found  # a tile off the diagonal counts for its mirror image too

    def _few(self, tile: FloatArray, at: int, users: Samples, factor: Float64, askers: Samples) -> Float64:
        """Add to the scores of these classes and return the forms asked for; the tile is read once, as it is."""
        span = at, at + tile.shape[1]
        return multiply_both_ways(rows_of(tile), span, users, factor, self.coefs, self.scores)[askers]

    def _many(self, tile: FloatArray, at: int, users: Samples, factor: Float64, askers: Samples) -> Float64:
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

    def _in_float64(self, tile: FloatArray) -> Float64:
        """The tile in float64, converted into memory that is used again: new memory would take as long to get."""
        if tile.dtype == np.float64:
            return np.asarray(tile, dtype=np.float64)  # no copy
        if self._exact.shape != tile.shape:
            self._exact = np.empty(tile.shape)
        np.copyto(self._exact, tile)
        return self._exact


def _all_or(some: Samples, count: int) -> Samples | slice:
    """An index of these of `count` rows that copies nothing where it is all."""
    return slice(None) if len(some) == count else some


def combine_tile(row: BlockRow, j: int, weights: Float64) -> Float64:
    """`sum_a weights[a] K_a` on one tile; kernels with weight zero are not read."""
    rows, columns = row.grid.span(row.i), row.grid.span(j)
    total = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
    active = np.flatnonzero(weights)
    whole = len(active) - len(active) % TOGETHER
    for p in range(0, whole, TOGETHER):
        some = active[p : p + TOGETHER]
        first, second, third, fourth = (rows_of(row.tile(int(a), j)) for a in some)
        add_four(total, first, second, third, fourth, weights[some])
    for a in active[whole:]:
        add_one(total, rows_of(row.tile(int(a), j)), weights[a])
    return total
