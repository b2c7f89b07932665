"""NumPy's own files: `.npy` with one array, `.npz` with several or with the parts of one sparse matrix."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from dmkl.archives import check_members
from dmkl.data.readers.common import Arrays, csr_from_parts
from dmkl.errors import DataError
from dmkl.memory import require_free

MAGIC = b"\x93NUMPY"
HEADERS = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
LONGEST = 10_000  # bytes of a header
CSR_PARTS = ("data", "indices", "indptr", "shape")


def read_npy(path: Path) -> Arrays:
    """The array, named by the file's stem."""
    _check_magic(path, MAGIC, ".npy")
    with path.open("rb") as file:  # not by its path: numpy leaves damaged files open
        _check_header(file, path.stat().st_size)
        file.seek(0)
        return {path.stem: _loaded(path, path.stem, partial(np.load, file, allow_pickle=False))}


def read_npz(path: Path) -> Arrays:
    """The arrays by name; CSR parts become one sparse matrix named by the file's stem."""
    _check_magic(path, b"PK", ".npz")
    arrays: Arrays = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        check_members(archive.zip, path.stat().st_size, compressed=True)
        require_free(sum(member.file_size for member in archive.zip.infolist()), str(path))
        for member in archive.zip.infolist():
            with archive.zip.open(member) as content:
                _check_header(content, member.file_size)
        for name in archive.files:
            array = _loaded(path, name, partial(archive.__getitem__, name))
            if isinstance(array, np.ndarray):  # else a foreign file inside the archive
                arrays[name] = array
    return _with_csr(path, arrays) if all(part in arrays for part in CSR_PARTS) else arrays


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


def _check_header(file: IO[bytes], nbytes: int) -> None:
    """ValueError if an array's header claims more than what follows it: numpy would take the memory first."""
    start = file.read(12)
    if not start.startswith(MAGIC):
        return  # a foreign file inside an archive
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    if start[6] not in HEADERS or length > LONGEST:
        raise ValueError("it holds records, or its header is too long")
    shape, _, kind = HEADERS[start[6]](io.BytesIO(start[8:] + file.read(length + width - 4)))
    if not kind.hasobject and math.prod(shape) * kind.itemsize > nbytes - length:
        raise ValueError(f"it is too short for an array of shape {shape}")


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
