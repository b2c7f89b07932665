"""Blocks: all kernels, some of them or a weighted sum, over sets of samples.

They are gathered into this process, or cut and used where tasks run, so that no block travels.

Whole kernel rows, at the end, are read the same way: of some samples for all kernels, or of samples of its own for
every kernel.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike

from dmkl._util.kept import kept
from dmkl._util.machine import Scratch, Scratches, thread_scratch
from dmkl._util.shared_memory import KeptArrays, SharedArrays, SharedMatrix, opened_again
from dmkl._util.types import Float64, FloatArray, FloatType, Mask, Samples
from dmkl.events import Progress
from dmkl.runtime import Runtime
from dmkl.runtime.base import itself
from dmkl.stack.compiled import cut_sets, mirror, rows_of
from dmkl.stack.few_samples import gathered
from dmkl.stack.per_kernel import pieces_of
from dmkl.stack.score import combine_tile
from dmkl.stack.sources import BlockRow, Source, TileReader
from dmkl.stack.tiles import SHARES, HeldRow, HeldSource, WorkerSource

T = TypeVar("T")
COMBINED = -1  # in place of a kernel's number: the weighted sum
CHUNK_SHARE = 0.5  # of a thread's part of the blocks that are left, in the next chunk,
LEAST_CHUNK = 0.2  # but no less than this share of a thread's part of all blocks
CHUNK_BYTES = 300_000_000  # of a process, where tiles are at hand: new memory takes longer to get than tiles to read
FEWEST_SETS = 2  # for each thread of this process; of fewer blocks each is filled by all threads


@dataclass(frozen=True)
class BlockRequest:
    """For each ascending set W of samples: some kernels over W x W, or one weighted sum of all kernels."""

    sets: Sequence[Samples]
    kernels: Sequence[Sequence[int]]
    weights: Float64 | None
    dtype: FloatType

    @classmethod
    def of(
        cls,
        reader: TileReader,
        sets: Sequence[Samples],
        kernels: Sequence[Sequence[int]] | None = None,
        weights: Float64 | None = None,
        dtype: DTypeLike | None = None,
    ) -> BlockRequest:
        """A request to a source: all kernels, in its own type, unless said otherwise."""
        chosen = [range(reader.s)] * len(sets) if kernels is None else [list(some) for some in kernels]
        return cls(sets, chosen, weights, reader.dtype if dtype is None else cast(FloatType, np.dtype(dtype)))

    def is_all_of(self, reader: TileReader) -> bool:
        """Whether every block is all kernels over all samples."""
        everything = list(range(reader.s))
        complete = self.weights is None and all(len(W) == reader.n for W in self.sets)
        return complete and all(list(chosen) == everything for chosen in self.kernels)

    def layers(self) -> list[dict[int, int]]:
        """For each block: the layer that a kernel fills."""
        if self.weights is not None:
            return [{COMBINED: 0} for _ in self.sets]
        return [{a: layer for layer, a in enumerate(chosen)} for chosen in self.kernels]

    def shapes(self) -> list[tuple[int, int, int]]:
        return [(len(layers), len(W), len(W)) for layers, W in zip(self.layers(), self.sets, strict=True)]

    def sizes(self) -> list[int]:
        """Bytes of each block."""
        return [int(np.prod(shape)) * self.dtype.itemsize for shape in self.shapes()]

    def some(self, positions: Sequence[int]) -> BlockRequest:
        """Some of the sets."""
        sets, kernels = [self.sets[p] for p in positions], [self.kernels[p] for p in positions]
        return replace(self, sets=sets, kernels=kernels)

    def allocate(self, scratch: Scratch | None) -> list[FloatArray]:
        """Arrays for the blocks: new ones, or in scratch memory."""
        shapes = self.shapes()
        return scratch.arrays(shapes, self.dtype) if scratch else [np.empty(shape, self.dtype) for shape in shapes]

    def finished(self, blocks: list[FloatArray]) -> list[FloatArray]:
        """The blocks as they are returned: a weighted sum is one matrix."""
        return blocks if self.weights is None else [block[0] for block in blocks]


def blocks_of(reader: TileReader, request: BlockRequest, *, passing: bool = False) -> list[FloatArray]:
    """The blocks in this process; `passing` ones are valid until there are others. One pass."""
    sets = request.sets
    if request.is_all_of(reader):
        whole = reader.source.as_array()
        if whole is not None and whole.dtype == request.dtype:
            reader.passes += 1
            return [whole for _ in sets]
    what = f"a block of {max(map(len, sets))} samples" if len(sets) == 1 else "the blocks"
    scratch = reader.scratch if passing else None
    reader.memory.require(sum(request.sizes()) - (scratch.used if scratch else 0), what)
    if reader.runtime.remote:
        return request.finished(_from_workers(reader, request, passing=passing))
    blocks = request.allocate(scratch)
    if not gathered(reader, blocks, sets, request.layers(), request.weights):
        for _ in reader.each_row(fill_block_row, request, blocks):
            pass
    reader.passes += 1
    return request.finished(blocks)


def _from_workers(reader: TileReader, request: BlockRequest, *, passing: bool) -> list[FloatArray]:
    """The blocks in memory that workers of this machine fill; others send what they have cut."""
    owner = reader.kept if passing else KeptArrays()
    blocks, shared = owner.arrays(request.shapes(), request.dtype)
    for i, pieces in enumerate(reader.each_row(fill_shared_blocks, request, shared, passing)):
        if pieces is not None:
            place(blocks, request.sets, reader.grid.span(i), pieces)
    reader.passes += 1
    return blocks


def fill_shared_blocks(
    row: BlockRow, request: BlockRequest, shared: SharedArrays, passing: bool
) -> list[FloatArray] | None:
    """Fill the rows of a block row, or return them as `gather_block_row` does where the blocks are out of reach."""
    try:
        blocks = opened_again(shared) if passing else shared.opened()
    except OSError:
        return gather_block_row(row, request)
    fill_block_row(row, request, blocks)
    return None


def cut_in_tasks(reader: TileReader, sizes: Sequence[int], room: float) -> bool:
    """See `KernelStack.cut_in_tasks`."""
    runtime = reader.runtime
    if runtime.remote:
        return reader.source.nearby is not None
    many = len(sizes) >= FEWEST_SETS * runtime.workers
    return reader.source.at_hand and many and max(sizes) * runtime.workers <= room


def answers(
    reader: TileReader,
    function: Callable[..., T],
    questions: Sequence[tuple[object, ...]],
    request: BlockRequest,
    runtime: Runtime,
    room: float,
) -> list[T]:
    """See `KernelStack.answers`."""
    sizes, remote = request.sizes(), reader.runtime.remote
    uncopied = request.is_all_of(reader) and reader.source.as_array() is not None
    if uncopied or not cut_in_tasks(reader, sizes, room):
        blocks = blocks_of(reader, request, passing=True)
        tasks = ((block, *question) for block, question in zip(blocks, questions, strict=True))
        result = []
        for answer in runtime.map(function, tasks):
            result.append(answer)
            reader.observer(Progress("solving", len(result), len(sizes)))
        return result
    source = (reader.source.nearby if remote else None) or reader.source
    if remote:
        request = replace(request, sets=[reader.source.places(W) for W in request.sets])
    most = (SHARES.blocks * runtime.memory if remote else room) / runtime.workers
    if source.at_hand:
        most = min(most, CHUNK_BYTES * runtime.processes / runtime.workers)
    found = chunks(sizes, runtime.workers, most)
    rows, scratches = list(source.rows), None if remote else reader.scratches
    parts = ((rows, request.some(chunk), function, [questions[p] for p in chunk], scratches) for chunk in found)
    answered: dict[int, T] = {}
    for chunk, some in zip(found, runtime.map(answer_chunk, parts), strict=True):
        answered.update(zip(chunk, some, strict=True))
        reader.observer(Progress("solving", len(answered), len(sizes)))
    reader.passes += 1
    return [answered[position] for position in range(len(sizes))]


def blocks_near(reader: TileReader, sets: Sequence[Samples]) -> list[Any]:
    """See `KernelStack.block_near`."""
    request = BlockRequest.of(reader, sets)
    nearby = reader.source.nearby if reader.runtime.remote else None
    if nearby is None:
        blocks = blocks_of(reader, request)
        return [reader.runtime.hold(itself, block) for block in blocks] if reader.runtime.remote else list(blocks)
    request = replace(request, sets=[reader.source.places(W) for W in sets])
    rows = list(nearby.rows)
    reader.passes += 1
    return [reader.runtime.hold(cut_block, rows, request.some([position])) for position in range(len(sets))]


def cut_block(rows: Sequence[BlockRow], request: BlockRequest) -> FloatArray:
    """The only block of a request."""
    return cut_blocks(rows, request, None)[0]


def room_near(reader: TileReader, room: int) -> int:
    """See `KernelStack.room_near`."""
    if not reader.runtime.remote or reader.source.nearby is None:
        return room
    return int(SHARES.workers * reader.runtime.memory)


def combine_near(reader: TileReader, weights: Float64, dtype: DTypeLike | None) -> Any:
    """See `KernelStack.combine_near`."""
    request = BlockRequest.of(reader, [np.arange(reader.n)], weights=weights, dtype=dtype)
    if not reader.runtime.remote:
        return blocks_of(reader, request)[0]
    pieces = [reader.runtime.hold(gather_block_row, row, request) for row in reader.source.rows]
    spans = [reader.grid.span(i) for i in range(reader.grid.blocks)]
    reader.passes += 1
    return reader.runtime.hold(assemble_matrix, reader.n, spans, pieces)


class TaskMatrix(Protocol):
    """A matrix that tasks open where they run."""

    def opened(self) -> FloatArray:
        """The matrix, in the memory of this machine."""
        ...


@dataclass(frozen=True)
class OwnSum:
    """A weighted sum that every process computes itself from tiles that it has at hand: less work than sending it."""

    source: Source
    request: BlockRequest
    name: str

    def opened(self) -> FloatArray:
        return kept(self.name, lambda: cut_blocks(cast(Sequence[BlockRow], self.source.rows), self.request, None)[0])


def combine_in_tasks(reader: TileReader, weights: Float64, dtype: DTypeLike | None) -> TaskMatrix | None:
    """See `KernelStack.combine_in_tasks`."""
    request = BlockRequest.of(reader, [np.arange(reader.n)], weights=weights, dtype=dtype)
    runtime, [nbytes] = reader.runtime, request.sizes()
    if runtime.remote and runtime.together and nbytes <= SHARES.here * reader.memory.left:
        owner = KeptArrays()
        _, address = owner.arrays(request.shapes(), request.dtype)
        filled = all(pieces is None for pieces in reader.each_row(fill_shared_blocks, request, address, False))
        reader.passes += 1
        return SharedMatrix(address, owner) if filled else None
    portable = reader.source.portable if runtime.remote else None
    if portable is None or not portable.at_hand:
        return None
    reader.passes += 1
    return OwnSum(portable, request, uuid.uuid4().hex)


def summed(reader: TileReader, weights: Float64, dtype: FloatType, room: float) -> Source | None:
    """The weighted sum as a source of one kernel, its tiles where tasks run; None if they do not fit; one pass.

    The room is that in this process; on a cluster it is the workers' own."""
    grid, runtime = reader.grid, reader.runtime
    room = SHARES.workers * runtime.memory if runtime.remote else room
    if grid.tiles * grid.tile**2 * dtype.itemsize > room:
        return None
    reader.passes += 1
    if runtime.remote:
        rows = [runtime.hold(sum_block_row, row, weights, dtype) for row in reader.source.rows]
        return WorkerSource(rows, grid, 1, runtime=runtime, dtype=dtype)
    return HeldSource(list(reader.each_row(sum_block_row, weights, dtype)), grid, 1, dtype=dtype)


