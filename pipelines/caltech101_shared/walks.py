"""The paper's figures 3 and 4: how delta and eta matter to its algorithm alone (`method = "sa-paper"`).

After every round, each twice as long as the last, the averages so far are certified: the calls of the walk are those
that the paper counts, and those that train the classes at the averages come on top.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import dmkl
from dmkl.solvers.shared_max import MinimaxState
from pipelines.caltech101_shared.methods import told
from pipelines.common.banks import Bank
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Row

TOL = 1e-3  # of the classes' SVMs; the walk itself is far from it


def course(bank: Bank, C: float, delta: float, eta: float, rounds: int) -> list[Row]:
    """A row a round. The checkpoint lets every round go on from the one before."""
    formulation, rows = dmkl.SharedMKL(C, mode="max", delta=delta, eta=eta), []
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"tol": TOL, "method": "sa-paper", "checkpoint": Path(folder) / "state"}
        for number in range(1, rounds + 1):
            fit = dmkl.solve(bank.stack, bank.labels, formulation, max_rounds=number, warn=False, **how)
            walk, found = fit.state.own_as(MinimaxState).iterates, told(bank, fit, 0.0)
            row = {"delta": delta, "eta": eta, "round": number, "steps": walk.steps, "moves": walk.change}
            rows.append(row | {key: found[key] for key in ("SVM calls", "mAP", "gap", "objective")})
    return rows


def panels(rows: list[Row], what: str) -> list[Panel]:
    """mAP and gap over the steps of the walk, a line a value of the parameter."""
    values = sorted({row[what] for row in rows})
    found = []
    for measure, scale in (("mAP", "linear"), ("gap", "log")):
        lines = []
        for number, value in enumerate(values):
            mine = [row for row in rows if row[what] == value]
            label = "eta scale-free" if (what, value) == ("eta", 0.0) else f"{what} = {value:g}"
            x, y = ([row[key] for row in mine] for key in ("steps", measure))
            lines.append(Line(label, x, y, colour=f"C{number}"))
        found.append(Panel(f"SA, {what}", "SVM calls of the walk", measure, lines, ("log", scale)))
    return found
