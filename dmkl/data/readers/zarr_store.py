"""Zarr folders: a group of arrays or one array."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dmkl._util.machine import available, require_free
from dmkl._util.types import Array
from dmkl.data.readers import LIMITS, Arrays, Length, Reader
from dmkl.errors import DataError

if TYPE_CHECKING:
    import zarr

Stored: TypeAlias = "zarr.Array[Any]"


def read_zarr(path: Path) -> Arrays:
    """The arrays at the top of a group by name, or a single array named by the folder's stem."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of fixed-width text, which it reads correctly
        return {name: _read(path, name, array, slice(None)) for name, array in _members(path).items()}


def stream_zarr(path: Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The same arrays, those with one row a sample in slices."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = _members(path)
    n = length({name: array.shape for name, array in members.items() if array.shape})
    return _slices(path, members, n, rows) if n else None


def _slices(path: Path, members: dict[str, Stored], n: int, rows: int) -> Iterator[Arrays]:
    for start in range(0, n, rows):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = {
                name: _read(path, name, array, slice(start, start + rows) if array.shape[:1] == (n,) else slice(None))
                for name, array in members.items()
            }
        yield batch


def _members(path: Path) -> dict[str, Stored]:
    import zarr

    _refuse_pipes(path)
    try:
        node = zarr.open(str(path), mode="r")
    except FileNotFoundError:
        raise DataError(f"{path} is not a zarr group or array", "write or copy the whole folder again") from None
    # zarr lists in the order of the file system
    arrays = {path.stem: node} if isinstance(node, zarr.Array) else dict(sorted(node.arrays()))
    for name, array in arrays.items():
        _check(path, name, array)
    return arrays


def _refuse_pipes(path: Path) -> None:
    """Reading a pipe would block, and a device has no end."""
    for folder, _, names in os.walk(path):
        for name in names:
            if not Path(folder, name).is_file():
                raise DataError(f"{Path(folder, name)} is not a regular file", "copy the whole folder again")


def _check(path: Path, name: str, array: Stored) -> None:
    """Refuse arrays that decode by running code, and those that claim to be large but are not there."""
    described = array.metadata.to_dict()
    codecs = [described.get(key) for key in ("filters", "compressor", "codecs")]
    # zarr would decode such chunks with pickle, which runs any code they contain
    if array.dtype.kind == "O" or "pickle" in json.dumps(codecs, default=str):
        raise DataError(
            f"array '{name}' of {path} is pickled, and pickles are never loaded", "save it as numbers or text"
        )
    if array.nchunks > LIMITS.zarr_chunks:
        raise DataError(f"array '{name}' of {path} has {array.nchunks:,} chunks", "write it in larger chunks")
    if array.nbytes > available() and array.nchunks_initialized < array.nchunks:  # missing chunks are read as zeros
        raise DataError(f"array '{name}' of {path} lacks some of its {array.nchunks:,} chunks", "copy the folder again")


def _read(path: Path, name: str, array: Stored, where: slice) -> Array:
    shape = (len(range(*where.indices(array.shape[0]))), *array.shape[1:]) if array.shape else ()
    require_free(max(math.prod(shape), math.prod(array.chunks)) * array.dtype.itemsize, f"array '{name}' of {path}")
    values = np.asarray(array[where] if array.shape else array[...])
    return np.array(values.tolist(), dtype=np.str_) if values.dtype.kind == "T" else values


ZARR = Reader(read_zarr, stream_zarr, folder=True)
