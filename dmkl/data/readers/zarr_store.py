"""Zarr folders: a group of arrays or one array."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.data.readers.common import Arrays
from dmkl.errors import DataError
from dmkl.memory import require_free

MOST_CHUNKS = 100_000  # each takes a tenth of a millisecond, whether it is there or not


def read_zarr(path: Path) -> Arrays:
    """The arrays at the top of a group by name, or a single array named by the folder's stem."""
    import zarr

    _refuse_pipes(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of fixed-width text, which it reads well
        try:
            node = zarr.open(str(path), mode="r")
        except FileNotFoundError:
            raise DataError(f"{path} is not a zarr group or array", "write or copy the whole folder again") from None
        if isinstance(node, zarr.Array):
            return {path.stem: _read(path, path.stem, node)}
        members = dict(sorted(node.arrays()))  # zarr lists in the order of the file system
        return {name: _read(path, name, array) for name, array in members.items()}


def _refuse_pipes(path: Path) -> None:
    """A pipe would be waited for, a device has no end."""
    for folder, _, names in os.walk(path):
        for name in names:
            if not Path(folder, name).is_file():
                raise DataError(f"{Path(folder, name)} is no file", "copy the whole folder again")


def _read(path: Path, name: str, array: Any) -> NDArray[Any]:
    described = array.metadata.to_dict()
    codecs = [described.get(key) for key in ("filters", "compressor", "codecs")]
    # zarr would decode such chunks with pickle, that is run whatever code they contain
    if array.dtype.kind == "O" or "pickle" in json.dumps(codecs, default=str):
        raise DataError(
            f"array '{name}' of {path} is pickled, and pickles are never loaded", "save it as numbers or text"
        )
    if array.nchunks > MOST_CHUNKS:
        raise DataError(f"array '{name}' of {path} has {array.nchunks:,} chunks", "write it in larger chunks")
    require_free(max(array.nbytes, math.prod(array.chunks) * array.dtype.itemsize), f"array '{name}' of {path}")
    values = np.asarray(array[...])
    return np.array(values.tolist(), dtype=np.str_) if values.dtype.kind == "T" else values
