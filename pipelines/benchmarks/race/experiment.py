"""A table a problem: every contestant's time, distance from the optimum, accuracy and memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

import dmkl
from pipelines.benchmarks.race.problems import PROBLEMS, Problem, diabetes
from pipelines.benchmarks.race.words import remarks
from pipelines.common.contest import Answer, Ring, hand_over, reached, ring
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

SHARE = 0.2  # of the fastest peer's time: the goal
MEASURED = ("seconds", "CPU s", "s to goal", "times SVC", "peak MB")
FORMATS = {"seconds": ".3g", "CPU s": ".3g", "s to goal": ".3g", "times SVC": ".3g", "peak MB": ".0f", "off": ".1e"}
FORMATS |= {"proved gap": ".1e", "accuracy": ".4f", "R2": ".4f"}
OURS, YARDSTICK = "dmkl, 1 thread", "scikit-learn SVC, average kernel"


def run(context: Context) -> Outcome:
    settings = context.settings
    tables, goals, said = [], [], []
    with ring(context.folder, settings["packages"], settings["threads"]) as contest:
        for name in PROBLEMS:
            rows, optimum = _race(context, contest, name)
            tables.append(_table(context, name, rows, optimum))
            said += remarks(f"Problem {name}", rows, OURS, "accuracy")
            goals += _goals(context, name, rows, optimum)
        ridge = _ridge(context, contest)
        said += remarks("Ridge", ridge, "dmkl SpicyMKL", "R2")
        versions = context.cell("versions", lambda: [contest.missing, contest.versions])
    note = (
        "Means over the splits, seconds too; these include the cross-validation of constants (himalaya: and weights)."
    )
    title = "Ridge: diabetes, 44 kernels, 309 samples to train and 133 to test"
    tables.append(Table(title, ridge, MEASURED, FORMATS, note))
    return Outcome(tables, goals, [*said, *(text for text in (versions[0], _installed(versions[1])) if text)])


def _race(context: Context, contest: Ring, name: str) -> tuple[list[Row], float]:
    """The rows of a problem, and its certified optimum."""
    settings, made = context.settings, _Made(context, name)
    formulation = {"formulation": "SharedMKL" if name == "C" else "L1MKL", "constants": {"C": settings["C"][name]}}
    common = {"C": settings["C"][name]}

    def exact() -> float:
        problem, solved = made.problem, getattr(dmkl, formulation["formulation"])(**formulation["constants"])
        stack = dmkl.KernelStack.from_array(problem.K, workers=1)
        return float(np.sum(dmkl.solve(stack, problem.y, solved, tol=settings["exact"][name]).objective))

    optimum = context.cell(f"{name} exact", exact)
    ours = {"fit": "dmkl", "tol": settings["tol"][name], "repeats": settings["repeats"], **formulation}
    contestants: dict[str, dict[str, Any]] = {
        OURS: ours,
        YARDSTICK: {"fit": "svc_average", "repeats": settings["repeats"]},
        "scikit-learn SVC, hand-written loop": {"fit": "hand_loop", "steps": settings["steps"][name]},
    }
    if settings["two_threads"]:
        contestants["dmkl, 2 threads"] = ours | {"threads": 2}
    if settings["packages"]:
        for algorithm in settings["algorithms"]:
            contestants[f"MKLpy {algorithm}"] = {"fit": "mklpy", "algorithm": algorithm, "lam": settings["lam"]}
    rows = []
    for who, options in contestants.items():
        row = context.cell(f"{name} {who}", lambda o=common | options: _row(contest, made, o, optimum))
        if row is not None:
            rows.append({"contestant": who, **row})
    made.forget()
    yardstick = next(row["seconds"] for row in rows if row["contestant"] == YARDSTICK)
    return [{**row, "times SVC": row["seconds"] / yardstick if row["seconds"] else None} for row in rows], optimum


class _Made:
    """A problem that is computed, and its files written, when first needed."""

    def __init__(self, context: Context, name: str) -> None:
        self._make: Callable[[], Problem] = lambda: PROBLEMS[name](context.settings["samples"][name])
        self.C, self.tol = context.settings["C"][name], context.settings["tol"][name]
        self.place = context.folder / name
        self._problem: Problem | None = None

    @property
    def problem(self) -> Problem:
        if self._problem is None:
            self._problem = self._make()
            hand_over(self.place, self._problem.K, self._problem.y, self._problem.test)
        return self._problem

    def forget(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


def _row(contest: Ring, made: _Made, options: dict[str, Any], optimum: float) -> Row | None:
    problem = made.problem
    try:
        answer = contest.fit(made.place, options)
    except RuntimeError as failure:
        return _empty() | {"remark": str(failure).replace("\n", " ")[:120]}
    if answer is None:
        return None
    found = reached(problem.K, problem.y, made.C, answer, optimum, made.tol)
    first, told = found["first"], answer.told
    steps = f"goal after {first['steps']} steps" if first and first["steps"] else ""
    if options["fit"] == "hand_loop" and not first:
        steps = f"not there after {options['steps']} steps"
    return _empty() | {
        "seconds": told["seconds"],
        "CPU s": told["CPU s"],
        "s to goal": first["seconds"] if first else None,
        "proved gap": told.get("gap"),
        "off": told["objective"] / optimum - 1 if "objective" in told else found["off"],
        "accuracy": _accuracy(answer, problem),
        "peak MB": told["peak MB"],
        "remark": steps,
    }


def _empty() -> Row:
    names = ("seconds", "CPU s", "s to goal", "proved gap", "off", "accuracy", "peak MB")
    return dict.fromkeys(names) | {"remark": ""}


def _accuracy(answer: Answer, problem: Problem) -> float | None:
    return float(np.mean(answer.predicted == problem.truth)) if len(answer.predicted) else None


def _table(context: Context, name: str, rows: list[Row], optimum: float) -> Table:
    paper = context.paper
    fastest = f"PEERS.md, fastest: {paper['fastest'][name]} s ({paper['who'][name]}); others: {paper['others'][name]}."
    title = f"Problem {name}: {context.settings['samples'][name]} samples, optimum {optimum:.7g}"
    return Table(title, rows, MEASURED, FORMATS, fastest)


def _goals(context: Context, name: str, rows: list[Row], optimum: float) -> list[Goal]:
    ours, tol = rows[0], context.settings["tol"][name]
    goals = [Goal(f"{name}: proved gap", ours["proved gap"], "<=", tol)]
    if not context.quick:  # the peers' times are those of whole problems
        time = "CPU s" if name == "B" else "seconds"
        limit = SHARE * context.paper["fastest"][name]
        goals.append(Goal(f"{name}: {time}, a fifth of PEERS.md's fastest", ours[time], "<=", limit, measured=True))
        if name == "A":
            off = abs(optimum / context.paper["optimum"] - 1)
            goals.append(Goal("A: off the optimum in PEERS.md", off, "<=", 1e-6))
    return goals


def _ridge(context: Context, contest: Ring) -> list[Row]:
    """Means over splits of a regression problem."""
    settings = context.settings
    common = {"folds": settings["ridge_folds"], "tol": 1e-3, "alphas": [1 / C for C in settings["constants"]]}
    contestants: dict[str, dict[str, Any]] = {
        "dmkl SpicyMKL": {"fit": "dmkl_ridge", "formulation": "SpicyMKL", "relative": True},
        "dmkl UniformMKL": {"fit": "dmkl_ridge", "formulation": "UniformMKL", "relative": False},
        "scikit-learn KernelRidge, average kernel": {"fit": "sklearn_ridge"},
    }
    if settings["packages"]:
        params = {"n_iter": settings["himalaya_iterations"]}
        contestants["himalaya, random search"] = {"fit": "himalaya", "solver": "random_search", "params": params}
        contestants["himalaya, gradient"] = {"fit": "himalaya", "solver": "hyper_gradient", "params": {}}
    rows = []
    for who, options in contestants.items():
        shares = settings["shares"] if options.get("relative") else settings["constants"]
        asked = common | {"shares": shares} | options
        found = [
            context.cell(f"ridge {number} {who}", lambda n=number, o=asked: _regressed(context, contest, n, o))
            for number in range(settings["ridge_splits"])
        ]
        if None not in found:
            names = ("seconds", "CPU s", "R2", "peak MB")
            rows.append({"contestant": who} | {name: float(np.mean([row[name] for row in found])) for name in names})
    return rows


def _regressed(context: Context, contest: Ring, number: int, options: dict[str, Any]) -> Row | None:
    problem = diabetes(number)
    place = hand_over(context.folder / "ridge", problem.K, problem.y, problem.test)
    answer = contest.fit(place, options)
    if answer is None or problem.truth is None:
        return None
    error = float(((answer.predicted - problem.truth) ** 2).sum())
    r2 = 1.0 - error / float(((problem.truth - problem.truth.mean()) ** 2).sum())
    return {name: answer.told[name] for name in ("seconds", "CPU s", "peak MB")} | {"R2": r2}


def _installed(versions: str) -> str:
    return f"<sub>Peers' environment: {versions}.</sub>" if versions else ""
