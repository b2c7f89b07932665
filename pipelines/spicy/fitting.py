"""Timed fits and what they took, and what one part of this pipeline hands back."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from dmkl.solvers.problem import Formulation
from pipelines.shared_weights.results import Row
from pipelines.spicy.drawing import Panel

LOSSES = ("hinge", "logistic")


@dataclass(frozen=True)
class Outcome:
    """Markdown, numbers, figure, and whether a goal is missed."""

    parts: list[str]
    facts: Row
    panels: list[Panel] = field(default_factory=list)
    missed: bool = False


def timed(
    K: NDArray[Any], y: NDArray[np.float64], formulation: Formulation, tol: float, repetitions: int
) -> tuple[float, float, dmkl.Fit]:
    """The least seconds of `dmkl.solve`, those of the processor (which others slow down less), and the fit.

    Each repetition has a new stack: what a stack learns of its kernels is not there yet.
    """
    least, spent, fit = np.inf, np.inf, None
    gc.collect()
    for _ in range(repetitions):
        stack = dmkl.KernelStack.from_array(K)
        started, before = time.perf_counter(), time.process_time()
        fit = dmkl.solve(stack, y, formulation, tol=tol)
        least, spent = min(least, time.perf_counter() - started), min(spent, time.process_time() - before)
    assert fit is not None
    return least, spent, fit


def figures(fit: dmkl.Fit) -> Row:
    """What a fit of SpicyMKL took. Rows of the trace are round, class, gap, active kernels, Newton steps."""
    trace = fit.state.own["trace"]
    row = {"rounds": fit.rounds, "passes": fit.passes, "outer": len(trace), "Newton": int(trace[:, 4].sum())}
    return row | {"used": int(np.count_nonzero(fit.weights)), "gap": fit.worst_gap}


def warm_up(formulations: Sequence[Formulation], dtypes: Sequence[Any] = (np.float64,)) -> None:
    """Load and compile whatever is on first use."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    K = np.exp(-((X[:, None] - X[None]) ** 2)).transpose(2, 0, 1)
    for dtype in dtypes:
        for formulation in formulations:
            timed(np.ascontiguousarray(K, dtype), np.tile([1.0, -1.0], 20), formulation, 1e-2, 1)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Of the growth of the values with the sizes, by least squares on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def groups(rows: Sequence[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
