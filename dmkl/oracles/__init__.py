"""The SVM of one class on one kernel matrix, with a certificate: one file and one registration line an oracle."""

from __future__ import annotations

from dmkl._util.registry import Registry
from dmkl.oracles.base import MAX_STEPS, Feature, Oracle, Prepared, SvmResult
from dmkl.oracles.certificate import FloatArray, best_intercept, least_hinge, svm_bounds
from dmkl.oracles.libsvm import LibsvmOracle
from dmkl.oracles.smo import SmoOracle

ORACLES: Registry[Oracle] = Registry("oracle")
ORACLES.register("smo", SmoOracle())
ORACLES.register("libsvm", LibsvmOracle())


def solve_svm(
    K: FloatArray | Prepared,
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
    """One class by the oracle of this name, to a certified relative gap of `tol`; the arguments are those of `base`."""
    return ORACLES[oracle](K, y, C, linear=linear, intercept=intercept, alpha=alpha, tol=tol, max_steps=max_steps)


__all__ = [
    "MAX_STEPS",
    "ORACLES",
    "Feature",
    "Oracle",
    "Prepared",
    "SvmResult",
    "best_intercept",
    "least_hinge",
    "solve_svm",
    "svm_bounds",
]
