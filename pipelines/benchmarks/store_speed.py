"""The cost of a kernel store: building it, compared with the same arithmetic in numpy and writing the same bytes.

    python -m pipelines.benchmarks.store_speed [--quick]

20 Gaussian kernels (4 views x 5 widths) of n = 6,425 synthetic samples. Plain numpy computes the same upper tiles in
memory, in the same precision (float64 distances, float32 exponentials), and writes the same bytes to one file; the
store goes through tasks, chunk files and checksums. Both get one thread, then all cores. (Without
symmetry, numpy would compute and write twice as much.) Goals: on all cores at most 1.5 times the plain
time, and a peak of resident memory under 2 GB. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import threadpoolctl

from dmkl._util.machine import cores, peak_resident
from dmkl._util.tiling import Grid
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.store import build_store

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the median distance
DIMENSIONS = (64, 128, 200, 300)
TIME_GOAL = 1.5
MEMORY_GOAL = 2e9


Seconds = TypeVar("Seconds")


def synthetic(n: int, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    views = {f"v{d}": make_view(f"v{d}", "features", rng.normal(size=(n, d))) for d in DIMENSIONS}
    return Dataset(views, make_labels(rng.integers(0, 10, n)))


def build(data: Dataset, folder: Path, workers: int) -> float:
    """Seconds from data to a finished store."""
    started = time.perf_counter()
    widths = [f"{width} median" for width in WIDTHS]
    bank = plan_bank([KernelConfig("rbf", params={"width": widths})], data)
    build_store(folder / "store.zarr", bank, data, Local(workers))
    return time.perf_counter() - started


def plain(data: Dataset, folder: Path) -> tuple[float, float]:
    """Seconds of the arithmetic and of writing the bytes, without dmkl."""
    grid = Grid.cut(data.n, 1024)
    computing = writing = 0.0
    with (folder / "plain.bin").open("wb") as file:
        for view in data.views.values():
            X = np.asarray(view.values)
            width = np.sqrt(2 * X.shape[1])
            for i, j in grid.pairs():
                started = time.perf_counter()
                A, B = X[grid.span(i)], X[grid.span(j)]
                squares = (A * A).sum(1)[:, None] + (B * B).sum(1) - 2 * (A @ B.T)
                tiles = [np.exp((squares * (-0.5 / (factor * width) ** 2)).astype(np.float32)) for factor in WIDTHS]
                computing += time.perf_counter() - started
                started = time.perf_counter()
                for tile in tiles:
                    tile.tofile(file)
                writing += time.perf_counter() - started
    return computing, writing


def in_fresh_folder(function: Callable[[Path], Seconds], where: Path) -> Seconds:
    os.sync()  # what an earlier measurement left to be written is not this one's cost
    with tempfile.TemporaryDirectory(dir=where) as folder:
        return function(Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="n = 2,000 and two repetitions")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="the disk to measure")
    options = parser.parse_args()
    n, repetitions = (2000, 2) if options.quick else (6425, 5)
    data = synthetic(n)
    all_cores = cores()
    print(f"n = {n:,}, 20 kernels, best of {repetitions}, {all_cores} cores")
    ratio = 0.0
    for threads in sorted({1, all_cores}):
        ours: list[float] = []
        theirs: list[tuple[float, float]] = []
        for _ in range(repetitions):
            with threadpoolctl.threadpool_limits(threads):
                theirs.append(in_fresh_folder(lambda folder: plain(data, folder), options.folder))
            ours.append(in_fresh_folder(lambda folder, threads=threads: build(data, folder, threads), options.folder))
        computing, writing = min(theirs, key=sum)
        ratio = min(ours) / (computing + writing)
        print(
            f"{threads} threads   plain {computing + writing:.2f} s (arithmetic {computing:.2f}, writing {writing:.2f})"
            f"   store {min(ours):.2f} s   {ratio:.2f} times plain"
        )
    peak = peak_resident()
    print(f"goals: {ratio:.2f} <= {TIME_GOAL} times on all cores")
    print(f"peak resident {peak / 1e6:,.0f} <= {MEMORY_GOAL / 1e6:,.0f} MB")
    return int(ratio > TIME_GOAL or peak > MEMORY_GOAL)


if __name__ == "__main__":
    sys.exit(main())
