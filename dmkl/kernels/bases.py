"""Pairwise bases: the distance or similarity tiles that kernels are elementwise functions of.

Kernels with the same base on the same view share one base tile, whatever their widths. A base knows how to fill a tile
for two blocks of samples, and the diagonal (every sample with itself) without a tile. All arithmetic is float64: the
difference of near-equal squared norms loses digits that a kernel with a small width would show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import require_free
from dmkl._util.registry import Registry
from dmkl._util.types import Float64
from dmkl.kernels import loops

Array = NDArray[Any]


@dataclass(frozen=True)
class Base:
    """`tile(X, Z)` and `diagonal(X)` of one base; `distance(t)` turns a tile into plain distances for widths."""

    tile: Callable[[Any, Any], Float64]
    diagonal: Callable[[Any], Float64]
    distance: Callable[[Float64], Float64] | None = None
    nonnegative: bool = False  # the features must be >= 0
    symmetric: bool = True
    entry_ns: float = 0.4  # nanoseconds an entry of a tile takes, as measured (see `cost.py`),
    column_ns: float = 0.07  # and for every column of dense features


def dense(block: Any) -> Float64:
    """A block of samples as a C-contiguous float64 matrix."""
    if hasattr(block, "toarray"):
        require_free(8 * block.shape[0] * block.shape[1], f"{block.shape[0]:,} samples of {block.shape[1]:,} features")
        block = block.toarray()
    return np.ascontiguousarray(block, dtype=np.float64)


def _is_sparse(block: Any) -> bool:
    return hasattr(block, "toarray")


def _dot(X: Any, Z: Any) -> Float64:
    if _is_sparse(X) and _is_sparse(Z):  # new samples may come otherwise than those the model keeps
        X, Z = _narrowed(X, Z)
        return np.ascontiguousarray((X.astype(np.float64) @ Z.astype(np.float64).T).toarray())
    product: Float64 = np.matmul(dense(X), dense(Z).T)
    return product


def _narrowed(X: Any, Z: Any) -> tuple[Any, Any]:
    """Two sparse blocks without the columns that neither uses, if those are many: a product turns one of the blocks
    round, and that costs as much as there are columns."""
    if X.shape[1] <= X.nnz + Z.nnz:
        return X, Z
    used = np.unique(np.concatenate([X.indices, Z.indices]))
    parts = ((block.data, np.searchsorted(used, block.indices), block.indptr) for block in (X, Z))
    narrow_X, narrow_Z = (type(X)(part, shape=(len(part[2]) - 1, len(used))) for part in parts)
    return narrow_X, narrow_Z


def _squared_norms(X: Any) -> Float64:
    if _is_sparse(X):
        return np.asarray(X.astype(np.float64).power(2).sum(axis=1), dtype=np.float64).ravel()
    X = dense(X)
    norms: Float64 = np.einsum("ij,ij->i", X, X)
    return norms


def _sqeuclidean(X: Any, Z: Any) -> Float64:
    tile = _dot(X, Z)
    loops.to_squared_distances(tile, _squared_norms(X), _squared_norms(Z))
    return tile


def _divergence(X: Any, Z: Any) -> Float64:
    """KL(x || z) of every pair: sum x log x - x . log z, a matrix product."""
    P, Q = _distributions(X), _distributions(Z)
    tile = np.einsum("ij,ij->i", P, np.log(P))[:, None] - P @ np.log(Q).T
    return np.asarray(np.maximum(tile, 0.0))


def _distributions(X: Any) -> Float64:
    """Rows that sum to 1, with a little of the uniform one, so that what z lacks altogether costs much and not all."""
    X = dense(X)
    shares = X / np.maximum(X.sum(axis=1, keepdims=True), 1e-300)
    return np.asarray((1.0 - SMOOTHING) * shares + SMOOTHING / X.shape[1])


def _zeros(X: Any) -> Float64:
    return np.zeros(X.shape[0])


def _row_sums(X: Any) -> Float64:
    return np.asarray(X.sum(axis=1), dtype=np.float64).ravel()


def _loop(pair: Callable[[Float64, Float64], Float64]) -> Callable[[Any, Any], Float64]:
    def tile(X: Any, Z: Any) -> Float64:
        return pair(dense(X), dense(Z))

    return tile


def _same(tile: Float64) -> Float64:
    return tile


SMOOTHING = 1e-3

BASES: Registry[Base] = Registry("pairwise base")
BASES.register("dot", Base(_dot, _squared_norms, entry_ns=1.2, column_ns=0.03))
BASES.register("sqeuclidean", Base(_sqeuclidean, _zeros, distance=np.sqrt, entry_ns=1.9, column_ns=0.03))
BASES.register("cityblock", Base(_loop(loops.cityblock), _zeros, distance=_same))
BASES.register("chi2", Base(_loop(loops.chi2), _zeros, distance=_same, nonnegative=True, column_ns=0.12))
BASES.register("additive_chi2", Base(_loop(loops.additive_chi2), _row_sums, nonnegative=True, column_ns=0.12))
BASES.register("intersection", Base(_loop(loops.intersection), _row_sums, nonnegative=True))
BASES.register("kl", Base(_divergence, _zeros, distance=_same, nonnegative=True, symmetric=False, entry_ns=1.2))

GIVEN = "given"  # the base of distance and kernel views: the matrix itself
