"""Seconds and memory with kernels that are never held: see experiment.toml."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dmkl
from dmkl._util.machine import peak_resident
from dmkl.problems import Formulation
from pipelines.common.apart import in_own_process
from pipelines.common.data import data_file
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.random_kernels import gaussians

FORMULATIONS: dict[str, Callable[[float], Formulation]] = {
    "L1MKL": lambda C: dmkl.L1MKL(C=C),
    "hinge": lambda C: dmkl.SpicyMKL(C=C),
    "logistic": lambda C: dmkl.SpicyMKL(C=C, loss="logistic"),
}
PASS, BLOCK = "score_runs", "fill_block_row"
MEASURED = ("plan s", "fit s", "passes s", "blocks s", "MB")


def run(context: Context) -> Outcome:
    settings = context.settings
    file = str(data_file("sonar.npz", "UCI sonar, keys X (208, 60) and y in -1, +1"))
    rows = []
    for name in settings["C"]:
        rows.append(context.cell(name, partial(in_own_process, fitted, name, file, settings)))
        context.progress(name)
    goals = [Goal("the largest gap", max(row["gap"] for row in rows), "<=", settings["tol"])]
    if settings["kernels"] == context.paper["kernels"]:
        largest = {column: max(row[column] for row in rows) for column in MEASURED}
        goals += [
            Goal("seconds of the slowest fit", largest["fit s"], "<=", settings["seconds"], True),
            Goal("largest memory, MB", largest["MB"], "<=", settings["memory"] / 1e6, True),
        ]
    formats = {"gap": ".1e"} | dict.fromkeys(MEASURED, ".1f") | {"MB": ".0f", "objective": ".5g"}
    return Outcome([Table("Fits", rows, MEASURED, formats)], goals)


def fitted(name: str, file: str, settings: dict[str, Any]) -> Row:
    """One fit, in a process of its own."""
    data, rng = np.load(file), np.random.default_rng(settings["seed"])
    taken = rng.permutation(len(data["y"]))[: settings["samples"]]
    X, y = data["X"][taken].astype(np.float64), data["y"][taken]
    bank = gaussians(X.shape[1], settings["kernels"], rng)
    tables = [{"kernel": "rbf", "width": one.width, "subsets": [one.columns.tolist()]} for one in bank]
    formulation = FORMULATIONS[name](settings["C"][name])
    dmkl.solve(stack_of(X, tables[:2000], settings), y, formulation)  # compiles
    started = time.perf_counter()
    stack = stack_of(X, tables, settings)
    planned = time.perf_counter()
    fit = dmkl.solve(stack, y, formulation, tol=settings["tol"])
    finished = time.perf_counter()
    busy = busy_seconds(stack)
    return {
        "formulation": name,
        "C": settings["C"][name],
        "kernels": stack.s,
        "used": int(np.count_nonzero(fit.weights)),
        "rounds": fit.rounds,
        "objective": fit.objective,
        "gap": fit.worst_gap,
        "plan s": planned - started,
        "fit s": finished - planned,
        "passes s": busy.get(PASS, 0.0),
        "blocks s": busy.get(BLOCK, 0.0),
        "MB": peak_resident() / 1e6,
    }


def stack_of(X: Any, tables: list[dict[str, Any]], settings: dict[str, Any]) -> dmkl.KernelStack:
    return dmkl.KernelStack.from_features(X, tables, workers=settings["workers"], memory=settings["memory"])


def busy_seconds(stack: dmkl.KernelStack) -> dict[str, float]:
    """Seconds of all threads by function."""
    busy: dict[str, float] = {}
    for row in stack.runtime.timeline().to_dict()["rows"]:
        busy[row["function"]] = busy.get(row["function"], 0.0) + row["seconds"]
    return busy
