"""Five UCI sets with hundreds of kernels: see experiment.toml."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.fitting import LOSSES, grouped, held_out, means, timed, took, warm_up
from pipelines.common.simplemkl import solve_simple
from pipelines.common.uci import Float64, Kernel, Split, kernels, stacked

WIDTHS = (0.1, 0.25, 0.5, 0.75, *map(float, range(1, 21)))
SETTING = ("data", "n", "kernels", "C", "loss")
AVERAGED = ("seconds", "accuracy %", "average: accuracy %", "used", "iterations", "Newton")
FORMATS = {"seconds": ".3f", "±": ".3f", "accuracy %": ".2f", "average: accuracy %": ".2f", "C": "g"}
SIMPLE_FORMATS = {"C": "g", "seconds": ".2f", "SimpleMKL: seconds": ".2f", "times": ".1f"}
FASTER_GOAL, AS_ACCURATE = 5.0, 2.0


def run(context: Context) -> Outcome:
    settings = context.settings
    warm_up([form(loss=loss) for form in (dmkl.SpicyMKL, dmkl.UniformMKL) for loss in LOSSES], np.float32)
    solve_simple(np.ones((2, 10, 10)) + np.eye(10), np.tile([1.0, -1.0], 5), 1.0, 1e-2, 2)  # compile
    rows = context.splits(settings["splits"], fits)
    strange = [row for row in rows if row["kernels"] != context.paper["kernels"][row["data"]]]
    assert not strange, f"not as many kernels as the paper has: {strange[0]}"
    averages, beside = means(rows, SETTING, AVERAGED, spread="seconds"), compared(rows)
    measured = ("seconds", "SimpleMKL: seconds", "times")
    tables = (
        Table("Means over splits; ± is the deviation of seconds", averages, ("seconds", "±"), FORMATS),
        Table("Hinge beside SimpleMKL, the same problem", beside, measured, SIMPLE_FORMATS),
        claimed(averages, beside, context.paper),
    )
    goals = hoped(rows, beside, settings["tol"], context.quick)
    late = sum(row["gap"] > settings["tol"] for row in beside)
    remark = f"SimpleMKL was cut off before a gap of {settings['tol']:g} in {late} of {len(beside)} problems."
    return Outcome(tables, goals, (remark, rivals(averages)), {"spicy_uci": drawn(averages)})


def hoped(rows: list[Row], beside: list[Row], tol: float, quick: bool) -> list[Goal]:
    goals = [Goal("the largest gap", max(row["gap"] for row in rows), "<=", tol)]
    off = [row["accuracy %"] - row["SimpleMKL: accuracy %"] for row in beside if row["gap"] <= tol]
    if off:  # where SimpleMKL came to its end
        points = abs(float(np.mean(off)))
        goals.append(Goal("points of mean accuracy off SimpleMKL's", points, "<=", AS_ACCURATE))
    if not quick:  # too little is run there
        best = max(row["times"] for row in beside)
        goals.append(Goal("times as fast as SimpleMKL, best", best, ">=", FASTER_GOAL, True))
    return goals


def fits(name: str, number: int, settings: dict[str, Any]) -> list[Row]:
    """All constants and losses on one split."""
    split = Split.draw(name, settings["share"], np.random.default_rng(number))
    bank, n = kernels(split.X.shape[1], WIDTHS), len(split.y)
    K = stacked(bank, split.X, np.float32)
    K /= n  # of mean diagonal 1 until here
    rows = []
    for C in settings["constants"]:
        for loss in LOSSES:
            formulation = dmkl.SpicyMKL(C=C, loss=loss)
            seconds, fit = timed(K, split.y, formulation, settings["tol"])
            _, average = timed(K, split.y, formulation.baseline(fit.weights), settings["tol"])
            row = {"data": name, "n": n, "kernels": len(bank), "split": number, "C": C, "loss": loss}
            row |= {"seconds": seconds, "accuracy %": accuracy(fit, bank, split)} | took(fit)
            row["average: accuracy %"] = accuracy(average, bank, split)
            if loss == "hinge" and asked(settings["simple"], name, number, C):
                row["SimpleMKL"] = simple(K, bank, split, fit, settings)
            rows.append(row)
    return rows


def accuracy(fit: dmkl.Fit, bank: list[Kernel], split: Split) -> float:
    n = len(split.y)
    return held_out(fit, lambda a: bank[a].between(split.test_X, split.X) / n, split.test_y)


def asked(simple: dict[str, Any], name: str, number: int, C: float) -> bool:
    return name in simple["data"] and number < simple["splits"] and C in simple["constants"]


def simple(K: NDArray[Any], bank: list[Kernel], split: Split, fit: dmkl.Fit, settings: dict[str, Any]) -> Row:
    """SimpleMKL on the problem that `fit` solved in its own form."""
    weights = np.ravel(fit.weights)
    used = np.flatnonzero(weights)
    norms = weights[used] * np.sqrt(np.maximum((K[used] @ fit.coef) @ fit.coef, 0.0))
    C = float(norms.sum()) / fit.formulation.C
    found = solve_simple(K, split.y, C, settings["tol"], settings["simple"]["calls"])
    right = 100 * float(np.mean((scores(K, bank, split, found.weights, C) > 0) == (split.test_y > 0)))
    return {
        "C converted": C,
        "calls": found.svm_calls,
        "gap": float(found.gap),
        "used": int(np.count_nonzero(found.weights)),
        "accuracy %": right,
        "seconds": found.seconds,
    }


def scores(K: NDArray[Any], bank: list[Kernel], split: Split, weights: Float64, C: float) -> Float64:
    """Of held-out samples, by an SVM on the kernels weighed so."""
    used, n = np.flatnonzero(weights), len(split.y)
    inside = np.tensordot(weights[used], K[used].astype(np.float64), 1)
    outside = sum(weights[a] * bank[a].between(split.test_X, split.X) / n for a in used)
    stack = dmkl.KernelStack.from_array(inside[None], workers=1)
    fit = dmkl.solve(stack, split.y, dmkl.UniformMKL(C=C), tol=1e-5)
    return np.asarray(outside @ fit.coef + fit.intercept)


def compared(rows: list[Row]) -> list[Row]:
    """The splits that SimpleMKL ran on."""
    found = []
    for row in rows:
        other = row.get("SimpleMKL")
        if other is None:
            continue
        line: Row = {column: row[column] for column in ("data", "kernels", "split", "C")}
        line |= {"C converted": other["C converted"], "used": row["used"], "accuracy %": row["accuracy %"]}
        line |= {f"SimpleMKL: {column}": other[column] for column in ("used", "accuracy %", "calls")}
        line |= {"gap": other["gap"], "seconds": row["seconds"], "SimpleMKL: seconds": other["seconds"]}
        found.append(line | {"times": other["seconds"] / row["seconds"]})
    return found


def rivals(averages: list[Row]) -> str:
    """Where the average kernel is more accurate."""
    better = sum(row["average: accuracy %"] > row["accuracy %"] for row in averages)
    return (
        f"The average kernel, at the C taken from the learnt solution, is more accurate in {better} of {len(averages)}."
    )


def claimed(averages: list[Row], beside: list[Row], paper: Row) -> Table:
    """The statements of the paper and our results, a column a data set."""
    rows: list[Row] = [
        {"the paper's words": f"{paper['times_simple'][0]} to {paper['times_simple'][1]} times as fast as SimpleMKL"},
        {"the paper's words": "faster as C increases: seconds at the smallest C / at the largest, hinge"},
        {"the paper's words": "logistic tends to be faster than hinge: seconds hinge / logistic"},
        {"the paper's words": "logistic is as accurate: points above hinge, largest C"},
        {"the paper's words": "logistic is sparser for large C: kernels hinge / logistic, largest C"},
    ]
    for (name,), some in grouped(averages, "data").items():
        by_loss = {loss: grouped(some, "loss")[loss,] for loss in LOSSES}
        seconds = {loss: [row["seconds"] for row in by_loss[loss]] for loss in LOSSES}
        last = {loss: by_loss[loss][-1] for loss in LOSSES}
        faster = [row["times"] for row in beside if row["data"] == name]
        values = (
            max(faster, default=None),
            seconds["hinge"][0] / seconds["hinge"][-1],
            sum(seconds["hinge"]) / sum(seconds["logistic"]),
            last["logistic"]["accuracy %"] - last["hinge"]["accuracy %"],
            last["hinge"]["used"] / max(last["logistic"]["used"], 1e-9),
        )
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    names = tuple(column for column in rows[0] if column != "the paper's words")
    return Table("Beside the paper's words", rows, names, dict.fromkeys(names, ".2f"))


def drawn(averages: list[Row]) -> list[Panel]:
    """The paper's three rows, seconds, accuracy and kernels used, over C; hinge on the left, logistic on the right."""
    panels = []
    for up in ("seconds", "accuracy %", "used"):
        for loss in LOSSES:
            lines = []
            some = grouped([row for row in averages if row["loss"] == loss], "data")
            for number, ((name,), rows) in enumerate(some.items()):
                error = [row["±"] for row in rows] if up == "seconds" else None
                xs, ys = [row["C"] for row in rows], [row[up] for row in rows]
                lines.append(Line(name, xs, ys, "o-", f"C{number}", error))
            panels.append(Panel(loss, "C", up, lines, ("log", "log" if up == "seconds" else "linear")))
    return panels
