"""What a cluster costs and brings at the size of Caltech-256: VSKL, q = inf, gap 1e-3, the same store every time.

    python -m pipelines.cluster_cost [--quick] [--folder DIR] [--repeats R]

In turn: this process with one thread, a cluster of one single-thread worker, one of two. The clock runs from opening
the store to the last certificate, with the kernels' way to the workers inside; starting a cluster is told apart. All
three must give the same bits. Goals: one worker at most 10 % slower than one thread, two workers at least 1.8 times as
fast as one, under 3 tasks a class and round. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import dmkl
from dmkl.runtime import open_runtime
from dmkl.stack import open_stack
from dmkl.store import KernelStore
from pipelines.caltech256_shape import TOL, C, write_data
from pipelines.caltech256_shape import dmkl as command

MEMORY = 5_500_000_000  # of the coordinator: what decides how many classes are in a batch
OVERHEAD_GOAL, SPEEDUP_GOAL, TASKS_GOAL = 1.10, 1.8, 3.0


def fitted(store: KernelStore, cluster: str) -> tuple[dmkl.Fit, float, float, int]:
    """A fit, seconds to start the cluster and to get there, and the tasks it took."""
    started = time.perf_counter()
    with open_runtime(cluster, workers=1) as runtime:
        opened = time.perf_counter()
        stack = open_stack(store.path, runtime=runtime, memory=MEMORY)
        fit = dmkl.solve(stack, store.labels, dmkl.VSKL(q=np.inf, C=C), tol=TOL)
        return fit, opened - started, time.perf_counter() - opened, getattr(runtime, "asked", 0)


def same(fit: dmkl.Fit, other: dmkl.Fit) -> bool:
    return np.array_equal(fit.weights, other.weights) and np.array_equal(fit.coef, other.coef)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="25 classes, once; no goals")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where 2 GB of kernels go for a while")
    parser.add_argument("--classes", type=int, default=257)
    parser.add_argument("--repeats", type=int, default=2, help="the best of so many counts")
    options = parser.parse_args()
    classes, repeats = (25, 1) if options.quick else (options.classes, options.repeats)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_data(folder, classes)
        command(folder, "kernels", "config.toml", "-o", "k.zarr")
        store = KernelStore(folder / "k.zarr")
        best: dict[str, float] = {}
        fits: dict[str, Any] = {}
        tasks = 0.0
        for _ in range(repeats):
            for cluster in ("none", "local:1", "local:2"):
                fit, start, seconds, asked = fitted(store, cluster)
                fits[cluster], best[cluster] = fit, min(best.get(cluster, np.inf), seconds)
                tasks = max(tasks, asked / (classes * fit.rounds))
                print(
                    f"{cluster:8} start {start:4.1f} s   solve {seconds:6.1f} s   {fit.rounds} rounds   "
                    f"{fit.passes} passes   {fit.svm_calls} SVM calls   {asked} tasks   gap {fit.worst_gap:.1e}"
                )
    if not (same(fits["none"], fits["local:1"]) and same(fits["none"], fits["local:2"])):
        raise SystemExit("the models differ")
    overhead, speedup = best["local:1"] / best["none"], best["local:1"] / best["local:2"]
    print(f"goals: one worker {overhead:.2f} <= {OVERHEAD_GOAL} times one thread, ", end="")
    print(f"two workers {speedup:.2f} >= {SPEEDUP_GOAL} times one, {tasks:.2f} < {TASKS_GOAL} tasks a class and round")
    missed = overhead > OVERHEAD_GOAL or speedup < SPEEDUP_GOAL or tasks >= TASKS_GOAL
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
