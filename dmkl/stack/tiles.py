"""Sources of tiles: mapped from the files of a kernel store, fetched from its objects, computed from its samples, held
here or by workers.

Tiles of a store on disk are never copied: every process of a machine maps the files, and shares the machine's page
cache with the others. Tiles that are held were computed or fetched once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.machine import Budget
from dmkl._util.stopping import end_if_late
from dmkl._util.tiling import Grid
from dmkl._util.types import Array, Block, Float64, FloatArray, FloatType, Samples
from dmkl.errors import SolverError
from dmkl.kernels import base_tile
from dmkl.kernels.bank import Columns, Views
from dmkl.kernels.distances import MATRIX
from dmkl.runtime import Runtime
from dmkl.stack.features import FeatureSource
from dmkl.stack.sources import BlockRow, Source, SourceRow, digest_block_row, digest_of
from dmkl.store import KernelStore, RepairLog, StoredPair, opened, sound_tile
from dmkl.store.fetched import FETCHING


class StoredSource(Source):
    """Tiles of a store, mapped from its files. A tile that turns out to be damaged is computed again.

    Parameters
    ----------
    store : the store
    reserved : bytes of this process's memory that its mapped files may take, all of them if None
    room : bytes of files that a worker may have mapped at once, as many if None
    """

    backend = "disk"
    worth_holding = False  # the files are in memory where there is room for them

    def __init__(self, store: KernelStore, reserved: int | None = None, room: int | None = None) -> None:
        self.path, self.store_id, self._shared = str(store.place), store.id, store.place.shared
        self._nbytes = store.mapped_bytes
        self._reserved = self._nbytes if reserved is None else reserved
        self._room = self._reserved if room is None else room
        self.at_hand = 0 < self._nbytes <= self._reserved
        self.grid, self.s, self.dtype = store.needed, store.s, store.bank.dtype
        functions = [kernel.function for kernel in store.bank.kernels]
        self.indefinite = tuple(a for a, function in enumerate(functions) if function.indefinite)
        self.unproven = tuple(a for a, function in enumerate(functions) if function.unproven)
        self.repairs = RepairLog(store.place)

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return sound_tile(self.store, a, i, j)

    @property
    def store(self) -> KernelStore:
        """The open store; each process opens it once."""
        store = opened(self.path, self.store_id)
        store.maps.room = self._room
        return store

    @property
    def smallest_read(self) -> int:
        return 1 if self._nbytes <= self._reserved else self.grid.tile

    @property
    def held_bytes(self) -> int:
        return min(self._nbytes, self._reserved)

    def _digest(self) -> str:
        return self.store_id

    @property
    def portable(self) -> Source | None:
        return self if self._shared else None


class FetchedSource(StoredSource):
    """Tiles of a store on an object store, fetched whenever they are read, in a pass some of them ahead of time.

    Parameters
    ----------
    store : the store
    room : bytes of tiles that a process keeps
    """

    backend = "fetched"
    worth_holding = True

    def __init__(self, store: KernelStore, room: int) -> None:
        super().__init__(store, reserved=0, room=room)

    def tiles(self, kernels: Sequence[int], i: int, j: int) -> Iterator[FloatArray]:
        return self.tiles_before(kernels, i, j, range(0))

    def tiles_before(self, kernels: Sequence[int], i: int, j: int, others: range) -> Iterator[FloatArray]:
        """Tiles (i, j) of some kernels, while fetching those in the other columns begins."""
        store = self.store
        count, ahead = store.fetched.together, FETCHING.ahead
        batches = [kernels[first : first + count] for first in range(0, len(kernels), count)]
        coming = [(column, batch) for column in (j, *others[:ahead]) for batch in batches]
        for number, batch in enumerate(batches):
            for column, wanted in coming[number : number + 1 + ahead]:
                store.fetched.ask(store.tile_name(i, column), wanted)
            for a in batch:
                yield sound_tile(store, a, i, j)

    @property
    def rows(self) -> Sequence[object]:
        return [FetchedRow(self, i) for i in range(self.grid.blocks)]

    @property
    def store(self) -> KernelStore:
        store = opened(self.path, self.store_id)
        store.fetched.room = self._room
        return store


@dataclass(frozen=True)
class FetchedRow(SourceRow):
    """A block row of a store on an object store: its tiles are read one after the other."""

    source: FetchedSource

    def tiles(self, kernels: Sequence[int], j: int) -> Iterator[FloatArray]:
        for tile in self.source.tiles_before(kernels, self.i, j, range(j + 1, self.grid.blocks)):
            end_if_late()
            yield tile


class ComputedSource(StoredSource):
    """Values computed from the samples in a store whenever they are read, with the bits of stored tiles.

    A thread keeps the samples and the base (the distances, say) of the tile that it computed last, so that kernels that
    follow each other share them. Values of any samples are computed from the features, which each process reads once;
    precomputed views have no features, and are read in whole tiles. Kernels on sets of columns are computed together
    (`by_columns`).
    """

    backend = "computed"

    def __init__(self, store: KernelStore) -> None:
        super().__init__(store, reserved=0)
        self.has_features = all(kernel.function.base != MATRIX for kernel in store.bank.kernels)
        self.by_columns = store.bank.by_columns
        self.worth_holding = not self.by_columns
        self.on_the_spot = self.has_features and not self.by_columns

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        if self.by_columns:
            return self._together.tile(a, i, j)
        store = self.store
        bench = _bench(store, i, j)
        means = row_means(self.path, self.store_id)[a]
        return store.bank.tile(a, bench.base(a), bench.pair, self.grid.span(i), self.grid.span(j), means)

    def tiles(self, kernels: Sequence[int], i: int, j: int) -> Iterator[FloatArray]:
        return self._together.tiles(kernels, i, j) if self.by_columns else super().tiles(kernels, i, j)

    def forms(self, i: int, kernels: Samples, coef: Float64) -> Float64 | None:
        return self._together.forms(i, kernels, coef) if self.by_columns else None

    def combined(self, i: int, j: int, weights: Float64) -> Float64 | None:
        return self._together.combined(i, j, weights) if self.by_columns else None

    @property
    def _together(self) -> FeatureSource:
        return _feature_source(self.path, self.store_id)

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        if self.by_columns:
            return self._together.cross(rows, columns)
        if not self.has_features:
            return super().cross(rows, columns)
        values = np.empty((self.s, len(rows), len(columns)), self.dtype)
        for a, tile in self.values(rows, columns, range(self.s)):
            values[a] = tile
        return values

    def values(self, rows: Samples, columns: Samples, kernels: Sequence[int]) -> Iterator[tuple[int, FloatArray]]:
        if not self.on_the_spot:
            yield from super().values(rows, columns, kernels)
            return
        pair = _FeaturePair(_features(self.path, self.store_id), rows, columns)
        yield from self.store.bank.tiles(pair, rows, columns, row_means(self.path, self.store_id), kernels)

    @property
    def smallest_read(self) -> int:
        return 1 if self.has_features else self.grid.tile

    @property
    def held_bytes(self) -> int:
        return 0


class _Bench:
    """The samples of the tile that a thread computes, and the base that it used last."""

    def __init__(self, store: KernelStore, i: int, j: int) -> None:
        self.key = (store.id, i, j)
        self.pair = StoredPair(store, i, j)
        self._bank = store.bank
        self._of: tuple[Views, str, Columns] | None = None
        self._base: Float64 = np.empty(0)

    def base(self, a: int) -> Float64:
        """The base's tile of kernel a."""
        of = self._bank.kernels[a].of
        if self._of != of:
            self._base, self._of = base_tile(self.pair, *of), of
        return self._base


