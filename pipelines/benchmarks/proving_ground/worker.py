"""A process that builds kernels and lets methods fit them; it is ended when one of them does not end by itself."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import tempfile
import threading
import time
import traceback
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import dmkl
from dmkl.errors import DmklError, SolverError, one_line
from dmkl.solvers.methods import methods_of
from dmkl.stack import KernelStack
from pipelines.benchmarks.proving_ground.kernels import COLUMNS, Held, array_of, columns_of, stack_of, store_of
from pipelines.benchmarks.proving_ground.problems import Problem
from pipelines.benchmarks.proving_ground.samples import Samples
from pipelines.common.data import MissingData
from pipelines.common.experiment import Row

SOON = 1.0  # seconds within which a refusal comes before the work
REPEAT_BELOW, REPEATS = 0.5, 3  # shorter fits are repeated, and the fastest one counts;
GROWTH_REPEAT_BELOW = 15.0  # a slope needs large problems measured like small ones
TO_BUILD = 300.0  # seconds
WARM_UP = 60  # samples, and kernels
MEMORY = 4_500_000_000  # bytes that the process may take, as its stacks are told
TOO_MUCH = 6_000_000_000  # bytes at which it is ended


class Crew:
    """The present worker; a new one takes the place of one that had to be ended."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
        self._process: Any = None
        self._line: Connection | None = None
        self._built: Problem | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="dmkl-ground-"))

    def build(self, problem: Problem) -> Row:
        """Facts about the kernels of a problem, and the names of its methods, the default first."""
        answer = self._ask(("build", problem), TO_BUILD)
        if "missing" in answer:
            raise MissingData(answer["missing"])
        if "status" in answer:
            raise RuntimeError(f"{problem.name} cannot be built: {answer['status']}, {answer['note']}")
        self._built = problem
        return answer

    def fit(self, problem: Problem, method: str, limit: float, to_stop: float) -> Row:
        """What came of one method, which is to end by itself within the limit, and is killed some seconds later."""
        if self._built != problem:
            self.build(problem)
        return self._ask(("fit", problem, method, limit), limit, to_stop)

    def close(self) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ask(self, question: tuple[Any, ...], limit: float, to_stop: float = 0.0) -> Row:
        if self._process is None:
            self._line, end = self._context.Pipe()
            self._clock = self._context.Array("d", 3)  # seconds of compiling, since when it compiles now, begin
            self._process = self._context.Process(target=_work, args=(end, self._clock, self.folder), daemon=True)
            self._process.start()
            end.close()
        assert self._line is not None
        self._clock[2] = 0.0  # the limit counts from the moment at which the fit itself begins
        self._line.send(question)
        asked = time.monotonic()
        while not self._line.poll(0.05):
            begun = self._clock[2]
            spent = time.monotonic() - begun - _compiling(self._clock) if begun else 0.0
            waited = time.monotonic() - asked
            if spent > limit + to_stop or waited > limit + TO_BUILD:
                return self._given_up("killed", f"did not end {to_stop:g} s after its time of {limit:g} s", spent)
            if self._process.exitcode is None and psutil.Process(self._process.pid).memory_info().rss > TOO_MUCH:
                return self._given_up("killed", f"took more than {TOO_MUCH / 1e9:.1f} GB", spent)
        try:
            return dict(self._line.recv())
        except EOFError:
            self._process.join()
            return self._given_up("died", f"exit code {self._process.exitcode}", time.monotonic() - asked)

    def _given_up(self, status: str, note: str, seconds: float) -> Row:
        self._end()
        return {"status": status, "note": note, "seconds": seconds}

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._built = None


def _compiling(clock: Any) -> float:
    """Seconds that the fit has spent with compiling."""
    return float(clock[0] + (time.monotonic() - clock[1] if clock[1] else 0.0))


# --- in the worker


def _work(line: Connection, clock: SynchronizedArray[float], folder: Path) -> None:
    bench = _Bench(clock, folder)
    while True:
        try:
            kind, *question = line.recv()
        except EOFError:
            return
        line.send(getattr(bench, kind)(*question))


