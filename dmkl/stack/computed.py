"""Tiles that are computed whenever they are read, from the samples in a store."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmkl._util.tiling import Grid
from dmkl._util.types import Float64
from dmkl.kernels import base_tile
from dmkl.store import KernelStore, StoredPair, opened


@dataclass(frozen=True)
class ComputedShard:
    """The tiles a store holds or would hold, bit for bit, computed from its samples; as small to send as `StoreShard`.

    A thread keeps the samples and the base (the distances, say) that it used last, so that kernels asked for one after
    the other share them; that is all the memory it takes.
    """

    path: str
    identity: str
    grid: Grid
    i: int
    s: int

    def tile(self, a: int, j: int) -> NDArray[np.float32]:
        store = opened(self.path, self.identity)
        bench = _bench(store, self.i, j)
        rows, columns = self.grid.span(self.i), self.grid.span(j)
        means = row_means(self.path, self.identity)[a]
        return store.bank.tile(a, bench.base(a), bench.pair, rows, columns, means)


class _Bench:
    """What a thread has at hand of the tile it works on."""

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
    """What centred kernels subtract: read once a process, for they never change once a store can be opened."""
    return opened(path, identity).row_means()
