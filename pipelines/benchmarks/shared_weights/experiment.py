"""Cost against the number of classes: see experiment.toml."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dmkl
from dmkl._util.units import parse_bytes
from pipelines.benchmarks.shared_weights.synthetic import WIDTHS, gaussian_kernels, synthetic
from pipelines.common import commands
from pipelines.common.banks import MEMORY, WORKERS
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

CONFIG = f"""
[data]
path = "data.npz"
task = "multilabel"
test = 0
[[kernels]]
kernel = "rbf"
width = [{", ".join(f'"{width:g} median"' for width in WIDTHS)}]
"""
SLOPE = 0.8  # hoped for


def run(context: Context) -> Outcome:
    settings = context.settings
    rows, commanded = list(measured(context)), by_command(context)
    slopes = [
        {"mode": mode} | {what: slope(rows, mode, what) for what in ("SVM calls", "without m", "seconds")}
        for mode in ("max", "sum")
    ]
    unproved = sum(row["gap"] > settings["tol"] for row in [*rows, *commanded] if row["mode"] in ("max", "sum"))
    limit = parse_bytes(settings["command_memory"]) / 1e9
    goals = (
        Goal("slope of SVM calls in the number of classes, max", slopes[0]["SVM calls"], "<=", SLOPE),
        Goal("runs of max and sum that did not prove their gap", float(unproved), "<=", 0),
        Goal("peak GB of the commands", max(row["peak GB"] for row in commanded), "<=", limit, measured=True),
    )
    size = f"{settings['command_classes']:,} classes, n = {settings['command_n']:,}, 12 kernels"
    counts = dict.fromkeys(("SVM calls", "without m", "passes"), ".0f")
    tables = (
        Table(f"SVM calls to a gap of {settings['tol']:g}, n = {settings['n']:,}", rows, ("seconds",), counts),
        Table("Log-log slopes in the number of classes", slopes, ("seconds",), dict.fromkeys(slopes[0], ".2f")),
        Table(f"dmkl train: {size}, limit {settings['command_memory']}", commanded, ("seconds", "peak GB"), counts),
    )
    return Outcome(tables, goals, (), {"shared-weights-scaling": [panel(rows, "SVM calls"), panel(rows, "seconds")]})


def measured(context: Context) -> Iterator[Row]:
    """Mode max first, then sum, then the paper's algorithm."""
    settings = context.settings

    @lru_cache(maxsize=1)
    def stack(seed: int) -> dmkl.KernelStack:
        K = gaussian_kernels(synthetic(settings["n"], 1, seed).views)
        found = dmkl.KernelStack.from_array(K, workers=WORKERS, memory=MEMORY)
        first = synthetic(settings["n"], 1, seed).Y
        dmkl.solve(found, first, dmkl.UniformMKL(), tol=0.5)  # kernels looked at: not timed later
        return found

    def row(mode: str, m: int, seed: int, formulation: dmkl.SharedMKL, tol: float, **how: Any) -> Row:
        def compute() -> Row:
            context.progress(f"{mode}, {m} classes, seed {seed}")
            return fitted(stack(seed), synthetic(settings["n"], m, seed).Y, formulation, tol=tol, seed=seed, **how)

        return {"mode": mode, "classes": m, "seed": seed} | context.cell(f"{mode} {m} {seed}", compute)

    C, tol = settings["C"], settings["tol"]
    for seed in range(settings["seeds"]):
        for m in settings["classes"]:
            yield row("max", m, seed, dmkl.SharedMKL(C, mode="max"), tol)
    for m in settings["sum_classes"]:
        yield row("sum", m, 0, dmkl.SharedMKL(C, mode="sum"), tol)
    for m in settings["paper_classes"]:
        for eta in settings["paper_etas"]:
            walk = dmkl.SharedMKL(C, mode="max", eta=eta)
            how = {"method": "sa-paper", "max_rounds": settings["paper_rounds"]}
            yield row(f"sa-paper, eta {eta:g}", m, 0, walk, settings["paper_tol"], **how)


def fitted(stack: dmkl.KernelStack, Y: Any, formulation: dmkl.SharedMKL, **how: Any) -> Row:
    started, before = time.perf_counter(), stack.passes
    fit = dmkl.solve(stack, Y, formulation, **how)
    row = {"SVM calls": fit.svm_calls, "without m": fit.svm_calls - Y.shape[1]}
    row |= {"passes": stack.passes - before, "rounds": fit.rounds, "gap": fit.worst_gap}
    return row | {"seconds": time.perf_counter() - started}


def slope(rows: list[Row], mode: str, what: str) -> float:
    """Of the logarithm of `what` in the logarithm of the number of classes, by least squares over all runs."""
    found = [(row["classes"], row[what]) for row in rows if row["mode"] == mode]
    return float(np.polyfit(*np.log(np.array(found, dtype=float)).T, 1)[0])


def panel(rows: list[Row], what: str) -> Panel:
    lines = []
    for number, mode in enumerate(("max", "sum")):
        classes = sorted({row["classes"] for row in rows if row["mode"] == mode})
        found = {m: [row[what] for row in rows if (row["mode"], row["classes"]) == (mode, m)] for m in classes}
        lines.append(Line(mode, classes, [float(np.mean(found[m])) for m in classes], colour=f"C{number}"))
    return Panel(f"{what} to a certified gap", "classes", what, lines)


def by_command(context: Context) -> list[Row]:
    """`dmkl kernels`, then `dmkl train` for both modes; memory is the largest resident set of the training process."""
    settings = context.settings

    def compute() -> list[Row]:
        with tempfile.TemporaryDirectory(dir=context.folder) as name:
            folder = Path(name)
            data = synthetic(settings["command_n"], settings["command_classes"], 0)
            views = {f"X_v{number}": view for number, view in enumerate(data.views)}
            np.savez(folder / "data.npz", y=data.Y, **views)
            (folder / "config.toml").write_text(CONFIG)
            context.progress("dmkl kernels")
            commands.dmkl(folder, "kernels", "config.toml", "-o", "k.zarr")
            return [trained(context, folder, mode) for mode in ("max", "sum")]

    return list(context.cell("commands", compute))


def trained(context: Context, folder: Path, mode: str) -> Row:
    settings = context.settings
    context.progress(f"dmkl train, {mode}")
    values = {"name": "shared", "mode": mode, "C": settings["C"]}
    constants = [f"-sformulation.{key}={value}" for key, value in values.items()]
    wanted = ["--memory", settings["command_memory"], "--tol", str(settings["tol"]), "--workers", str(WORKERS)]
    ran = commands.dmkl(folder, "train", "k.zarr", "-o", mode, *constants, *wanted)
    facts = ran.facts["train"]
    row = {"mode": mode, "SVM calls": facts["svm_calls"], "passes": facts["passes"], "rounds": facts["rounds"]}
    return row | {"gap": float(np.max(facts["gap"])), "seconds": ran.seconds, "peak GB": ran.peak / 1e9}