@dataclass
class _Bench:
    """The kernels of the last problem, and the methods that are compiled already."""

    clock: Any
    folder: Path

    def __post_init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._held: Any = None
        self._warm: set[tuple[Any, ...]] = set()
        _watch_compiler(self.clock)

    def build(self, problem: Problem) -> Row:
        began = time.perf_counter()
        try:
            samples = problem.samples()
        except MissingData as missing:
            return {"missing": str(missing)}
        key = problem.data, problem.n, problem.kernels, problem.scale, problem.dtype, problem.held
        if key != self._key:
            self._held, self._key = None, ()  # two of them may not fit
            self._held, self._key = self._kernels(problem, samples), key
        self._labels = problem.labels(samples.y)
        stack = self._stack(problem)
        self._formulation = problem.formulated(stack, self._labels)
        Y = self._formulation.targets(self._labels)
        names = [method.name for method in methods_of(self._formulation)]
        return {"n": stack.n, "s": stack.s, "m": Y.shape[1], "methods": names, "build": time.perf_counter() - began}

    def _kernels(self, problem: Problem, samples: Samples) -> Held:
        if problem.held == "features":
            return columns_of(samples, COLUMNS[problem.kernels], MEMORY)
        if problem.held == "memory":
            return array_of(problem.kernels, samples, problem.scale, problem.dtype, problem.seed)
        path = self.folder / "store"
        shutil.rmtree(path, ignore_errors=True)
        return store_of(problem.kernels, samples, path, computed=problem.held == "computed")

    def _stack(self, problem: Problem) -> KernelStack:
        return stack_of(self._held, MEMORY, problem.held)

    def fit(self, problem: Problem, method: str, limit: float) -> Row:
        self._warm_up(problem, method)
        found = self._once(problem, method, limit)
        longest = GROWTH_REPEAT_BELOW if problem.row == "growth" else REPEAT_BELOW
        for _ in range(REPEATS - 1):
            if found["status"] != "solved" or found["seconds"] > longest:
                break
            again = self._once(problem, method, limit)
            found |= {key: min(found[key], again[key]) for key in ("seconds", "cpu")}
        return found

    def _warm_up(self, problem: Problem, method: str) -> None:
        """A few samples and kernels of the same problem, so that what it needs is compiled and loaded."""
        kind = type(self._formulation), problem.kind, method, problem.dtype, problem.held
        if kind in self._warm:
            return
        self._warm.add(kind)
        few, stack = np.arange(min(WARM_UP, problem.n)), self._stack(problem)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = problem.samples().y[few]
                dmkl.solve(
                    stack.choose(range(min(WARM_UP, stack.s))).restrict(few),
                    problem.labels(y),
                    self._formulation,
                    method=method,
                    max_rounds=5,
                    max_seconds=3,
                )
        except Exception:  # the fit itself will show it
            pass

    def _once(self, problem: Problem, method: str, limit: float) -> Row:
        stack = self._stack(problem)
        before = _memory("VmRSS", fresh=True)
        self.clock[0] = self.clock[1] = 0.0
        self.clock[2] = time.monotonic()
        began, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                fit = dmkl.solve(
                    stack, self._labels, self._formulation, tol=problem.tol, method=method, max_seconds=limit
                )
                found = _told(fit, problem.tol)
            except Exception as error:
                found = {"status": "failed", "note": f"{type(error).__name__}: {one_line(error)}"}
                refused = _is_refusal(error)
            else:
                refused = False
        compiled = _compiling(self.clock)
        found["seconds"] = max(time.perf_counter() - began - compiled, 0.0)
        found["cpu"] = max(time.process_time() - cpu - compiled, 0.0)
        if refused and found["seconds"] < SOON:
            found["status"] = "refused"
        found["MB"] = max(_memory("VmHWM") - before, 0) / 1024
        found["warnings"] = sorted({f"{w.category.__name__}: {str(w.message).splitlines()[0]}" for w in heard})
        return found


def _told(fit: dmkl.Fit, tol: float) -> Row:
    """What a fit says of itself; it is solved if the bounds that it gives are as near to each other as was asked."""
    objective, dual = np.atleast_1d(fit.objective), np.atleast_1d(fit.dual)
    with np.errstate(all="ignore"):
        gap = float(np.max((objective - dual) / np.abs(objective))) if (objective != dual).any() else 0.0
    near, late = gap <= 1.01 * tol, "late" if fit.out_of_time else "stalled"
    return {
        "status": "solved" if fit.converged and near else late,
        "note": "" if near or not fit.converged else "says that it converged",
        "gap": gap if np.isfinite(gap) else None,
        "primal": float(objective.sum()),
        "dual": float(dual.sum()),
        "rounds": fit.rounds,
        "passes": fit.passes,
        "svm_calls": fit.svm_calls,
    }


def _is_refusal(error: Exception) -> bool:
    """Whether the error is about the problem: one of a solver that is at work is a failure of it."""
    at_work = any(
        Path(frame.filename).name == "loop.py" and frame.name == "run"
        for frame in traceback.extract_tb(error.__traceback__)
    )
    return isinstance(error, DmklError) and not (at_work and isinstance(error, SolverError))


def _memory(what: str, *, fresh: bool = False) -> int:
    """VmRSS or VmHWM, the present and the largest resident memory in kB; `fresh` sets the largest to the present."""
    try:
        if fresh:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())
    except OSError:  # no Linux
        found = None
    return int(found[1]) if found else 0


def _watch_compiler(clock: Any) -> None:
    """Keep the clock of the time in numba's compiler, which also loads what was compiled earlier."""
    from numba.core.event import Listener, register

    class Watch(Listener):  # type: ignore[misc]
        depth, lock = 0, threading.Lock()

        def on_start(self, event: Any) -> None:
            with self.lock:
                self.depth += 1
                if self.depth == 1:
                    clock[1] = time.monotonic()

        def on_end(self, event: Any) -> None:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    clock[0], clock[1] = clock[0] + time.monotonic() - clock[1], 0.0

    register("numba:compiler_lock", Watch())
