"""Scores of sparse coefficients, and blocks of few samples, where a source computes any values on the spot.

A pass over tiles computes n^2 / 2 values of every kernel. Of coefficients with a support of u samples n u values are
enough, and of a block of w samples w^2 / 2. So the first rounds on working sets cost next to nothing, however large n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.events import Progress
from dmkl.stack.sources import Source, TileReader

T = TypeVar("T")


@dataclass(frozen=True)
class FewOptions:
    """When values are computed one by one, and how many at once.

    Attributes
    ----------
    blocks : of samples: where there are fewer, a pass over all tiles takes no time
    scores : the largest share of samples with coefficients
    gathered : the largest share of the values of one kernel that blocks may have
    columns : samples whose values are computed at once, for all samples of a block row
    """

    blocks: int = 8
    scores: float = 0.4
    gathered: float = 0.8
    columns: int = 2048


FEW = FewOptions()


def _computes(reader: TileReader) -> bool:
    return reader.source.on_the_spot and reader.grid.blocks >= FEW.blocks and not reader.grid.full


def _is_sparse(reader: TileReader, coef: Float64) -> bool:
    return _computes(reader) and int(coef.any(axis=1).sum()) <= FEW.scores * reader.n


def _by_rows(
    reader: TileReader, function: Callable[..., T], coef: Float64, *arguments: object
) -> Iterator[tuple[Samples, T]]:
    """The samples of every block row, with `function(source, samples, support, coef[support], *arguments)`.

    Nothing if no sample has coefficients."""
    support = np.flatnonzero(coef.any(axis=1))
    if not len(support):
        return
    held = reader.runtime.share(np.ascontiguousarray(coef[support]))
    spans = [np.arange(span.start, span.stop) for span in map(reader.grid.span, range(reader.grid.blocks))]
    tasks = ((reader.source, rows, support, held, *arguments) for rows in spans)
    for done, answer in enumerate(zip(spans, reader.runtime.map(function, tasks), strict=True), 1):
        yield answer
        reader.observer(Progress("pass", done, len(spans)))


def sparse_scores(
    reader: TileReader, coef: Float64, weights: Float64, asked: Mask | None
) -> tuple[Float64, Float64 | None] | None:
    """Scores (n, m) and forms (m, s), as `score.apply` gives them; None where a pass over the tiles is better."""
    if not _is_sparse(reader, coef):
        return None
    scores, forms = np.zeros(coef.shape), None if asked is None else np.zeros(asked.shape)
    for rows, (own, part) in _by_rows(reader, score_rows, coef, weights, asked):
        scores[rows] = own
        if forms is not None and part is not None:
            forms += part
    return scores, forms


def score_rows(
    source: Source, rows: Samples, support: Samples, coef: Float64, weights: Float64, asked: Mask | None
) -> tuple[Float64, Float64 | None]:
    """The scores (rows, m) of coefficients (support, m), and what these rows contribute to the forms (m, s)."""
    m = coef.shape[1]
    factors = np.broadcast_to(weights, (m, source.s))
    used = (factors != 0).any(axis=0)
    if asked is not None:
        used = used | asked.any(axis=0)
    scores, forms = np.zeros((len(rows), m)), None if asked is None else np.zeros(asked.shape)
    first, last = np.searchsorted(support, (rows[0], rows[-1] + 1))
    inside = support[first:last] - rows[0]
    for start in range(0, len(support), FEW.columns):
        columns = slice(start, start + FEW.columns)
        for a, values in source.values(rows, support[columns], np.flatnonzero(used).tolist()):
            products = values.astype(np.float64) @ coef[columns]
            scores += products * factors[:, a]
            if forms is not None:
                forms[:, a] += np.einsum("ik,ik->k", coef[first:last], products[inside])
    return scores, None if forms is None or asked is None else np.where(asked, forms, 0.0)


def sparse_products(reader: TileReader, beta: Float64, kernels: Sequence[int]) -> Float64 | None:
    """K_a beta (kernels, n, m), as `per_kernel.correlate` gives it; None where a pass over the tiles is better."""
    if not _is_sparse(reader, beta):
        return None
    products = np.zeros((len(kernels), *beta.shape))
    for rows, own in _by_rows(reader, product_rows, beta, kernels):
        products[:, rows] = own
    return products


def product_rows(source: Source, rows: Samples, support: Samples, beta: Float64, kernels: Sequence[int]) -> Float64:
    """Rows of the products (kernels, rows, m) with coefficients (support, m)."""
    products, place = np.zeros((len(kernels), len(rows), beta.shape[1])), {a: layer for layer, a in enumerate(kernels)}
    for start in range(0, len(support), FEW.columns):
        columns = slice(start, start + FEW.columns)
        for a, values in source.values(rows, support[columns], list(kernels)):
            products[place[a]] += values.astype(np.float64) @ beta[columns]
    return products


def gathered(
    reader: TileReader,
    blocks: Sequence[FloatArray],
    sets: Sequence[Samples],
    layers: Sequence[dict[int, int]],
    weights: Float64 | None,
) -> bool:
    """Fill the blocks (layers, w, w) of these sets, `layers` as `BlockRequest.layers`; whether it was done."""
    values = sum(len(W) ** 2 for W in sets)
    if reader.runtime.remote or not _computes(reader) or values > FEW.gathered * reader.n**2:
        return False
    side = reader.grid.tile
    tasks = [
        (reader.source, block, W, start, side, order, weights)
        for block, W, order in zip(blocks, sets, layers, strict=True)
        for start in range(0, len(W), side)
    ]
    for done, _ in enumerate(reader.runtime.map(fill_rows, tasks), 1):
        reader.observer(Progress("pass", done, len(tasks)))
    return True


def fill_rows(
    source: Source, block: FloatArray, W: Samples, start: int, side: int, order: dict[int, int], weights: Float64 | None
) -> None:
    """The rows of W from `start` on, from the diagonal on, and their mirror images."""
    rows = slice(start, min(start + side, len(W)))
    for left in range(start, len(W), side):
        columns = slice(left, min(left + side, len(W)))
        if weights is None:
            for a, values in source.values(W[rows], W[columns], list(order)):
                _put(block[order[a]], rows, columns, values)
            continue
        total = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
        for a, values in source.values(W[rows], W[columns], np.flatnonzero(weights).tolist()):
            total += weights[a] * values
        _put(block[0], rows, columns, total)


def _put(layer: FloatArray, rows: slice, columns: slice, values: FloatArray) -> None:
    layer[rows, columns] = values
    if columns != rows:
        layer[columns, rows] = values.T
