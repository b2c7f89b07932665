"""Files to named arrays: one reader a format, chosen by the file's suffix. None of them ever unpickles.

A format is one file with a `Reader` and one line in the table here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmkl._util.registry import Registry
from dmkl.data.readers.base import Arrays, Length, Reader
from dmkl.errors import DataError, DmklError, ResourceError, did_you_mean, one_line

READERS: Registry[Reader] = Registry("file suffix")
READERS.register(".npz", "dmkl.data.readers.numpy_files:NPZ")
READERS.register(".npy", "dmkl.data.readers.numpy_files:NPY")
READERS.register(".csv", "dmkl.data.readers.delimited:CSV")
READERS.register(".tsv", "dmkl.data.readers.delimited:TSV")
READERS.register(".parquet", "dmkl.data.readers.parquet:PARQUET")
READERS.register(".svmlight", "dmkl.data.readers.svmlight:SVMLIGHT")
READERS.register(".libsvm", "dmkl.data.readers.svmlight:SVMLIGHT")
READERS.register(".svm", "dmkl.data.readers.svmlight:SVMLIGHT")
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
