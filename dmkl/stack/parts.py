"""Some samples of a stack: the tiles of the whole, cut when they are read. Nothing is copied, nothing computed anew.

What the samples left out score by a model of the others comes from the same tiles (`PartStack.reach`): together that is
a fold of a cross-validation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dmkl._util.tiling import Grid, UnevenGrid
from dmkl._util.types import Float64, Samples
from dmkl.errors import DataError
from dmkl.runtime.base import itself
from dmkl.stack.cuts import cut
from dmkl.stack.expansions import pieces_of
from dmkl.stack.loops import rows_of
from dmkl.stack.shards import Shard, Tile
from dmkl.stack.stack import KernelStack, derived_identity


@dataclass(frozen=True)
class PartShard:
    """Some rows and columns of another shard's tiles; blocks without any are left out."""

    whole: Shard
    grid: Grid
    i: int
    blocks: tuple[int, ...]  # which of the whole's blocks these are
    inside: tuple[Samples, ...]  # and the samples in each, counted inside it

    @property
    def s(self) -> int:
        return self.whole.s

    def tile(self, a: int, j: int) -> Tile:
        tile, rows, columns = self.whole.tile(a, self.blocks[j]), self.inside[self.i], self.inside[j]
        part: Tile = np.empty((len(rows), len(columns)), tile.dtype)
        cut(rows_of(tile), rows, columns, part, 0, 0)
        return part


def part_of_shard(shard: Shard, grid: Grid, i: int, blocks: tuple[int, ...], inside: tuple[Samples, ...]) -> PartShard:
    return PartShard(shard, grid, i, blocks, inside)


class PartStack(KernelStack):
    """The kernels of another stack over some of its samples."""

    def __init__(self, whole: KernelStack, samples: ArrayLike) -> None:
        chosen = _checked(samples, whole.n)
        self.parent, self.places = whole, chosen  # what it is a part of, which may be a part itself
        if isinstance(whole, PartStack):
            chosen, whole = whole.samples[chosen], whole.whole
        self.whole: KernelStack = whole
        self.samples: Samples = chosen
        spans = [whole.grid.span(block) for block in range(whole.grid.blocks)]
        shares = [np.searchsorted(chosen, (span.start, span.stop)) for span in spans]
        blocks = tuple(block for block, (start, stop) in enumerate(shares) if start < stop)
        inside = tuple(chosen[slice(*shares[block])] - spans[block].start for block in blocks)
        edges = (0, *np.cumsum([len(share) for share in inside]).tolist())
        grid = UnevenGrid(len(chosen), max(map(len, inside)), whole.grid.full, edges)
        super().__init__(
            [
                whole.runtime.hold(part_of_shard, whole._shards[block], grid, i, blocks, inside)
                for i, block in enumerate(blocks)
            ],
            grid,
            whole.names,
            groups=whole.groups,
            dtype=whole.dtype,
            runtime=whole.runtime,
            memory=whole.memory,
            near=whole._near,  # blocks are cut from the whole's own tiles: parts of held ones would travel as copies
            backend=whole.backend,
            identity=functools.partial(derived_identity, whole, "samples", tuple(chosen.tolist())),
        )

    @property
    def held_bytes(self) -> int:
        return self.whole.held_bytes

    def _in_near(self, samples: Samples) -> Samples:
        return self.samples[samples]

    def choose(self, kernels: Sequence[int]) -> KernelStack:
        return self.parent.choose(kernels).restrict(self.places)

    def require_semidefinite(self, who: str) -> None:
        """Of the whole, once for all its parts: a part of a semidefinite kernel is one."""
        self.whole.require_semidefinite(who)

    def reach(self, others: ArrayLike, coef: Float64, weights: Float64 | None) -> Float64:
        """Scores (samples, m) that coefficients over this part have at other samples of what it is a part of; one pass.

        `coef` (n, m) with `weights` (s,) or (m, s), or (n, m s), class after class, of kernels that have their own.
        """
        others = _checked(others, self.parent.n)
        if isinstance(self.parent, PartStack):
            others = self.parent.samples[others]
        support = np.flatnonzero(coef.any(axis=1))
        used = range(self.s) if weights is None else np.flatnonzero(np.atleast_2d(weights).any(axis=0)).tolist()
        held = self.runtime.hold(itself, np.ascontiguousarray(coef[support]))
        tasks = ((shard, used, self.samples[support], others, held, weights) for shard in self.whole._shards)
        scores = np.zeros((len(others), coef.shape[1] if weights is not None else coef.shape[1] // self.s))
        for part in self.runtime.map(reach_shard, tasks):
            scores += part
        self.passes += 1
        return scores


def reach_shard(
    shard: Shard, kernels: Sequence[int], support: Samples, others: Samples, coef: Float64, weights: Float64 | None
) -> Float64:
    """Contributions of a shard to the scores of others by the support's coefficients."""
    s = shard.s
    scores = np.zeros((len(others), coef.shape[1] if weights is not None else coef.shape[1] // s))
    for a, rows, columns, values in pieces_of(shard, kernels):
        first, last = np.searchsorted(support, (rows.start, rows.stop))
        start, stop = np.searchsorted(others, (columns.start, columns.stop))
        if first < last and start < stop:
            part = values[support[first:last, None] - rows.start, others[start:stop] - columns.start]
            own = coef[first:last, a::s] if weights is None else coef[first:last] * weights[..., a]
            scores[start:stop] += part.T.astype(np.float64) @ own
    return scores


def _checked(samples: ArrayLike, n: int) -> Samples:
    chosen = np.asarray(samples)
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1 or not len(chosen):
        raise DataError("samples should be given by their numbers, at least one", "np.flatnonzero makes some of a mask")
    if chosen[0] < 0 or chosen[-1] >= n or (np.diff(chosen) <= 0).any():
        raise DataError(f"the numbers of samples should ascend, from 0 on and below {n}", "np.unique sorts them")
    return chosen.astype(np.int64)
