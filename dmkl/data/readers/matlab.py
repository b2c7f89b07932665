"""MATLAB `.mat` files up to version 7."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from dmkl._util.machine import available
from dmkl._util.types import Block
from dmkl.data.readers import LIMITS, Arrays, Reader, csr_from_parts, matlab_child
from dmkl.errors import DataError

MATRICES = ("X", "D_", "K_")  # how names of blocks begin; their rows are samples, even a single row
PARTS = ("data", "indices", "indptr", "shape")


def read_mat(path: Path) -> Arrays:
    """Numeric, logical, character and sparse variables; cells and structures are left out."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "variables.npz")
        _parse(path, target)
        with np.load(target, allow_pickle=False) as archive:
            arrays: Arrays = {}
            for k, name in enumerate(archive["names"].tolist()):
                dense = str(k) in archive
                value = archive[str(k)] if dense else csr_from_parts(*(archive[f"{k}.{part}"] for part in PARTS))
                arrays[name] = _squeezed(name, value)
    return arrays


def _parse(path: Path, target: Path) -> None:
    """Convert a MATLAB file in a child process, because its parser may crash (see `matlab_child`)."""
    limit = str(max(available(), LIMITS.matlab_memory))
    command = [sys.executable, "-P", matlab_child.__file__, str(path.absolute()), str(target), limit]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == matlab_child.V7_3:
        raise DataError(f"{path} is a MATLAB v7.3 file", "save it in MATLAB with save(..., '-v7')")
    if done.returncode == matlab_child.UNREADABLE:
        raise ValueError(done.stderr)
    if done.returncode:
        raise ValueError(f"its parser ended with {done.returncode}")


def _squeezed(name: str, value: Block) -> Block:
    """MATLAB has no vectors: labels arrive as a matrix of one row or one column."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "U":
        return np.char.strip(value)  # character matrices are padded
    if value.ndim == 2 and 1 in value.shape and not name.startswith(MATRICES):
        return value.reshape(-1)
    return value


MATLAB = Reader(read_mat)