_thread = threading.local()


def _bench(store: KernelStore, i: int, j: int) -> _Bench:
    bench: _Bench | None = getattr(_thread, "bench", None)
    if bench is None or bench.key != (store.id, i, j):
        bench = _thread.bench = _Bench(store, i, j)
    return bench


@functools.lru_cache(maxsize=2)
def row_means(path: str, identity: str) -> Float64:
    """The row means that centred kernels subtract: read once a process, since they never change in a store that can be
    opened."""
    return opened(path, identity).row_means()


@functools.lru_cache(maxsize=2)
def _features(path: str, identity: str) -> dict[str, Block]:
    """All feature views of a store: small against its kernels."""
    store = opened(path, identity)
    everything = np.arange(store.n)
    return {view: store.views.take(view, everything, store.grid.tile).values for view in store.views.entries}


@functools.lru_cache(maxsize=2)
def _feature_source(path: str, identity: str) -> FeatureSource:
    """The kernels of a store that are computed together, from all of its features."""
    store = opened(path, identity)
    return FeatureSource(_features(path, identity), store.bank, store.grid)


class _FeaturePair:
    """Features of any samples and of any others, or the same."""

    def __init__(self, features: dict[str, Block], rows: Samples, columns: Samples) -> None:
        self._features, self._rows, self._columns = features, rows, columns
        self.same = np.array_equal(rows, columns)
        self._of: tuple[str, tuple[Block, Block]] | None = None

    def sides(self, view: str) -> tuple[Block, Block]:
        if self._of is None or self._of[0] != view:  # kernels come view by view
            X = self._features[view]
            self._of = view, (X[self._rows], X[self._columns])
        return self._of[1]

    def matrix(self, view: str) -> Array:
        raise SolverError(f"view '{view}' is a matrix, not features")


