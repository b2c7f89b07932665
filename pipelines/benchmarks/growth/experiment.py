"""Times over sizes, their exponents, and the curves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

import dmkl
from dmkl.data import make_labels
from pipelines.benchmarks.growth.banks import leaves, spam
from pipelines.common.contest import Ring, hand_over, reached, ring
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Outcome, Row, Table

DMKL, SVC, LOOP = "dmkl", "SVC, average kernel", "hand-written loop"
AVERAGE, EASY = "MKLpy AverageMKL", "MKLpy EasyMKL"
EXACT = 0.1  # of the tolerance: how exactly the optimum is known that the loop is measured by
AXES = {"n": "samples", "s": "kernels", "m": "classes"}


def run(context: Context) -> Outcome:
    settings = context.settings
    seconds: dict[str, dict[str, list[float | None]]] = {}
    tables, panels = [], []
    with ring(context.folder, settings["packages"], settings["threads"]) as contest:
        for axis, what in AXES.items():
            cells = [_size(context, contest, axis, size) for size in settings[axis]]
            names = list(_contestants(context, axis))
            seconds[axis] = {who: [cell.get(who) for cell in cells] for who in names}
            rows = [
                {axis: size, "proved gap": cell["gap"], "loop's steps": cell["steps"]}
                | {who: cell[who] for who in names}
                for size, cell in zip(settings[axis], cells, strict=True)
            ]
            formats = {"proved gap": ".1e"} | dict.fromkeys(names, ".3g")
            tables.append(Table(f"Seconds, and the number of {what}", rows, tuple(names), formats))
            panels.append(_panel(axis, settings[axis], seconds[axis]))
        versions = context.cell("versions", lambda: [contest.missing, contest.versions])
    tables.append(Table("Exponents", _exponents(settings, seconds), tuple(AXES), dict.fromkeys(AXES, ".2f")))
    said = [_faster(settings, axis, seconds[axis]) for axis in AXES]
    return Outcome(tables, (), [*said, *filter(None, versions[:1])], {"growth": panels})


def _contestants(context: Context, axis: str) -> dict[str, dict[str, Any]]:
    settings = context.settings
    C = 10.0 if axis == "m" else 1.0
    formulation = {"formulation": "SharedMKL" if axis == "m" else "L1MKL", "constants": {"C": C}}
    found: dict[str, dict[str, Any]] = {
        DMKL: {"fit": "dmkl", "tol": settings["tol"], "repeats": settings["repeats"], **formulation},
        SVC: {"fit": "svc_average", "repeats": settings["repeats"]},
        LOOP: {"fit": "hand_loop", "steps": settings["steps_m" if axis == "m" else "steps"]},
    }
    if settings["packages"]:
        found[AVERAGE] = {"fit": "mklpy", "algorithm": "AverageMKL"}
        found[EASY] = {"fit": "mklpy", "algorithm": "EasyMKL", "lam": settings["lam"]}
    return {who: {"C": C} | options for who, options in found.items()}


def _size(context: Context, contest: Ring, axis: str, size: int) -> Row:
    """Seconds of all contestants at one size; the kernels are computed only if one of them has not run yet."""
    settings, contestants = context.settings, _contestants(context, axis)
    made: list[tuple[Any, Any]] = []

    def problem() -> tuple[Any, Any]:
        if not made:
            made.append(_problem(settings, axis, size))
            hand_over(context.folder / "problem", *made[0])
        return made[0]

    def optimum() -> float:
        K, y = problem()
        options = contestants[DMKL]
        formulation = getattr(dmkl, options["formulation"])(**options["constants"])
        stack, labels = dmkl.KernelStack.from_array(K, workers=1), make_labels(y, "multilabel") if y.ndim == 2 else y
        return float(np.sum(dmkl.solve(stack, labels, formulation, tol=EXACT * settings["tol"]).objective))

    best = context.cell(f"{axis} {size} optimum", optimum)
    row: Row = {"gap": None, "steps": None}
    for who, options in contestants.items():
        if size > settings["most"].get(who, {}).get(axis, size):
            row[who] = None
            continue
        context.progress(f"{axis} = {size}: {who}")
        key = f"{axis} {size} {who}"
        found = context.cell(key, lambda o=options: _fitted(context, contest, problem, o, best))
        row[who] = found["seconds"] if found else None
        if who == DMKL:
            row["gap"] = found["gap"]
        elif who == LOOP and found:
            row["steps"] = found["steps"]
    shutil.rmtree(context.folder / "problem", ignore_errors=True)
    return row


def _problem(settings: dict[str, Any], axis: str, size: int) -> tuple[Any, Any]:
    if axis == "n":
        return spam(size, settings["kernels"])
    return spam(settings["samples"], size) if axis == "s" else leaves(settings["leaves"], size)


def _fitted(
    context: Context, contest: Ring, problem: Callable[[], tuple[Any, Any]], options: dict[str, Any], optimum: float
) -> Row | None:
    """Seconds of a fit; for the loop, until its weights were within the tolerance."""
    K, y = problem()
    by_label = y.ndim == 2 and options["fit"] == "mklpy"  # it takes one problem at a time
    if by_label:
        return _one_by_one(context, contest, K, y, options)
    answer = contest.fit(context.folder / "problem", options)
    if answer is None:
        return None
    if options["fit"] != "hand_loop":
        return {"seconds": answer.told["seconds"], "gap": answer.told.get("gap")}
    first = reached(K, y, options["C"], answer, optimum, context.settings["tol"])["first"]
    return first or {"seconds": None, "steps": None}


def _one_by_one(context: Context, contest: Ring, K: Any, y: Any, options: dict[str, Any]) -> Row | None:
    total, place = 0.0, context.folder / "problem"
    for column in y.T:
        np.save(place / "y.npy", np.where(column > 0, 1.0, -1.0))
        answer = contest.fit(place, options)
        if answer is None:
            return None
        total += answer.told["seconds"]
    np.save(place / "y.npy", y)
    return {"seconds": total}


def _exponents(settings: dict[str, Any], seconds: dict[str, dict[str, list[float | None]]]) -> list[Row]:
    """The exponents: slopes over the larger half of a contestant's sizes."""
    return [
        {"contestant": who} | {axis: _slope(settings[axis], seconds[axis][who]) for axis in AXES}
        for who in seconds["n"]
    ]


