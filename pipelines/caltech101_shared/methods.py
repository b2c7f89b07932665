"""The methods, and one training with its results."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

import dmkl
from dmkl.data import make_labels
from dmkl.model import measure
from dmkl.problems import Formulation
from dmkl.solvers.shared_max import MinimaxState
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


def trained(bank: Bank, method: str, C: float, tol: float) -> Row:
    """A cold start to a certified gap; SA runs until the paper's rule stops it, and is certified there."""
    if method == SA:
        return walked(bank, dmkl.SharedMKL(C, mode="max", stop="paper"), tol)
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


def walked(bank: Bank, formulation: dmkl.SharedMKL, tol: float) -> Row:
    """The paper's algorithm up to its own stop, or to the tolerance if that comes first.

    The certificate is that of the weights; then every class is trained at them.
    """
    started = time.perf_counter()
    fit = dmkl.solve(bank.stack, bank.labels, formulation, tol=tol, method="sa-paper")
    walk = fit.state.own_as(MinimaxState).iterates
    combined = bank.combined(fit.weights)
    final = dmkl.solve(combined.stack, bank.labels, dmkl.UniformMKL(formulation.C), tol=tol)
    row = told(combined, final, time.perf_counter() - started) | {"gap": fit.worst_gap, "shares": fit.weights.tolist()}
    calls = {"SVM calls": fit.svm_calls + final.svm_calls, "steps": walk.steps, "moves": walk.change}
    return row | calls | {"objective": float(np.max(fit.objective))}