@dataclass(frozen=True)
class MemoryShares:
    """Which part of some memory may be taken.

    Attributes
    ----------
    here : of what is left of a process's memory, for all tiles; the rest is for the solver
    some : of its limit, for the mapped files of a store where not all of them fit, or for fetched tiles
    workers : of the memory of all workers together, for the tiles that they hold
    each_worker : of one worker's memory, for all tiles, so that each worker can fetch the tiles of the others
    blocks : of the memory of one worker's thread, for the blocks that it cuts at once
    """

    here: float = 0.4
    some: float = 0.1
    workers: float = 0.5
    each_worker: float = 0.3
    blocks: float = 0.3


SHARES = MemoryShares()


@dataclass(frozen=True)
class HeldRow:
    """The tiles of a block row, in memory."""

    grid: Grid
    i: int
    s: int
    held: dict[tuple[int, int], FloatArray]

    def tile(self, a: int, j: int) -> FloatArray:
        end_if_late()
        return self.held[a, j]

    def tiles(self, kernels: Sequence[int], j: int) -> Iterator[FloatArray]:
        for a in kernels:
            end_if_late()
            yield self.held[a, j]

    def forms(self, kernels: Samples, coef: Float64) -> Float64 | None:
        return None

    def combined(self, j: int, weights: Float64) -> Float64 | None:
        return None


class HeldSource(Source):
    """Tiles in the memory of this process.

    Parameters
    ----------
    rows : the block rows
    grid, s, dtype : as in `Source`; float32 if there is no type
    origin : the source that the tiles were read from, if there is one
    indefinite, unproven : numbers of kernels, as in `Source`, where there is no origin
    """

    at_hand = True

    def __init__(
        self,
        rows: Sequence[HeldRow],
        grid: Grid,
        s: int,
        *,
        dtype: FloatType | None = None,
        origin: Source | None = None,
        indefinite: Sequence[int] = (),
        unproven: Sequence[int] = (),
    ) -> None:
        self._held = tuple(rows)
        self.grid, self.s, self.dtype, self.origin = grid, s, dtype or np.dtype(np.float32), origin
        self.indefinite, self.unproven = tuple(indefinite), tuple(unproven)
        if origin is not None:
            self.indefinite, self.unproven, self.repairs = origin.indefinite, origin.unproven, origin.repairs

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return self._held[i].tile(a, j)

    @property
    def smallest_read(self) -> int:
        return 1

    @property
    def held_bytes(self) -> int:
        return sum(tile.nbytes for row in self._held for tile in row.held.values())

    @property
    def rows(self) -> Sequence[object]:
        return self._held

    def _digest(self) -> str:
        return super()._digest() if self.origin is None else self.origin.identity

    @property
    def portable(self) -> Source | None:
        return None if self.origin is None else self.origin.portable


