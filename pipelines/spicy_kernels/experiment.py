"""Seconds against the number of kernels: see experiment.toml."""

from __future__ import annotations

from typing import Any

import numpy as np

import dmkl
from pipelines.common.drawing import Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.fitting import LOSSES, exponent, grouped, growth, means, timed, took, warm_up
from pipelines.common.random_kernels import SOURCES, gaussians, stacked

SETTING = ("data", "C", "loss")
AVERAGED = ("seconds", "iterations", "Newton", "used")
SECONDS_GOAL, RATIO_GOAL = 2.0, 2.5


def run(context: Context) -> Outcome:
    settings = context.settings
    warm_up([dmkl.SpicyMKL(loss=loss) for loss in LOSSES], np.float32)
    rows = context.splits(dict.fromkeys(SOURCES, settings["splits"]), draw)
    averages = means(rows, (*SETTING, "kernels"), AVERAGED, spread="seconds")
    worst = Goal("the largest gap", max(row["gap"] for row in rows), "<=", settings["tol"])
    claims, goals = told(averages, context.paper)
    tables = (
        Table("Seconds to a gap of 0.01", averages, ("seconds", "±"), {"seconds": ".3f", "±": ".3f"}),
        exponents(averages, settings["many"]),
        *claims,
    )
    return Outcome(tables, (worst, *goals), (), {"spicy_kernels": drawn(averages, settings["n"])})


def draw(name: str, split: int, settings: dict[str, Any]) -> list[Row]:
    """All fits of one draw of samples and kernels; a smaller bank is the first part of a larger one."""
    rng = np.random.default_rng(split)
    X, y = SOURCES[name](settings["n"], rng)
    K = stacked(gaussians(X.shape[1], max(settings["sizes"]), rng), X)
    rows = []
    for C in settings["constants"]:
        for loss in LOSSES:
            for size in settings["sizes"]:
                seconds, fit = timed(K[:size], y, dmkl.SpicyMKL(C=C, loss=loss), settings["tol"])
                rows.append({"data": name, "C": C, "loss": loss, "kernels": size, "seconds": seconds} | took(fit))
    return rows


def exponents(averages: list[Row], many: int) -> Table:
    """Growth with the number of kernels; also where reading kernels dominates the time."""
    rows = []
    for key, series in grouped(averages, *SETTING).items():
        row: Row = dict(zip(SETTING, key, strict=True))
        for words, some in (("", series), (f", {many} and more", [row for row in series if row["kernels"] >= many])):
            for what in ("seconds", "Newton"):
                row[what + words] = exponent(some, "kernels", what)
        rows.append(row)
    timed_ones = tuple(column for column in rows[0] if column.startswith("seconds"))
    return Table("Exponents of the growth with kernels", rows, timed_ones, dict.fromkeys(rows[0], ".2f"))


def told(averages: list[Row], paper: Row) -> tuple[list[Table], list[Goal]]:
    """The statements of the paper, where the run has as many kernels."""
    by_size = grouped(averages, "kernels")
    if (paper["kernels"],) not in by_size:
        return [], []
    rows = []
    for (loss,), some in grouped(by_size[paper["kernels"],], "loss").items():
        seconds = [row["seconds"] for row in some]
        rows.append({"loss": loss, "mean seconds": float(np.mean(seconds)), "slowest setting": max(seconds)})
        rows[-1]["paper: less than"] = paper["seconds"]
    totals = {size: sum(row["seconds"] for row in by_size[size,]) for size in (paper["kernels"], 2 * paper["kernels"])}
    ratio = totals[2 * paper["kernels"]] / totals[paper["kernels"]]
    goals = [
        Goal("seconds for 3,000 kernels, hinge, slowest setting", rows[0]["slowest setting"], "<=", SECONDS_GOAL, True),
        Goal("6,000 kernels / 3,000 kernels, all settings", ratio, "<=", RATIO_GOAL, True),
    ]
    formats = dict.fromkeys(rows[0], ".2f")
    return [Table("3,000 kernels beside the paper", rows, ("mean seconds", "slowest setting"), formats)], goals


def drawn(averages: list[Row], n: int) -> list[Panel]:
    panels = []
    for (name,), rows in grouped(averages, "data").items():
        lines = growth(grouped(rows, "loss", "C"), "kernels", "seconds")
        panels.append(Panel(f"{name}, n = {n}, gap 0.01", "kernels", "seconds", lines))
    return panels
