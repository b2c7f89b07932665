"""Cholesky factorisation of K + W^-1 on several threads, W diagonal and not negative: systems of n = 10,000 in seconds.

The matrix that is factored is B = I + W^1/2 K W^1/2. Its eigenvalues are at least 1, however small an entry of W is, so
it can be factored in float32 where K is float32. An entry of W may be zero: the solution is zero there.

Rows are kept in panels, and each panel is worked on by one thread, with BLAS on one thread: threads of BLAS wait for
each other in loops, and on a busy machine they take a hundred times as long. The result has the same bits on any
number of threads.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dmkl._util.machine import threads_of
from dmkl._util.types import Float64, FloatArray

PANEL = 256  # rows


class Cholesky:
    """The factor of K + W^-1, of the type of K.

    Parameters
    ----------
    K : array (n, n)
        Symmetric and positive semidefinite, not changed.
    w : array (n,)
        The diagonal of W.
    threads : int

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding makes the matrix indefinite.
    """

    def __init__(self, K: FloatArray, w: Float64, threads: int = 1) -> None:
        self.root, self.dtype = np.sqrt(w), K.dtype
        self._cuts = [*range(0, len(K), PANEL), len(K)]
        self._rows: list[FloatArray] = [np.empty((0, 0), K.dtype)] * (len(self._cuts) - 1)
        self._inverses: list[FloatArray] = []  # of the diagonal blocks, where there are rows below
        self._factor(K, self.root.astype(K.dtype), threads)

    def _factor(self, K: FloatArray, root: FloatArray, threads: int) -> None:
        """Column by column of blocks: what the columns before take away, then the division by the diagonal block."""
        cuts, rows, last = self._cuts, self._rows, len(self._rows) - 1

        def scaled(i: int) -> None:
            start, stop = cuts[i], cuts[i + 1]
            rows[i] = K[start:stop, :stop] * root[:stop]
            rows[i] *= root[start:stop, None]
            rows[i][np.arange(stop - start), np.arange(start, stop)] += 1

        def reduced(i: int, k: int) -> FloatArray:
            block = rows[i][:, cuts[k] : cuts[k + 1]]
            if k:
                block -= rows[i][:, : cuts[k]] @ rows[k][:, : cuts[k]].T
            return block

        def divided(i: int) -> None:
            block = reduced(i, k)
            block[:] = block @ self._inverses[k].T

        with threads_of(threads if last else 1) as each:
            each(scaled, range(last, -1, -1))
            for k in range(last + 1):
                block = reduced(k, k)
                block[:] = np.linalg.cholesky(block)
                if k < last:
                    inverse = scipy.linalg.get_lapack_funcs("trtri", (block,))(block, lower=1)[0]
                    self._inverses.append(np.ascontiguousarray(inverse))
                    each(divided, range(k + 1, last + 1))

    def solve(self, right: Float64) -> Float64:
        """x with (K + W^-1) x = right, (n,) or (n, k)."""
        root = self.root if right.ndim == 1 else self.root[:, None]
        x = (root * right).astype(self._rows[0].dtype)
        cuts = self._cuts
        for k, rows in enumerate(self._rows):
            here = x[cuts[k] : cuts[k + 1]]
            if k:
                here -= rows[:, : cuts[k]] @ x[: cuts[k]]
            here[:] = self._divide(k, here, 0)
        for k in range(len(self._rows) - 1, -1, -1):
            here = x[cuts[k] : cuts[k + 1]]
            here[:] = self._divide(k, here, 1)
            if k:
                x[: cuts[k]] -= self._rows[k][:, : cuts[k]].T @ here
        return np.asarray(root * x, dtype=np.float64)

    def _divide(self, k: int, right: FloatArray, transposed: int) -> FloatArray:
        if k < len(self._inverses):
            return (self._inverses[k].T if transposed else self._inverses[k]) @ right
        block = self._rows[k][:, self._cuts[k] :]
        solve = scipy.linalg.get_lapack_funcs("trtrs", (block,))
        # the block as LAPACK reads it, column by column, is its transpose: upper
        return np.asarray(solve(block.T, right, lower=0, trans=1 - transposed)[0])
