"""The interface of a reader of a file format, and functions that several readers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dmkl._util.types import Array, Block

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Arrays: TypeAlias = "dict[str, Block]"
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]  # of all arrays of a file, by name
Length: TypeAlias = Callable[[Shapes], int]  # the number of samples; 0 if the shapes do not determine it


@dataclass(frozen=True)
class Reader:
    """One file format.

    `read(path)` returns all arrays of a file by name. `stream(path, rows, length)` returns an iterator over the arrays
    of at most `rows` samples at a time, or None for a file that cannot be read in parts; formats that never can have no
    `stream`. Either raises DataError, or any exception of a parser of a foreign format (see `readers.read_arrays`).
    """

    read: Callable[[Path], Arrays]
    stream: Callable[[Path, int, Length], Iterator[Arrays] | None] | None = None
    folder: bool = False  # whether the format is a folder and not a file


@dataclass(frozen=True)
class ReaderLimits:
    """Sizes that the readers assume or enforce; a file may claim anything."""

    npy_header: int = 10_000  # bytes of the longest header of a .npy file that is parsed
    parquet_cell: int = 8  # bytes in memory of the smallest cell; encoded, a million may take ten
    parquet_buffer: int = 2**20  # bytes of a column that are read at a time, instead of whole row groups
    zarr_chunks: int = 100_000  # of one array; each takes a tenth of a millisecond, whether it exists or not
    matlab_memory: int = 1 << 30  # bytes of address space of Python and its libraries before they read anything


LIMITS = ReaderLimits()


def as_csr(matrix: Any) -> csr_array:
    """Any two-dimensional scipy matrix or array as a checked `csr_array`."""
    from scipy.sparse import csr_array

    csr = csr_array(matrix)
    csr.check_format(full_check=True)  # foreign indices may point outside the matrix
    return csr


def csr_from_parts(data: Array, indices: Array, indptr: Array, shape: Array) -> csr_array:
    """A checked `csr_array` of its four parts in a file."""
    from scipy.sparse import csr_array

    if data.dtype == np.float16:  # scipy computes with single precision or more
        data = data.astype(np.float32)
    csr = csr_array((data, indices, indptr), shape=tuple(int(side) for side in shape))
    csr.check_format(full_check=True)
    return csr
