"""Kernel values of any samples against any others: what a learner that meets shuffled samples asks a stack.

    cross(rows, columns)  ->  K[:, rows, columns]

Three sources behind the one question: an array or held tiles, tiles of a store, and features that the values are
computed from. The last touches no other samples than those asked for and needs no n x n matrix anywhere. A source is
small to send (but for an array), so its questions can be tasks of any runtime.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.tiling import Grid
from dmkl._util.types import Samples
from dmkl.errors import SolverError
from dmkl.kernels.distances import GIVEN
from dmkl.stack.computed import ComputedShard, row_means
from dmkl.stack.parts import PartStack
from dmkl.stack.shards import ArrayShard, ChosenShard, HeldShard, Shard, StoreShard
from dmkl.stack.stack import KernelStack
from dmkl.store import opened

PIECE = 128  # rows of one question, where any samples cost the same
CHUNK = 2048  # and columns
BATCH = 512  # samples that a learner gets at once


class RowSource(Protocol):
    """Kernel values on demand."""

    def cross(self, rows: Samples, columns: Samples) -> NDArray[Any]:
        """K[:, rows, columns], in any order of either."""

    def pieces(self, rows: Samples) -> list[Samples]:
        """Rows in order, cut into what is worth asking for together."""

    def chunks(self, columns: Samples) -> list[Samples]:
        """And columns."""

    def batches(self, n: int, rng: np.random.Generator) -> list[Samples]:
        """All samples in a random order, as random as this source can serve, in batches."""


class _Anywhere:
    """A source for which any samples cost the same."""

    def pieces(self, rows: Samples) -> list[Samples]:
        return _cut(rows, PIECE)

    def chunks(self, columns: Samples) -> list[Samples]:
        return _cut(columns, CHUNK)

    def batches(self, n: int, rng: np.random.Generator) -> list[Samples]:
        return _cut(rng.permutation(n), BATCH)


@dataclass(frozen=True)
class ArrayRows(_Anywhere):
    """An array (s, n, n)."""

    array: NDArray[Any]

    def cross(self, rows: Samples, columns: Samples) -> NDArray[Any]:
        return self.array[:, rows[:, None], columns]


@dataclass(frozen=True)
class TileRows(_Anywhere):
    """Tiles in memory."""

    shards: tuple[Shard, ...]
    grid: Grid

    def cross(self, rows: Samples, columns: Samples) -> NDArray[Any]:
        values = np.empty((self.shards[0].s, len(rows), len(columns)), np.float32)
        for i, here, local in _by_block(rows, self.grid):
            for j, there, other in _by_block(columns, self.grid):
                for a in range(self.shards[0].s):
                    tile = self.shards[i].tile(a, j) if i <= j else self.shards[j].tile(a, i).T
                    values[a, here[:, None], there] = tile[local[:, None], other]
        return values


@dataclass(frozen=True)
class StoredRows(TileRows):
    """Tiles of a store. A tile is read as a whole, so whole block rows are shuffled, and samples inside them: else
    every batch of samples would read the whole store."""

    def pieces(self, rows: Samples) -> list[Samples]:
        return np.split(rows, np.flatnonzero(np.diff(rows // self.grid.tile)) + 1)

    def chunks(self, columns: Samples) -> list[Samples]:
        return self.pieces(columns)

    def batches(self, n: int, rng: np.random.Generator) -> list[Samples]:
        spans = [self.grid.span(int(i)) for i in rng.permutation(self.grid.blocks)]
        return [rng.permutation(np.arange(span.start, span.stop)) for span in spans]


@dataclass(frozen=True)
class ComputedRows(_Anywhere):
    """Values computed from the features of a store's samples, which each process reads once."""

    path: str
    identity: str

    def cross(self, rows: Samples, columns: Samples) -> NDArray[Any]:
        store, means = opened(self.path, self.identity), row_means(self.path, self.identity)
        values = np.empty((store.s, len(rows), len(columns)), np.float32)
        pair = _SomePair(_features(self.path, self.identity), rows, columns)
        for a, tile in store.bank.tiles(pair, rows, columns, means):
            values[a] = tile
        return values


