"""Files to named arrays: one reader a format, chosen by the file's suffix, none of which ever unpickles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dmkl._util.registry import Registry
from dmkl.data.readers.common import Arrays, Length, Stream
from dmkl.data.readers.delimited import read_csv, read_tsv, stream_csv, stream_tsv
from dmkl.data.readers.matlab import read_mat
from dmkl.data.readers.numpy_files import read_npy, read_npz, stream_npy, stream_npz
from dmkl.data.readers.parquet import read_parquet, stream_parquet
from dmkl.data.readers.svmlight import read_svmlight
from dmkl.data.readers.zarr_store import read_zarr, stream_zarr
from dmkl.errors import DataError, DmklError, ResourceError, did_you_mean, one_line

READERS: Registry[Callable[[Path], Arrays]] = Registry("file suffix")
READERS.register(".npz", read_npz)
READERS.register(".npy", read_npy)
READERS.register(".csv", read_csv)
READERS.register(".tsv", read_tsv)
READERS.register(".parquet", read_parquet)
READERS.register(".svmlight", read_svmlight)
READERS.register(".libsvm", read_svmlight)
READERS.register(".svm", read_svmlight)
READERS.register(".mat", read_mat)
READERS.register(".zarr", read_zarr)

STREAMS: Registry[Stream] = Registry("file suffix")  # of formats that can be read in slices
STREAMS.register(".npz", stream_npz)
STREAMS.register(".npy", stream_npy)
STREAMS.register(".csv", stream_csv)
STREAMS.register(".tsv", stream_tsv)
STREAMS.register(".parquet", stream_parquet)
STREAMS.register(".zarr", stream_zarr)

FOLDERS = frozenset({".zarr"})


def read_arrays(path: str | Path) -> Arrays:
    """All arrays of a file by name; every failure is one line that names the file."""
    path = Path(path).expanduser()
    with _refusing(path):
        arrays = _reader(path)(path)
    if not arrays:
        raise DataError(f"{path} holds no arrays that can be used", "expected numbers, truth values or text")
    return arrays


def stream_arrays(path: str | Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The arrays of at most `rows` samples after another, or None for a file that cannot be read so.

    `length` tells from the shapes of all arrays how many samples there are; 0 where that cannot be told.
    """
    path = Path(path).expanduser()
    _reader(path)  # whatever would be refused is
    if path.suffix.lower() not in STREAMS:
        return None
    with _refusing(path):
        batches = STREAMS[path.suffix.lower()](path, rows, length)
    return None if batches is None else _refused(path, batches)


def _refused(path: Path, batches: Iterator[Arrays]) -> Iterator[Arrays]:
    while True:
        with _refusing(path):
            arrays = next(batches, None)
        if arrays is None:
            return
        yield arrays


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Every failure to read `path` as one line."""
    try:
        yield
    except DmklError:
        raise
    except MemoryError:
        raise ResourceError(f"reading {path} needs more memory than there is", "use a smaller file") from None
    except Exception as error:  # parsers of foreign formats fail in every possible way on damaged files
        if isinstance(error, OSError) and error.strerror:  # the system's own word; parsers raise OSError too
            raise DataError(f"cannot read {path}: {error.strerror}", "check its permissions") from error
        raise DataError(
            f"{path} is not a valid {path.suffix} file: {one_line(error)}", "write or download it again"
        ) from error


def _reader(path: Path) -> Callable[[Path], Arrays]:
    suffix = path.suffix.lower()
    if not path.exists():
        raise DataError(f"no such file: {path}", "check the path; relative ones count from the config file")
    if suffix not in READERS:
        raise DataError(f"{path} has an unknown suffix '{path.suffix}'", did_you_mean(suffix, list(READERS)))
    if path.is_dir() != (suffix in FOLDERS):
        found, expected = ("folder", "file") if path.is_dir() else ("file", "folder")
        raise DataError(f"{path} is a {found}", f"a {suffix} is expected to be a {expected}")
    if not path.is_dir() and not path.is_file():  # a pipe would be waited for, a device has no end
        raise DataError(f"{path} is a pipe or a device", "write the data to a file")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty", "write or download it again")
    return READERS[suffix]
