"""One store built, or one fit, in a process of its own: what it took is printed as JSON.

    python -m pipelines.benchmarks.cluster.job build FOLDER --cluster local:2
    python -m pipelines.benchmarks.cluster.job fit FOLDER --cluster none --threads 2 [--memory BYTES] [--watch]

FOLDER has `data.npz`, `config.toml` and, for a fit, `k.zarr`. Seconds are those from the start of the work on, with a
cluster that is there; the start of the cluster is apart. Processor seconds are those of this process and the workers.
With --watch the memory of all these processes is measured, each page divided among the processes that share it; looking
takes time, so such a fit is not timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from distributed import Client

import dmkl
from dmkl.config.toml import read_config
from dmkl.run.prepare import make_formulation, prepare_data
from dmkl.runtime import Runtime, open_runtime
from dmkl.stack import open_stack
from dmkl.store import KernelStore, build_store

INSECURE = {"insecure": True}  # schedulers at other addresses are on networks of this machine alone


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", choices=("build", "fit"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cluster", default="none")
    parser.add_argument("--threads", type=int, default=1, help="of this process, without a cluster")
    parser.add_argument("--memory", type=int, default=0, help="bytes; default: most of what is free")
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--workers", type=int, default=0, help="wait for so many at the cluster's address")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    if options.workers:
        with Client(options.cluster) as client:
            client.wait_for_workers(options.workers, timeout=120)
    with open_runtime(options.cluster, workers=options.threads, settings=INSECURE) as runtime:
        start = time.perf_counter() - started
        processes = [psutil.Process(pid) for pid in (os.getpid(), *workers(runtime))]
        with watched(processes if options.watch else []) as memory:
            before, begun = busy(processes), time.perf_counter()
            facts = (build if options.work == "build" else fit)(options.folder, runtime, options.memory)
            seconds, used = time.perf_counter() - begun, busy(processes) - before
        facts |= {"tasks": getattr(runtime, "submitted", 0), "waited": waited(runtime, seconds)}
    facts |= {"start": start, "seconds": seconds, "busy": used, "memory": max(memory, default=0)}
    print(json.dumps(facts))
    return 0


def workers(runtime: Runtime) -> list[int]:
    """The process numbers of the workers, which are all on this machine."""
    return list(runtime.client.run(os.getpid).values()) if runtime.remote else []


def busy(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def waited(runtime: Runtime, seconds: float) -> float:
    """The share of the time that the workers had no task."""
    if not runtime.remote:
        return 0.0
    rows = runtime.timeline().to_dict()["rows"]
    if not rows:  # the coordinator did all of it
        return 0.0
    return 1.0 - sum(row["seconds"] for row in rows) / (seconds * runtime.workers)


def build(folder: Path, runtime: Runtime, memory: int) -> dict[str, object]:
    prepared = prepare_data(read_config(folder / "config.toml"))
    shutil.rmtree(folder / "built.zarr", ignore_errors=True)
    store = build_store(folder / "built.zarr", prepared.bank, prepared.train, runtime)
    nbytes = store.nbytes
    shutil.rmtree(store.path)
    return {"nbytes": nbytes}


def fit(folder: Path, runtime: Runtime, memory: int) -> dict[str, object]:
    config, store = read_config(folder / "config.toml"), KernelStore(folder / "k.zarr")
    stack = open_stack(store, runtime=runtime, memory=memory or None)
    found = dmkl.solve(stack, store.labels, make_formulation(config), tol=config.solve.tol)
    digest = hashlib.blake2b(np.ascontiguousarray(found.weights).tobytes() + found.coef_matrix.tobytes())
    return {
        "gap": found.worst_gap,
        "rounds": found.rounds,
        "passes": found.passes,
        "bits": digest.hexdigest()[:16],
    }


@contextmanager
def watched(processes: list[psutil.Process]) -> Iterator[list[int]]:
    """Bytes of these processes together, looked at again and again."""
    found: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.3):
            found.append(sum(memory_of(process.pid) for process in processes))

    thread = threading.Thread(target=look)
    if processes:
        thread.start()
    try:
        yield found
    finally:
        ended.set()
        if processes:
            thread.join()


def memory_of(pid: int) -> int:
    """Bytes of a process: of a page that several processes map, its share (PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    sys.exit(main())
