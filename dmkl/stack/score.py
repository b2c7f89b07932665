"""Scores and quadratic forms of coefficients that all kernels share: the question of every certificate.

All sums are in float64, over tiles and kernels in ascending order: the same bits on any number of workers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from dmkl._util.tiling import Grid
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.errors import SolverError
from dmkl.stack.compiled import TOGETHER, add_four, add_one, multiply_both_ways, rows_of
from dmkl.stack.few_samples import sparse_scores
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
    asked = np.broadcast_to(forms, (coef.shape[1], reader.s)) if np.any(forms) else None
    sparse = sparse_scores(reader, coef, weights, asked)
    if sparse is not None:
        reader.passes += 1
        return Applied(*sparse)
    scored = np.broadcast_to(np.any(weights, axis=-1), coef.shape[1])  # the others have forms only
    shared = reader.runtime.share(csc_array(coef))
    least = coef.shape[1] if asked is None and weights.ndim == 1 else 1  # a sum of kernels is multiplied once a task
    found = portions(reader.grid, reader.s, least)
    rows = reader.source.rows
    tasks = (
        (
            [(rows[i], columns) for i, columns in runs],
            shared,
            weights[..., span],
            None if asked is None else asked[:, span],
            span.start,
            scored,
        )
        for runs, span in found
    )
    total = reader.total(add_scores, score_runs, tasks, len(found))
    reader.passes += 1
    scores = np.zeros(coef.shape)
    scores[:, scored] = total.scores
    return Applied(scores, total.forms)


def portions(grid: Grid, s: int, least: int = 1) -> list[tuple[list[tuple[int, range]], slice]]:
    """The tasks of a pass, each with about as many kernel values as another: runs of tiles (i, j), j >= i, as block
    rows with ranges of columns, and kernels. Kernels are divided, into parts of at least so many, where there are fewer
    tiles than tasks.

    They are the same on any number of workers."""
    pairs = [(i, j) for i in range(grid.blocks) for j in range(i, grid.blocks)]
    most = max(SCORES.tasks, grid.blocks)
    tasks = max(1, min(most, round(len(pairs) * s * grid.tile**2 / SCORES.values)))
    parts = max(1, min(tasks // len(pairs), s // least))
    edges = np.linspace(0, s, parts + 1).astype(int).tolist()
    found = []
    for some in np.array_split(np.array(pairs), min(tasks, len(pairs))):
        rows, first = np.unique(some[:, 0], return_index=True)
        ends = [*(first[1:] - 1), len(some) - 1]
        runs = [(int(i), range(some[a, 1], some[b, 1] + 1)) for i, a, b in zip(rows, first, ends, strict=True)]
        found += [(runs, slice(start, stop)) for start, stop in itertools.pairwise(edges)]
    return found


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
    tasks : a pass has so many, or one for each block row if these are more, if it has enough to do,
    values : each with about so many kernel values
    """

    few_classes: int = 8
    tasks: int = 32
    values: float = 6e7


SCORES = ScoreOptions()


@dataclass(frozen=True)
class BlockRowScores:
    """Contributions to the scores of all samples from `start` on, and to the quadratic forms."""

    start: int
    scores: Float64  # (n - start, classes with scores)
    forms: Float64 | None  # (m, s)


def add_scores(one: BlockRowScores, two: BlockRowScores) -> BlockRowScores:
    """The sum of the contributions of some tasks and of the tasks behind them."""
    scores = one.scores.copy()
    scores[two.start - one.start :] += two.scores
    return BlockRowScores(one.start, scores, None if one.forms is None or two.forms is None else one.forms + two.forms)


def score_runs(
    runs: Sequence[tuple[BlockRow, range]],
    coef: csc_array,
    weights: Float64,
    asked: Mask | None,
    first: int,
    scored: Mask,
) -> BlockRowScores:
    """What some columns of some block rows contribute."""
    parts = (score_block_row(row, columns, coef, weights, asked, first, scored) for row, columns in runs)
    return functools.reduce(add_scores, parts)


