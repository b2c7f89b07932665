"""Pairwise distances and similarities: the tiles that kernels are elementwise functions of.

Kernels with the same distance ("base") on the same view share its tile, whatever their widths. A base fills a tile for
two blocks of samples, and computes the diagonal (every sample with itself) without a tile. All arithmetic is float64:
the difference of nearly equal squared norms loses digits that a kernel with a small width would show.

Sums that are not matrix products are compiled. Their innermost loop runs over the samples of the second block, which is
contiguous after a transposition and fills vector registers: 0.05 to 0.11 ns a term, where a loop over features takes
0.25.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.machine import require_free
from dmkl._util.registry import Registry
from dmkl._util.types import Array, Block, Float64

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MATRIX = "matrix"  # the base of distance and kernel views: the values of the view itself
SMOOTHING = 1e-3  # share of the uniform distribution in every histogram whose divergence is measured


@dataclass(frozen=True)
class Base:
    """One distance or similarity.

    `tile(X, Z)` has the values of all pairs, `diagonal(X)` those of every sample with itself. `distance(tile)` turns a
    tile into plain distances, from which widths are measured; None for similarities. `add(X, Z', tile)` adds the terms
    of columns to a tile, one column after the other; None for what is no sum over columns.
    """

    tile: Callable[[Block, Block], Float64]
    diagonal: Callable[[Block], Float64]
    distance: Callable[[Float64], Float64] | None = None
    add: Callable[[Float64, Float64, Float64], None] | None = None  # columns of (X, Z') to a tile, if it sums over them
    nonnegative: bool = False  # whether features must be >= 0
    symmetric: bool = True
    entry_ns: float = 0.4  # measured nanoseconds for an entry of a tile (see `plan.Costs`)
    column_ns: float = 0.07  # and for every column of dense features, in addition


def dense(block: Block) -> Float64:
    """A block of samples as a C-contiguous float64 matrix."""
    if hasattr(block, "toarray"):
        require_free(8 * block.shape[0] * block.shape[1], f"{block.shape[0]:,} samples of {block.shape[1]:,} features")
        block = block.toarray()
    return np.ascontiguousarray(block, dtype=np.float64)


def _dot(X: Block, Z: Block) -> Float64:
    if hasattr(X, "toarray") and hasattr(Z, "toarray"):  # new samples may be dense where the model's are sparse
        X, Z = _without_unused_columns(X, Z)
        return np.ascontiguousarray((X.astype(np.float64) @ Z.astype(np.float64).T).toarray())
    product: Float64 = np.matmul(dense(X), dense(Z).T)
    return product


def _without_unused_columns(X: csr_array, Z: csr_array) -> tuple[csr_array, csr_array]:
    """Two sparse blocks without the columns that neither uses, if most columns are unused.

    A sparse product transposes one of the blocks, which takes time in proportion to the number of columns.
    """
    if X.shape[1] <= X.nnz + Z.nnz:
        return X, Z
    used = np.unique(np.concatenate([X.indices, Z.indices]))
    parts = ((block.data, np.searchsorted(used, block.indices), block.indptr) for block in (X, Z))
    narrow_X, narrow_Z = (type(X)(part, shape=(len(part[2]) - 1, len(used))) for part in parts)
    return narrow_X, narrow_Z


def _squared_norms(X: Block) -> Float64:
    if hasattr(X, "toarray"):
        sparse: csr_array = X
        return np.asarray(sparse.astype(np.float64).power(2).sum(axis=1), dtype=np.float64).ravel()
    X = dense(X)
    norms: Float64 = np.einsum("ij,ij->i", X, X)
    return norms


def _squared_euclidean(X: Block, Z: Block) -> Float64:
    tile = _dot(X, Z)
    _to_squared_distances(tile, _squared_norms(X), _squared_norms(Z))
    return tile


def _divergence(X: Block, Z: Block) -> Float64:
    """KL(x || z) of every pair: sum x log x - x . log z, a matrix product."""
    P, Q = _distributions(X), _distributions(Z)
    tile = np.einsum("ij,ij->i", P, np.log(P))[:, None] - P @ np.log(Q).T
    return np.asarray(np.maximum(tile, 0.0))


def _distributions(X: Block) -> Float64:
    """Rows that sum to 1, mixed with the uniform distribution, so that a divergence is finite where z is zero."""
    X = dense(X)
    shares = X / np.maximum(X.sum(axis=1, keepdims=True), 1e-300)
    return np.asarray((1.0 - SMOOTHING) * shares + SMOOTHING / X.shape[1])


def _zeros(X: Block) -> Float64:
    return np.zeros(X.shape[0])


def _row_sums(X: Block) -> Float64:
    return np.asarray(X.sum(axis=1), dtype=np.float64).ravel()


def _identity(tile: Float64) -> Float64:
    return tile


@jit()
def _add_products(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                tile[i, j] += X[i, k] * Zt[k, j]


@jit()
def _add_squares(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                difference = X[i, k] - Zt[k, j]
                tile[i, j] += difference * difference


@jit()
def _add_cityblock(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                tile[i, j] += abs(X[i, k] - Zt[k, j])


@jit()
def _add_chi2(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                total = X[i, k] + Zt[k, j]
                difference = X[i, k] - Zt[k, j]
                tile[i, j] += difference * difference / total if total > 0 else 0.0


@jit()
def _add_additive_chi2(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                total = X[i, k] + Zt[k, j]
                tile[i, j] += 2.0 * X[i, k] * Zt[k, j] / total if total > 0 else 0.0


@jit()
def _add_intersection(X: Float64, Zt: Float64, tile: Float64) -> None:
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            for j in range(Zt.shape[1]):
                tile[i, j] += min(X[i, k], Zt[k, j])


@jit()
def _to_squared_distances(tile: Float64, row_norms: Float64, column_norms: Float64) -> None:
    """Turn inner products into squared distances, none below zero; one pass through memory instead of four."""
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            tile[i, j] = max(-2.0 * tile[i, j] + row_norms[i] + column_norms[j], 0.0)


def _summed(
    add: Callable[[Float64, Float64, Float64], None], diagonal: Callable[[Block], Float64], **facts: Any
) -> Base:
    """The base that is a compiled sum over features."""

    def tile(X: Block, Z: Block) -> Float64:
        X, Z = dense(X), dense(Z)
        result = np.zeros((X.shape[0], Z.shape[0]))
        add(X, np.ascontiguousarray(Z.T), result)
        return result

    return Base(tile, diagonal, add=add, **facts)


@jit()
def all_finite(values: Array) -> bool:
    """Whether no value is infinite or NaN; one pass through memory, and nothing written."""
    bad = False
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            bad |= not abs(values[i, j]) < np.inf
    return not bad


@jit()
def mirror_upper(tile: Float64) -> None:
    """Make a square tile exactly symmetric by its upper half, in squares that stay in the cache."""
    n, side = tile.shape[0], 32
    for top in range(0, n, side):
        for left in range(0, top + 1, side):
            for i in range(top, min(top + side, n)):
                for j in range(left, min(left + side, i)):
                    tile[i, j] = tile[j, i]


BASES: Registry[Base] = Registry("pairwise base")
BASES.register("dot", Base(_dot, _squared_norms, add=_add_products, entry_ns=1.2, column_ns=0.03))
BASES.register(
    "sqeuclidean",
    Base(_squared_euclidean, _zeros, distance=np.sqrt, add=_add_squares, entry_ns=1.9, column_ns=0.03),
)
BASES.register("cityblock", _summed(_add_cityblock, _zeros, distance=_identity))
BASES.register("chi2", _summed(_add_chi2, _zeros, distance=_identity, nonnegative=True, column_ns=0.12))
BASES.register("additive_chi2", _summed(_add_additive_chi2, _row_sums, nonnegative=True, column_ns=0.12))
BASES.register("intersection", _summed(_add_intersection, _row_sums, nonnegative=True))
BASES.register("kl", Base(_divergence, _zeros, distance=_identity, nonnegative=True, symmetric=False, entry_ns=1.2))
