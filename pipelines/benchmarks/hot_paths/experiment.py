"""Hot paths against the machine's limits, measured in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipelines.benchmarks.hot_paths.limits import UNITS, Limits, compile_all
from pipelines.benchmarks.hot_paths.paths import GOAL, Hot, Problem, clear, solver_paths, stack_paths
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

MEASURED = ("limit ms", "ms", "of sum", "of largest")

OFTEN = 3  # a limit is measured in every repetition: nothing should seem quick because its limit was met badly


def run(context: Context) -> Outcome:
    problem = Problem(context.settings, context.folder / "stores")
    compile_all()
    rates, rows, goals = [], [], []
    for threads in context.settings["threads"]:
        context.progress(f"{threads} threads")
        paths = stack_paths(problem, threads) + (solver_paths(problem) if threads == 1 else [])
        reached, seconds, found = measured(context, problem, threads, paths)
        rates += [
            {"what": what, "threads": threads, "rate": rate / UNITS[what][1], "unit": UNITS[what][0]}
            for what, rate in reached.items()
        ]
        for path in paths:
            row = compared(path, threads, path.costs(found[path.name]), reached, seconds[path.name])
            rows.append(row)
            if path.goal:
                goals.append(Goal(f"{path.name}, {threads} threads: of the limit", row["of sum"], ">=", GOAL, True))
    return Outcome(
        [
            Table("Limits of the machine", rates, ("rate",), {"rate": ".1f"}),
            Table("Hot paths", rows, MEASURED, {"limit ms": ".0f", "ms": ".0f", "of sum": ".2f", "of largest": ".2f"}),
        ],
        goals,
    )


def measured(
    context: Context, problem: Problem, threads: int, paths: list[Hot]
) -> tuple[dict[str, float], dict[str, float], dict[str, Any]]:
    """Best rates of the limits, best seconds of the paths, and the results of the paths; all in turn, so that a
    busy machine slows all of them equally."""
    limits = Limits(threads, context.settings, problem.grid.tile, problem.tile_files(), problem.folder / "written")
    rates: dict[str, float] = {}
    seconds: dict[str, float] = {}
    found: dict[str, Any] = {}
    for path in paths:  # compiles what it needs
        clear(problem)
        path.run()
    for _ in range(context.settings["repetitions"]):
        for what, measurement in limits.measurements().items():
            for _ in range(OFTEN):
                limits.clear()
                done, taken = timed(measurement)
                rates[what] = max(rates.get(what, 0.0), done / taken)
        limits.clear()
        for path in paths:
            clear(problem)
            found[path.name], taken = timed(path.run)
            seconds[path.name] = min(seconds.get(path.name, taken), taken)
    return rates, seconds, found


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def compared(path: Hot, threads: int, costs: dict[str, float], rates: dict[str, float], seconds: float) -> Row:
    """The row of a path and its limit."""
    least = {what: amount / rates[what] for what, amount in costs.items()}
    amounts = ", ".join(f"{what} {amount / 1e9:.3g} G" for what, amount in costs.items())
    return {
        "path": path.name,
        "threads": threads,
        "cost model": path.model,
        "costs": amounts,
        "limit ms": 1e3 * sum(least.values()),
        "ms": 1e3 * seconds,
        "of sum": sum(least.values()) / seconds,
        "of largest": max(least.values()) / seconds,
    }
