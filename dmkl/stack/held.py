"""Sources of tiles that were read or computed once: held in this process, or by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.machine import Budget
from dmkl._util.tiling import Grid
from dmkl._util.types import FloatArray, FloatType
from dmkl.errors import SolverError
from dmkl.runtime import Runtime
from dmkl.stack.sources import BlockRow, Source, digest_block_row, digest_of


@dataclass(frozen=True)
class MemoryShares:
    """Which part of some memory may be taken.

    Attributes
    ----------
    here : of what is left of this process's memory, for all tiles; the rest is for the solver
    workers : of the memory of all workers together, for the tiles that they hold
    each_worker : of one worker's memory, for all tiles, so that each worker can fetch the tiles of the others
    blocks : of one worker's memory, for the blocks that it cuts at once
    """

    here: float = 0.4
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
    tiles: dict[tuple[int, int], FloatArray]

    def tile(self, a: int, j: int) -> FloatArray:
        return self.tiles[a, j]


class HeldSource(Source):
    """Tiles in the memory of this process.

    Parameters
    ----------
    rows : the block rows
    grid, s, dtype : as in `Source`; float32 if there is no type
    origin : the source that the tiles were read from, if there is one
    indefinite, unproven : numbers of kernels, as in `Source`, where there is no origin
    """

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
        return sum(tile.nbytes for row in self._held for tile in row.tiles.values())

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
    tiles = {(a, j): row.tile(a, j) for j in row.grid.kept(row.i) for a in range(row.s)}
    return HeldRow(row.grid, row.i, row.s, tiles)


def held_here(source: Source, runtime: Runtime) -> HeldSource:
    """All tiles of a source in the memory of this process."""
    rows = runtime.map(hold_block_row, ((row,) for row in source.rows))
    return HeldSource(list(rows), source.grid, source.s, dtype=source.dtype, origin=source)


def held_on_workers(source: Source, runtime: Runtime) -> Source:
    """A portable source's tiles in the memory of the workers, or the source itself if they do not fit."""
    if source.tile_bytes > SHARES.workers * runtime.memory:
        return source
    rows = [runtime.hold(hold_block_row, row) for row in source.rows]
    return WorkerSource(rows, source.grid, source.s, runtime=runtime, dtype=source.dtype, origin=source)


def fits_here(source: Source, memory: Budget) -> bool:
    """Whether this process may hold all tiles of a source."""
    return source.tile_bytes <= SHARES.here * memory.left
