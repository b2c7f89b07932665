"""Passes for coefficients of their own for every sample and kernel, of kernels that need not be symmetric.

With K_a[i, j] = k_a(x_i, x_j) the score of sample j is sum_a sum_i alpha[a, i] K_a[i, j]: `expand` is
sum_a K_a' alpha_a, and `correlate`, its adjoint, gives K_a beta of every kernel apart. A shard accounts for all tiles
of its block row, or, where only tiles with j >= i are kept, for those and their mirror images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.stack.shards import Shard


def pieces_of(shard: Shard, kernels: Sequence[int]) -> Iterator[tuple[int, slice, slice, NDArray[Any]]]:
    """Kernel, rows, columns, K_a[rows, columns]: place by place, so that kernels that are computed share a base."""
    grid, i = shard.grid, shard.i
    here = grid.span(i)
    for j in grid.kept(i):
        there = grid.span(j)
        for a in kernels:
            tile = shard.tile(a, j)
            yield a, here, there, tile
            if i != j and not grid.full:
                yield a, there, here, tile.T


def expand_shard(shard: Shard, alpha: Float64, kernels: Sequence[int]) -> Float64:
    """Contributions to `sum_a K_a' alpha[a]` (n, m) of coefficients (s, n, m)."""
    scores = np.zeros(alpha.shape[1:])
    for a, rows, columns, values in pieces_of(shard, kernels):
        scores[columns] += _exact(values).T @ alpha[a, rows]
    return scores


def correlate_shard(shard: Shard, beta: Float64, kernels: Sequence[int]) -> Float64:
    """Contributions to `K_a beta` (len(kernels), n - start, m), for samples from the shard's first on."""
    start = shard.grid.span(shard.i).start
    result = np.zeros((len(kernels), len(beta) - start, beta.shape[1]))
    place = {a: layer for layer, a in enumerate(kernels)}
    for a, rows, columns, values in pieces_of(shard, kernels):
        result[place[a], _after(rows, start)] += _exact(values) @ beta[columns]
    return result


def squares_shard(shard: Shard) -> Float64:
    """Contributions to `sum_j K_a[i, j]^2` (s, n - start)."""
    start = shard.grid.span(shard.i).start
    result = np.zeros((shard.s, shard.grid.n - start))
    for a, rows, _, values in pieces_of(shard, range(shard.s)):
        exact = _exact(values)
        result[a, _after(rows, start)] += np.einsum("ij,ij->i", exact, exact)
    return result


def pick_shard(shard: Shard, members: Sequence[Samples]) -> list[tuple[int, slice, slice, NDArray[Any]]]:
    """Pieces (kernel, positions in its ascending `members`, columns, values) of whole rows `K_a[members[a]]`."""
    pieces = []
    for a, rows, columns, values in pieces_of(shard, [a for a, chosen in enumerate(members) if len(chosen)]):
        start, stop = (int(p) for p in np.searchsorted(members[a], (rows.start, rows.stop)))
        if start < stop:
            pieces.append((a, slice(start, stop), columns, values[members[a][start:stop] - rows.start]))
    return pieces


def _after(rows: slice, start: int) -> slice:
    return slice(rows.start - start, rows.stop - start)


def _exact(values: NDArray[Any]) -> Float64:
    return np.asarray(values, dtype=np.float64)
