"""A shard: the kept tiles of one block row of the stack, as a pass reads them.

Four ways to have one, the same tiles in the same order from each: an array in memory, files of a store, tiles computed
from a store's samples (`computed.py`), or tiles of either kind of store got once and held (by this process or by a Dask
worker, which gets them again when it is lost).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.tiling import Grid
from dmkl.store import opened, sound_tile

Tile = NDArray[Any]


class Shard(Protocol):
    """Tiles (i, j) of block row i: those with j >= i, or all of them where the grid is full."""

    @property
    def grid(self) -> Grid: ...

    @property
    def i(self) -> int: ...

    @property
    def s(self) -> int: ...

    def tile(self, a: int, j: int) -> Tile:
        """K_a[block i, block j]."""
        ...


@dataclass(frozen=True)
class ArrayShard:
    """Tiles of an array (s, n, n)."""

    array: NDArray[Any]
    grid: Grid
    i: int

    @property
    def nbytes(self) -> int:
        return sum(self.tile(a, j).nbytes for a in range(self.s) for j in self.grid.kept(self.i))

    @property
    def s(self) -> int:
        return int(self.array.shape[0])

    def tile(self, a: int, j: int) -> Tile:
        return self.array[a, self.grid.span(self.i), self.grid.span(j)]


@dataclass(frozen=True)
class StoreShard:
    """Tiles of a store, read one at a time; small enough to be sent anywhere the store can be seen.

    A tile that turns out damaged is computed again.
    """

    path: str
    identity: str
    grid: Grid
    i: int
    s: int

    def tile(self, a: int, j: int) -> Tile:
        return sound_tile(opened(self.path, self.identity), a, self.i, j)


@dataclass(frozen=True)
class HeldShard:
    """Tiles in memory."""

    grid: Grid
    i: int
    s: int
    tiles: dict[tuple[int, int], Tile]

    @property
    def nbytes(self) -> int:
        return sum(tile.nbytes for tile in self.tiles.values())

    def tile(self, a: int, j: int) -> Tile:
        return self.tiles[a, j]


@dataclass(frozen=True)
class ChosenShard:
    """Some kernels of another shard, renumbered."""

    whole: Shard
    kernels: tuple[int, ...]

    @property
    def grid(self) -> Grid:
        return self.whole.grid

    @property
    def i(self) -> int:
        return self.whole.i

    @property
    def s(self) -> int:
        return len(self.kernels)

    def tile(self, a: int, j: int) -> Tile:
        return self.whole.tile(self.kernels[a], j)


def hold(shard: Shard) -> HeldShard:
    """Read all tiles of a shard into memory, place by place: kernels that are computed share what they can there."""
    tiles = {(a, j): shard.tile(a, j) for j in shard.grid.kept(shard.i) for a in range(shard.s)}
    return HeldShard(shard.grid, shard.i, shard.s, tiles)


def digest(shard: Shard) -> str:
    """A digest of the values of all tiles of a shard."""
    found = hashlib.blake2b(digest_size=16)
    for j in shard.grid.kept(shard.i):
        for a in range(shard.s):
            tile = shard.tile(a, j)
            found.update(f"{tile.dtype.str} {tile.shape}".encode())
            found.update(np.ascontiguousarray(tile).data)
    return found.hexdigest()


def choose(shard: Shard, kernels: Sequence[int]) -> Shard:
    return ChosenShard(shard, tuple(kernels))
