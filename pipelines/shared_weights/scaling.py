"""How many SVM calls a certified gap of 1e-2 takes while the number of classes grows and the samples stay the same.

`without m` leaves one call a class out: mode max trains every class once at the final weights, whatever it does before.
Beside it the paper's algorithm alone, which is given a few rounds (each twice as long as the last) to reach 3e-2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dmkl
from pipelines.shared_weights.results import Row, goal, progress, show, table, write
from pipelines.shared_weights.synthetic import gaussian_kernels, synthetic

C, TOL = 10.0, 1e-2
MEMORY = 6_000_000_000
WORKERS = 2
SLOPE_GOAL = 0.8
PAPER_TOL, PAPER_ROUNDS = 3e-2, 6
PAPER_ETAS = (0.0, 1e-4, 1e-3)  # 0: scale-free
COLUMNS = ("method", "classes", "seed", "svm_calls", "without m", "seconds", "passes", "rounds", "gap", "converged")


@dataclass(frozen=True)
class Plan:
    """`seeds` for mode max, and for mode sum up to `sum_repeated` classes; beyond, sum has one seed."""

    n: int
    classes: tuple[int, ...]
    seeds: int
    sum_repeated: int
    paper_classes: tuple[int, ...]
    paper_rounds: int


WHOLE = Plan(2000, (10, 30, 100, 300, 1000), 3, 100, (10, 30), PAPER_ROUNDS)
QUICK = Plan(500, (5, 10, 20), 1, 0, (5,), 2)


def fitted(stack: dmkl.KernelStack, Y: np.ndarray, formulation: dmkl.SharedMKL, **how: object) -> Row:
    """A fit's figures."""
    started = time.perf_counter()
    fit = dmkl.solve(stack, Y, formulation, **how)
    seconds, m = time.perf_counter() - started, Y.shape[1]
    row = {"classes": m, "svm_calls": fit.svm_calls, "without m": fit.svm_calls - m, "seconds": round(seconds, 2)}
    return row | {"passes": fit.passes, "rounds": fit.rounds, "gap": fit.worst_gap, "converged": fit.converged}


def measured(plan: Plan) -> Iterator[Row]:
    """Rows as they are found, mode max first."""
    stacks = []
    for seed in range(plan.seeds):
        K = gaussian_kernels(synthetic(plan.n, 1, seed).views)
        stacks.append(dmkl.KernelStack.from_array(K, workers=WORKERS, memory=MEMORY))

    def row(label: str, m: int, seed: int, formulation: dmkl.SharedMKL, tol: float = TOL, **how: object) -> Row:
        found = fitted(stacks[seed], synthetic(plan.n, m, seed).Y, formulation, tol=tol, seed=seed, **how)
        return {"method": label, "seed": seed} | found

    for seed in range(plan.seeds):
        for m in plan.classes:
            yield row("max", m, seed, dmkl.SharedMKL(C, mode="max"))
    for m in plan.classes:
        for seed in range(plan.seeds if m <= plan.sum_repeated else 1):
            yield row("sum", m, seed, dmkl.SharedMKL(C, mode="sum"))
    for m in plan.paper_classes:
        for eta in PAPER_ETAS:
            name = f"sa-paper, eta {eta:g}" if eta else "sa-paper, scale-free"
            how = {"tol": PAPER_TOL, "max_rounds": plan.paper_rounds, "method": "sa-paper"}
            yield row(name, m, 0, dmkl.SharedMKL(C, mode="max", eta=eta), **how)


def slope(rows: list[Row], method: str, what: str) -> float:
    """Of the logarithm of `what` in the logarithm of the number of classes, by least squares over all runs."""
    found = [(row["classes"], row[what]) for row in rows if row["method"] == method]
    return float(np.polyfit(*np.log(np.array(found)).T, 1)[0])


def run(folder: Path, quick: bool) -> bool:
    """Whether a goal is missed."""
    plan = QUICK if quick else WHOLE
    title = f"# SVM calls to a certified gap of {TOL:g}, n = {plan.n:,}, 12 kernels, C = {C:g}"
    rows: list[Row] = []
    for row in measured(plan):
        rows.append(row)
        progress(str(row))
        write(folder, "scaling", [title, table(rows, COLUMNS)], {"rows": rows})  # a run that is cut short leaves these
    slopes = {
        f"{method}, {what}": slope(rows, method, what)
        for method in ("max", "sum")
        for what in ("svm_calls", "without m", "seconds")
    }
    line, missed = goal(
        "slope of SVM calls in the number of classes, mode max", slopes["max, svm_calls"], "<", SLOPE_GOAL
    )
    unproved = [row for row in rows if row["method"] in ("max", "sum") and not row["converged"]]
    parts = [
        title,
        table(rows, COLUMNS),
        f"Log-log slopes in the number of classes: {'; '.join(f'{k} {v:.2f}' for k, v in slopes.items())}.",
        f"{line} Runs of max and sum that did not reach the gap: {len(unproved)}.",
    ]
    write(folder, "scaling", parts, {"rows": rows, "slopes": slopes})
    show(parts)
    return missed or bool(unproved)
