"""Whole kernel rows: of some samples for all kernels, or of samples of its own for every kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmkl._util.types import FloatArray, FloatType, Mask, Samples
from dmkl.stack.per_kernel import pieces_of
from dmkl.stack.reader import TileReader
from dmkl.stack.sources import BlockRow


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
        tiles = [row.tile(a, j) for a in kernels] if _hits(samples, here, there) else []
        for own, other, turned in ((here, there, False), (there, here, True))[: 1 if i == j else 2]:
            start, stop = (int(p) for p in np.searchsorted(samples, (own.start, own.stop)))
            if start < stop:
                local = samples[start:stop] - own.start
                values = np.stack([(tile.T if turned else tile)[local] for tile in tiles]).astype(dtype, copy=False)
                pieces.append((slice(start, stop), other, values))
    return pieces


def _hits(samples: Samples, *spans: slice) -> bool:
    return any(np.searchsorted(samples, span.start) < np.searchsorted(samples, span.stop) for span in spans)


def pick_block_row(row: BlockRow, members: Sequence[Samples]) -> list[tuple[int, slice, slice, FloatArray]]:
    """Pieces (kernel, positions in its ascending `members`, columns, values) of whole rows `K_a[members[a]]`."""
    pieces = []
    for a, rows, columns, values in pieces_of(row, [a for a, chosen in enumerate(members) if len(chosen)]):
        start, stop = (int(p) for p in np.searchsorted(members[a], (rows.start, rows.stop)))
        if start < stop:
            pieces.append((a, slice(start, stop), columns, values[members[a][start:stop] - rows.start]))
    return pieces
