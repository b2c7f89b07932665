"""Runtimes: their interface, how each runs a task (with one BLAS thread), and the one over threads of this process."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from dmkl._util.kept import forget_kept
from dmkl._util.machine import cores
from dmkl._util.stopping import Tasks, end_if_late, must_stop
from dmkl.runtime.blas import one_blas_thread
from dmkl.runtime.timeline import Timeline

R = TypeVar("R")
POOL = "dmkl"  # the name of the threads of `Local`, before a number


class Runtime(Protocol):
    """Runs tasks with one BLAS thread each and returns their results in order.

    Attributes
    ----------
    workers
        Tasks that run at once.
    processes
        Processes that they run in.
    remote
        Whether tasks run in other processes.
    together
        Whether all of these are on this machine, so that they reach memory which this process shares.
    memory
        Bytes that those processes may use; 0 when tasks share this process's memory.
    """

    workers: int
    processes: int
    remote: bool
    together: bool
    memory: int

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[object, ...]]) -> Iterator[R]:
        """Compute `function(*task)` for every task; the results come in the order of the tasks.

        The order makes every reduction over results the same on 1 thread and on 4 workers. Only a bounded number of
        tasks is in flight, so results that wait for their turn fit in memory. Tasks have the limits of the caller
        (`dmkl._util.stopping`); `Stopped` is raised where there is no time left for another task.
        """

    def reduce(
        self,
        combine: Callable[[R, R], R],
        function: Callable[..., R],
        tasks: Iterable[tuple[object, ...]],
        done: Callable[[], None],
    ) -> R:
        """The results of all tasks (at least one), combined two by two where the tasks run; only the last one comes
        back. `done` is called after every task.

        Which results are combined is a matter of their number alone: every reduction is the same on 1 thread and on 4
        workers.
        """

    def hold(self, function: Callable[..., R], *arguments: object) -> R:
        """Compute a value that many tasks take as an argument, once, where the tasks run.

        On a cluster a reference comes back in place of the value: it is for arguments of `map` and `hold` only.
        """

    def share(self, value: R) -> R:
        """Give a value that was computed or held to every process in which tasks run, before tasks take it: they run
        where their arguments are. On a cluster a reference comes back, as from `hold`."""

    def forget(self) -> None:
        """Let go of the value that each process in which tasks run keeps for them (`dmkl._util.kept`)."""

    def close(self) -> None:
        """Release what was opened for this runtime, and the scratch memory in workers that others use."""

    def timeline(self) -> Timeline:
        """Which worker was busy when, since this runtime was opened."""


class PairwiseSum(Generic[R]):
    """Values that come one after the other, combined two by two as the bits of a counter carry: few wait at a time."""

    def __init__(self, combine: Callable[[R, R], R]) -> None:
        self._combine = combine
        self._waiting: list[tuple[int, R]] = []  # how many values are in one, with it

    def add(self, value: R) -> None:
        size = 1
        while self._waiting and self._waiting[-1][0] == size:
            value, size = self._combine(self._waiting.pop()[1], value), 2 * size
        self._waiting.append((size, value))

    def total(self) -> R:
        """All values, combined."""
        _, value = self._waiting.pop()
        while self._waiting:
            value = self._combine(self._waiting.pop()[1], value)
        return value


def itself(value: R) -> R:
    """The identity, for `hold`: a value that is sent once and taken by many tasks."""
    return value


class Local:
    """Runs tasks on `workers` threads (default: the cores this process may use)."""

    remote = False
    together = True
    memory = 0
    processes = 1
    in_flight = 2  # tasks per thread that may be running or waiting for their turn

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers or cores()
        self._timeline = Timeline()

    def __reduce__(self) -> tuple[type[Local], tuple[int]]:
        """A copy in another process starts with an empty timeline."""
        return type(self), (self.workers,)

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[object, ...]]) -> Iterator[R]:
        waiting = iter(tasks)
        first = list(itertools.islice(waiting, 2))
        waiting = itertools.chain(first, waiting)
        must_stop()  # noticed now, so that these tasks have time
        with one_blas_thread():
            if self.workers == 1 or len(first) < 2:  # nothing to fan out: a single task may have all cores
                for task in waiting:
                    yield self._timed(function, task)
                return
            yield from self._map_threads(function, waiting)

    def _map_threads(self, function: Callable[..., R], tasks: Iterable[tuple[object, ...]]) -> Iterator[R]:
        pending: deque[Future[R]] = deque()
        limited = Tasks()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix=POOL)
        try:
            for task in tasks:
                pending.append(pool.submit(limited.run, self._run, function, task))
                if len(pending) >= self.in_flight * self.workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException:  # an error, Ctrl-C, or nobody wants the rest
            limited.stop()
            raise
        finally:  # tasks that have not started never start
            pool.shutdown(cancel_futures=True)

    def reduce(
        self,
        combine: Callable[[R, R], R],
        function: Callable[..., R],
        tasks: Iterable[tuple[object, ...]],
        done: Callable[[], None],
    ) -> R:
        found = PairwiseSum(combine)
        for result in self.map(function, tasks):
            found.add(result)
            done()
        return found.total()

    def hold(self, function: Callable[..., R], *arguments: object) -> R:
        return self._timed(function, arguments)

    def share(self, value: R) -> R:
        return value

    def forget(self) -> None:
        forget_kept()

    def close(self) -> None:
        pass

    def timeline(self) -> Timeline:
        return self._timeline

    def _run(self, function: Callable[..., R], task: tuple[object, ...]) -> R:
        with one_blas_thread():
            return self._timed(function, task)

    def _timed(self, function: Callable[..., R], task: tuple[object, ...]) -> R:
        end_if_late()
        started = time.time()
        try:
            return function(*task)
        finally:
            number = threading.current_thread().name.rpartition(f"{POOL}_")[2]
            worker = f"thread {int(number) + 1}" if number.isdecimal() else "main thread"
            self._timeline.add(worker, function.__name__, started, time.time())
