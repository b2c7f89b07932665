"""The kernel values of a compact MIKL problem: one row for each coefficient, one column for each sample.

`margins` is K_y alpha (y times the scores) and `slopes` its adjoint K_y' u, which is what both the gradient of the loss
and the dual are made of. Rows are held in memory, or every product is a pass over the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from dmkl._util.types import Float64
from dmkl.problems.proxes import Jacobian
from dmkl.stack import KernelStack

COPIES = 3  # of what is cut out while a Newton matrix is made
CHUNK = 4_000_000  # values of float32 rows that are in float64 at a time


class Rows(Protocol):
    """p coefficients against n samples."""

    @property
    def p(self) -> int: ...

    @property
    def n(self) -> int: ...

    def has_room(self, members: int, samples: int) -> bool:
        """Whether that many rows and columns can be cut out to make the matrix of a Newton step from."""
        ...

    def gram(self, weights: Mapping[int, float], samples: NDArray[np.int64]) -> Float64 | None:
        """`sum_a weights[a] K_y,a K_y,a'` over some samples, if it is at hand."""
        ...

    def margins(self, alpha: Float64) -> Float64: ...

    def slopes(self, u: Float64) -> Float64: ...

    def part(self, members: NDArray[np.int64], samples: NDArray[np.int64]) -> Float64:
        """Some rows and columns of K_y', in float64."""
        ...


Grams = Mapping[int, Float64]  # K_a' K_a by kernel, where the norm's groups are whole kernels


class Held:
    """Rows (p, n) in memory; sums are in float64, whatever they are in."""

    def __init__(self, rows: NDArray[Any], y: Float64, room: float = np.inf, grams: Grams | None = None) -> None:
        self._rows, self._y, self._room, self._grams = rows, y, room, grams or {}

    @property
    def p(self) -> int:
        return len(self._rows)

    @property
    def n(self) -> int:
        return len(self._y)

    def _chunks(self) -> Iterator[tuple[slice, Float64]]:
        p, n = self._rows.shape
        step = max(p, 1) if self._rows.dtype == np.float64 else max(1, CHUNK // n)
        for start in range(0, p, step):
            span = slice(start, min(start + step, p))
            yield span, np.asarray(self._rows[span], dtype=np.float64)

    def margins(self, alpha: Float64) -> Float64:
        scores = np.zeros(self._rows.shape[1])
        for span, rows in self._chunks():
            part = alpha[span]
            some = np.flatnonzero(part)
            if 2 * len(some) < len(part):  # what is zero need not be read
                scores += part[some] @ rows[some]
            else:
                scores += part @ rows
        return scores * self._y

    def slopes(self, u: Float64) -> Float64:
        signed = u * self._y
        return np.concatenate([rows @ signed for _, rows in self._chunks()] or [np.zeros(0)])

    def has_room(self, members: int, samples: int) -> bool:
        return 8 * COPIES * members * samples <= self._room

    def gram(self, weights: Mapping[int, float], samples: NDArray[np.int64]) -> Float64 | None:
        if not weights or any(a not in self._grams for a in weights):
            return None
        total = np.zeros((len(samples), len(samples)))
        for a, weight in weights.items():
            total += weight * self._grams[a][np.ix_(samples, samples)]
        signs = self._y[samples]
        return total * signs * signs[:, None]

    def part(self, members: NDArray[np.int64], samples: NDArray[np.int64]) -> Float64:
        return np.asarray(self._rows[np.ix_(members, samples)] * self._y[samples], dtype=np.float64)


class Streamed:
    """Rows that do not fit: every product is a pass. `members` (s, n) says which coefficients there are."""

    def __init__(self, stack: KernelStack, members: NDArray[np.bool_], y: Float64) -> None:
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
        return self._stack.expand(full[:, :, None])[:, 0] * self._y

    def slopes(self, u: Float64) -> Float64:
        kernels = np.flatnonzero(self._members.any(axis=1))
        found = self._stack.correlate((u * self._y)[:, None], kernels=kernels.tolist())[:, :, 0]
        return np.asarray(found[self._members[kernels]])

    def has_room(self, members: int, samples: int) -> bool:
        return False

    def gram(self, weights: Mapping[int, float], samples: NDArray[np.int64]) -> Float64 | None:
        return None

    def part(self, members: NDArray[np.int64], samples: NDArray[np.int64]) -> Float64:
        raise NotImplementedError  # `has_room` says so


def weighed(jacobian: Jacobian, groups: NDArray[np.int64], v: Float64) -> Float64:
    """The derivative of the proximal map times v, or times every column of it."""
    wide = v if v.ndim == 2 else v[:, None]
    result = jacobian.diagonal[:, None] * wide
    if jacobian.factor.any():
        shape = len(jacobian.factor), len(groups)
        sums = csr_array(coo_array((jacobian.vector, (groups, np.arange(len(groups)))), shape=shape))
        result += sums.T @ (jacobian.factor[:, None] * (sums @ wide))
    return np.asarray(result if v.ndim == 2 else result[:, 0])
