"""Seconds against the number of samples: see experiment.toml."""

from __future__ import annotations

from typing import Any

import numpy as np

import dmkl
from pipelines.common.drawing import Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.fitting import LOSSES, exponent, grouped, growth, held_out, means, timed, took, warm_up
from pipelines.common.random_kernels import SOURCES, Gaussian, gaussians, stacked

SETTING = ("data", "C", "loss")
AVERAGED = ("seconds", "accuracy %", "average: seconds", "average: accuracy %", "iterations", "Newton", "used")
FORMATS = {"seconds": ".3f", "±": ".3f", "average: seconds": ".3f", "accuracy %": ".2f", "average: accuracy %": ".2f"}


def run(context: Context) -> Outcome:
    settings = context.settings
    warm_up([form(loss=loss) for form in (dmkl.SpicyMKL, dmkl.UniformMKL) for loss in LOSSES], np.float32)
    rows = context.splits(dict.fromkeys(SOURCES, settings["splits"]), draw)
    averages = means(rows, (*SETTING, "samples"), AVERAGED, spread="seconds")
    slopes: list[Row] = [
        dict(zip(SETTING, key, strict=True)) | {"exponent": exponent(series, "samples", "seconds")}
        for key, series in grouped(averages, *SETTING).items()
    ]
    goal = Goal("the largest gap", max(row["gap"] for row in rows), "<=", settings["tol"])
    tables = (
        Table("Seconds to a gap of 0.01, 20 kernels", averages, ("seconds", "±", "average: seconds"), FORMATS),
        Table("Growth of seconds with samples", slopes, ("exponent",), {"exponent": ".2f"}),
    )
    return Outcome(tables, (goal,), (compared(averages),), {"spicy_samples": drawn(averages)})


def draw(name: str, split: int, settings: dict[str, Any]) -> list[Row]:
    """All fits of one draw; the last samples are held out."""
    rng = np.random.default_rng(split)
    sizes = settings["sizes"][name]
    X, y = SOURCES[name](max(sizes) + settings["test"], rng)
    bank = gaussians(X.shape[1], settings["kernels"], rng)
    rows = []
    for n in sizes:
        K = stacked(bank, X[:n])
        held = X[max(sizes) :], y[max(sizes) :]
        for C in settings["constants"]:
            for loss in LOSSES if n <= settings["hinge_up_to"] else LOSSES[1:]:
                row = {"data": name, "C": C, "loss": loss, "samples": n}
                rows.append(row | fitted(K, bank, X[:n], y[:n], held, dmkl.SpicyMKL(C=C, loss=loss), settings["tol"]))
    return rows


def fitted(
    K: Any, bank: list[Gaussian], X: Any, y: Any, held: tuple[Any, Any], formulation: dmkl.SpicyMKL, tol: float
) -> Row:
    """One fit, and the average kernel's."""

    def accuracy(fit: dmkl.Fit) -> float:
        return held_out(fit, lambda a: bank[a].matrix(held[0], X), held[1])

    seconds, fit = timed(K, y, formulation, tol)
    spent, average = timed(K, y, formulation.baseline(fit.weights), tol)
    row = {"seconds": seconds, "accuracy %": accuracy(fit)} | took(fit)
    return row | {"average: seconds": spent, "average: accuracy %": accuracy(average)}


def compared(averages: list[Row]) -> str:
    """Where the average kernel is better, or faster."""
    better = sum(row["average: accuracy %"] > row["accuracy %"] for row in averages)
    faster = sum(row["average: seconds"] < row["seconds"] for row in averages)
    return (
        f"Of {len(averages)} settings the average kernel is faster in {faster} and more accurate in {better}: its C is "
        "taken from the learnt solution, so it is a baseline and no rival that was tuned."
    )


def drawn(averages: list[Row]) -> list[Panel]:
    panels = []
    for (name,), rows in grouped(averages, "data").items():
        lines = growth(grouped(rows, "loss", "C"), "samples", "seconds")
        panels.append(Panel(f"{name}, 20 kernels, gap 0.01", "samples", "seconds", lines))
    return panels