@dataclass(frozen=True)
class ChosenRows:
    """Some kernels of another source."""

    whole: RowSource
    kernels: tuple[int, ...]

    def cross(self, rows: Samples, columns: Samples) -> NDArray[Any]:
        return self.whole.cross(rows, columns)[list(self.kernels)]

    def pieces(self, rows: Samples) -> list[Samples]:
        return self.whole.pieces(rows)

    def chunks(self, columns: Samples) -> list[Samples]:
        return self.whole.chunks(columns)

    def batches(self, n: int, rng: np.random.Generator) -> list[Samples]:
        return self.whole.batches(n, rng)


@dataclass(frozen=True)
class PartRows:
    """Some samples of another source."""

    whole: RowSource
    samples: Samples
    of: int  # how many there are in all

    def cross(self, rows: Samples, columns: Samples) -> NDArray[Any]:
        return self.whole.cross(self.samples[rows], self.samples[columns])

    def pieces(self, rows: Samples) -> list[Samples]:
        return _alike(rows, self.whole.pieces(self.samples[rows]))

    def chunks(self, columns: Samples) -> list[Samples]:
        return _alike(columns, self.whole.chunks(self.samples[columns]))

    def batches(self, n: int, rng: np.random.Generator) -> list[Samples]:
        inside = (batch[np.isin(batch, self.samples)] for batch in self.whole.batches(self.of, rng))
        return [np.searchsorted(self.samples, batch) for batch in inside if len(batch)]


def row_source(stack: KernelStack) -> RowSource:
    """The best source for what a stack is made of; tiles on workers are read, or computed, again from their store."""
    if isinstance(stack, PartStack):
        return PartRows(row_source(stack.whole), stack.samples, stack.whole.n)
    return _source(stack._shards, stack)


def _source(shards: list[Any], stack: KernelStack) -> RowSource:
    first = shards[0]
    if isinstance(first, ArrayShard):
        return ArrayRows(first.array)
    if isinstance(first, HeldShard):
        return TileRows(tuple(shards), stack.grid)
    if isinstance(first, ChosenShard):
        return ChosenRows(_source([shard.whole for shard in shards], stack), first.kernels)
    if isinstance(first, StoreShard | ComputedShard):
        store = opened(first.path, first.identity)
    elif stack.source is not None:
        store = opened(str(stack.source.resolve()), stack.identity)
    else:
        raise SolverError("rows of kernels chosen on a cluster cannot be asked for", "store only those kernels")
    where = str(store.path), store.id
    given = any(kernel.function.base == GIVEN for kernel in store.bank.kernels)
    computed = store.computed or isinstance(first, ComputedShard)
    if computed and not given:
        return ComputedRows(*where)
    kind = ComputedShard if computed else StoreShard
    tiles = [kind(*where, store.grid, i, store.s) for i in range(store.grid.blocks)]
    return StoredRows(tuple(tiles), store.grid)


class _SomePair:
    """Any samples against any others; never taken for a diagonal tile."""

    same = False

    def __init__(self, features: dict[str, Any], rows: Samples, columns: Samples) -> None:
        self._features, self._rows, self._columns = features, rows, columns
        self._of: tuple[str, tuple[Any, Any]] = ("", (None, None))

    def sides(self, view: str) -> tuple[Any, Any]:
        if self._of[0] != view:  # kernels come view by view
            X = self._features[view]
            self._of = view, (X[self._rows], X[self._columns])
        return self._of[1]

    def given(self, view: str) -> Any:
        raise SolverError(f"view '{view}' is a matrix, not features")


@functools.lru_cache(maxsize=2)
def _features(path: str, identity: str) -> dict[str, Any]:
    """All feature views of a store: small against its kernels."""
    store = opened(path, identity)
    everything = np.arange(store.n)
    return {view: store.views.take(view, everything, store.grid.tile).values for view in store.views.entries}


def _cut(samples: Samples, size: int) -> list[Samples]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _alike(samples: Samples, pieces: list[Samples]) -> list[Samples]:
    """Samples cut as these pieces are."""
    return np.split(samples, np.cumsum([len(piece) for piece in pieces])[:-1])


def _by_block(samples: Samples, grid: Grid) -> Iterator[tuple[int, Samples, Samples]]:
    """For every block that has some of the samples: where those stand, and their numbers inside the block."""
    blocks = samples // grid.tile
    for i in np.unique(blocks):
        here = np.flatnonzero(blocks == i)
        yield int(i), here, samples[here] - int(i) * grid.tile
