"""MATLAB `.mat` files up to version 7."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.data.readers.common import Arrays, as_csr
from dmkl.errors import DataError

MATRICES = ("X", "D_", "K_")  # names of blocks, whose rows are samples even when there is just one


def read_mat(path: Path) -> Arrays:
    """Numeric, logical, character and sparse variables; cells and structures are passed over."""
    from scipy.io import loadmat

    try:
        variables = loadmat(str(path), appendmat=False)
    except NotImplementedError:  # how scipy refuses the HDF5-based format
        raise DataError(f"{path} is a MATLAB v7.3 file", "save it in MATLAB with save(..., '-v7')") from None
    arrays: Arrays = {}
    for name, value in variables.items():
        if name.startswith("__"):
            continue
        if hasattr(value, "tocsr"):
            arrays[name] = as_csr(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biufU" and value.size:
            arrays[name] = _squeezed(name, value)
    return arrays


def _squeezed(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """MATLAB knows no vectors: labels arrive as one row or one column."""
    if value.dtype.kind == "U":
        return np.char.strip(value)  # character matrices are padded
    if value.ndim == 2 and 1 in value.shape and not name.startswith(MATRICES):
        return value.reshape(-1)
    return value
