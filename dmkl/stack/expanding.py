"""The questions of formulations whose coefficients belong to a sample and a kernel (`expansions.py` has the passes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Mask
from dmkl.runtime.base import itself
from dmkl.stack import expansions
from dmkl.stack.tiled import Tiled


class Expanding(Tiled):
    """What a stack answers about kernels of any kind, symmetric or not, semidefinite or not."""

    _row_norms: Float64 | None

    def expand(self, alpha: Float64) -> Float64:
        """Scores `sum_a K_a' alpha[a]` (n, m) of coefficients (s, n, m) for each kernel apart; one pass.

        Kernels whose coefficients are all zero are not read.
        """
        kernels = np.flatnonzero(alpha.any(axis=(1, 2))).tolist()
        shared = self.runtime.hold(itself, np.ascontiguousarray(alpha, dtype=np.float64))
        scores = np.zeros(alpha.shape[1:])
        for part in self._each_shard(expansions.expand_shard, ((shard, shared, kernels) for shard in self._shards)):
            scores += part
        self.passes += 1
        return scores

    def correlate(self, beta: Float64, *, kernels: Sequence[int] | None = None) -> Float64:
        """`K_a beta` (kernels, n, m) of every kernel apart, beta (n, m); one pass."""
        kernels = list(range(self.s)) if kernels is None else list(kernels)
        shared = self.runtime.hold(itself, np.ascontiguousarray(beta, dtype=np.float64))
        result = np.zeros((len(kernels), *beta.shape))
        tasks = ((shard, shared, kernels) for shard in self._shards)
        for i, part in enumerate(self._each_shard(expansions.correlate_shard, tasks)):
            result[:, self.grid.span(i).start :] += part
        self.passes += 1
        return result

    def row_norms(self) -> Float64:
        """`sqrt(sum_j K_a[i, j]^2)` (s, n); one pass, the first time."""
        if self._row_norms is None:
            squares = np.zeros((self.s, self.n))
            for i, part in enumerate(self._each_shard(expansions.squares_shard, ((shard,) for shard in self._shards))):
                squares[:, self.grid.span(i).start :] += part
            self.passes += 1
            self._row_norms = np.sqrt(squares)
        return self._row_norms

    def pick(self, members: Mask) -> NDArray[Any]:
        """The rows `K_a[i, :]` for which members[a, i], one below the other (p, n), kernel after kernel; one pass."""
        chosen = [np.flatnonzero(mask) for mask in members]
        self.passes += 1
        whole = self._whole_array(self.dtype)
        if whole is not None and members.all():
            return whole.reshape(-1, self.n)
        starts = np.concatenate([[0], np.cumsum([len(samples) for samples in chosen])])
        self.memory.require(int(starts[-1]) * self.n * self.dtype.itemsize, "the kernel rows")
        result = np.empty((int(starts[-1]), self.n), self.dtype)
        for pieces in self._each_shard(expansions.pick_shard, ((shard, chosen) for shard in self._shards)):
            for a, places, columns, values in pieces:
                result[starts[a] + places.start : starts[a] + places.stop, columns] = values
        return result
