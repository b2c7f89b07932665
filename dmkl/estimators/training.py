"""Training samples and their kernels in memory: what a store is on disk, tile for tile the same values.

So an estimator's model is the very model that `dmkl train` makes of the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import Budget
from dmkl._util.tiling import Grid
from dmkl._util.types import Float64
from dmkl.config import KernelConfig, RunConfig
from dmkl.data import Dataset, View
from dmkl.errors import ResourceError
from dmkl.kernels import Bank, plan_bank, row_means, tile_sums
from dmkl.runtime import Runtime
from dmkl.runtime.base import itself
from dmkl.stack import KernelStack, near_fits
from dmkl.stack.shards import HeldShard
from dmkl.store import projected_bytes

SHARE = 0.4  # of the memory left that kernels may take; the rest is for the solver


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Samples with their fitted kernels; `means` is (s, n), what centred kernels subtract."""

    data: Dataset
    bank: Bank
    grid: Grid
    means: Float64

    @classmethod
    def fit(cls, kernels: Sequence[KernelConfig], data: Dataset, runtime: Runtime) -> TrainingSet:
        """Fit widths, normalisers and centres."""
        bank, grid = plan_bank(kernels, data), Grid.cut(data.n, RunConfig.tile)
        return cls(data, bank, grid, _row_means(bank, data, grid, runtime))

    @property
    def views(self) -> HeldViews:
        return HeldViews(self.data)

    def row_means(self) -> Float64:
        return self.means

    def stack(self, runtime: Runtime) -> KernelStack:
        """All kernels computed, one task a block row, and held where the tasks of the solver run."""
        self._require_room(runtime)
        rows = range(self.grid.blocks)
        if runtime.remote:
            samples = runtime.hold(itself, self)
            shards = [runtime.hold(compute_shard, samples, i) for i in rows]
        else:
            shards = list(runtime.map(compute_shard, ((self, i) for i in rows)))
        held = runtime.remote and near_fits(projected_bytes(self.grid, len(self.bank)), runtime)
        return KernelStack(
            shards,
            self.grid,
            [kernel.name for kernel in self.bank.kernels],
            groups=self.bank.groups,
            dtype="float32",
            runtime=runtime,
            memory=Budget.default(),
            near=shards if held else None,
            indefinite=self.bank.indefinite,
            given=self.bank.unproven,
            backend="cluster" if runtime.remote else "memory",
        )

    def _require_room(self, runtime: Runtime) -> None:
        """Refuse before anything is computed what would leave no room to solve."""
        needed, room = projected_bytes(self.grid, len(self.bank)), runtime.memory or Budget.default().left
        if needed > SHARE * room:
            raise ResourceError(
                f"{len(self.bank)} kernels of {self.grid.n:,} samples take {needed / 1e6:,.0f} MB, more than "
                f"{SHARE:.0%} of the {room / 1e6:,.0f} MB at hand",
                "use fewer of them, or dmkl train, which keeps kernels on disk",
            )


class HeldViews:
    """The samples' views as a model takes its support samples from them."""

    def __init__(self, data: Dataset) -> None:
        self.entries = {name: {"kind": view.kind, "shape": view.values.shape} for name, view in data.views.items()}
        self._data = data

    def take(self, view: str, chosen: NDArray[np.int64], tile: int) -> View:
        whole = self._data.views[view]
        return View(view, whole.kind, whole.values[chosen])


class HeldPair:
    """The samples of tile (i, j)."""

    def __init__(self, data: Dataset, grid: Grid, i: int, j: int) -> None:
        self.same = i == j
        self._data = data
        self._rows, self._columns = grid.span(i), grid.span(j)

    def sides(self, view: str) -> tuple[Any, Any]:
        values = self._data.views[view].values
        return values[self._rows], values[self._columns]

    def given(self, view: str) -> Any:
        return self._data.views[view].values[self._rows, self._columns]


def compute_shard(samples: TrainingSet, i: int) -> HeldShard:
    """The kept tiles of block row i, of all kernels."""
    bank, grid = samples.bank, samples.grid
    tiles = {
        (a, j): tile
        for j in range(i, grid.blocks)
        for a, tile in bank.tiles(HeldPair(samples.data, grid, i, j), grid.span(i), grid.span(j), samples.means)
    }
    return HeldShard(grid, i, len(bank), tiles)


def _row_means(bank: Bank, data: Dataset, grid: Grid, runtime: Runtime) -> Float64:
    """Row means of the centred kernels, zero for the others."""
    if not bank.centred:
        return np.broadcast_to(0.0, (len(bank), grid.n))
    tasks = ((bank, HeldPair(data, grid, i, j)) for i, j in grid.pairs())
    return row_means(len(bank), grid, zip(grid.pairs(), runtime.map(tile_sums, tasks), strict=True))
