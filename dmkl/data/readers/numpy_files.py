"""NumPy's own files: `.npy` with one array, `.npz` with several or with the parts of one sparse matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dmkl.data.readers.common import Arrays, csr_from_parts
from dmkl.errors import DataError

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
