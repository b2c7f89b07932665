"""One L1-MKL problem by three methods, and the cost of each."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import threadpoolctl

import dmkl
from dmkl.problems.norms import MixedNorm
from dmkl.solvers import mixed_norm
from dmkl.solvers.interior_point import solve_screened
from dmkl.solvers.mirror import MirrorOptions, solve_mirror
from pipelines.common.experiment import Row
from pipelines.common.fitting import timed
from pipelines.common.simplemkl import solve_simple
from pipelines.common.uci import Float64

DEFAULT, MIRROR, SIMPLE = "dmkl", "mirror", "SimpleMKL"


def default(K: Float64, y: Float64, C: float, tol: float) -> tuple[Row, dmkl.Fit]:
    """`dmkl.solve`; the steps of its interior point method, which a fit does not report, are counted."""
    steps: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        found = solve_screened(*arguments, **options)
        steps.append(found.steps)
        return found

    interior = replace(mixed_norm.WEIGHTS_METHODS["interior"], solve=counted)
    with mock.patch.dict(mixed_norm.WEIGHTS_METHODS, {"interior": interior}):
        seconds, fit = timed(K, y, dmkl.L1MKL(C=C), tol)
    used = int(np.count_nonzero(fit.weights))
    row = {"method": DEFAULT, "calls": fit.svm_calls, "steps": sum(steps), "seconds": seconds, "gap": fit.gap}
    return row | {"used": used}, fit


def mirror(K: Float64, y: Float64, C: float, tol: float, most: int) -> Row:
    """Mirror descent; not by `dmkl.solve`, which has no limit of SVM calls."""
    norm = MixedNorm(np.zeros(len(K), dtype=np.int64), 2.0)
    with threadpoolctl.threadpool_limits(1):
        started = time.perf_counter()
        found = solve_mirror(K, y, C, norm, tol, options=MirrorOptions(max_svm_calls=most))
        seconds = time.perf_counter() - started
    return {"method": MIRROR, "calls": found.svm_calls, "seconds": seconds, "gap": float(found.gap)}


def simple(K: Float64, y: Float64, C: float, tol: float, most: int) -> Row:
    found = solve_simple(K, y, C, tol, most)
    return {"method": SIMPLE, "calls": found.svm_calls, "seconds": found.seconds, "gap": float(found.gap)}
