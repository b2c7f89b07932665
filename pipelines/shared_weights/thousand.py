"""1,000 classes, n = 5,000, 12 kernels, as a user runs them: `dmkl kernels`, then `dmkl train` for modes max and sum.

Memory is the largest resident set of the training process, as the system measured it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmkl.units import parse_bytes
from pipelines.common.commands import dmkl
from pipelines.shared_weights.results import Row, progress, show, table, write
from pipelines.shared_weights.synthetic import WIDTHS, synthetic

C, TOL = 10.0, 1e-2
MEMORY = "3 GB"
MODES = ("max", "sum")
CONFIG = f"""
[data]
path = "data.npz"
task = "multilabel"
test = 0
[[kernels]]
kernel = "rbf"
width = [{", ".join(f'"{width:g} median"' for width in WIDTHS)}]
"""
COLUMNS = ("mode", "seconds", "SVM calls", "passes", "rounds", "gap", "peak GB")


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    n: int
    classes: int


WHOLE = Plan(5000, 1000)
QUICK = Plan(600, 30)


def trained(folder: Path, mode: str) -> Row:
    settings = [f"-sformulation.{key}={value}" for key, value in (("name", "shared"), ("mode", mode), ("C", C))]
    wanted = ["--memory", MEMORY, "--tol", str(TOL), "--workers", "2"]
    ran = dmkl(folder, "train", "k.zarr", "-o", mode, *settings, *wanted)
    facts = ran.facts["train"]
    row = {"mode": mode, "seconds": round(ran.seconds, 1), "SVM calls": facts["svm_calls"], "passes": facts["passes"]}
    return row | {"rounds": facts["rounds"], "gap": float(np.max(facts["gap"])), "peak GB": round(ran.peak / 1e9, 2)}


def run(folder: Path, quick: bool) -> bool:
    """Whether a training missed the gap or went over its memory."""
    plan, rows = QUICK if quick else WHOLE, []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        data = synthetic(plan.n, plan.classes, 0)
        views = {f"X_v{number}": view for number, view in enumerate(data.views)}
        np.savez(Path(name) / "data.npz", y=data.Y, **views)
        (Path(name) / "config.toml").write_text(CONFIG)
        ran = dmkl(Path(name), "kernels", "config.toml", "-o", "k.zarr")
        built, seconds = ran.facts, ran.seconds
        for mode in MODES:
            rows.append(trained(Path(name), mode))
            progress(str(rows[-1]))
    size = f"{plan.classes:,} classes, n = {plan.n:,}, {built['kernels']} kernels ({built['nbytes'] / 1e9:.2f} GB)"
    missed = any(row["gap"] > TOL or row["peak GB"] * 1e9 > parse_bytes(MEMORY) for row in rows)
    parts = [
        f"# {size} built in {seconds:.1f} s, C = {C:g}",
        table(rows, COLUMNS),
        f"Goals: gap <= {TOL:g} and peak <= {MEMORY}: {'MISSED' if missed else 'met'}.",
    ]
    write(folder, "thousand", parts, {"n": plan.n, "classes": plan.classes, "rows": rows})
    show(parts)
    return missed
