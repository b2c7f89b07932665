"""Making an indefinite kernel matrix usable where positive semidefinite ones are needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmkl.errors import ConfigError, DataError

HOW = ("clip", "shift")


def repair(K: ArrayLike, how: str = "clip") -> NDArray[Any]:
    """The symmetric part of K (n, n), or of each of (s, n, n), without negative eigenvalues.

    "clip" sets them to zero, which is the nearest semidefinite matrix. "shift" adds their largest size to the diagonal,
    which leaves the values between different samples, and so those of new samples, as they are. A clipped matrix of
    training samples does not go with unclipped values of new ones: clip training and test samples together, or shift.
    """
    if how not in HOW:
        raise ConfigError(f"unknown repair '{how}'", f"use one of {', '.join(HOW)}")
    array = np.asarray(K)
    if array.ndim == 3:
        return np.stack([repair(kernel, how) for kernel in array])
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not np.isfinite(array).all():
        raise DataError(f"a kernel is a finite square matrix, not {array.shape}")
    exact = np.asarray(array, dtype=np.float64)
    values, vectors = np.linalg.eigh((exact + exact.T) / 2)
    if how == "clip":
        repaired = (vectors * np.maximum(values, 0.0)) @ vectors.T
        repaired = (repaired + repaired.T) / 2
    else:
        repaired = (exact + exact.T) / 2
        repaired[np.diag_indices(len(values))] += max(0.0, -float(values[0]))
    return np.asarray(repaired, dtype=array.dtype if array.dtype.kind == "f" else np.float64)
