"""The predicted and the measured cost of a round on a cluster: workers, slow networks.

    python -m pipelines.benchmarks.scaling_model [--quick] [--folder DIR]

The model (`Round`) counts bytes, multiplications, tasks and messages of one VSKL round from n, s, m, the working sets
and the workers. Its few rates are measured first, in this process and with tasks that do nothing. Then a fit runs on
real worker processes, and again with a proxy that delays every byte to and from the scheduler; the model has to predict
the time of the rounds. At the end, its prediction for n = 10^6 and m = 10^4. Exits with 1 when a prediction is
off by more than a factor of 1.5.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dmkl
from dmkl.runtime import Local, Runtime, open_runtime
from dmkl.stack import open_stack
from dmkl.stack.blocks import CHUNK_BYTES, answer_chunk
from dmkl.stack.score import SCORES, score_runs
from dmkl.store import KernelStore
from pipelines.benchmarks.slow_network import workers
from pipelines.common.caltech256 import TOL, C, write_shape
from pipelines.common.commands import dmkl as command

MEMORY = 5_500_000_000
DELAY = 0.02  # seconds that a byte waits in the slow network, either way
FACTOR = 1.5  # that a prediction may be off
SIDE = 1024  # samples a tile


@dataclass(frozen=True)
class Round:
    """One round of one batch: cut and solve a block for each class, then one pass for scores and forms."""

    n: int
    s: float  # kernels in a block, on average
    m: int  # classes in the batch
    W: int  # samples in a block
    workers: int

    @property
    def parts(self) -> int:
        """Tasks of a pass."""
        rows = math.ceil(self.n / SIDE)
        values = rows * (rows + 1) / 2 * self.s * SIDE**2
        return max(1, min(max(SCORES.tasks, rows), round(values / SCORES.values)))

    @property
    def stack_bytes(self) -> float:
        return self.s * self.n * (self.n + SIDE) / 2 * 4

    @property
    def block_bytes(self) -> float:
        return self.m * self.s * self.W**2 * 4

    @property
    def pass_products(self) -> float:
        """Multiplications and additions of scores: every kept tile on either side of the diagonal."""
        return 2.0 * self.n**2 * self.s * self.m

    @property
    def coordinator_bytes(self) -> float:
        """Coefficients out, to one worker, which passes them on; scores back, summed by the workers."""
        return 8.0 * self.n * self.m * 2

    @property
    def chunks(self) -> int:
        return min(self.m, max(4 * self.workers, math.ceil(self.block_bytes / CHUNK_BYTES)))

    @property
    def tasks(self) -> int:
        return self.chunks + 2 * self.parts + 1

    @property
    def round_trips(self) -> int:
        """Results are fetched one after the other; three stages and the sums of a pass wait for each other."""
        return self.chunks + 3 + math.ceil(math.log2(self.parts + 1))

    def seconds(self, rates: Rates, delay: float = 0.0) -> float:
        work = self.block_bytes / rates.blocks + self.pass_products / rates.products
        share = work * max(1 / self.workers, 1 / self.chunks)
        return share + self.coordinator_bytes / rates.network + self.tasks * rates.task + self.round_trips * 2 * delay


@dataclass(frozen=True)
class Rates:
    """Rates of this machine on one thread, per second."""

    blocks: float  # bytes of blocks that are cut and solved
    products: float  # of a pass
    network: float  # bytes between processes
    task: float  # seconds a task


class Watched:
    """A runtime that records the time of its maps."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self.seconds = runtime, {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    def map(self, function: object, tasks: object) -> Iterator[object]:
        return iter(self._timed(function, lambda: list(self._runtime.map(function, tasks))))

    def reduce(self, combine: object, function: object, tasks: object, done: object) -> object:
        return self._timed(function, lambda: self._runtime.reduce(combine, function, tasks, done))

    def _timed(self, function: object, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = work()
        self.seconds[function.__name__] = self.seconds.get(function.__name__, 0.0) + time.perf_counter() - started
        return found


def fitted(store: KernelStore, runtime: Runtime) -> tuple[dmkl.Fit, dict[str, float], list[tuple[int, int, float]]]:
    """A fit, seconds of each kind of task, and (classes, samples, kernels) of each batch of blocks."""
    watched, batches = Watched(runtime), []
    stack = open_stack(store.path, runtime=watched, memory=MEMORY)
    answers = stack.answers

    def seen(function: object, questions: object, sets: list[object], **cut: object) -> list[object]:
        kernels = cut.get("kernels", [range(store.s)])
        batches.append((len(sets), int(np.mean([len(W) for W in sets])), float(np.mean([len(A) for A in kernels]))))
        return answers(function, questions, sets, **cut)

    stack.answers = seen
    # a method that certifies by a pass: Newton's method on all samples needs none
    fit = dmkl.solve(stack, store.labels, dmkl.VSKL(q=np.inf, C=C), tol=TOL, method="interior")
    return fit, watched.seconds, batches


def rates(store: KernelStore) -> Rates:
    """From the same fit in this process on one thread, the second time; and from tasks that do nothing."""
    for _ in range(2):
        _, seconds, batches = fitted(store, Local(1))
    rounds = [Round(store.n, s, m, W, 1) for m, W, s in batches]
    with open_runtime("local:1") as runtime:
        for _ in range(2):
            started = time.perf_counter()
            list(runtime.map(abs, ((number,) for number in range(200))))
            task = (time.perf_counter() - started) / 200
        array = np.ones((1000, 12_500))
        times = []
        for _ in range(5):
            started = time.perf_counter()
            next(iter(runtime.map(np.negative, [(array,)])))
            times.append(time.perf_counter() - started)
    return Rates(
        blocks=sum(r.block_bytes for r in rounds) / seconds[answer_chunk.__name__],
        products=sum(r.pass_products for r in rounds) / seconds[score_runs.__name__],
        network=2 * array.nbytes / statistics.median(times),
        task=task,
    )


def measured(store: KernelStore, count: int, delay: float) -> tuple[float, list[Round]]:
    """Seconds of all rounds of the second fit on so many workers, and those rounds."""
    with workers(count, delay) as address, open_runtime(address) as runtime:
        while len(runtime.client.scheduler_info(n_workers=-1)["workers"]) < count:
            time.sleep(0.1)
        runtime.workers = count
        for _ in range(2):
            _, seconds, batches = fitted(store, runtime)
    spent = seconds[answer_chunk.__name__] + seconds[score_runs.__name__]
    return spent, [Round(store.n, s, m, W, count) for m, W, s in batches]


def large(rates: Rates) -> None:
    """The limits at 10^6 samples and 10^4 classes, in batches of 100 classes, on 1,000 workers of one thread."""
    batch = Round(n=1_000_000, s=20, m=100, W=20_000, workers=1000)
    times = 10_000 // batch.m
    products, sent = times * batch.pass_products, times * batch.coordinator_bytes
    print("n = 10^6, m = 10^4, 20 kernels, 1,000 workers, one round of all classes:")
    print(f"  store {batch.stack_bytes / 1e12:.0f} TB, read {times} times by passes")
    print(
        f"  blocks {batch.block_bytes / batch.m / 1e9:.0f} GB a class, {times * batch.block_bytes / 1e15:.1f} PB in all"
    )
    print(
        f"  passes {products:.1e} operations, {products / rates.products / batch.workers / 3600:,.0f} h on all workers"
    )
    print(f"  coordinator {sent / 1e15:.1f} PB, {sent / rates.network / 3600:,.0f} h; {times * batch.tasks:,} tasks")
    signs, sets = 4 * batch.n, times * batch.m * min(4 * batch.W, batch.n / 8)  # numbers of samples, or bits
    print(f"  signs {signs / 1e6:.0f} MB, working sets {sets / 1e6:,.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="25 classes, 1 worker; nothing is judged")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where 0.5 GB of kernels go for a while")
    options = parser.parse_args()
    worst = 1.0
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_shape(folder, 25 if options.quick else 120)
        command(folder, "kernels", "config.toml", "-o", "k.zarr")
        store = KernelStore(folder / "k.zarr")
        found = rates(store)
        print(
            f"rates  blocks {found.blocks / 1e9:.2f} GB/s   network {found.network / 1e9:.2f} GB/s   products "
            f"{found.products / 1e9:.0f} G/s   {1e3 * found.task:.1f} ms a task"
        )
        for count, delay in ((1, 0.0),) if options.quick else ((1, 0.0), (2, 0.0), (1, DELAY), (2, DELAY)):
            spent, rounds = measured(store, count, delay)
            said = sum(r.seconds(found, delay) for r in rounds)
            worst = max(worst, spent / said, said / spent)
            tasks, sent = sum(r.tasks for r in rounds), sum(r.coordinator_bytes for r in rounds)
            print(
                f"{count} workers, delay {1e3 * delay:.0f} ms: {len(rounds)} rounds {spent:.2f} s, said {said:.2f} s; "
                f"{tasks} tasks, {sent / 1e6:.0f} MB through the coordinator"
            )
        large(found)
    print(f"goal: the model is off by a factor of {worst:.2f} <= {FACTOR} at most")
    return int(worst > FACTOR and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
