"""Making an indefinite kernel matrix usable where positive semidefinite ones are needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dmkl._util.types import Array
from dmkl.errors import ConfigError, DataError

HOW = ("clip", "shift")


def repair(K: ArrayLike, how: str = "clip") -> Array:
    """Make an indefinite kernel matrix positive semidefinite.

    "clip" sets negative eigenvalues to zero, which gives the nearest semidefinite matrix. "shift" adds the size of the
    most negative eigenvalue to the diagonal and leaves the values between different samples unchanged. Clipped values
    of training samples are not consistent with unclipped values of new samples: clip training and test samples
    together, or use "shift".

    Parameters
    ----------
    K : array (n, n), or (s, n, n) for several kernels. Only its symmetric part is used.
    how : "clip" or "shift".

    Returns
    -------
    array of the same shape, without negative eigenvalues up to rounding.

    Raises
    ------
    ConfigError
        `how` is unknown.
    DataError
        K is not square or not finite.
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