def _slope(sizes: list[int], seconds: list[float | None]) -> float | None:
    known = [(size, time) for size, time in zip(sizes, seconds, strict=True) if time is not None]
    known = known[min(len(known) // 2, max(len(known) - 2, 0)) :]
    if len(known) < 2:
        return None
    return float(np.polyfit(*np.log(np.array(known)).T, 1)[0])


def _panel(axis: str, sizes: list[int], seconds: dict[str, list[float | None]]) -> Panel:
    lines = []
    for number, (who, times) in enumerate(seconds.items()):
        known = [(size, time) for size, time in zip(sizes, times, strict=True) if time is not None]
        if known:
            lines.append(Line(who, *map(list, zip(*known, strict=True)), colour=f"C{number}"))
    return Panel(f"time and the number of {AXES[axis]}", axis, "seconds", lines)


def _faster(settings: dict[str, Any], axis: str, seconds: dict[str, list[float | None]]) -> str:
    """The contestants that are faster than dmkl, and where."""
    said = []
    for who, times in seconds.items():
        pairs = zip(settings[axis], times, seconds[DMKL], strict=True)
        sizes = [str(size) for size, time, own in pairs if time is not None and own is not None and time < own]
        if who != DMKL and sizes:
            said.append(f"**{who} is faster than dmkl** at {axis} = {', '.join(sizes)}")
    return f"Number of {AXES[axis]}: {'; '.join(said) if said else 'nobody is faster than dmkl'}."
