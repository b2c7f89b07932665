"""Problem A of PEERS: L1-MKL on ionosphere with 442 kernels, to the known optimum and to a certified 1e-4.

    python -m pipelines.peers [--quick]

Data: ionosphere.npz in $DMKL_DATA or ../shared/data. Gaussians of ten widths and three polynomials on all features
jointly and on each alone, kernels scaled to mean diagonal 1, C = 100/351. The fastest peer took 2.9 s on another
machine (within 1e-6 of the optimum after 2,000 steps; it has no certificate). Beside it, scikit-learn's SVC on the
average kernel, to compare machines. Goals: within 1e-6 of the optimum, a certified 1e-4 in 0.6 s. Exits with 1 when a
goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import threadpoolctl
from sklearn.svm import SVC

import dmkl

WIDTHS = (0.5, 1, 2, 5, 7, 10, 12, 15, 17, 20)
OPTIMUM = 22.1491587710
SECONDS_GOAL, OPTIMUM_GOAL = 0.6, 1e-6


def data_file(name: str) -> Path:
    folders = [os.environ.get("DMKL_DATA", ""), str(Path(__file__).resolve().parents[2] / "shared" / "data")]
    for folder in filter(None, folders):
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise SystemExit(f"{name} is neither in $DMKL_DATA nor in ../shared/data: UCI Ionosphere, keys X (351, 33) and y")


def kernels(X: np.ndarray) -> np.ndarray:
    """Ten Gaussians and three polynomials on all features and on each, mean diagonal 1."""
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    result = []
    for columns in [slice(None), *(slice(j, j + 1) for j in range(X.shape[1]))]:
        inner = X[:, columns] @ X[:, columns].T
        norms = np.diag(inner)
        squares = np.maximum(norms[:, None] + norms - 2 * inner, 0)
        result += [np.exp(-squares / (2 * width**2)) for width in WIDTHS]
        result += [(inner + 1) ** degree for degree in (1, 2, 3)]
    K = np.array(result)
    return K / np.einsum("aii->a", K)[:, None, None] * len(X)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition")
    repetitions = 1 if parser.parse_args().quick else 5
    data = np.load(data_file("ionosphere.npz"))
    K, y = kernels(data["X"].astype(np.float64)), data["y"].astype(np.float64)
    C = 100 / len(y)
    stack = dmkl.KernelStack.from_array(K)
    dmkl.solve(dmkl.KernelStack.from_array(K[:5]), y, dmkl.L1MKL(C=C))  # compile
    times, svc = [], []
    for _ in range(repetitions):
        started = time.perf_counter()
        fit = dmkl.solve(stack, y, dmkl.L1MKL(C=C), tol=1e-4)
        times.append(time.perf_counter() - started)
        with threadpoolctl.threadpool_limits(1):
            started = time.perf_counter()
            SVC(kernel="precomputed", C=C).fit(K.mean(axis=0), y)
            svc.append(time.perf_counter() - started)
    exact = dmkl.solve(stack, y, dmkl.L1MKL(C=C), tol=1e-7)
    off = exact.objective / OPTIMUM - 1
    print(f"A  {K.shape[0]} kernels, n = {len(y)}: certified gap {fit.gap:.1e} in {min(times):.2f} s", end="")
    print(f" ({fit.svm_calls} SVM calls); SVC on the average kernel {min(svc) * 1e3:.1f} ms")
    print(f"   at tol 1e-7: objective {exact.objective:.10f}, {off:.1e} off the optimum {OPTIMUM}, gap {exact.gap:.1e}")
    print(f"goals: {min(times):.2f} <= {SECONDS_GOAL} s, {off:.1e} <= {OPTIMUM_GOAL}")
    return int(min(times) > SECONDS_GOAL or abs(off) > OPTIMUM_GOAL)


if __name__ == "__main__":
    sys.exit(main())
