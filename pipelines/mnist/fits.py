"""One fit on MNIST and its figures, in a process of its own."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dmkl
from dmkl._util.machine import peak_resident
from dmkl.model import make_model
from dmkl.runtime import Local
from dmkl.solvers.obscure_subgradient import UPDATES, ObscureState
from dmkl.stack import open_stack
from dmkl.store import KernelStore
from pipelines.common.experiment import Row
from pipelines.mnist import digits

MEMORY = 12 * 10**9  # fixed: which kernel values are kept, and so the last bits, depend on it; half is never used


@dataclass(frozen=True)
class Wanted:
    """The settings of a fit."""

    n: int
    tested: int  # test digits; none: no test error
    p: float
    C: float
    tol: float
    method: str = "exact"
    widths: int = 0  # of RBF kernels, instead of the paper's twelve kernels
    online: int = 1  # epochs of stage 1 where stage 2 follows
    rounds: tuple[int, ...] = (100,)  # at most; several: a row after each so many
    held: bool = False  # all kernels in memory


def fitted(wanted: Wanted) -> list[Row]:
    """The figures of a fit, at every number of rounds that is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        store = digits.kernel_store(wanted.n, Path(folder) / "kernels.zarr", wanted.widths)
        stack = open_stack(
            store.path, backend="memory" if wanted.held else "computed", workers=digits.WORKERS, memory=MEMORY
        )
        formulation = dmkl.Obscure(p=wanted.p, C=wanted.C, online=wanted.online)
        rows, seconds = [], 0.0
        for rounds in wanted.rounds:
            kept = Path(folder) / "checkpoint" if len(wanted.rounds) > 1 else None
            started = time.perf_counter()
            fit = dmkl.solve(
                stack,
                store.labels,
                formulation,
                tol=wanted.tol,
                method=wanted.method,
                max_rounds=rounds,
                checkpoint=kept,
                warn=False,
            )
            seconds += time.perf_counter() - started
            error = test_error(store, fit, wanted.tested) if wanted.tested else None
            rows.append(row_of(wanted, stack.s, fit, error) | {"seconds": seconds, "peak MB": peak_resident() / 1e6})
            if fit.converged:
                break
        return rows


def row_of(wanted: Wanted, kernels: int, fit: dmkl.Fit, error: float | None) -> Row:
    row = {"n": wanted.n, "p": wanted.p, "kernels": kernels, "gap": fit.worst_gap, "objective": float(fit.objective)}
    row |= {"support": int(fit.coef_matrix.any(axis=1).sum()), "rounds": fit.rounds, "SVMs": fit.svm_calls}
    large = int((fit.weights > 0.01 * fit.weights.max()).sum())
    own = fit.state.own
    numbers = own.numbers if isinstance(own, ObscureState) else None
    updates = None if numbers is None else float(numbers[UPDATES])
    return row | {"weights above 1 %": large, "updates": updates, "error %": error}


def test_error(store: KernelStore, fit: dmkl.Fit, count: int) -> float:
    """Percent of the first `count` test digits that are misclassified."""
    data, known = digits.test(count)
    model = make_model(store, fit)
    found = model.predict(model.decision(data, Local(digits.WORKERS)))
    names = np.array([int(name) for name in found.classes])
    return float(100 * np.mean(names[found.values] != known))
