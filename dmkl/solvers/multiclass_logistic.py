"""The logistic loss of several classes for one kernel matrix, by Newton's method (Rasmussen and Williams 2006, 3.5).

    min_B  C sum_i (log sum_r exp(F_ir) - F_i,y_i) + 1/2 tr B' K B,      F = K B

At the optimum B = T(F) = C (E - pi), E[i, r] = 1 where r = y_i and pi the probabilities of the classes. A step D solves
B + D = T(F + K D) to first order. As rows of D sum to zero, that is

    (K + diag(1 / (C pi_r))) D_r - lam = (T(F) - B)_r / (C pi_r),      sum_r D_r = 0

the equations of `multiclass_svm`: m + 1 factorisations a step. T(F) is a dual point at any F.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray
from dmkl.problems.obscure_terms import SoftmaxLoss
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.multiclass_svm import ClassEquations


@dataclass(frozen=True)
class LogisticOptions:
    """Constants of the method."""

    steps: int = 60  # at most
    least_chance: float = 1e-12
    descent: float = 1e-4  # of the slope, that a step has to descend by
    shortest: float = 1e-6  # step


OPTIONS = LogisticOptions()


def solve_logistic(K: FloatArray, loss: SoftmaxLoss, start: Float64, tol: float) -> tuple[Float64, Float64]:
    """The dual point B (n, m) whose relative gap is `tol`, or as small as rounding and time allow, and K B.

    Parameters
    ----------
    K : array (n, n)
        The kernel matrix, symmetric and positive semidefinite.
    loss : SoftmaxLoss
    start : array (n, m)
        Coefficients to begin with.
    tol : float
    """
    Q, B = K.astype(np.float64), start
    F = Q @ B
    best, found = np.inf, (B, F)
    for _ in range(OPTIONS.steps):
        T = loss.tangent(F)
        turned = Q @ T
        square = float((T * turned).sum())
        gap = relative_gap(loss.primal(square, turned), loss.gain(T) - 0.5 * square)
        if gap < best:
            best, found = gap, (T, turned)
        if best <= tol or must_stop():
            break
        curved = loss.C * np.maximum(loss.chances(F), OPTIONS.least_chance)
        equations = ClassEquations(Q, 1.0 / curved)
        if not equations.sound:
            break
        D = equations.step((T - B) / curved)[0]
        moved = Q @ D
        value, slope = loss.primal(float((B * F).sum()), F), float(((B - T) * moved).sum())
        length = 1.0
        while length > OPTIONS.shortest and not (
            loss.primal(float(((B + length * D) * (F + length * moved)).sum()), F + length * moved)
            <= value + OPTIONS.descent * length * slope
        ):
            length *= 0.5
        if length <= OPTIONS.shortest:
            break
        B, F = B + length * D, F + length * moved
    return found
