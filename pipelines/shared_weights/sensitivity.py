"""The paper's figures 3 and 4: how delta and eta matter to its algorithm alone (`method = "sa-paper"`).

After every round, each twice as long as the last, the averages so far are certified: the calls of the walk are those
that the paper counts, and those that train the classes at the averages come on top.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import dmkl
from pipelines.shared_weights import drawing
from pipelines.shared_weights.banks import Bank
from pipelines.shared_weights.results import Row, progress, table

C = 10.0
DELTAS, DELTA_ETA = (0.0, 0.2, 0.6, 1.0), 0.0  # 0: scale-free
ETAS, ETA_DELTA = (0.0, 1e-4, 1e-3, 1e-2), 0.2
ROUNDS, QUICK_ROUNDS = 4, 2
COLUMNS = ("delta", "eta", "round", "SVM calls", "mAP", "gap", "objective")


def course(
    bank: Bank, stack: dmkl.KernelStack, precision: Callable[[dmkl.Fit], float], delta: float, eta: float, rounds: int
) -> list[Row]:
    """A row a round. The checkpoint lets every round go on from the one before."""
    formulation, rows = dmkl.SharedMKL(C, mode="max", delta=delta, eta=eta), []
    Y = bank.Y[: bank.train]
    with tempfile.TemporaryDirectory() as folder:
        how = {"tol": 1e-9, "method": "sa-paper", "checkpoint": Path(folder) / "state"}
        for number in range(1, rounds + 1):
            fit = dmkl.solve(stack, Y, formulation, max_rounds=number, **how)
            row = {"delta": delta, "eta": eta, "round": number, "SVM calls": fit.svm_calls, "mAP": precision(fit)}
            rows.append(row | {"gap": fit.worst_gap, "objective": float(fit.objective)})
            progress(f"sensitivity {rows[-1]}")
    return rows


def study(
    bank: Bank, stack: dmkl.KernelStack, precision: Callable[[dmkl.Fit], float], folder: Path, quick: bool
) -> tuple[str, list[Row]]:
    """Tables and drawings of both parameters."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    points = {(delta, DELTA_ETA) for delta in DELTAS} | {(ETA_DELTA, eta) for eta in ETAS}
    rows = [row for point in sorted(points) for row in course(bank, stack, precision, *point, rounds)]
    for what, other, fixed in (("delta", "eta", DELTA_ETA), ("eta", "delta", ETA_DELTA)):
        drawing.sensitivity(folder / f"{what}.svg", what, [row for row in rows if row[other] == fixed])
    last = [row for row in rows if row["round"] == rounds]
    parts = [f"## delta and eta, {bank.name} (eta 0: scale-free), after {rounds} rounds", table(last, COLUMNS)]
    return "\n\n".join(parts), rows
