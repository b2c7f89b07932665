"""The SVM of one class on one kernel matrix, with a certificate: one file and one line for each oracle."""

from __future__ import annotations

from dmkl._util.registry import Registry
from dmkl._util.types import FloatArray
from dmkl.oracles.base import (
    MAX_STEPS,
    Feature,
    Oracle,
    PreparedKernel,
    SvmResult,
    best_intercept,
    least_hinge,
    relative_gap,
    svm_bounds,
)

ORACLES: Registry[Oracle] = Registry("oracle")
ORACLES.register("smo", "dmkl.oracles.smo:SMO")
ORACLES.register("libsvm", "dmkl.oracles.libsvm:LIBSVM")


def solve_svm(
    K: FloatArray | PreparedKernel,
    y: FloatArray,
    C: FloatArray | float,
    oracle: str = "smo",
    *,
    linear: FloatArray | None = None,
    intercept: bool = True,
    alpha: FloatArray | None = None,
    tol: float = 1e-3,
    max_steps: int = MAX_STEPS,
) -> SvmResult:
    """Solve the SVM of one class on one kernel matrix (`dmkl.oracles.base` has the problem).

    Parameters
    ----------
    K : array (n, n) or PreparedKernel
        The kernel matrix, symmetric, C-contiguous, float32 or float64.
    y : array (n,)
        Signs -1/+1.
    C : float or array (n,)
        Upper bounds of alpha.
    oracle : str
        A name in `ORACLES`: "smo" or "libsvm".
    linear : array (n,), optional
        The linear term of the dual, 1 by default.
    intercept : bool
        Whether the machine has a free intercept.
    alpha : array (n,), optional
        Where to start.
    tol : float
        The relative gap to reach.
    max_steps : int
        The most steps of the oracle.

    Returns
    -------
    SvmResult
        A feasible alpha with its certificate; its gap is above `tol` only where steps or digits ran out.

    Raises
    ------
    SolverError
        If an argument is wrong, or the oracle does not support it.
    ConfigError
        If there is no such oracle.
    """
    return ORACLES[oracle](K, y, C, linear=linear, intercept=intercept, alpha=alpha, tol=tol, max_steps=max_steps)


__all__ = [
    "MAX_STEPS",
    "ORACLES",
    "Feature",
    "Oracle",
    "PreparedKernel",
    "SvmResult",
    "best_intercept",
    "least_hinge",
    "relative_gap",
    "solve_svm",
    "svm_bounds",
]