def score_block_row(
    row: BlockRow,
    columns: range,
    coef: csc_array,
    weights: Float64,
    asked: Mask | None,
    first: int,
    scored: Mask,
) -> BlockRowScores:
    """Scores `sum_a weights[k, a] K_a coef[:, k]` of every class k that has weights (`scored`), and forms
    `coef[:, k]' K_a coef[:, k]` where asked; of these columns of tiles, and the kernels from the first on for which
    there are weights."""
    grid, i = row.grid, row.i
    start = grid.span(i).start
    work = _Work(coef[start:].T.toarray(order="C"), None if asked is None else np.zeros(asked.shape))
    m = coef.shape[1]
    everyone = np.arange(m)
    if asked is None and weights.ndim == 1 and m > 1:
        for j in columns:
            at = grid.span(j).start - start
            work.add_tile(combine_tile(row, j, weights, first), at, everyone, np.ones(m), everyone[:0], 0)
        return BlockRowScores(start, np.ascontiguousarray(work.scores[_all_or(np.flatnonzero(scored), m)].T), None)
    weighed = np.atleast_2d(weights != 0).any(axis=0)
    wanted = np.zeros_like(weighed) if asked is None else asked.any(axis=0)
    alone = np.flatnonzero(wanted & ~weighed)
    if asked is not None and work.forms is not None and len(alone):
        askers = np.flatnonzero(asked[:, alone].any(axis=1))
        forms = row.forms(first + alone, work.coefs[askers].T)
        if forms is not None:  # those of the whole block row, which count once
            if columns.start == i:
                work.forms[np.ix_(askers, alone)] = np.where(asked[np.ix_(askers, alone)], forms.T, 0.0)
            wanted = weighed
    kernels = np.flatnonzero(weighed | wanted)
    users = list(_users(weights, asked, kernels, m))
    for j in columns:
        at = grid.span(j).start - start
        for tile, own in zip(row.tiles((first + kernels).tolist(), j), users, strict=True):
            work.add_tile(tile, at, *own)
    forms = None
    if work.forms is not None:
        forms = np.zeros((m, row.s))
        forms[:, first : first + work.forms.shape[1]] = work.forms
    return BlockRowScores(start, np.ascontiguousarray(work.scores[_all_or(np.flatnonzero(scored), m)].T), forms)


def _users(
    weights: Float64, asked: Mask | None, kernels: Samples, m: int
) -> Iterator[tuple[Samples, Float64, Samples, int]]:
    """For each of these kernels: the classes that use it, their weights, the positions of those that want its form, and
    its number."""
    for a in kernels.tolist():
        factor = np.broadcast_to(weights[..., a], m)
        wanted = np.zeros(m, bool) if asked is None else asked[:, a]
        users = np.flatnonzero(wanted | (factor != 0))
        yield users, factor[users], np.flatnonzero(wanted[users]), a


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


def combine_tile(row: BlockRow, j: int, weights: Float64, first: int = 0) -> Float64:
    """`sum_a weights[a] K_a` on one tile, of the kernels from the first on for which there are weights; those with
    weight zero are not read."""
    active = np.flatnonzero(weights)
    whole = np.zeros(row.s)
    whole[first + active] = weights[active]
    found = row.combined(j, whole)
    if found is not None:
        return found
    rows, columns = row.grid.span(row.i), row.grid.span(j)
    total = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
    tiles = map(rows_of, row.tiles((first + active).tolist(), j))
    for p in range(0, len(active) - len(active) % TOGETHER, TOGETHER):
        one, two, three, four = itertools.islice(tiles, TOGETHER)
        add_four(total, one, two, three, four, weights[active[p : p + TOGETHER]])
    for a, tile in zip(active[len(active) - len(active) % TOGETHER :], tiles, strict=True):
        add_one(total, tile, weights[a])
    return total
