"""Multilabel sets: see experiment.toml."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import label_ranking_average_precision_score

import dmkl
from dmkl.data import make_labels
from dmkl.model import score_like
from dmkl.solvers import describe
from pipelines.common.banks import Bank
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.multilabel.data import loader

SUM, MAX, AVERAGE = "SharedMKL sum", "SharedMKL max", "average"
FORMATS = dict.fromkeys(("mAP", "LRAP", "micro F1", "mAP of folds", "plain"), ".3f") | {"kernels": ".1f"}


def grids(settings: Row) -> dict[str, list[Any]]:
    """What cross-validation chooses from."""
    Cs = settings["Cs"]
    return {
        MAX: dmkl.grid(dmkl.SharedMKL, mode=("max",), C=Cs),
        SUM: dmkl.grid(dmkl.SharedMKL, mode=("sum",), C=Cs),
        "VSKL": dmkl.grid(dmkl.VSKL, q=settings["qs"], C=Cs),
        "L1MKL": dmkl.grid(dmkl.L1MKL, C=Cs),
        "LpMKL": dmkl.grid(dmkl.LpMKL, p=settings["ps"], C=Cs),
        AVERAGE: dmkl.grid(dmkl.UniformMKL, C=Cs),
    }


def run(context: Context) -> Outcome:
    load = loader(context)
    tables: list[Table] = []
    goals: list[Goal] = []
    for name in context.settings["sets"]:
        size = context.cell(f"{name} size", lambda name=name: sized(load(name)))
        rows = [row_of(context, load, name, method, points) for method, points in grids(context.settings).items()]
        tables.append(Table(f"{name}: {size}", rows, ("seconds",), FORMATS))
        found = {row["method"]: row["mAP"] for row in rows}
        best = max(found[method] for method in (MAX, SUM))
        goals.append(Goal(f"{name}: mAP of shared weights less the average kernel's", best - found[AVERAGE], ">=", 0.0))
        if name in context.paper["plain"]:
            plain = context.paper["plain"][name]
            goals.append(Goal(f"{name}: best mAP less that of a plain average", max(found.values()) - plain, ">=", 0.0))
    gap = max(row["gap"] for table in tables for row in table.rows)
    return Outcome(tables, [*goals, Goal("largest certified gap", gap, "<=", context.settings["tol"])])


def sized(bank: Bank) -> str:
    """In words."""
    s, n, _ = bank.K.shape
    counted = int(bank.truth.any(axis=0).sum())
    return f"{n:,} + {len(bank.truth):,} samples, {bank.Y.shape[1]} labels ({counted} tested), {s} kernels"


def row_of(context: Context, load: Callable[[str], Bank], name: str, method: str, points: list[Any]) -> Row:
    """Constants by cross-validation, then the final training."""
    settings = context.settings

    def compute() -> Row:
        bank = load(name)
        context.progress(f"{name}: {method}")
        held, chosen = searched(bank, points, settings)
        return (
            {"method": method, "constants": told(chosen)}
            | trained(bank, chosen, settings["tol"])
            | {"mAP of folds": held}
        )

    return dict(context.cell(f"{name} {method}", compute)) | {"plain": context.paper["plain"].get(name)}


def searched(bank: Bank, points: list[Any], settings: Row) -> tuple[float, Any]:
    """The best point by mean average precision over folds, on labels that every fold can have."""
    folds = settings["folds"]
    members = bank.Y.sum(axis=0, dtype=np.int64)
    enough = np.flatnonzero(np.minimum(members, len(bank.Y) - members) >= 3 * folds)
    some = enough[np.linspace(0, len(enough) - 1, min(settings["cv_labels"], len(enough))).round().astype(int)]
    labels = make_labels(bank.Y[:, some], "multilabel")
    found = dmkl.tune(bank.stack, labels, points, folds=folds, tol=settings["cv_tol"], rule="best")
    return found.rows[found.chosen].mean, found.formulation


def told(formulation: Any) -> str:
    """'q=2 C=10'."""
    return describe(formulation, without="mode").split(" ", 1)[1]


def trained(bank: Bank, formulation: Any, tol: float) -> Row:
    """Quality on the test samples, certificate, cost."""
    started = time.perf_counter()
    fit = dmkl.solve(bank.stack, bank.labels, formulation, tol=tol)
    seconds, scores = time.perf_counter() - started, bank.scores(fit)
    metrics = score_like(scores, make_labels(bank.truth, "multilabel"))
    weights = np.atleast_2d(fit.weights)
    return {
        "mAP": metrics["mean_average_precision"],
        "LRAP": float(label_ranking_average_precision_score(bank.truth, scores)),
        "micro F1": metrics["micro_f1"],
        "kernels": float((weights > 1e-3 * weights.max(axis=1, keepdims=True)).sum(axis=1).mean()),
        "gap": fit.worst_gap,
        "SVM calls": fit.svm_calls,
        "seconds": seconds,
    }
