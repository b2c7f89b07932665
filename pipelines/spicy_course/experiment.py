"""Gap and active kernels at every iteration: see experiment.toml."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

import dmkl
from dmkl.problems.losses import loss_of
from dmkl.runtime.blas import one_blas_thread
from dmkl.solvers.kernel_operators import BlockKernels
from dmkl.solvers.loss_problem import Penalty
from dmkl.solvers.proximal import minimise
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.fitting import LOSSES, grouped, timed, took, warm_up
from pipelines.common.uci import Float64, bank, ionosphere, samples, standardised

SAME_GOAL = 1e-4
NEAR, ALL = "near the bound", "all"


def run(context: Context) -> Outcome:
    settings = context.settings
    warm_up([dmkl.L1MKL(), *(dmkl.SpicyMKL(loss=loss) for loss in LOSSES)])
    courses = context.cell("courses", lambda: ways(settings["kernels"], settings["constants"], settings["tol"]))
    same: list[Row] = []
    for name in settings["same_data"]:
        same += context.cell(f"same: {name}", partial(compared, name, settings["same_constants"], settings["same_tol"]))
        context.progress(name)
    ends = [{key: value for key, value in course.items() if key != "steps"} for course in courses]
    goals = (
        Goal("the largest gap at the end of a course", max(row["gap"] for row in ends), "<=", settings["tol"]),
        Goal("the largest gap of both formulations", max(row["gap"] for row in same), "<=", settings["same_tol"]),
        Goal("difference of scores / their range", max(row["difference"] for row in same), "<=", SAME_GOAL),
    )
    tables = (
        Table(f"Ionosphere, {settings['kernels']} kernels, to a gap of {settings['tol']:g}", ends, ("seconds",)),
        Table("L1MKL at C and SpicyMKL at the C converted", same, ("l1 seconds", "seconds")),
    )
    return Outcome(tables, goals, (), {"spicy_course": drawn(courses)})


def ways(kernels: int, constants: list[float], tol: float) -> list[Row]:
    """Both runs for every constant and loss."""
    case = ionosphere()
    K, found = case.K[:kernels], []
    for C in constants:
        for loss in LOSSES:
            for name, way in ((NEAR, rounds), (ALL, whole)):
                found.append({"C": C, "loss": loss, "kernels": name} | way(K, case.y, C, loss, tol))
    return found


def rounds(K: Float64, y: Float64, C: float, loss: str, tol: float) -> Row:
    """The course of `solve`; the last iteration of a round has the gap over all kernels beside that of its block."""
    seconds, fit = timed(K, y, dmkl.SpicyMKL(C=C, loss=loss), tol)
    certified = {entry["round"]: entry["gap"] for entry in fit.history}
    ends = {int(one["round"]): number for number, one in enumerate(fit.iterations)}
    steps = [[one["gap"], one["kernels"], None] for one in fit.iterations]
    for turn, number in ends.items():
        steps[number][2] = certified[turn]
    return {"seconds": seconds, "rounds": fit.rounds} | took(fit) | {"steps": steps}


def whole(K: Float64, y: Float64, C: float, loss: str, tol: float) -> Row:
    """The course over all kernels at once."""
    started = time.perf_counter()
    with one_blas_thread():
        found = minimise(BlockKernels(K), y, loss_of(loss, 0.0), Penalty(C, 0.0), tol)
    row = {"seconds": time.perf_counter() - started, "rounds": 1, "iterations": len(found.trace)}
    row |= {"Newton": found.newton_steps, "used": int(np.count_nonzero(found.weights)), "gap": float(found.gap)}
    return row | {"steps": [[float(gap), float(active), None] for gap, active, _ in found.trace]}


def compared(name: str, constants: list[float], tol: float) -> list[Row]:
    """Both formulations on one data set."""
    X, y = samples(name)
    K, rows = bank(standardised(X)), []
    for C in constants:
        seconds, fit = timed(K, y, dmkl.L1MKL(C=C), tol)
        norms = np.ravel(fit.weights) * np.sqrt(np.maximum((K @ fit.coef) @ fit.coef, 0.0))
        other = dmkl.SpicyMKL(C=float(norms.sum()) / C)
        other_seconds, other_fit = timed(K, y, other, tol)
        these, those = scores(fit, K), scores(other_fit, K)
        row: Row = {"data": name, "n": len(y), "kernels": len(K), "C": C, "C converted": other.C}
        row |= {"difference": float(np.abs(these - those).max() / np.ptp(these))}
        row |= {"l1 used": int(np.count_nonzero(fit.weights)), "l1 seconds": seconds, "seconds": other_seconds}
        rows.append(row | took(other_fit) | {"gap": max(fit.gap, other_fit.gap)})
    return rows


def scores(fit: dmkl.Fit, K: Float64) -> Float64:
    """Decision values of the training samples."""
    used = np.flatnonzero(fit.weights)
    return np.tensordot(np.ravel(fit.weights)[used], K[used] @ fit.coef, 1) + float(fit.intercept)


def drawn(courses: list[Row]) -> list[Panel]:
    """A panel of gaps and one of kernels for every constant."""
    panels = []
    for (C,), some in grouped(courses, "C").items():
        gaps, active = [], []
        for course in some:
            label, colour = f"{course['loss']}, kernels: {course['kernels']}", f"C{LOSSES.index(course['loss'])}"
            style = "o-" if course["kernels"] == NEAR else "--"
            xs = range(1, len(course["steps"]) + 1)
            gaps.append(Line(label, xs, [step[0] for step in course["steps"]], style, colour))
            active.append(Line(label, xs, [step[1] for step in course["steps"]], style, colour))
            ends = [x for x in xs if course["steps"][x - 1][2] is not None]
            if ends:
                proved = [course["steps"][x - 1][2] for x in ends]
                gaps.append(Line(f"{course['loss']}, certified", ends, proved, "*", colour))
        panels.append(Panel(f"C = {C:g}", "iteration", "gap", gaps, ("linear", "log")))
        panels.append(Panel(f"C = {C:g}", "iteration", "active kernels", active, ("linear", "linear")))
    return panels
