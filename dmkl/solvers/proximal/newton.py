"""Newton systems of the proximal method: (D + sum_a w_a K_a + U'U) x = right, D diagonal, U with few rows.

Up to `CHOLESKY_UP_TO` samples the matrix is factored. Beyond, conjugate gradients with the diagonal as preconditioner:
on the weighted sum of the kernels where one such matrix (float32) fits in memory, else on the kernels themselves, a
pass a product. Measured here on one thread: a factorisation of n = 4,000 costs as much as 60 products of that size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dmkl._util.types import Float64
from dmkl.solvers.proximal.operators import Kernels

CHOLESKY_UP_TO = 4000
JITTER = 1e-10  # of the mean diagonal: kernels are semidefinite up to rounding
HARDER = 1e3  # the jitter grows by this while a factorisation fails
CG_STEPS = 200


@dataclass(frozen=True)
class System:
    """The matrix, not put together yet."""

    kernels: Kernels
    weights: Float64  # (kernels,)
    diagonal: Float64  # (n,)
    factors: Float64  # (few, n)

    def solve(self, right: Float64, tol: float) -> Float64:
        """x to a relative residual of `tol`, or as far as rounding goes."""
        if len(right) <= CHOLESKY_UP_TO:
            return self._by_cholesky(right)
        combined = self.kernels.matrix(self.weights, np.float32)
        if combined is None:
            return self._by_gradients(right, tol, lambda x: self.kernels.total(self.weights, x))
        return self._by_gradients(right, tol, lambda x: (combined @ x.astype(combined.dtype)).astype(np.float64))

    def _by_cholesky(self, right: Float64) -> Float64:
        matrix = self.kernels.matrix(self.weights, np.float64)
        if matrix is None:
            return self._by_gradients(right, 1e-6, lambda x: self.kernels.total(self.weights, x))
        matrix += self.factors.T @ self.factors
        plain = matrix.diagonal() + self.diagonal
        jitter = JITTER * max(float(plain.mean()), 1e-300)
        while True:
            matrix[np.diag_indices(len(right))] = plain + jitter
            try:
                factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                jitter *= HARDER
                continue
            return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))

    def _by_gradients(self, right: Float64, tol: float, product: Callable[[Float64], Float64]) -> Float64:
        """Preconditioned conjugate gradients; every iterate is a descent direction."""
        scale = 1.0 / (self.diagonal + (self.factors**2).sum(axis=0) + max(float(self.diagonal.mean()), 1e-300))
        x, rest = np.zeros(len(right)), right.copy()
        ahead = scale * rest
        towards, size = ahead.copy(), float(rest @ ahead)
        wanted = tol * float(np.linalg.norm(right))
        for _ in range(CG_STEPS):
            turned = self.diagonal * towards + product(towards) + self.factors.T @ (self.factors @ towards)
            bend = float(towards @ turned)
            if not bend > 0:
                break
            x += (size / bend) * towards
            rest -= (size / bend) * turned
            if np.linalg.norm(rest) <= wanted:
                break
            ahead = scale * rest
            before, size = size, float(rest @ ahead)
            towards = ahead + (size / before) * towards
        return x
