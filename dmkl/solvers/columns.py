"""Coefficients of all classes as sparse columns (n, m): as many as support vectors, not samples times classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csc_array

from dmkl._util.types import Array, Float64


def no_columns(n: int, m: int) -> csc_array:
    """(n, m) without entries."""
    return csc_array((n, m), dtype=np.float64)


def column(coef: csc_array, k: int) -> Float64:
    """(n,): column k, dense."""
    result = np.zeros(coef.shape[0])
    span = slice(coef.indptr[k], coef.indptr[k + 1])
    result[coef.indices[span]] = coef.data[span]
    return result


def dense(coef: csc_array, classes: Sequence[int]) -> Float64:
    """(n, classes): some columns, dense."""
    return np.stack([column(coef, k) for k in classes], axis=1)


def with_columns(coef: csc_array, new: Mapping[int, Float64]) -> csc_array:
    """The same matrix with some columns replaced."""
    n, m = coef.shape
    rows: list[Array] = []
    values: list[Float64] = []
    for k in range(m):
        span = slice(coef.indptr[k], coef.indptr[k + 1])
        rows.append(np.flatnonzero(new[k]) if k in new else coef.indices[span])
        values.append(new[k][rows[k]] if k in new else coef.data[span])
    starts = np.concatenate([[0], np.cumsum([len(part) for part in rows])])
    return csc_array((np.concatenate(values), np.concatenate(rows), starts), shape=(n, m))