class WorkerSource(Source):
    """Tiles in the memory of a cluster's workers; what is lost with a worker is read or computed again.

    Parameters
    ----------
    rows : for each block row the promise of a `HeldRow` by `runtime.hold`
    grid, s, dtype, origin, indefinite, unproven : as in `HeldSource`
    runtime : the cluster
    """

    backend = "cluster"
    at_hand = True

    def __init__(
        self,
        rows: Sequence[object],
        grid: Grid,
        s: int,
        *,
        runtime: Runtime,
        dtype: FloatType | None = None,
        origin: Source | None = None,
        indefinite: Sequence[int] = (),
        unproven: Sequence[int] = (),
    ) -> None:
        self._held, self._runtime, self.origin = tuple(rows), runtime, origin
        self.grid, self.s, self.dtype = grid, s, dtype or np.dtype(np.float32)
        self.indefinite, self.unproven = tuple(indefinite), tuple(unproven)
        if origin is not None:
            self.indefinite, self.unproven, self.repairs = origin.indefinite, origin.unproven, origin.repairs
        # whether every worker has room for all tiles
        self._near_all = self.tile_bytes <= SHARES.each_worker * runtime.memory / runtime.workers

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        tile: FloatArray = next(iter(self._runtime.map(_tile_of_row, [(self._held[i], a, j)])))
        return tile

    @property
    def rows(self) -> Sequence[object]:
        return self._held

    def _digest(self) -> str:
        if self.origin is not None:
            return self.origin.identity
        return digest_of("tiles", *self._runtime.map(digest_block_row, ((row,) for row in self._held)))

    @property
    def portable(self) -> Source | None:
        return None if self.origin is None else self.origin.portable

    @property
    def nearby(self) -> Source | None:
        return self if self._near_all else self.portable

    @property
    def on_demand(self) -> Source:
        portable = self.portable
        if portable is None:
            raise SolverError(
                "tasks cannot ask for any samples of kernels that only the workers of a cluster hold",
                "use kernels in a store, or solve without a cluster",
            )
        return portable


def _tile_of_row(row: BlockRow, a: int, j: int) -> FloatArray:
    return row.tile(a, j)


def hold_block_row(row: BlockRow) -> HeldRow:
    """Read all tiles of a block row into memory, place by place, so that computed kernels share a base."""
    kernels = range(row.s)
    tiles = {(a, j): tile for j in row.grid.kept(row.i) for a, tile in zip(kernels, row.tiles(kernels, j), strict=True)}
    return HeldRow(row.grid, row.i, row.s, tiles)


def held_here(source: Source, runtime: Runtime) -> HeldSource:
    """All tiles of a source in the memory of this process."""
    rows = runtime.map(hold_block_row, ((row,) for row in source.rows))
    return HeldSource(list(rows), source.grid, source.s, dtype=source.dtype, origin=source)


def held_on_workers(source: Source, runtime: Runtime) -> Source:
    """A portable source's tiles in the memory of the workers, or the source itself if nothing is gained or they do not
    fit."""
    if not source.worth_holding or source.tile_bytes > SHARES.workers * runtime.memory:
        return source
    rows = [runtime.hold(hold_block_row, row) for row in source.rows]
    return WorkerSource(rows, source.grid, source.s, runtime=runtime, dtype=source.dtype, origin=source)


def mapped(store: KernelStore, memory: Budget, runtime: Runtime, *, whole: bool | None = None) -> StoredSource:
    """The source of a store on disk: `whole` says that all of its files may be mapped at once, None that they may if
    there is room."""
    nbytes = store.mapped_bytes
    fits = nbytes <= SHARES.here * memory.left if whole is None else whole
    reserved = nbytes if fits else int(SHARES.some * memory.limit)  # by the limit: batches of classes depend on it
    room = reserved
    if runtime.remote:
        each = runtime.memory / runtime.processes
        room = min(room, nbytes if nbytes <= SHARES.here * each else int(SHARES.some * each))
    return StoredSource(store, reserved, room)


def fetched(store: KernelStore, memory: Budget, runtime: Runtime) -> FetchedSource:
    """The source of a store on an object store."""
    limit = runtime.memory / runtime.processes if runtime.remote else memory.limit
    return FetchedSource(store, int(SHARES.some * limit))


def fits_here(source: Source, memory: Budget) -> bool:
    """Whether this process may hold all tiles of a source, and gains by it."""
    return source.worth_holding and source.tile_bytes <= SHARES.here * memory.left
