"""Test quality over training time: SA and Sum against combinations of every class's own and the average kernel.

Every point is a training from nothing to a certified gap, its time all that `dmkl.solve` took. Quality is the mean over
classes of average precision on test samples. Two methods are compared by the time of their first point that comes
within 0.002 of the best point of all methods with one combination for all classes; where one of them never comes there,
also of the best quality that each of them reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

import dmkl
from dmkl.data import make_labels
from dmkl.model.metrics import mean_average_precision
from dmkl.solvers.problem import Formulation
from pipelines.shared_weights import drawing, sensitivity
from pipelines.shared_weights.banks import Bank, banks
from pipelines.shared_weights.results import Row, goal, progress, show, table, write

C = 10.0
MEMORY = 6_000_000_000
WORKERS = 2
TOLS, QUICK_TOLS = (0.3, 0.1, 0.03, 0.01), (0.3, 0.03)
LONGEST = 120.0  # seconds of one training; what is certified by then counts
NEAR = 0.002  # of mean average precision
RATIO_GOAL, MANY = 5.0, 100  # times that SA is faster than Sum, at so many classes

SA, SUM, SUM_MIRROR = "SA", "Sum (bundle)", "Sum (mirror)"
SHARED = (SA, SUM, SUM_MIRROR)
MIRROR_TOL = 0.03  # below it mirror descent takes hundreds of times all SVMs
METHODS: dict[str, tuple[Callable[[], Formulation], str]] = {  # with the algorithm where it is not the usual one
    SA: (partial(dmkl.SharedMKL, C, mode="max"), ""),
    SUM: (partial(dmkl.SharedMKL, C, mode="sum"), ""),
    SUM_MIRROR: (partial(dmkl.SharedMKL, C, mode="sum"), "mirror"),
    "VSKL q=2, per class": (partial(dmkl.VSKL, 2.0, C=C), ""),
    "L1MKL, per class": (partial(dmkl.L1MKL, C=C), ""),
    "average kernel": (partial(dmkl.UniformMKL, C=C), ""),
}
COLUMNS = ("method", "tol", "seconds", "mAP", "gap", "SVM calls", "rounds")


def precision(bank: Bank, fit: dmkl.Fit) -> float:
    """Mean average precision on the test samples."""
    weights = np.broadcast_to(np.atleast_2d(fit.weights), (bank.Y.shape[1], len(bank.K)))
    test = slice(bank.train, None)
    scores = np.tile(np.atleast_1d(fit.intercept).astype(np.float64), (len(bank.Y) - bank.train, 1))
    for a, kernel in enumerate(bank.K):
        scores += kernel[test, : bank.train] @ (fit.coef_matrix * weights[:, a])
    return mean_average_precision(scores, make_labels(bank.Y).take(np.arange(len(bank.Y))[test]))


def trained(bank: Bank, stack: dmkl.KernelStack, method: str, tol: float) -> Row:
    """One point of a curve."""
    formulation, algorithm = METHODS[method]
    started = time.perf_counter()
    fit = dmkl.solve(stack, bank.Y[: bank.train], formulation(), tol=tol, method=algorithm, max_seconds=LONGEST)
    row = {"method": method, "tol": tol, "seconds": round(time.perf_counter() - started, 3)}
    row |= {"mAP": precision(bank, fit), "gap": fit.worst_gap, "SVM calls": fit.svm_calls, "rounds": fit.rounds}
    return row | {"weights": np.atleast_2d(fit.weights).mean(axis=0).round(4).tolist()}


def compared(rows: list[Row], wanted: float) -> Row:
    """Seconds of every method's fastest point of this quality (None: none); the faster Sum's as multiple of SA's."""
    seconds: dict[str, float | None] = {}
    for method in METHODS:
        fast = [row["seconds"] for row in rows if row["method"] == method and row["mAP"] >= wanted]
        seconds[method] = min(fast, default=None)
    sums = [took for method in (SUM, SUM_MIRROR) if (took := seconds[method]) is not None]
    own = seconds[SA]
    ratio = 0.0 if own is None else min(sums, default=np.inf) / own  # a quality that SA never reaches is no success
    return {"wanted": wanted, "seconds": seconds, "ratio": ratio}


def comparisons(rows: list[Row]) -> list[Row]:
    """At the best quality of the methods with one combination, and at the best that each of them reaches."""
    best = [max(row["mAP"] for row in rows if row["method"] == method) for method in SHARED]
    return [compared(rows, quality - NEAR) for quality in (max(best), min(best))]


def sentence(found: Row) -> str:
    """A comparison in words."""
    reach = (f"{name} {'never' if s is None else f'{s:.2f} s'}" for name, s in found["seconds"].items())
    return (
        f"To mean average precision {found['wanted']:.4f}: {', '.join(reach)}. Faster Sum / SA: {found['ratio']:.2f}."
    )


def points(bank: Bank, stack: dmkl.KernelStack, quick: bool) -> Iterator[Row]:
    """All methods at all tolerances."""
    trained(bank, stack, "average kernel", TOLS[0])  # whatever is compiled or loaded on first use
    for method in METHODS:
        for tol in QUICK_TOLS if quick else TOLS:
            if method != SUM_MIRROR or tol >= MIRROR_TOL:
                yield trained(bank, stack, method, tol)


def run(folder: Path, quick: bool, views: list[str], splits: int) -> bool:
    """Whether SA is not as many times faster than the faster Sum as it should be, on any set of many classes."""
    parts, facts, missed, first = [f"# Mean average precision over training time, C = {C:g}"], {}, False, None
    folder.mkdir(parents=True, exist_ok=True)
    for bank in banks(folder, quick, views, splits):
        kept = np.ascontiguousarray(bank.K[:, : bank.train, : bank.train])
        stack = dmkl.KernelStack.from_array(kept, groups=np.arange(len(kept)), workers=WORKERS, memory=MEMORY)
        first = first or (bank, stack)
        rows = []
        for row in points(bank, stack, quick):
            rows.append(row)
            progress(f"{bank.name} {row}")
        found = comparisons(rows)
        parts += [f"## {bank.name}: {bank.size}", table(rows, COLUMNS), *map(sentence, found)]
        if bank.Y.shape[1] >= MANY:
            line, here = goal(f"{bank.name}, time of the faster Sum / SA's", found[0]["ratio"], ">=", RATIO_GOAL)
            parts.append(line)
            missed = missed or here
        drawing.curves(folder / f"{bank.name}.svg", bank.name, rows)
        facts[bank.name] = {"rows": rows, "compared": found}
        write(folder, "curves", parts, facts)
    assert first is not None
    text, facts["sensitivity"] = sensitivity.study(*first, partial(precision, first[0]), folder, quick)
    parts.append(text)
    write(folder, "curves", parts, facts)
    show(parts)
    return missed
