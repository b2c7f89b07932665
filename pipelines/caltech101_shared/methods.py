"""The methods, and one training with its results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dmkl
from dmkl.data import make_labels
from dmkl.model import measure
from dmkl.problems import Formulation
from dmkl.solvers.shared_max import MinimaxState, SaddleIterates
from pipelines.common.banks import Bank
from pipelines.common.experiment import Row

SA, MAX, SUM, L1, LP, VSKL, AVERAGE = "SA", "max", "Sum", "L1MKL", "LpMKL p=2", "VSKL q=2", "average"
FORMULATIONS: dict[str, Callable[..., Formulation]] = {
    SA: partial(dmkl.SharedMKL, mode="max"),
    MAX: partial(dmkl.SharedMKL, mode="max"),
    SUM: partial(dmkl.SharedMKL, mode="sum"),
    L1: dmkl.L1MKL,
    LP: partial(dmkl.LpMKL, 2.0),
    VSKL: partial(dmkl.VSKL, 2.0),
    AVERAGE: dmkl.UniformMKL,
}
STILL = 0.01  # the paper stops when a step changes the average of the weights by less than this


def trained(bank: Bank, method: str, C: float, tol: float) -> Row:
    """A cold start to a certified gap; SA runs until the paper's rule stops it, and is certified there."""
    if method == SA:
        return walked(bank, dmkl.SharedMKL(C, mode="max"), tol)
    started = time.perf_counter()
    fit = dmkl.solve(bank.stack, bank.labels, FORMULATIONS[method](C=C), tol=tol)
    return told(bank, fit, time.perf_counter() - started)


def told(bank: Bank, fit: dmkl.Fit, seconds: float) -> Row:
    """Quality on the test images, cost, certificate, mean weights."""
    scores = bank.scores(fit)
    classes = measure(scores, make_labels(bank.truth.argmax(axis=1), "multiclass"))
    weights = np.atleast_2d(fit.weights)
    return {
        "mAP": bank.metrics(scores)["mean_average_precision"],
        "accuracy": classes["balanced_accuracy"],
        "seconds": seconds,
        "SVM calls": fit.svm_calls,
        "gap": fit.worst_gap,
        "objective": float(np.sum(fit.objective)),
        "shares": (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
    }


def walked(bank: Bank, formulation: dmkl.SharedMKL, tol: float, rounds: int = 8) -> Row:
    """The paper's algorithm up to its own stop, checked at the end of every round (each twice as long as the last).

    The certificate is that of the weights; then every class is trained at them.
    """
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"tol": tol, "method": "sa-paper", "checkpoint": Path(folder) / "state"}
        started = time.perf_counter()
        for number in range(1, rounds + 1):
            fit = dmkl.solve(bank.stack, bank.labels, formulation, max_rounds=number, warn=False, **how)
            walk = fit.state.own_as(MinimaxState).iterates
            if moves(walk) < STILL or fit.converged:
                break
    combined = bank.combined(fit.weights)
    final = dmkl.solve(combined.stack, bank.labels, dmkl.UniformMKL(formulation.C), tol=tol)
    row = told(combined, final, time.perf_counter() - started) | {"gap": fit.worst_gap, "shares": fit.weights.tolist()}
    calls = {"SVM calls": fit.svm_calls + final.svm_calls, "steps": steps(walk), "moves": moves(walk)}
    return row | calls | {"objective": float(np.max(fit.objective))}


def steps(walk: SaddleIterates) -> int:
    """Steps of the algorithm, one SVM each; SVMs of the certificate are not counted."""
    return round(float(walk.weight_sum.sum()))


def moves(walk: SaddleIterates) -> float:
    """How much the next step changes the average of the weights, relative to its length."""
    average = walk.average[0]
    return float(np.linalg.norm(walk.weights - average) / np.linalg.norm(average)) / (steps(walk) + 1)
