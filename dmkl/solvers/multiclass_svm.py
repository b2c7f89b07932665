"""The SVM of Crammer and Singer's multiclass loss for one kernel matrix, by an interior point method.

    max_B  sum_i B[i, y_i] - 1/2 tr B' K B      every row of C e_y - B non-negative, with the sum C

With U = (C e_y - B) / C and the kernel matrix Q = C K it is a quadratic program over n simplices,

    min_U  1/2 tr U' Q U - tr E' Q U + tr E' U      U >= 0,  U 1 = 1       E[i, r] = 1 where r = y_i

and the multipliers of the rows' sums are free, so that every U in the middle of the simplices is also a feasible start
of the dual. A step (Mehrotra's predictor and corrector) factors Q + diag(Z_r / U_r) for each of the m classes, and one
matrix more for the multipliers: m + 1 factorisations of n samples, some 20 times, however ill-conditioned K is. Dual
coordinate ascent, which reads K, is faster where it converges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Samples


@dataclass(frozen=True)
class MulticlassOptions:
    """Constants of the interior point method."""

    steps: int = 60  # at most
    to_boundary: float = 0.99  # the share of the way to the nearest bound that a step goes at most
    short: float = 0.1  # where the corrected step is shorter than this, a step to the middle instead,
    centring: float = 0.5  # which lowers the products by this factor
    ridge: float = 1e-14  # of the mean diagonal


OPTIONS = MulticlassOptions()


def solve_multiclass(K: FloatArray, labels: Samples, m: int, C: float, tol: float) -> Float64:
    """The dual point B (n, m) whose relative gap is about `tol`, or as near as rounding and time allow.

    Parameters
    ----------
    K : array (n, n)
        The kernel matrix, symmetric and positive semidefinite.
    labels : array (n,)
        The class of each sample, 0 to m - 1.
    m : int
        The number of classes.
    C : float
        The bound, positive.
    tol : float
    """
    n = len(labels)
    Q, E = C * K.astype(np.float64), np.zeros((n, m))
    E[np.arange(n), labels] = 1.0
    Q[np.diag_indices(n)] += OPTIONS.ridge * float(Q.diagonal().mean())
    U = np.full((n, m), 1.0 / m)
    slopes = Q @ (U - E) + E
    Z = slopes - slopes.min(axis=1, keepdims=True)
    Z += max(float(Z.mean()), 1.0)
    for _ in range(OPTIONS.steps):
        products = U * Z
        mean = float(products.mean())
        norm = 0.5 * float(((U - E) * (Q @ (U - E))).sum())
        if mean * U.size <= tol * (norm + float(n) - float((U * E).sum()) + mean * U.size) or must_stop():
            break
        equations = ClassEquations(Q, Z / U)
        if not equations.sound:
            break
        dU, dZ = equations.step(-products / U)
        length = _room(U, Z, dU, dZ)
        left = float(((U + length * dU) * (Z + length * dZ)).mean())
        target = (left / mean) ** 3 * mean
        dU, dZ = equations.step((target - products - dU * dZ) / U)
        length = _room(U, Z, dU, dZ)
        if length < OPTIONS.short:
            dU, dZ = equations.step((OPTIONS.centring * mean - products) / U)
            length = _room(U, Z, dU, dZ)
        U, Z = U + OPTIONS.to_boundary * length * dU, Z + OPTIONS.to_boundary * length * dZ
    return np.asarray(C * (E - U / U.sum(axis=1, keepdims=True)))


class ClassEquations:
    """(Q + diag(D_r)) dU_r - dlam = t_r for every class r, and sum_r dU_r = 0; factored once for two or three t."""

    def __init__(self, Q: Float64, D: Float64) -> None:
        self._Q, self._factors, inverses = Q, [], np.zeros_like(Q)
        self.sound = True
        for r in range(D.shape[1]):
            matrix = Q.copy(order="F")
            matrix[np.diag_indices(len(Q))] += D[:, r]
            factor, failed = dpotrf(matrix, lower=1, overwrite_a=1)
            self._factors.append(factor)
            inverses += dpotri(factor, lower=1)[0]
            if failed or must_stop():
                self.sound = False
                return
        # two scales meet in the sum: its own makes the diagonal one
        self._scale = 1.0 / np.sqrt(inverses.diagonal())
        inverses *= self._scale[:, None] * self._scale
        self._sum, failed = dpotrf(inverses, lower=1)
        self.sound = not failed

    def step(self, t: Float64) -> tuple[Float64, Float64]:
        """dU and dZ = Q dU - dlam."""
        alone = np.column_stack(
            [dpotrs(factor, own, lower=1)[0] for factor, own in zip(self._factors, t.T, strict=True)]
        )
        lam = -self._scale * dpotrs(self._sum, self._scale * alone.sum(axis=1), lower=1)[0]
        shared = np.column_stack([dpotrs(factor, lam, lower=1)[0] for factor in self._factors])
        dU = alone + shared
        dU -= dU.mean(axis=1, keepdims=True)
        return dU, self._Q @ dU - lam[:, None]


def _room(U: Float64, Z: Float64, dU: Float64, dZ: Float64) -> float:
    """The largest length of a step, at most 1, that keeps U and Z positive."""
    lengths = [float((-values[by < 0] / by[by < 0]).min(initial=np.inf)) for values, by in ((U, dU), (Z, dZ))]
    return min(1.0 / OPTIONS.to_boundary, *lengths)
