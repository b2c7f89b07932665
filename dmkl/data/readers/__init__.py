"""Files to named arrays: one reader a format, chosen by the file's suffix. None of them ever unpickles.

A format is one file with a `Reader` and one line in the table here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Array, Block
from dmkl.errors import DataError, DmklError, ResourceError, did_you_mean, one_line

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


READERS: Registry[Reader] = Registry("file suffix")
READERS.register(".npz", "dmkl.data.readers.numpy_files:NPZ")
READERS.register(".npy", "dmkl.data.readers.numpy_files:NPY")
READERS.register(".csv", "dmkl.data.readers.text:CSV")
READERS.register(".tsv", "dmkl.data.readers.text:TSV")
READERS.register(".parquet", "dmkl.data.readers.parquet:PARQUET")
READERS.register(".svmlight", "dmkl.data.readers.text:SVMLIGHT")
READERS.register(".libsvm", "dmkl.data.readers.text:SVMLIGHT")
READERS.register(".svm", "dmkl.data.readers.text:SVMLIGHT")
READERS.register(".mat", "dmkl.data.readers.matlab:MATLAB")
READERS.register(".zarr", "dmkl.data.readers.zarr_store:ZARR")


def read_arrays(path: str | Path) -> Arrays:
    """All arrays of a file.

    Parameters
    ----------
    path : a file (or a Zarr folder) with a suffix of `READERS`.

    Returns
    -------
    dict of arrays by name. A table has one array (n,) a column.

    Raises
    ------
    DataError
        The file is missing, damaged, or holds no usable arrays; the message names the file.
    ResourceError
        The file does not fit in memory.
    """
    path = Path(path).expanduser()
    with _naming(path):
        arrays = _reader(path).read(path)
    if not arrays:
        raise DataError(f"{path} holds no arrays that can be used", "expected numbers, truth values or text")
    return arrays


def stream_arrays(path: str | Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The arrays of consecutive samples, at most `rows` at a time; None for a file that cannot be read in parts.

    `length` finds the number of samples from the shapes of all arrays. Errors are those of `read_arrays`.
    """
    path = Path(path).expanduser()
    stream = _reader(path).stream
    if stream is None:
        return None
    with _naming(path):
        batches = stream(path, rows, length)
    return None if batches is None else _checked(path, batches)


def _checked(path: Path, batches: Iterator[Arrays]) -> Iterator[Arrays]:
    while True:
        with _naming(path):
            arrays = next(batches, None)
        if arrays is None:
            return
        yield arrays


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn every failure to read `path` into one line that names it."""
    try:
        yield
    except DmklError:
        raise
    except MemoryError:
        raise ResourceError(f"reading {path} needs more memory than there is", "use a smaller file") from None
    except Exception as error:  # parsers of foreign formats fail in every possible way on damaged files
        if isinstance(error, OSError) and error.strerror:  # the system's own message; parsers raise OSError too
            raise DataError(f"cannot read {path}: {error.strerror}", "check its permissions") from error
        raise DataError(
            f"{path} is not a valid {path.suffix} file: {one_line(error)}", "write or download it again"
        ) from error


def _reader(path: Path) -> Reader:
    """The reader of an existing file."""
    suffix = path.suffix.lower()
    if not path.exists():
        raise DataError(f"no such file: {path}", "check the path; relative ones count from the config file")
    if suffix not in READERS:
        raise DataError(f"{path} has an unknown suffix '{path.suffix}'", did_you_mean(suffix, list(READERS)))
    reader = READERS[suffix]
    if path.is_dir() != reader.folder:
        found, expected = ("folder", "file") if path.is_dir() else ("file", "folder")
        raise DataError(f"{path} is a {found}", f"a {suffix} is expected to be a {expected}")
    if not path.is_dir() and not path.is_file():  # a pipe would block, a device has no end
        raise DataError(f"{path} is a pipe or a device", "write the data to a file")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty", "write or download it again")
    return reader


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