def sum_block_row(row: BlockRow, weights: Float64, dtype: FloatType) -> HeldRow:
    """The tiles of the weighted sum in a block row."""
    tiles = {(0, j): combine_tile(row, j, weights).astype(dtype, copy=False) for j in row.grid.kept(row.i)}
    return HeldRow(row.grid, row.i, 1, tiles)


def gather_block_row(row: BlockRow, request: BlockRequest) -> list[FloatArray]:
    """For each set W: the rows of W in this block row against W from here on, (layers, rows, columns)."""
    pieces = []
    for shape, W in zip(request.shapes(), request.sets, strict=True):
        mine, later = _split(W, row.grid.span(row.i))
        pieces.append(np.empty((shape[0], len(mine), len(later)), request.dtype))
    _cut_all(row, request, pieces, square=False)
    return pieces


def fill_block_row(row: BlockRow, request: BlockRequest, blocks: Sequence[FloatArray]) -> None:
    """The same rows, put into the square blocks with their mirror images; block rows fill disjoint parts."""
    _cut_all(row, request, blocks, square=True)


def place(blocks: Sequence[FloatArray], sets: Sequence[Samples], rows: slice, pieces: list[FloatArray]) -> None:
    """Put the pieces of one block row into the square blocks, and their mirror images."""
    for block, W, piece in zip(blocks, sets, pieces, strict=True):
        start, height = int(np.searchsorted(W, rows.start)), piece.shape[1]
        block[:, start : start + height, start:] = piece
        for layer in block:
            mirror(layer, start, start + height, start + height, len(W))


