"""Bounds from coefficients, over all samples: what any B is worth as a function and as a dual point.

Samples without a coefficient are never asked for but as rows: kernel values are n times support, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmkl._util.types import Float64, Samples
from dmkl.solvers.obscure.loss import RowLoss, scaled_dual
from dmkl.solvers.obscure.norm import PNorm
from dmkl.stack import KernelStack, Source


@dataclass(frozen=True)
class Judged:
    """A function w_a = weights_a sum_i B_i phi_a(x_i), scaled as is best, and bounds in the units of B."""

    B: Float64
    weights: Float64
    primal: float
    dual: float  # -inf where B is no dual point
    margins: Float64  # (n, 1), or (n, m) for hinges


def judge(
    stack: KernelStack, source: Source, loss: RowLoss, norm: PNorm, candidates: Sequence[tuple[Float64, bool]]
) -> list[Judged]:
    """`candidates` are (B, whether it is feasible in the dual); weights are those of the norm's mirror map."""
    points = [B for B, _ in candidates]
    forms = forms_of(stack, source, points)
    weights = [norm.weights(own) for own in forms]
    scores = scores_of(stack, source, points, weights)
    judged = []
    for (B, feasible), own, u, f in zip(candidates, forms, weights, scores, strict=True):
        square = norm.dual(own) ** 2
        dual = scaled_dual(loss.gain(B), square) if feasible else -np.inf
        judged.append(scaled(loss, B, u, f, square, dual))
    return judged


def scaled(loss: RowLoss, B: Float64, weights: Float64, scores: Float64, square: float, dual: float) -> Judged:
    """The best multiple of a function."""
    t = loss.best_scale(square, scores)
    return Judged(t * B, weights, loss.primal(t * t * square, t * scores), dual, loss.margins(t * scores))


def forms_of(stack: KernelStack, source: Source, points: Sequence[Float64]) -> list[Float64]:
    """D_a = tr B' K_a B of several points, (s,) each."""
    support = _support(points)
    tasks = (
        (source, rows, columns, [B[rows] for B in points], [B[columns] for B in points])
        for rows in source.pieces(support)
        for columns in source.chunks(support)
    )
    totals = np.zeros((len(points), stack.s))
    for part in stack.runtime.map(_forms_task, tasks):
        totals += part
    stack.passes += 1
    return list(np.maximum(totals, 0.0))


def scores_of(
    stack: KernelStack, source: Source, points: Sequence[Float64], weights: Sequence[Float64]
) -> list[Float64]:
    """sum_a u_a K_a B of several points over all samples, (n, m) each."""
    support = _support(points)
    result = [np.zeros(B.shape) for B in points]
    parts = [(rows, columns) for rows in source.pieces(np.arange(stack.n)) for columns in source.chunks(support)]

    def tasks() -> Iterator[tuple[Any, ...]]:
        for rows, columns in parts:
            yield source, rows, columns, weights, [B[columns] for B in points]

    for (rows, _), found in zip(parts, stack.runtime.map(_scores_task, tasks()), strict=True):
        for total, part in zip(result, found, strict=True):
            total[rows] += part
    stack.passes += 1
    return result


def _support(points: Sequence[Float64]) -> Samples:
    return np.flatnonzero(np.any([B.any(axis=1) for B in points], axis=0))


def _forms_task(
    source: Source, rows: Samples, columns: Samples, here: Sequence[Float64], there: Sequence[Float64]
) -> Float64:
    values = source.cross(rows, columns).astype(np.float64)
    return np.array([np.einsum("ir,air->a", A, np.matmul(values, B)) for A, B in zip(here, there, strict=True)])


def _scores_task(
    source: Source, rows: Samples, columns: Samples, weights: Sequence[Float64], there: Sequence[Float64]
) -> list[Float64]:
    values = source.cross(rows, columns)
    flat = values.reshape(len(values), -1)
    sums = (np.tensordot(u, flat, 1).reshape(len(rows), len(columns)) for u in weights)
    return [K @ B for K, B in zip(sums, there, strict=True)]
