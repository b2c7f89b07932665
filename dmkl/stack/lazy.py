"""The kernels of a source as a dask array, whose tasks read tiles where they run.

Every chunk is read by itself, also one whose mirror image has been read already: a chunk that waited for its mirror
image would stay in memory, a quarter of all of them at the worst.
"""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import dask
import dask.array
import numpy as np
from dask.array.core import normalize_chunks, slices_from_chunks
from dask.base import tokenize

from dmkl._util.types import FloatArray
from dmkl.runtime.blas import one_blas_thread
from dmkl.stack.sources import Source


def lazy_array(source: Source) -> Any:
    """All values (s, n, n) of a source, with both triangles, as a dask array that reads nothing before it is computed.

    Its chunks are the blocks of the source, of as many kernels as Dask's setting `array.chunk-size` allows. A source
    that can be sent (a store, or kernels or samples of one) is sent in place of values; others are part of the graph.
    """
    s, n = source.s, source.grid.n
    sides = tuple(span.stop - span.start for span in map(source.grid.span, range(source.grid.blocks)))
    chunks = normalize_chunks(("auto", sides, sides), shape=(s, n, n), dtype=source.dtype)
    whole, portable = source.as_array(), source.portable
    sent = source.on_demand if portable is None else portable
    token = uuid.uuid4().hex if portable is None else tokenize(portable.identity, chunks)
    name = f"kernels-{token}"
    if whole is not None:  # its chunks are views of it, and only those that a worker needs are sent there
        places = itertools.product([name], *(range(len(lengths)) for lengths in chunks))
        views = (whole[place] for place in slices_from_chunks(chunks))
        return dask.array.Array(dict(zip(places, views, strict=True)), name, chunks, dtype=source.dtype)
    return dask.array.map_blocks(
        read_chunk,
        name=name,
        chunks=chunks,
        dtype=source.dtype,
        meta=np.empty((0, 0, 0), source.dtype),
        source=dask.delayed(sent, name=f"source-{token}", traverse=False),
        edges=(0, *np.cumsum(chunks[0]).tolist()),
    )


def read_chunk(*, block_id: tuple[int, int, int], source: Source, edges: tuple[int, ...]) -> FloatArray:
    """The values of some kernels between two blocks of samples: kernels `edges[c]` to `edges[c + 1]` of chunk c."""
    c, i, j = block_id
    kernels, grid = range(edges[c], edges[c + 1]), source.grid
    rows, columns = grid.span(i), grid.span(j)
    shape = len(kernels), rows.stop - rows.start, columns.stop - columns.start
    values: FloatArray = np.empty(shape, source.dtype)
    mirrored = j not in grid.kept(i)
    with one_blas_thread():  # as in the tasks of a pass, so that computed values have the same bits
        tiles = source.tiles(kernels, j, i) if mirrored else source.tiles(kernels, i, j)
        for layer, tile in zip(values, tiles, strict=True):
            layer[...] = tile.T if mirrored else tile
    return values
