"""Training samples and their kernels in memory, with the same values tile for tile as in a store on disk.

So an estimator makes the same model of the same samples as `dmkl train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.machine import Budget
from dmkl._util.tiling import Grid
from dmkl._util.types import Array, Block, Float64, Samples
from dmkl.config import KernelConfig, RunConfig
from dmkl.data import Dataset, View
from dmkl.errors import ResourceError
from dmkl.kernels import Bank, plan_bank, row_means, tile_sums
from dmkl.runtime import Runtime
from dmkl.stack import KernelStack, Source
from dmkl.stack.features import FeatureSource
from dmkl.stack.tiles import HeldRow, HeldSource, WorkerSource
from dmkl.store import projected_bytes


@dataclass(frozen=True)
class HoldingOptions:
    """How kernels are held in memory."""

    memory_share: float = 0.4  # of the free memory, at most; the rest is for the solver


OPTIONS = HoldingOptions()


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Samples with their fitted kernels; `means` (s, n) are the row means of centred kernels, zero for the others."""

    data: Dataset
    bank: Bank
    grid: Grid
    means: Float64

    @classmethod
    def fit(cls, kernels: Sequence[KernelConfig], data: Dataset, runtime: Runtime) -> TrainingSet:
        """Fit widths, normalisers and centres."""
        bank, grid = plan_bank(kernels, data), Grid.cut(data.n, RunConfig.tile)
        if not bank.centred:
            return cls(data, bank, grid, np.broadcast_to(0.0, (len(bank), grid.n)))
        tasks = ((bank, HeldPair(data, grid, i, j)) for i, j in grid.pairs())
        means = row_means(len(bank), grid, zip(grid.pairs(), runtime.map(tile_sums, tasks), strict=True))
        return cls(data, bank, grid, means)

    @property
    def views(self) -> HeldViews:
        return HeldViews(self.data)

    def row_means(self) -> Float64:
        return self.means

    def stack(self, runtime: Runtime) -> KernelStack:
        """Compute all kernels, one task a block row, and hold them where the tasks of the solver run; those on sets of
        columns are computed in every pass of this process."""
        names, groups = [kernel.name for kernel in self.bank.kernels], self.bank.groups
        if self.bank.by_columns and not runtime.remote:
            features = {name: view.values for name, view in self.data.views.items() if view.kind == "features"}
            source: Source = FeatureSource(features, self.bank, self.grid)
            return KernelStack(source, names=names, groups=groups, runtime=runtime)
        self._require_room(runtime)
        rows, s = range(self.grid.blocks), len(self.bank)
        functions = [kernel.function for kernel in self.bank.kernels]
        indefinite = [a for a, function in enumerate(functions) if function.indefinite]
        unproven = [a for a, function in enumerate(functions) if function.unproven]
        if runtime.remote:
            samples = runtime.share(self)
            held = [runtime.hold(compute_block_row, samples, i) for i in rows]
            source = WorkerSource(
                held,
                self.grid,
                s,
                runtime=runtime,
                dtype=self.bank.dtype,
                indefinite=indefinite,
                unproven=unproven,
            )
        else:
            held = list(runtime.map(compute_block_row, ((self, i) for i in rows)))
            source = HeldSource(held, self.grid, s, dtype=self.bank.dtype, indefinite=indefinite, unproven=unproven)
        return KernelStack(source, names=names, groups=groups, runtime=runtime)

    def _require_room(self, runtime: Runtime) -> None:
        """Refuse kernels that leave too little memory to solve, before any is computed."""
        needed = projected_bytes(self.grid, len(self.bank), self.bank.dtype)
        room = runtime.memory or Budget.default().left
        if needed > OPTIONS.memory_share * room:
            raise ResourceError(
                f"{len(self.bank)} kernels of {self.grid.n:,} samples take {needed / 1e6:,.0f} MB, more than "
                f"{OPTIONS.memory_share:.0%} of the {room / 1e6:,.0f} MB that are free",
                "use fewer kernels, or dmkl train, which keeps kernels on disk",
            )


class HeldViews:
    """The views of samples in memory, with the interface of the views of a store."""

    def __init__(self, data: Dataset) -> None:
        self.entries = {name: {"kind": view.kind, "shape": view.values.shape} for name, view in data.views.items()}
        self._data = data

    def take(self, view: str, chosen: Samples, tile: int) -> View:
        whole = self._data.views[view]
        return View(view, whole.kind, whole.values[chosen])


class HeldPair:
    """The pairs of samples of tile (i, j), as kernels take them."""

    def __init__(self, data: Dataset, grid: Grid, i: int, j: int) -> None:
        self.same = i == j
        self._data = data
        self._rows, self._columns = grid.span(i), grid.span(j)

    def sides(self, view: str) -> tuple[Block, Block]:
        values = self._data.views[view].values
        return values[self._rows], values[self._columns]

    def matrix(self, view: str) -> Array:
        return self._data.views[view].values[self._rows, self._columns]


def compute_block_row(samples: TrainingSet, i: int) -> HeldRow:
    """The tiles of block row i from the diagonal on, for all kernels."""
    bank, grid = samples.bank, samples.grid
    tiles = {
        (a, j): tile
        for j in range(i, grid.blocks)
        for a, tile in bank.tiles(HeldPair(samples.data, grid, i, j), grid.span(i), grid.span(j), samples.means)
    }
    return HeldRow(grid, i, len(bank), tiles)
