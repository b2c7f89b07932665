"""NumPy's own files: `.npy` with one array, `.npz` with several or with the parts of one sparse matrix."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmkl.data.readers.common import Arrays, Length, csr_from_parts
from dmkl.errors import DataError

Header: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"
Opener: TypeAlias = "Callable[[str], IO[bytes]]"  # an array's file by its name
CSR_PARTS = ("data", "indices", "indptr", "shape")


def read_npy(path: Path) -> Arrays:
    """The array, named by the file's stem."""
    _check_magic(path, b"\x93NUMPY", ".npy")
    with path.open("rb") as file:  # not by its path: numpy leaves damaged files open
        return {path.stem: _loaded(path, path.stem, partial(np.load, file, allow_pickle=False))}


def read_npz(path: Path) -> Arrays:
    """The arrays by name; CSR parts become one sparse matrix named by the file's stem."""
    _check_magic(path, b"PK", ".npz")
    arrays: Arrays = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            array = _loaded(path, name, partial(archive.__getitem__, name))
            if isinstance(array, np.ndarray):  # else a foreign file inside the archive
                arrays[name] = array
    return _with_csr(path, arrays) if all(part in arrays for part in CSR_PARTS) else arrays


def stream_npy(path: Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The array in slices, unless it is in columns' order."""
    _check_magic(path, b"\x93NUMPY", ".npy")
    with path.open("rb") as file:
        header = _header(file)
    return _batches({path.stem: header}, lambda stack: lambda name: path.open("rb"), rows, length) if header else None


def stream_npz(path: Path, rows: int, length: Length) -> Iterator[Arrays] | None:
    """The arrays in slices, unless one is in columns' order, or they are parts of a sparse matrix."""
    _check_magic(path, b"PK", ".npz")
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        headers = {}
        for name in names:
            with archive.open(f"{name}.npy") as file:
                headers[name] = _header(file)
    known = {name: header for name, header in headers.items() if header}
    if len(known) < len(headers) or all(part in headers for part in CSR_PARTS):
        return None

    def opened(stack: ExitStack) -> Opener:
        archive = stack.enter_context(zipfile.ZipFile(path))
        return lambda name: archive.open(f"{name}.npy")

    return _batches(known, opened, rows, length)


def _header(file: IO[bytes]) -> Header | None:
    """Shape and type of an array that can be read row after row; None for others."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    if version not in ((1, 0), (2, 0)):
        return None
    shape, by_columns, dtype = read(file)
    return None if dtype.hasobject or (by_columns and len(shape) > 1) else (shape, dtype)


def _batches(
    headers: dict[str, Header], opened: Callable[[ExitStack], Opener], rows: int, length: Length
) -> Iterator[Arrays] | None:
    n = length({name: shape for name, (shape, _) in headers.items() if shape})
    return _slices(headers, opened, rows, n) if n else None


def _slices(headers: dict[str, Header], opened: Callable[[ExitStack], Opener], rows: int, n: int) -> Iterator[Arrays]:
    """All files are read side by side."""
    with ExitStack() as stack:
        open_one = opened(stack)
        files = {name: stack.enter_context(open_one(name)) for name in headers}
        for file in files.values():
            _header(file)
        whole = {name: _read(files[name], *header) for name, header in headers.items() if header[0][:1] != (n,)}
        for start in range(0, n, rows):
            count = min(rows, n - start)
            cut = {
                name: _read(files[name], (count, *shape[1:]), dtype)
                for name, (shape, dtype) in headers.items()
                if name not in whole
            }
            yield {name: cut[name] if name in cut else whole[name] for name in headers}


def _read(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size = int(np.prod(shape)) * dtype.itemsize
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
    """Numpy takes any other file for a pickle and says so, which helps nobody."""
    with path.open("rb") as file:
        if file.read(len(magic)) != magic:
            raise DataError(f"{path} is not a valid {suffix} file", f"write it again with numpy, as a {suffix}")


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