def _cut_all(row: BlockRow, request: BlockRequest, targets: Sequence[FloatArray], *, square: bool) -> None:
    """Fill the pieces of all sets, or their rows in the square blocks, tile by tile."""
    grid, i, sets = row.grid, row.i, request.sets
    edges = np.array([*(grid.span(j).start for j in range(grid.blocks)), grid.n])
    bounds = np.array([np.searchsorted(W, edges) for W in sets])  # where the members in each block begin
    mine, first_mine = _members(sets, bounds, edges, i)
    shapes, kind = np.array([target.shape[1:] for target in targets]), np.empty(0, request.dtype)
    corners = np.zeros((len(sets), 2), dtype=np.int64)
    corners[:, 0] = bounds[:, i] if square else 0
    users = _users(request, targets)
    kernels = sorted(users)
    for j in range(i, grid.blocks):
        columns, first_column = _members(sets, bounds, edges, j)
        corners[:, 1] = bounds[:, j] - (0 if square else bounds[:, i])
        tiles: Iterable[FloatArray]
        tiles = [combine_tile(row, j, request.weights)] if request.weights is not None else row.tiles(kernels, j)
        for a, tile in zip(kernels, tiles, strict=True):
            places = shapes, corners, mine, first_mine, columns, first_column
            cut_sets(rows_of(tile), tile.shape[1], *users[a], *places, square and j > i, kind)


