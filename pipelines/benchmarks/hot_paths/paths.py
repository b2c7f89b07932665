"""The hot paths, each with the operations it cannot avoid."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from dmkl._util.tiling import Grid
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.kernels import plan_bank
from dmkl.oracles import ORACLES, solve_svm
from dmkl.problems.norms import MixedNorm
from dmkl.runtime import Local
from dmkl.solvers.interior_point import solve_interior
from dmkl.stack import KernelStack, open_stack
from dmkl.store import build_store

GOAL = 0.6
FLOAT = 4  # bytes of a stored value


@dataclass(frozen=True)
class Hot:
    """A path: a function that runs it once, and its cost model in words and in units of `limits`."""

    name: str
    model: str
    run: Callable[[], Any]
    costs: Callable[[Any], dict[str, float]]  # from what `run` gave
    goal: bool = True


class Problem:
    """Gaussian kernels of synthetic features, and stacks of them."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self.settings, self.folder = settings, folder
        n, features = settings["samples"], settings["features"]
        rng = np.random.default_rng(settings["seed"])
        views = {f"v{d}": make_view(f"v{d}", "features", rng.normal(size=(n, d))) for d in features}
        self.data = Dataset(views, make_labels(rng.integers(0, 10, n)))
        widths = [f"{width} median" for width in settings["widths"]]
        self.bank = plan_bank([KernelConfig("rbf", params={"width": widths})], self.data)
        self.s, self.n, self.grid = len(self.bank), n, Grid.cut(n, 1024)
        self.store = folder / "kept.zarr"
        build_store(self.store, self.bank, self.data, Local())
        self.coef = rng.normal(size=(n, settings["classes"]))
        self.weights = rng.random((settings["classes"], self.s))
        size = int(settings["share"] * n)
        self.sets = [np.sort(rng.permutation(n)[:size]) for _ in range(settings["sets"])]
        self.y = np.where(rng.random(n) < 0.5, 1.0, -1.0)

    @property
    def entries(self) -> float:
        """Values of one kernel in the tiles that are kept."""
        return float(sum(self._length(i) * self._length(j) for i, j in self.grid.pairs()))

    def _length(self, block: int) -> int:
        span = self.grid.span(block)
        return span.stop - span.start

    @property
    def rows_hit(self) -> float:
        """Values of one kernel in rows of tiles that at least one of the sets has members in."""
        hit = np.zeros(self.n, bool)
        hit[np.concatenate(self.sets)] = True
        return float(sum(hit[self.grid.span(i)].sum() * self._length(j) for i, j in self.grid.pairs()))

    def tile_files(self) -> list[Path]:
        return sorted(path for path in (self.store / "gram").rglob("*") if path.is_file() and path.name != "zarr.json")


def stack_paths(problem: Problem, threads: int) -> list[Hot]:
    """Paths over tiles: passes, and building them."""
    held, read = (open_stack(problem.store, workers=threads, memory=8 << 30, backend=b) for b in ("memory", "disk"))
    values = FLOAT * problem.s * problem.entries  # bytes of all kept tiles
    products = 2.0 * problem.n**2 * problem.s
    m, one = problem.settings["classes"], problem.coef[:, :1]
    ours = {"file read": values, "checksums": values}
    many = {"products": products * m}
    blocks = {"write": FLOAT * problem.s * float(sum(len(W) ** 2 for W in problem.sets))}
    return [
        _building(problem, threads, values),
        Hot(
            "pass, 1 class, memory",
            "4 s n(n+t)/2 bytes read",
            lambda: held.apply(one, problem.weights[:1]),
            lambda _: {"read": values},
        ),
        Hot(
            "pass, 1 class, page cache",
            "the same, copied and checked",
            lambda: read.apply(one, problem.weights[:1]),
            lambda _: ours,
        ),
        Hot(
            f"pass, {m} classes, memory",
            "2 n^2 s m multiplied and added; the same read",
            lambda: held.apply(problem.coef, problem.weights),
            lambda _: many | {"read": values},
        ),
        Hot(
            f"pass, {m} classes, page cache",
            "2 n^2 s m; copied and checked",
            lambda: read.apply(problem.coef, problem.weights),
            lambda _: many | ours,
        ),
        Hot(
            "gather, memory",
            "4 s bytes of rows hit read; 4 s W^2 a set written",
            lambda: _gathered(problem, held),
            lambda _: {"read": FLOAT * problem.s * problem.rows_hit} | blocks,
        ),
        Hot(
            "gather, page cache",
            "all tiles copied and checked; 4 s W^2 a set written",
            lambda: _gathered(problem, read),
            lambda _: ours | blocks,
        ),
        Hot(
            "combine, memory",
            "4 s n(n+t)/2 bytes read; 4 n^2 written",
            lambda: held.combine(problem.weights[0], dtype=np.float32),
            lambda _: {"read": values, "write": FLOAT * float(problem.n**2)},
        ),
    ]


def _building(problem: Problem, threads: int, values: float) -> Hot:
    folder = problem.folder / "built.zarr"
    flops = float(problem.n**2 * sum(problem.settings["features"]))
    costs = {"products": flops, "exponentials": values / FLOAT, "checksums": values, "file write": values}

    def run() -> None:
        build_store(folder, problem.bank, problem.data, Local(threads))

    return Hot("tile building", "n^2 d a view; s n(n+t)/2 exponentials, checked and written", run, lambda _: costs)


def _gathered(problem: Problem, stack: KernelStack) -> None:
    """Blocks as solvers gather them, in memory that is used again and again."""
    stack.answers(_nothing, [()] * len(problem.sets), problem.sets, runtime=stack.runtime)


def _nothing(block: NDArray[Any]) -> None:
    """The question to a block in this benchmark."""


def solver_paths(problem: Problem) -> list[Hot]:
    """Paths of one thread on a compact block."""
    settings = problem.settings
    size, s, C, tol = settings["block"], problem.s, settings["C"], settings["tol"]
    stack = open_stack(problem.store, workers=1, memory=8 << 30, backend="memory")
    K, y = stack.block([np.arange(size)])[0], problem.y[:size]
    average = ORACLES["smo"].prepare(K.mean(axis=0))
    norm = MixedNorm(np.zeros(s, dtype=np.int64), 2.0)  # one group: L1-MKL

    def newton() -> Any:
        with threadpoolctl.threadpool_limits(1):
            return solve_interior(K, y, C, norm, tol)

    return [
        Hot(
            "SMO",
            "8 W bytes a step, of the cache",
            lambda: solve_svm(average, y, C, tol=tol),
            lambda found: {"cached": 2.0 * FLOAT * size * found.steps},
            goal=False,
        ),
        Hot(
            "interior point, with Cholesky",
            "4 s W^2 bytes and W^3/3 + s W^2 a step",
            newton,
            lambda found: {
                "read": FLOAT * s * size**2 * (found.steps + 1.0),
                "products": (size**3 / 3 + s * size**2) * float(found.steps),
            },
            goal=False,
        ),
    ]


def clear(problem: Problem) -> None:
    """Remove the files of an earlier run, and wait until everything is on disk."""
    shutil.rmtree(problem.folder / "built.zarr", ignore_errors=True)
    os.sync()
