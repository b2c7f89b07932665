"""The layout of stores on disk: Zarr arrays, uncompressed since kernel values do not compress, with checked chunks."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import google_crc32c
import numpy as np
import zarr
from numpy.typing import DTypeLike, NDArray
from zarr.codecs import Crc32cCodec

from dmkl._util.types import SINGLE, Array, FloatArray, FloatType

ZarrArray: TypeAlias = zarr.Array[Any]  # Zarr's own parameter says nothing of shape or type

CHECKSUM = 4  # bytes behind every layer and the index
PAGE = 4096  # layers of a tile file begin at multiples of so many bytes


@dataclass(frozen=True)
class LayoutOptions:
    """Sizes that a store is written and read with; readers take those of a file from the file.

    Attributes
    ----------
    piece : bytes that are read or written, and checked, at once: they fit in a cache, and the calls are few
    sparse_chunk : entries of a sparse view in one chunk
    columns : views of one column that share an array, which a task reads at once
    free_margin : free bytes that the disk needs for each byte of tiles, for the file system's own
    mapped : bytes of tile files that a process has mapped at once, where nothing else is said
    """

    piece: int = 1 << 20
    sparse_chunk: int = 1 << 20
    columns: int = 256
    free_margin: float = 1.02
    mapped: int = 1 << 30


LAYOUT = LayoutOptions()


class Seekable(Protocol):
    """A file that is written."""

    def seek(self, position: int, /) -> int: ...

    def tell(self) -> int: ...

    def write(self, data: bytes, /) -> int: ...


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: DTypeLike, fill: float = 0
) -> ZarrArray:
    """An empty array whose chunks are all written, also those equal to the fill value."""
    return group.create_array(
        name,
        shape=shape,
        chunks=tuple(max(1, min(c, length)) for c, length in zip(chunks, shape, strict=True)),
        dtype=dtype,
        fill_value=fill,
        compressors=[Crc32cCodec()],
        config={"write_empty_chunks": True},
    )


def put_array(group: zarr.Group, name: str, values: Array, chunks: tuple[int, ...] | None = None) -> None:
    """A whole array, written at once."""
    chunks = chunks or tuple(max(1, length) for length in values.shape)
    create_array(group, name, values.shape, chunks, values.dtype)[...] = values


def create_tiled(group: zarr.Group, name: str, depth: int, n: int, side: int, dtype: FloatType = SINGLE) -> ZarrArray:
    """An empty (depth, n, n) array: one file a square tile, inside it one checked chunk for each layer."""
    return group.create_array(
        name,
        shape=(depth, n, n),
        shards=(depth, side, side),
        chunks=(1, side, side),
        dtype=dtype,
        fill_value=np.nan,
        compressors=[Crc32cCodec()],
        config={"write_empty_chunks": True},
    )


def write_tile_file(
    path: Path,
    side: int,
    depth: int,
    layers: Iterable[tuple[int, Iterable[FloatArray]]],
    dtype: FloatType = SINGLE,
) -> None:
    """Write one tile's file of a `create_tiled` array, layer after layer, in the form Zarr's sharding codec reads.

    Each layer comes as strips of rows, from the first to the last.

    The form: every layer as little-endian values and their crc32c, from a multiple of `PAGE` on, then the (offset,
    length) of each layer and the crc32c of that index. Zarr's own writer wants all layers in memory and takes 4 to 5 ms
    for 3.4 MB where this takes one; a test reads such files back through Zarr. The file appears whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with temporary.open("wb", buffering=0) as file:
            write_layers(file, side, depth, layers, dtype, str(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_layers(
    file: Seekable,
    side: int,
    depth: int,
    layers: Iterable[tuple[int, Iterable[FloatArray]]],
    dtype: FloatType,
    name: str,
) -> None:
    """Write the layers and the index of a tile to an open file; `name` is that of the tile, for messages."""
    index = np.zeros((depth, 2), dtype="<u8")
    for layer, strips in layers:
        start = file.seek(aligned(file.tell()))
        _write_checked(file, _full_size(strips, side, dtype))
        index[layer] = start, file.tell() - start
    if not index[:, 1].all():
        raise ValueError(f"{name}: layers {np.flatnonzero(index[:, 1] == 0).tolist()} are missing")
    _write_checked(file, [index])


def aligned(position: int) -> int:
    """The first multiple of `PAGE` that is not below a position."""
    return -(-position // PAGE) * PAGE


def read_checked(file: io.FileIO, values: Array, start: int) -> None:
    """Fill an array from bytes at `start` and compare their checksum, piece by piece while they are in the cache."""
    rest, found = values.reshape(-1).view(np.uint8), 0
    file.seek(start)
    for first in range(0, len(rest), LAYOUT.piece):
        piece = rest[first : first + LAYOUT.piece]
        if file.readinto(cast(bytearray, piece)) != len(piece):
            raise ValueError(f"{file.name} ends before it should")
        found = google_crc32c.extend(found, cast(bytes, piece))
    if file.read(CHECKSUM) != found.to_bytes(CHECKSUM, "little"):
        raise ValueError(f"a checksum of {file.name} does not fit")


def verify(checked: NDArray[np.uint8], name: object) -> None:
    """Raise ValueError unless the last bytes are the checksum of the others."""
    found = google_crc32c.value(cast(bytes, checked[:-CHECKSUM]))
    if checked[-CHECKSUM:].tobytes() != found.to_bytes(CHECKSUM, "little"):
        raise ValueError(f"a checksum of {name} does not fit")


def _full_size(strips: Iterable[FloatArray], side: int, dtype: FloatType) -> Iterator[FloatArray]:
    """The strips of a layer filled up with zeros: a chunk at the edge has its full size on disk."""
    missing, little = side, dtype.newbyteorder("<")
    for strip in strips:
        missing -= len(strip)
        if strip.shape[1] < side:
            strip = np.pad(strip, ((0, 0), (0, side - strip.shape[1])))
        yield np.ascontiguousarray(strip, dtype=little)
    if missing:
        yield np.zeros((missing, side), dtype=little)


def _write_checked(file: Seekable, strips: Iterable[Array]) -> None:
    """Write bytes and their checksum, piece by piece while they are in the cache. An unbuffered write may stop short
    when the disk fills up."""
    found = 0
    for values in strips:
        rest = values.reshape(-1).view(np.uint8)
        for first in range(0, len(rest), LAYOUT.piece):
            piece = rest[first : first + LAYOUT.piece]
            found = google_crc32c.extend(found, cast(bytes, piece))
            while len(piece):
                piece = piece[file.write(cast(bytes, piece)) :]
    file.write(found.to_bytes(CHECKSUM, "little"))
