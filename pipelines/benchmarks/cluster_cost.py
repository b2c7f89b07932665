"""Cost and gain of a cluster at the size of Caltech-256: VSKL, q = inf, gap 1e-3, the same store every time.

    python -m pipelines.benchmarks.cluster_cost [--quick] [--folder DIR] [--repeats R]

In turn: this process with one thread and the kernels in memory, a cluster of one single-thread worker, one of two.
Seconds are those from opening the store to the last certificate, with the transfer of kernels to the workers. The start
of a cluster is shown apart, and so is the processor time, which other work affects less. All three must give
the same bits. Goals: one worker at most 10 % slower than one thread, two workers at least 1.8 times as
fast as one, under 3 tasks a class and round. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

import dmkl
from dmkl.runtime import open_runtime
from dmkl.stack import open_stack
from dmkl.store import KernelStore
from pipelines.common.caltech256 import TOL, C, write_shape
from pipelines.common.commands import dmkl as command

ROOM = 3_750_000_000  # bytes that decide how many classes are in a batch; the same for all, tiles held here or not
OVERHEAD_GOAL, SPEEDUP_GOAL, TASKS_GOAL = 1.10, 1.8, 3.0


@dataclass(frozen=True)
class Run:
    """A fit, its time and its tasks."""

    fit: dmkl.Fit
    start: float  # seconds until there was a cluster
    seconds: float
    busy: float  # processor seconds of the coordinator and of all workers
    tasks: int


def busy(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def fitted(store: KernelStore, cluster: str) -> Run:
    started = time.perf_counter()
    with open_runtime(cluster, workers=1) as runtime:
        opened = time.perf_counter()
        workers = list(runtime.client.run(os.getpid).values()) if runtime.remote else []
        processes = [psutil.Process(), *map(psutil.Process, workers)]
        before = busy(processes)
        memory = ROOM + (0 if runtime.remote else store.projected_bytes)
        stack = open_stack(store.path, runtime=runtime, memory=memory, backend="cluster" if workers else "memory")
        fit = dmkl.solve(stack, store.labels, dmkl.VSKL(q=np.inf, C=C), tol=TOL)
        seconds = time.perf_counter() - opened
        return Run(fit, opened - started, seconds, busy(processes) - before, runtime.submitted if workers else 0)


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
        write_shape(folder, classes)
        command(folder, "kernels", "config.toml", "-o", "k.zarr")
        store = KernelStore(folder / "k.zarr")
        best: dict[str, Run] = {}
        tasks = 0.0
        for _ in range(repeats):
            for cluster in ("none", "local:1", "local:2"):
                run = fitted(store, cluster)
                if cluster not in best or run.seconds < best[cluster].seconds:
                    best[cluster] = run
                fit = run.fit
                tasks = max(tasks, run.tasks / (classes * fit.rounds))
                print(
                    f"{cluster:8} start {run.start:4.1f} s   solve {run.seconds:6.1f} s   busy {run.busy:6.1f} s   "
                    f"{fit.rounds} rounds   {fit.passes} passes   {run.tasks} tasks   gap {fit.worst_gap:.1e}",
                    flush=True,
                )
    none, one, two = (best[cluster] for cluster in ("none", "local:1", "local:2"))
    if not (same(none.fit, one.fit) and same(none.fit, two.fit)):
        raise SystemExit("the models differ")
    overhead, speedup = one.seconds / none.seconds, one.seconds / two.seconds
    print(f"goals: one worker {overhead:.2f} <= {OVERHEAD_GOAL} times one thread, ", end="")
    print(f"two workers {speedup:.2f} >= {SPEEDUP_GOAL} times one, {tasks:.2f} < {TASKS_GOAL} tasks a class and round")
    missed = overhead > OVERHEAD_GOAL or speedup < SPEEDUP_GOAL or tasks >= TASKS_GOAL
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
