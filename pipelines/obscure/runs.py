"""The experiments, each from a plan to a table."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dmkl
from dmkl.data import Dataset
from dmkl.memory import peak_resident
from dmkl.model import make_model
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import KernelStore
from pipelines.obscure import mnist
from pipelines.shared_weights.results import Row, goal, progress, show, table, write

P, C, TOL = 1.25, 10.0, 1e-2
SLOPE = 1.15
STAGE_1 = 8  # epochs of stage 1 before stage 2, where the two are compared with others
PAPERS_ERROR = 1.95
FACTS = (
    "n",
    "kernels",
    "method",
    "p",
    "seconds",
    "gap",
    "objective",
    "support",
    "rounds",
    "SVMs",
    "error %",
    "peak MB",
)


@contextmanager
def stored(data: Dataset, **options: Any) -> Iterator[KernelStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield mnist.kernel_store(data, Path(folder) / "kernels.zarr", **options)


def test_error(store: KernelStore, fit: dmkl.Fit, count: int) -> float:
    data, digits = mnist.test(count)
    labels = make_model(store, fit)
    found = labels.predict(labels.decision(data, Local()))
    names = np.array([int(name) for name in found.classes])
    known = np.isin(digits, names)
    return float(100 * np.mean(names[found.values][known] != digits[known]))


def fitted(
    store: KernelStore,
    count: int,
    p: float = P,
    *,
    constant: float = C,
    online: int = 1,
    backend: str = "computed",
    **options: Any,
) -> Row:
    """A fit's figures, with the error on `count` test digits."""
    stack = open_stack(store.path, backend=backend)
    started = time.perf_counter()
    fit = dmkl.solve(
        stack, store.labels, dmkl.Obscure(p=p, C=constant, online=online), tol=TOL, **{"method": "exact"} | options
    )
    seconds = time.perf_counter() - started
    row = {
        "n": store.n,
        "kernels": store.s,
        "method": options.get("method", "exact"),
        "p": p,
        "seconds": round(seconds, 2),
        "gap": fit.worst_gap,
        "objective": float(fit.objective),
        "support": int(fit.coef_matrix.any(axis=1).sum()),
        "rounds": fit.rounds,
        "SVMs": fit.svm_calls,
        "error %": test_error(store, fit, count) if count else "",
        "peak MB": round(peak_resident() / 1e6),
        "weights": [float(f"{u:.3g}") for u in fit.weights],
        "samples and seconds of stages": fit.state.own["seen"].tolist(),
        "updates": float(fit.state.own["numbers"][5]) if "numbers" in fit.state.own else 0.0,
    }
    progress(", ".join(f"{name} {row[name]}" for name in FACTS))
    return row


def slope(rows: list[Row], of: str, over: str) -> float:
    """Of the log-log fit."""
    return float(np.polyfit(np.log([row[over] for row in rows]), np.log([row[of] for row in rows]), 1)[0])


def report(folder: Path, name: str, title: str, rows: list[Row], columns: tuple[str, ...], lines: list[str]) -> None:
    parts = [f"# {title}", table(rows, columns), *lines]
    show(parts)
    write(folder, name, parts, {"rows": rows, "lines": lines})


def size(folder: Path, quick: bool) -> bool:
    sizes = (500, 1000) if quick else (1250, 2500, 5000, 10_000, 20_000)
    rows, easy = [], []
    pixels, digits = mnist.images("train")
    two = np.flatnonzero(digits < 2)
    for n in sizes:
        with stored(mnist.training(n)) as store:
            rows.append(fitted(store, 1000 if quick else 10_000))
    for n in sizes[:4]:
        with stored(mnist.blocks(pixels[two[:n]], digits[two[:n]])) as store:
            easy.append(fitted(store, 1000))
    both = [(slope(some, "seconds", "n"), slope(some, "support", "n")) for some in (rows, easy)]
    lines, missed = [], False
    for what, (seconds, support) in zip(("ten digits", "digits 0 and 1"), both, strict=True):
        line, over = goal(f"slope of seconds in n, {what} (support {support:.2f})", seconds, "<", SLOPE)
        lines.append(line)
        missed |= over
    report(folder, "size", f"Seconds to a certified gap of {TOL:g}", rows + easy, FACTS, lines)
    return missed


def epochs(folder: Path, quick: bool) -> bool:
    n, most = (400, 8) if quick else (1500, 64)
    rows: list[Row] = []
    with stored(mnist.training(n)) as store:
        tried = [(method, c) for c in (10.0, 1000.0) for method in ("stochastic", "pegasos", "online")]
        best = {c: fitted(store, 0, backend="memory", constant=c) for c in (10.0, 1000.0)}
        for method, c in tried:
            with tempfile.TemporaryDirectory() as kept:
                count, seconds = 1, 0.0
                while count <= most:
                    how = {"method": method, "max_rounds": count, "checkpoint": Path(kept) / "checkpoint"}
                    row = fitted(store, 1000, backend="memory", constant=c, online=STAGE_1, **how)
                    seconds += row["seconds"]
                    above = row["objective"] / best[c]["objective"] - 1
                    rows.append(
                        row | {"C": c, "epochs": row["rounds"], "seconds": round(seconds, 2), "above optimum": above}
                    )
                    count *= 2
    columns = ("method", "C", "epochs", "seconds", "above optimum", "gap", "support", "error %")
    title = f"Objective over epochs, {n} digits (optimum to {best[C]['gap']:.1e} in {best[C]['seconds']} s by stage 3)"
    report(folder, "epochs", title, rows, columns, [])
    return False


def norm(folder: Path, quick: bool) -> bool:
    rows = []
    with stored(mnist.training(400 if quick else 3000)) as store:
        for p in (1.01, 1.5) if quick else (1.0001, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0):
            row = fitted(store, 10_000 if not quick else 1000, p, backend="memory")
            weights = np.array(row["weights"])
            rows.append(row | {"weights above 1 %": int((weights > 0.01 * weights.max()).sum())})
    report(folder, "norm", "Effect of p", rows, (*FACTS, "weights above 1 %"), [])
    return False


def kernels(folder: Path, quick: bool) -> bool:
    rows = []
    for count in (1, 4) if quick else (1, 2, 4, 8, 16):
        with stored(mnist.training(300 if quick else 1000), kernels=mnist.widths(count)) as store:
            online = fitted(store, 0, 1.01, backend="memory", method="online", max_rounds=4 if quick else 16)
            rows.append(fitted(store, 1000, 1.01, backend="memory") | {"online updates": online["updates"]})
    line, missed = goal(
        "slope of seconds in the number of kernels, p = 1.01", slope(rows, "seconds", "kernels"), "<", 1
    )
    report(folder, "kernels", "Effect of the number of kernels", rows, (*FACTS, "online updates"), [line])
    return missed


def full(folder: Path, quick: bool) -> bool:
    n, parts = (1000, 1) if quick else (60_000, 8)  # steps an epoch
    with stored(mnist.training(n)) as store:
        rows = [fitted(store, 10_000)]
        if not quick:
            rows.append(fitted(store, 10_000, method="stochastic", max_rounds=10 * parts))
    line, missed = goal(f"% of 10,000 digits wrong after training on {n}", rows[0]["error %"], "<", PAPERS_ERROR)
    report(folder, "full", "All digits", rows, FACTS, [line])
    return missed
