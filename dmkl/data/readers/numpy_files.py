"""NumPy's own files: `.npy` with one array, `.npz` with several or with the parts of one sparse matrix."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from dmkl._util.files import check_members
from dmkl._util.machine import require_free
from dmkl._util.types import Array
from dmkl.data.readers import LIMITS, Arrays, Length, Reader, csr_from_parts
from dmkl.errors import DataError

MAGIC = b"\x93NUMPY"
HEADERS = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
CSR_PARTS = ("data", "indices", "indptr", "shape")

Opener: TypeAlias = "Callable[[str], IO[bytes]]"  # an array's file by its name


@dataclass(frozen=True)
class Header:
    """The header of an array, checked against the size of its file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    start: int  # bytes before the values

    @property
    def by_rows(self) -> bool:
        """Whether the array can be read row by row."""
        return not self.dtype.hasobject and (not self.by_columns or len(self.shape) < 2)


def read_npy(path: Path) -> Arrays:
    """The array, named by the file's stem."""
    _check_magic(path, MAGIC, ".npy")
    with path.open("rb") as file:  # numpy leaves damaged files open that it opened itself
        _header(file, path.stat().st_size)
        require_free(path.stat().st_size, str(path))
        file.seek(0)
        return {path.stem: _loaded(path, path.stem, partial(np.load, file, allow_pickle=False))}


def read_npz(path: Path) -> Arrays:
    """The arrays by name; CSR parts become one sparse matrix named by the file's stem."""
    _check_magic(path, b"PK", ".npz")
    arrays: Arrays = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        headers = _headers(path, archive.zip)
        require_free(sum(member.file_size for member in archive.zip.infolist()), str(path))
        for name in headers:
            arrays[name] = _loaded(path, name, partial(archive.__getitem__, name))
    return _with_csr(path, arrays) if all(part in arrays for part in CSR_PARTS) else arrays


def stream_npy(path: Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The array in slices of rows; None if it is in column order."""
    _check_magic(path, MAGIC, ".npy")
    with path.open("rb") as file:
        header = _header(file, path.stat().st_size)
    return _batches(
        path, {path.stem: header} if header else {}, lambda stack: lambda name: path.open("rb"), rows, length
    )


def stream_npz(path: Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The arrays in slices of rows; None if one is in column order, or if they are parts of a sparse matrix."""
    _check_magic(path, b"PK", ".npz")
    with zipfile.ZipFile(path) as archive:
        headers = _headers(path, archive)
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
    if all(part in headers for part in CSR_PARTS):
        return None

    def opened(stack: ExitStack) -> Opener:
        archive = stack.enter_context(zipfile.ZipFile(path))
        return lambda name: archive.open(members[name])

    return _batches(path, headers, opened, rows, length)


def _batches(
    path: Path, headers: dict[str, Header], opened: Callable[[ExitStack], Opener], rows: int, length: Length
) -> Iterator[Arrays] | None:
    n = length({name: header.shape for name, header in headers.items() if header.shape})
    if not n or not all(header.by_rows for header in headers.values()):
        return None
    whole = [name for name, header in headers.items() if header.shape[:1] != (n,)]
    batch = sum(
        math.prod(header.shape if name in whole else (min(rows, n), *header.shape[1:])) * header.dtype.itemsize
        for name, header in headers.items()
    )
    require_free(batch, f"{min(rows, n):,} samples of {path}")
    return _slices(headers, whole, opened, rows, n)


def _slices(
    headers: dict[str, Header], whole: list[str], opened: Callable[[ExitStack], Opener], rows: int, n: int
) -> Iterator[Arrays]:
    """All members are open at once; arrays without one row a sample are the same in all batches."""
    with ExitStack() as stack:
        open_one = opened(stack)
        files = {name: stack.enter_context(open_one(name)) for name in headers}
        for name, file in files.items():
            file.seek(headers[name].start)
        same = {name: _read(files[name], headers[name].shape, headers[name].dtype) for name in whole}
        for start in range(0, n, rows):
            count = min(rows, n - start)
            yield {
                name: same[name] if name in same else _read(files[name], (count, *header.shape[1:]), header.dtype)
                for name, header in headers.items()
            }


def _read(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    data = file.read(size)
    if len(data) < size:
        raise ValueError("it ends too early")
    return np.frombuffer(data, dtype).reshape(shape)


def _with_csr(path: Path, arrays: Arrays) -> Arrays:
    layout = np.asarray(arrays.pop("format", np.array(b"csr"))).item()  # scipy.sparse.save_npz names it
    layout = layout.decode() if isinstance(layout, bytes) else str(layout)
    if layout != "csr":
        raise DataError(f"{path} holds a sparse matrix in '{layout}' layout", "save matrix.tocsr() instead")
    arrays.pop("_is_array", None)
    matrix = csr_from_parts(*(arrays.pop(part) for part in CSR_PARTS))
    if path.stem in arrays:
        raise DataError(f"{path} holds sparse parts and an array '{path.stem}'", "rename the file or the array")
    return {path.stem: matrix, **arrays}


def _check_magic(path: Path, magic: bytes, suffix: str) -> None:
    """Refuse other files here: the error of numpy would call them pickles."""
    with path.open("rb") as file:
        if file.read(len(magic)) != magic:
            raise DataError(f"{path} is not a valid {suffix} file", f"write it again with numpy, as a {suffix}")


def _headers(path: Path, archive: zipfile.ZipFile) -> dict[str, Header]:
    """The headers of all arrays in an archive by name; other members are left out."""
    check_members(archive, path.stat().st_size, compressed=True)
    headers = {}
    for member in archive.infolist():
        with archive.open(member) as file:
            header = _header(file, member.file_size)
        if header:
            headers[member.filename.removesuffix(".npy")] = header
    return headers


def _header(file: IO[bytes], nbytes: int) -> Header | None:
    """The header of an array; None for another kind of file.

    ValueError if it claims more values than the file has bytes: numpy would allocate the memory first.
    """
    start = file.read(12)
    if not start.startswith(MAGIC):
        return None
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    if start[6] not in HEADERS or length > LIMITS.npy_header:
        raise ValueError("it holds records, or its header is too long")
    shape, by_columns, dtype = HEADERS[start[6]](io.BytesIO(start[8:] + file.read(length + width - 4)))
    before = 8 + width + length
    if min(shape, default=0) < 0:
        raise ValueError(f"there is no array of shape {shape}")
    if not dtype.hasobject and math.prod(shape) * max(1, dtype.itemsize) > nbytes - before:
        raise ValueError(f"it is too short for an array of shape {shape}")
    return Header(shape, dtype, by_columns, before)


def _loaded(path: Path, name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"array '{name}' of {path} is pickled, and pickles are never loaded",
            "save it as numbers or as text, e.g. array.astype(str)",
        ) from None


NPY = Reader(read_npy, stream_npy)
NPZ = Reader(read_npz, stream_npz)