def _users(request: BlockRequest, targets: Sequence[FloatArray]) -> dict[int, tuple[Samples, Samples]]:
    """For each kernel the sets that have a layer of it, and the addresses of these layers."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for u, (target, layers) in enumerate(zip(targets, request.layers(), strict=True)):
        assert target.flags.c_contiguous
        address, nbytes = target.ctypes.data, target.strides[0]
        for a, layer in layers.items():
            sets, addresses = found.setdefault(a, ([], []))
            sets.append(u)
            addresses.append(address + layer * nbytes)
    return {a: (np.array(sets), np.array(addresses)) for a, (sets, addresses) in found.items()}


def _members(sets: Sequence[Samples], bounds: Samples, edges: Samples, j: int) -> tuple[Samples, Samples]:
    """The members of all sets in a block, counted inside it, one set after the other, and where each set begins."""
    parts = [W[start:stop] for W, (start, stop) in zip(sets, bounds[:, j : j + 2].tolist(), strict=True)]
    return np.concatenate(parts) - edges[j], np.concatenate([[0], np.cumsum([len(part) for part in parts])])


def _split(W: Samples, rows: slice) -> tuple[Samples, Samples]:
    """The members of W in this block row, and those from its first sample on."""
    start, stop = np.searchsorted(W, (rows.start, rows.stop))
    return W[start:stop], W[start:]


def assemble_matrix(n: int, rows: Sequence[slice], pieces: Sequence[list[FloatArray]]) -> FloatArray:
    """One whole weighted sum from the pieces of all block rows."""
    everything = [np.arange(n)]
    block: FloatArray = np.empty((1, n, n), pieces[0][0].dtype)
    for span, own in zip(rows, pieces, strict=True):
        place([block], everything, span, own)
    matrix: FloatArray = block[0]
    return matrix


def chunks(sizes: Sequence[int], workers: int, room: float) -> list[list[int]]:
    """Positions of blocks of these sizes in chunks of at most `room`, the largest blocks first: large chunks, because
    each of them reads all tiles, and then smaller ones, which level what the others took."""
    order = sorted(range(len(sizes)), key=lambda position: -sizes[position])
    left, found = sum(sizes), []
    least = LEAST_CHUNK * left / workers
    while order:
        most, chunk = min(room, max(CHUNK_SHARE * left / workers, least)), [order.pop(0)]
        size = sizes[chunk[0]]
        while order and size + sizes[order[0]] <= most:
            size += sizes[order[0]]
            chunk.append(order.pop(0))
        found.append(chunk)
        left -= size
    return found


def answer_chunk(
    rows: Sequence[BlockRow],
    request: BlockRequest,
    function: Callable[..., T],
    questions: Sequence[tuple[object, ...]],
    scratches: Scratches | None,
) -> list[T]:
    """`function(block, *question)` for each set. All sets are cut from one tile after the other: cutting set by set
    would read all tiles from memory for each of them. A worker's thread has scratch memory of its own."""
    with scratches.one() if scratches else contextlib.nullcontext(thread_scratch()) as scratch:
        blocks = cut_blocks(rows, request, scratch)
        return [function(block, *question) for block, question in zip(blocks, questions, strict=True)]


