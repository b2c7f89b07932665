"""Zarr arrays as dmkl writes them: uncompressed (kernel values do not compress), every chunk with a checksum."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec

from dmkl.errors import StoreError

ABSENT = {"f": np.nan, "i": -1}  # what a chunk that is gone reads as, by kind of number


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any, fill: Any = 0
) -> zarr.Array[Any]:
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


def put_array(group: zarr.Group, name: str, values: NDArray[Any], chunks: tuple[int, ...] | None = None) -> None:
    """A whole array, written at once."""
    chunks = chunks or tuple(max(1, length) for length in values.shape)
    fill = ABSENT.get(values.dtype.kind, 0)
    create_array(group, name, values.shape, chunks, values.dtype, fill)[...] = values


def create_tiled(group: zarr.Group, name: str, depth: int, n: int, side: int) -> zarr.Array[Any]:
    """An empty (depth, n, n) float32 array: one file a square tile, inside it one checked chunk for each layer."""
    return group.create_array(
        name,
        shape=(depth, n, n),
        shards=(depth, side, side),
        chunks=(1, side, side),
        dtype=np.float32,
        fill_value=np.nan,
        compressors=[Crc32cCodec()],
        config={"write_empty_chunks": True},
    )


def write_tile_file(path: Path, side: int, depth: int, layers: Iterable[tuple[int, NDArray[np.float32]]]) -> None:
    """Write one tile's file of a `create_tiled` array, layer after layer, in the form Zarr's sharding codec reads.

    The form: every layer as little-endian values and their crc32c, then the (offset, length) of each layer and the
    crc32c of that index. Zarr's own writer wants all layers in memory and takes 4 to 5 ms for 3.4 MB where this takes
    one; a test reads such files back through Zarr. The file appears whole or not at all.
    """
    index = np.zeros((depth, 2), dtype="<u8")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with temporary.open("wb", buffering=0) as file:
            for layer, values in layers:
                start = file.tell()
                _write_checked(file, _full_size(values, side))
                index[layer] = start, file.tell() - start
            if not index[:, 1].all():
                raise ValueError(f"{path}: layers {np.flatnonzero(index[:, 1] == 0).tolist()} were not given")
            _write_checked(file, index)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _full_size(values: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """A chunk at the edge has its full size on disk."""
    if values.shape == (side, side):
        return np.ascontiguousarray(values, dtype="<f4")
    padded = np.zeros((side, side), dtype="<f4")
    padded[: values.shape[0], : values.shape[1]] = values
    return padded


def _write_checked(file: io.FileIO, values: NDArray[Any]) -> None:
    """Bytes and their checksum; an unbuffered write may stop short when the disk fills up."""
    rest = memoryview(cast(bytes, values)).cast("B")
    while rest:
        rest = rest[file.write(rest) :]
    file.write(google_crc32c.value(cast(bytes, values)).to_bytes(4, "little"))


def get(array: Any, selection: Any = ...) -> NDArray[Any]:
    """Values of a Zarr array; damage found by a checksum is said with the array's name."""
    try:
        return np.asarray(array[selection])
    except (ValueError, OSError, RuntimeError) as error:
        raise StoreError(f"array '{array.name}' of {array.store} is damaged ({error})") from error


def get_whole(array: Any, selection: Any = ...) -> NDArray[Any]:
    """The same where no value is ever ABSENT: a chunk whose file is gone is said too."""
    values = get(array, selection)
    fill = array.fill_value
    if fill != 0 and (np.isnan(values) if np.isnan(fill) else values == fill).any():
        raise StoreError(f"array '{array.name}' of {array.store} lacks a part")
    return values


def open_group(path: Path, what: str) -> zarr.Group:
    """An existing group, read and write as the file system allows."""
    if not (path / "zarr.json").is_file():
        raise StoreError(f"no {what} at {path}")
    try:
        return zarr.open_group(path, mode="r+")
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a readable {what} ({error})") from error


def read_header(group: zarr.Group, kind: str, schema: int, where: str) -> dict[str, Any]:
    """The attributes dmkl wrote, after checking that this is the right kind of file of a known version."""
    header = dict(group.attrs).get("dmkl")
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise StoreError(f"{where} is not a dmkl {kind}")
    if header.get("schema") != schema:
        raise StoreError(
            f"{where} has schema {header.get('schema')}, this dmkl reads schema {schema}",
            "build it again with this version",
        )
    return header
