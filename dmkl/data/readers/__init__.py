"""Files to named arrays: one reader a format, chosen by the file's suffix, none of which ever unpickles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dmkl.data.readers.common import Arrays
from dmkl.data.readers.delimited import read_csv, read_tsv
from dmkl.data.readers.matlab import read_mat
from dmkl.data.readers.numpy_files import read_npy, read_npz
from dmkl.data.readers.parquet import read_parquet
from dmkl.data.readers.svmlight import read_svmlight
from dmkl.data.readers.zarr_store import read_zarr
from dmkl.errors import DataError, DmklError, ResourceError, did_you_mean, one_line
from dmkl.registry import Registry

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

FOLDERS = frozenset({".zarr"})


def read_arrays(path: str | Path) -> Arrays:
    """All arrays of a file by name; every failure is one line that names the file."""
    path = Path(path).expanduser()
    try:
        arrays = _reader(path)(path)
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
    if not arrays:
        raise DataError(f"{path} holds no arrays that can be used", "expected numbers, truth values or text")
    return arrays


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
