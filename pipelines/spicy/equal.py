"""The same function as L1MKL: both are block-l1, one with the norm and one with its square.

L1MKL at C_l1 has norms ||w_a|| = weights_a sqrt(beta' K_a beta); SpicyMKL with C = sum_a ||w_a|| / C_l1 has the same
optimum. Problem A of `peers`, and liver, sonar and pima with 200 kernels of `uci_scaling`, hinge. Goals: both proved to
1e-7, and the largest difference of scores at most 1e-4 of their range.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import dmkl
from pipelines.common.data import data_file
from pipelines.peers import ionosphere, standardised
from pipelines.shared_weights.results import Row, goal, progress, table
from pipelines.spicy.fitting import Outcome, figures, timed, warm_up
from pipelines.uci_scaling import bank

TOL, LOOSE = 1e-7, 1e-3
SOURCES, KERNELS = ("liver", "sonar", "pima"), 200
CONSTANTS = (1.0, 100.0)
GOAL = 1e-4
COLUMNS = ("data", "n", "kernels", "C l1", "C spicy", "difference", "l1 used", "used", "rounds", "Newton")
TIMES = ("l1 seconds", "spicy seconds", "l1 loose", "spicy loose")

Float64 = NDArray[np.float64]


def problems(quick: bool) -> Iterator[tuple[str, Float64, Float64, float]]:
    """Name, kernels, labels and L1MKL's C."""
    if not quick:
        case = ionosphere()
        for C in (case.C, *CONSTANTS):
            yield "ionosphere", case.K, case.y, C
    for name in SOURCES[1:2] if quick else SOURCES:
        data = np.load(data_file(f"{name}.npz", f"UCI {name}, keys X and y in -1, +1"))
        X, y = standardised(data["X"].astype(np.float64)), data["y"].astype(np.float64)
        K = bank(X, KERNELS, np.random.default_rng(0))
        for C in CONSTANTS:
            yield name, K, y, C


def scores(fit: dmkl.Fit, K: Float64) -> Float64:
    """Decision values with intercept."""
    return np.tensordot(np.ravel(fit.weights), K @ fit.coef, 1) + float(fit.intercept)


def compared(K: Float64, y: Float64, C: float, repetitions: int) -> Row:
    """Both formulations' figures, `loose` at a usual tolerance."""
    formulation = dmkl.L1MKL(C=C)
    seconds, _, fit = timed(K, y, formulation, TOL, repetitions)
    norms = np.ravel(fit.weights) * np.sqrt(np.maximum((K @ fit.coef) @ fit.coef, 0.0))
    other = dmkl.SpicyMKL(C=float(norms.sum()) / C)
    other_seconds, _, other_fit = timed(K, y, other, TOL, repetitions)
    these, those = scores(fit, K), scores(other_fit, K)
    difference = float(np.abs(these - those).max() / np.ptp(these))
    row: Row = {"n": len(y), "kernels": len(K), "C l1": C, "C spicy": other.C, "difference": difference}
    row |= {"l1 used": int(np.count_nonzero(fit.weights))} | figures(other_fit)
    row |= {"l1 seconds": seconds, "spicy seconds": other_seconds, "gap": max(fit.gap, other_fit.gap)}
    loose = {name: timed(K, y, form, LOOSE, repetitions)[0] for name, form in (("l1", formulation), ("spicy", other))}
    return row | {f"{name} loose": took for name, took in loose.items()}


def run(quick: bool, splits: int | None) -> Outcome:
    """`splits` is nothing here: all samples are taken."""
    warm_up([dmkl.L1MKL(), dmkl.SpicyMKL()])
    rows: list[Row] = []
    for name, K, y, C in problems(quick):
        rows.append({"data": name} | compared(K, y, C, 1 if quick else 2))
        progress(str(rows[-1]))
    line, missed = goal("largest difference of scores / their range", max(r["difference"] for r in rows), "<", GOAL)
    worst = max(row["gap"] for row in rows)
    parts = [
        f"# SpicyMKL and L1MKL, hinge, both to {TOL:g} (loose: {LOOSE:g})",
        table(rows, (*COLUMNS, *TIMES)),
        f"{line} Largest gap {worst:.1e}, to be at most {TOL:g}.",
    ]
    return Outcome(parts, {"rows": rows}, missed=missed or worst > TOL)
