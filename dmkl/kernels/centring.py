"""Row means of centred kernels, from sums over the tiles."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dmkl._util.tiling import Grid
from dmkl._util.types import Float64
from dmkl.kernels.bank import Bank, Pair

Sums = dict[int, tuple[Float64, Float64]]  # of each centred kernel: by row and by column


def tile_sums(bank: Bank, pair: Pair) -> Sums:
    """Row and column sums of a tile of the centred kernels."""
    exact = ((a, np.asarray(values, dtype=np.float64)) for a, values in bank.values(pair, bank.centred))
    return {a: (values.sum(axis=1), values.sum(axis=0)) for a, values in exact}


def row_means(s: int, grid: Grid, parts: Iterable[tuple[tuple[int, int], Sums]]) -> Float64:
    """(s, n), zero for kernels that are not centred, from the sums of the tiles (i, j), j >= i."""
    sums = np.zeros((s, grid.n))
    for (i, j), found in parts:
        for a, (by_row, by_column) in found.items():
            sums[a, grid.span(i)] += by_row
            if i != j:
                sums[a, grid.span(j)] += by_column
    return sums / grid.n
