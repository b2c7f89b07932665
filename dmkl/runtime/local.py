"""Tasks on threads of this process: no cluster, no serialisation. Heavy work releases the GIL."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from dmkl._util.machine import cores
from dmkl.runtime.base import one_blas_thread
from dmkl.runtime.timeline import Timeline

R = TypeVar("R")

POOL = "dmkl"  # the name of its threads, before a number


class Local:
    """Runs tasks on `workers` threads (default: the cores this process may use)."""

    remote = False
    memory = 0
    in_flight = 2  # tasks per thread that may be running or waiting for their turn

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers or cores()
        self._timeline = Timeline()

    def __reduce__(self) -> tuple[type[Local], tuple[int]]:
        """A copy in another process starts with an empty timeline."""
        return type(self), (self.workers,)

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[object, ...]]) -> Iterator[R]:
        with one_blas_thread():
            if self.workers == 1:
                for task in tasks:
                    yield self._timed(function, task)
                return
            yield from self._map_threads(function, tasks)

    def _map_threads(self, function: Callable[..., R], tasks: Iterable[tuple[object, ...]]) -> Iterator[R]:
        pending: deque[Future[R]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix=POOL)
        try:
            for task in tasks:
                pending.append(pool.submit(self._timed, function, task))
                if len(pending) >= self.in_flight * self.workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also on an error or Ctrl-C: tasks that have not started never start
            pool.shutdown(cancel_futures=True)

    def hold(self, function: Callable[..., R], *arguments: object) -> R:
        return self._timed(function, arguments)

    def close(self) -> None:
        pass

    def timeline(self) -> Timeline:
        return self._timeline

    def _timed(self, function: Callable[..., R], task: tuple[object, ...]) -> R:
        started = time.time()
        try:
            return function(*task)
        finally:
            number = threading.current_thread().name.rpartition(f"{POOL}_")[2]
            worker = f"thread {int(number) + 1}" if number.isdecimal() else "main thread"
            self._timeline.add(worker, function.__name__, started, time.time())
