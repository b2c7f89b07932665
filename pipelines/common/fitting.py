"""Timed fits, their cost, and its growth."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from dmkl.problems import Formulation
from pipelines.common.drawing import Line
from pipelines.common.experiment import Row

LOSSES = ("hinge", "logistic")
WORKERS, MEMORY = 2, 4 * 10**9  # fixed, because batches, and so last digits, may depend on them


def timed(
    K: NDArray[Any], y: NDArray[np.float64], formulation: Formulation, tol: float, repetitions: int = 1
) -> tuple[float, dmkl.Fit]:
    """The least seconds of `dmkl.solve`, and the fit.

    Each repetition has a new stack, which has no cached properties of its kernels.
    """
    least, fit = np.inf, None
    gc.collect()
    for _ in range(repetitions):
        stack = dmkl.KernelStack.from_array(K, workers=WORKERS, memory=MEMORY)
        started = time.perf_counter()
        fit = dmkl.solve(stack, y, formulation, tol=tol)
        least = min(least, time.perf_counter() - started)
    assert fit is not None
    return least, fit


def took(fit: dmkl.Fit) -> Row:
    """The cost of a fit of SpicyMKL: proximal iterations, Newton steps inside them, kernels used, the certified gap."""
    steps = sum(int(iteration["steps"]) for iteration in fit.iterations)
    used = int(np.count_nonzero(fit.weights))
    return {"iterations": len(fit.iterations), "Newton": steps, "used": used, "gap": fit.worst_gap}


def held_out(fit: dmkl.Fit, kernel: Callable[[int], NDArray[Any]], y: NDArray[np.float64]) -> float:
    """Percent of right signs; `kernel(a)` is (held out, trained on)."""
    weights, scores = np.ravel(fit.weights), np.full(len(y), float(fit.intercept))
    for a in np.flatnonzero(weights):
        scores += weights[a] * (kernel(int(a)) @ fit.coef)
    return 100 * float(np.mean((scores > 0) == (y > 0)))


def warm_up(formulations: Sequence[Formulation], dtype: Any = np.float64) -> None:
    """Load and compile everything that is compiled on first use."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    K = np.exp(-((X[:, None] - X[None]) ** 2)).transpose(2, 0, 1)
    for formulation in formulations:
        timed(np.ascontiguousarray(K, dtype), np.tile([1.0, -1.0], 20), formulation, 1e-2)


def exponent(rows: Sequence[Row], across: str, up: str) -> float:
    """Of the growth of one column with another, by least squares on logarithms."""
    return float(np.polyfit(np.log([row[across] for row in rows]), np.log([row[up] for row in rows]), 1)[0])


def grouped(rows: Sequence[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that agree in some columns."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return found


def means(rows: Sequence[Row], same: Sequence[str], averaged: Sequence[str], spread: str = "") -> list[Row]:
    """A row for all that agree in the columns `same`, with means of others and the deviation of one of them."""
    found = []
    for key, some in grouped(rows, *same).items():
        row = dict(zip(same, key, strict=True))
        for column in averaged:
            values = [one[column] for one in some]
            row[column] = float(np.mean(values))
            if column == spread:
                row["±"] = float(np.std(values))
        found.append(row)
    return found


def growth(series: dict[tuple[Any, ...], list[Row]], across: str, up: str) -> list[Line]:
    """A line for each series, with the exponent of its growth."""
    lines = []
    for number, (key, rows) in enumerate(series.items()):
        label = f"{', '.join(map(str, key))}: exponent {exponent(rows, across, up):.2f}"
        xs, ys = [row[across] for row in rows], [row[up] for row in rows]
        lines.append(Line(label, xs, ys, "os^v"[number % 4] + "-", f"C{number}", [row.get("±", 0.0) for row in rows]))
    return lines