def cut_blocks(rows: Sequence[BlockRow], request: BlockRequest, scratch: Scratch | None) -> list[FloatArray]:
    """All blocks of a request, cut from all block rows in this task; in scratch memory if there is some."""
    blocks = request.allocate(scratch)
    for row in rows:
        fill_block_row(row, request, blocks)
    return request.finished(blocks)


def rows(reader: TileReader, samples: Samples, kernels: Sequence[int] | None) -> FloatArray:
    """See `KernelStack.rows`."""
    kernels = list(range(reader.s)) if kernels is None else list(kernels)
    reader.memory.require(len(kernels) * len(samples) * reader.n * reader.dtype.itemsize, "the kernel rows")
    result = np.empty((len(kernels), len(samples), reader.n), reader.dtype)
    for pieces in reader.each_row(read_block_row, samples, kernels, reader.dtype):
        for positions, columns, values in pieces:
            result[:, positions, columns] = values
    reader.passes += 1
    return result


def pick(reader: TileReader, members: Mask) -> FloatArray:
    """See `KernelStack.pick`."""
    chosen = [np.flatnonzero(mask) for mask in members]
    reader.passes += 1
    whole = reader.source.as_array()
    if whole is not None and members.all():
        return whole.reshape(-1, reader.n)
    starts = np.concatenate([[0], np.cumsum([len(samples) for samples in chosen])])
    reader.memory.require(int(starts[-1]) * reader.n * reader.dtype.itemsize, "the kernel rows")
    result = np.empty((int(starts[-1]), reader.n), reader.dtype)
    for pieces in reader.each_row(pick_block_row, chosen):
        for a, places, columns, values in pieces:
            result[starts[a] + places.start : starts[a] + places.stop, columns] = values
    return result


def read_block_row(
    row: BlockRow, samples: Samples, kernels: Sequence[int], dtype: FloatType
) -> list[tuple[slice, slice, FloatArray]]:
    """Pieces (positions in `samples`, columns, values (kernels, positions, columns)) of whole kernel rows."""
    grid, i = row.grid, row.i
    here = grid.span(i)
    pieces = []
    for j in range(i, grid.blocks):
        there = grid.span(j)
        asked = any(np.ptp(np.searchsorted(samples, (span.start, span.stop))) > 0 for span in (here, there))
        tiles = list(row.tiles(kernels, j)) if asked else []
        for own, other, turned in ((here, there, False), (there, here, True))[: 1 if i == j else 2]:
            start, stop = (int(p) for p in np.searchsorted(samples, (own.start, own.stop)))
            if start < stop:
                local = samples[start:stop] - own.start
                values = np.stack([(tile.T if turned else tile)[local] for tile in tiles]).astype(dtype, copy=False)
                pieces.append((slice(start, stop), other, values))
    return pieces


def pick_block_row(row: BlockRow, members: Sequence[Samples]) -> list[tuple[int, slice, slice, FloatArray]]:
    """Pieces (kernel, positions in its ascending `members`, columns, values) of whole rows `K_a[members[a]]`."""
    pieces = []
    for a, rows, columns, values in pieces_of(row, [a for a, chosen in enumerate(members) if len(chosen)]):
        start, stop = (int(p) for p in np.searchsorted(members[a], (rows.start, rows.stop)))
        if start < stop:
            pieces.append((a, slice(start, stop), columns, values[members[a][start:stop] - rows.start]))
    return pieces
