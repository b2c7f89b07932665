"""The kernel values of a compact MIKL problem: a row for each of its p coefficients, a column for each of n samples.

`margins` is K_y alpha (y times the scores) and `slopes` its adjoint K_y' u; the gradient of the loss and the dual are
made of these two products. Rows are held in memory, or every product is a pass over the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.stack import KernelStack

Grams: TypeAlias = Mapping[int, Float64]  # K_a' K_a by kernel, where the norm's groups are whole kernels


@dataclass(frozen=True)
class RowOptions:
    """Sizes of what is computed from rows in memory."""

    copies: int = 3  # arrays of the size of the part that is cut out, while a Newton matrix is made
    chunk: int = 4_000_000  # values of float32 rows that are converted to float64 at a time


ROWS = RowOptions()


class KernelRows(Protocol):
    """p coefficients against n samples."""

    @property
    def p(self) -> int:
        """The number of coefficients."""

    @property
    def n(self) -> int:
        """The number of samples."""

    def has_room(self, members: int, samples: int) -> bool:
        """Whether so many rows and columns can be cut out to make the matrix of a Newton step."""

    def gram(self, weights: Mapping[int, float], samples: Samples) -> Float64 | None:
        """`sum_a weights[a] K_y,a K_y,a'` over some samples; None unless the products of these kernels are known."""

    def margins(self, alpha: Float64) -> Float64:
        """(n,): K_y alpha."""

    def slopes(self, u: Float64) -> Float64:
        """(p,): K_y' u."""

    def part(self, members: Samples, samples: Samples) -> Float64:
        """Some rows and columns of K_y', in float64."""


class HeldRows:
    """Rows in memory; sums are in float64, whatever the type of the rows.

    Parameters
    ----------
    rows : array (p, n)
        Kernel values.
    y : array (n,)
        Signs -1/+1.
    room : float
        Bytes that a Newton matrix may take while it is made.
    grams : mapping, optional
        K_a' K_a of whole kernels.
    """

    def __init__(self, rows: FloatArray, y: Float64, room: float = np.inf, grams: Grams | None = None) -> None:
        self._rows, self._y, self._room, self._grams = rows, y, room, grams or {}

    @property
    def p(self) -> int:
        return len(self._rows)

    @property
    def n(self) -> int:
        return len(self._y)

    def _chunks(self) -> Iterator[tuple[slice, Float64]]:
        p, n = self._rows.shape
        step = max(p, 1) if self._rows.dtype == np.float64 else max(1, ROWS.chunk // n)
        for start in range(0, p, step):
            span = slice(start, min(start + step, p))
            yield span, np.asarray(self._rows[span], dtype=np.float64)

    def margins(self, alpha: Float64) -> Float64:
        scores = np.zeros(self._rows.shape[1])
        for span, rows in self._chunks():
            part = alpha[span]
            some = np.flatnonzero(part)
            if 2 * len(some) < len(part):  # rows of coefficients that are zero need not be read
                scores += part[some] @ rows[some]
            else:
                scores += part @ rows
        return scores * self._y

    def slopes(self, u: Float64) -> Float64:
        signed = u * self._y
        return np.concatenate([rows @ signed for _, rows in self._chunks()] or [np.zeros(0)])

    def has_room(self, members: int, samples: int) -> bool:
        return 8 * ROWS.copies * members * samples <= self._room

    def gram(self, weights: Mapping[int, float], samples: Samples) -> Float64 | None:
        if not weights or any(a not in self._grams for a in weights):
            return None
        total = np.zeros((len(samples), len(samples)))
        for a, weight in weights.items():
            total += weight * self._grams[a][np.ix_(samples, samples)]
        signs = self._y[samples]
        return total * signs * signs[:, None]

    def part(self, members: Samples, samples: Samples) -> Float64:
        return np.asarray(self._rows[np.ix_(members, samples)] * self._y[samples], dtype=np.float64)


class StreamedRows:
    """Rows that do not fit in memory: every product is a pass over the stack.

    Parameters
    ----------
    stack : KernelStack
    members : mask (s, n)
        Which coefficients the problem has.
    y : array (n,)
        Signs -1/+1.
    """

    def __init__(self, stack: KernelStack, members: Mask, y: Float64) -> None:
        self._stack, self._members, self._y = stack, members, y

    @property
    def p(self) -> int:
        return int(self._members.sum())

    @property
    def n(self) -> int:
        return len(self._y)

    def margins(self, alpha: Float64) -> Float64:
        full = np.zeros(self._members.shape)
        full[self._members] = alpha
        return np.asarray(self._stack.expand(full[:, :, None])[:, 0] * self._y)

    def slopes(self, u: Float64) -> Float64:
        kernels = np.flatnonzero(self._members.any(axis=1))
        found = self._stack.correlate((u * self._y)[:, None], kernels=kernels.tolist())[:, :, 0]
        return np.asarray(found[self._members[kernels]])

    def has_room(self, members: int, samples: int) -> bool:
        return False

    def gram(self, weights: Mapping[int, float], samples: Samples) -> Float64 | None:
        return None

    def part(self, members: Samples, samples: Samples) -> Float64:
        raise NotImplementedError("`has_room` refuses every part")
