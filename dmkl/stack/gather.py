"""Blocks cut out of tiles: gathered into this process, or cut and used where tasks run, so that no block travels."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import Scratch, thread_scratch
from dmkl._util.types import Samples
from dmkl.stack.cuts import cut, mirror
from dmkl.stack.loops import rows_of
from dmkl.stack.passes import combine_tile
from dmkl.stack.shards import Shard

COMBINED = -1  # stands for a weighted sum where otherwise a kernel's number stands


@dataclass(frozen=True)
class Gather:
    """For each ascending set W of samples: these kernels over W x W, or one weighted sum of all."""

    sets: Sequence[Samples]
    kernels: Sequence[Sequence[int]]
    weights: NDArray[np.float64] | None
    dtype: np.dtype[Any]

    def layers(self) -> list[dict[int, int]]:
        """Which layer of each block a kernel is."""
        if self.weights is not None:
            return [{COMBINED: 0} for _ in self.sets]
        return [{a: layer for layer, a in enumerate(chosen)} for chosen in self.kernels]

    def shapes(self) -> list[tuple[int, int, int]]:
        return [(len(layers), len(W), len(W)) for layers, W in zip(self.layers(), self.sets, strict=True)]

    def sizes(self) -> list[int]:
        """Bytes of each block."""
        return [int(np.prod(shape)) * self.dtype.itemsize for shape in self.shapes()]

    def some(self, positions: Sequence[int]) -> Gather:
        """Some of the sets."""
        sets, kernels = [self.sets[p] for p in positions], [self.kernels[p] for p in positions]
        return replace(self, sets=sets, kernels=kernels)

    def room(self, scratch: Scratch | None) -> list[NDArray[Any]]:
        """Arrays for the blocks, of their own or where scratch has them."""
        shapes = self.shapes()
        return scratch.arrays(shapes, self.dtype) if scratch else [np.empty(shape, self.dtype) for shape in shapes]

    def finished(self, blocks: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """As they are asked for: a weighted sum is one matrix."""
        return blocks if self.weights is None else [block[0] for block in blocks]


def gather_shard(shard: Shard, wanted: Gather) -> list[NDArray[Any]]:
    """For each set W: the rows of W in this block row against W from here on, (layers, rows, columns)."""
    pieces = []
    for shape, W in zip(wanted.shapes(), wanted.sets, strict=True):
        mine, later = _split(W, shard.grid.span(shard.i))
        pieces.append(np.empty((shape[0], len(mine), len(later)), wanted.dtype))
    _cut_all(shard, wanted, pieces, square=False)
    return pieces


def gather_into(shard: Shard, wanted: Gather, blocks: Sequence[NDArray[Any]]) -> None:
    """The same rows, put into the square blocks with their mirror images; shards fill disjoint parts."""
    _cut_all(shard, wanted, blocks, square=True)


def place(blocks: Sequence[NDArray[Any]], sets: Sequence[Samples], rows: slice, pieces: list[NDArray[Any]]) -> None:
    """Put one shard's pieces into the square blocks, and their mirror images."""
    for block, W, piece in zip(blocks, sets, pieces, strict=True):
        start, height = int(np.searchsorted(W, rows.start)), piece.shape[1]
        block[:, start : start + height, start:] = piece
        for layer in block:
            mirror(layer, start, start + height, start + height, len(W))


def _cut_all(shard: Shard, wanted: Gather, targets: Sequence[NDArray[Any]], *, square: bool) -> None:
    """Fill the pieces of all sets, or their rows in the square blocks, tile by tile."""
    grid, i = shard.grid, shard.i
    rows = grid.span(i)
    shares = [_split(W, rows) for W in wanted.sets]
    starts = [int(np.searchsorted(W, rows.start)) if square else 0 for W in wanted.sets]
    layers = wanted.layers()
    for j in range(i, grid.blocks):
        places = [_place(*share, rows, grid.span(j), top) for share, top in zip(shares, starts, strict=True)]
        for a in sorted(set().union(*layers)):
            tile = shard.tile(a, j) if wanted.weights is None else combine_tile(shard, j, wanted.weights)
            seen = rows_of(tile)
            for target, order, (mine, others, top, left) in zip(targets, layers, places, strict=True):
                if a not in order:
                    continue
                layer = target[order[a]]
                if (len(mine), len(others)) == tile.shape:
                    layer[top : top + len(mine), left : left + len(others)] = tile
                else:
                    cut(seen, mine, others, layer, top, left)
                if square and j > i:  # at once, while it is in the cache
                    mirror(layer, top, top + len(mine), left, left + len(others))


def _place(mine: Samples, later: Samples, rows: slice, columns: slice, top: int) -> tuple[Samples, Samples, int, int]:
    """A set's members among the rows and columns of a tile, counted inside it, and where those go in the target."""
    left, right = (int(p) for p in np.searchsorted(later, (columns.start, columns.stop)))
    return mine - rows.start, later[left:right] - columns.start, top, top + left


def _split(W: Samples, rows: slice) -> tuple[Samples, Samples]:
    """The members of W in this block row, and those from its first sample on."""
    start, stop = np.searchsorted(W, (rows.start, rows.stop))
    return W[start:stop], W[start:]


def assemble_matrix(n: int, rows: Sequence[slice], pieces: Sequence[list[NDArray[Any]]]) -> NDArray[Any]:
    """One whole combined matrix from the pieces of all shards."""
    everything = [np.arange(n)]
    block: NDArray[Any] = np.empty((1, n, n), pieces[0][0].dtype)
    for span, shard_pieces in zip(rows, pieces, strict=True):
        place([block], everything, span, shard_pieces)
    matrix: NDArray[Any] = block[0]
    return matrix


def chunks(sizes: Sequence[int], number: int, room: float) -> list[list[int]]:
    """Positions of blocks of these sizes in `number` chunks, more where one would be larger than `room`: the largest
    first, each to the chunk that has least."""
    number = max(1, min(number, len(sizes)))
    while True:
        filled: list[tuple[int, int]] = [(0, chunk) for chunk in range(number)]
        members: list[list[int]] = [[] for _ in range(number)]
        for position in sorted(range(len(sizes)), key=lambda position: -sizes[position]):
            used, chunk = heapq.heappop(filled)
            members[chunk].append(position)
            heapq.heappush(filled, (used + sizes[position], chunk))
        if number == len(sizes) or max(filled)[0] <= room:
            return members
        number += 1


def answer_chunk(
    shards: Sequence[Shard], wanted: Gather, function: Callable[..., Any], questions: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """`function(block, *question)` for each set."""
    blocks = wanted.room(thread_scratch())
    for shard in shards:
        gather_into(shard, wanted, blocks)
    return [function(block, *question) for block, question in zip(wanted.finished(blocks), questions, strict=True)]
