"""One class's SVM as tasks that run anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.oracles import ORACLES, Prepared, SvmResult


def prepare(oracle: str, K: NDArray[Any]) -> Prepared:
    """A matrix as the oracle wants it, made once for all classes that share the kernel."""
    return ORACLES[oracle].prepare(K)


def solve_class(
    oracle: str,
    kernel: NDArray[Any] | Prepared,
    y: NDArray[np.float64],
    C: float,
    intercept: bool,
    warm: NDArray[np.float64],
    tol: float,
) -> SvmResult:
    """Solve one class on one kernel matrix, bare or prepared, to a certified relative gap."""
    return ORACLES[oracle](kernel, y, C, intercept=intercept, alpha=warm, tol=tol)
