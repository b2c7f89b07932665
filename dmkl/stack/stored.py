"""Sources over a kernel store: tiles read from its files, and values computed from its samples."""

from __future__ import annotations

import functools
import threading

import numpy as np

from dmkl._util.types import Array, Block, Float64, FloatArray, Samples
from dmkl.errors import SolverError
from dmkl.kernels import base_tile
from dmkl.kernels.distances import MATRIX
from dmkl.stack.sources import Source
from dmkl.store import KernelStore, RepairLog, StoredPair, opened, sound_tile


class StoredSource(Source):
    """Tiles of a store, read one at a time. A tile that turns out to be damaged is computed again."""

    backend = "disk"

    def __init__(self, store: KernelStore) -> None:
        self.path, self.store_id = str(store.path), store.id
        self.grid, self.s, self.dtype = store.grid, store.s, np.dtype(np.float32)
        functions = [kernel.function for kernel in store.bank.kernels]
        self.indefinite = tuple(a for a, function in enumerate(functions) if function.indefinite)
        self.unproven = tuple(a for a, function in enumerate(functions) if function.unproven)
        self.repairs = RepairLog(store.path)

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return sound_tile(self.store, a, i, j)

    @property
    def store(self) -> KernelStore:
        """The open store; each process opens it once."""
        return opened(self.path, self.store_id)

    def _digest(self) -> str:
        return self.store_id

    @property
    def portable(self) -> Source:
        return self


class ComputedSource(StoredSource):
    """Values computed from the samples in a store whenever they are read, with the bits of stored tiles.

    A thread keeps the samples and the base (the distances, say) of the tile that it computed last, so that kernels that
    follow each other share them. Values of any samples are computed from the features, which each process reads once;
    precomputed views have no features, and are read in whole tiles.
    """

    backend = "computed"

    def __init__(self, store: KernelStore) -> None:
        super().__init__(store)
        self.has_features = all(kernel.function.base != MATRIX for kernel in store.bank.kernels)

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        store = self.store
        bench = _bench(store, i, j)
        means = row_means(self.path, self.store_id)[a]
        return store.bank.tile(a, bench.base(a), bench.pair, self.grid.span(i), self.grid.span(j), means)

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        if not self.has_features:
            return super().cross(rows, columns)
        values = np.empty((self.s, len(rows), len(columns)), np.float32)
        pair = _FeaturePair(_features(self.path, self.store_id), rows, columns)
        for a, tile in self.store.bank.tiles(pair, rows, columns, row_means(self.path, self.store_id)):
            values[a] = tile
        return values

    @property
    def smallest_read(self) -> int:
        return 1 if self.has_features else self.grid.tile


class _Bench:
    """The samples of the tile that a thread computes, and the base that it used last."""

    def __init__(self, store: KernelStore, i: int, j: int) -> None:
        self.key = (store.id, i, j)
        self.pair = StoredPair(store, i, j)
        self._bank = store.bank
        self._of: tuple[str, str] | None = None
        self._base: Float64 = np.empty(0)

    def base(self, a: int) -> Float64:
        """The base's tile of kernel a."""
        kernel = self._bank.kernels[a]
        of = kernel.view, kernel.function.base
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


class _FeaturePair:
    """Features of any samples and of any others, never those of a tile on the diagonal."""

    same = False

    def __init__(self, features: dict[str, Block], rows: Samples, columns: Samples) -> None:
        self._features, self._rows, self._columns = features, rows, columns
        self._of: tuple[str, tuple[Block, Block]] | None = None

    def sides(self, view: str) -> tuple[Block, Block]:
        if self._of is None or self._of[0] != view:  # kernels come view by view
            X = self._features[view]
            self._of = view, (X[self._rows], X[self._columns])
        return self._of[1]

    def matrix(self, view: str) -> Array:
        raise SolverError(f"view '{view}' is a matrix, not features")
