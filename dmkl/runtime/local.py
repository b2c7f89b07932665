"""Tasks on threads of this process: no cluster, no serialisation. Heavy work releases the GIL."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dmkl._util.machine import cores
from dmkl.runtime.base import one_blas_thread
from dmkl.runtime.timeline import Timeline

POOL = "dmkl"  # what its threads are called, before a number
IN_FLIGHT = 2  # tasks per thread that may be running or waiting for their turn


class Local:
    """The runtime of a laptop: `workers` threads (default: the cores this process may use)."""

    remote = False
    memory = 0

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers or cores()
        self._timeline = Timeline()

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent along with a stack, it is another one: what it did here is not what it does there."""
        return type(self), (self.workers,)

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        with one_blas_thread():
            if self.workers == 1:
                for task in tasks:
                    yield self._timed(function, task)
                return
            yield from self._map_threads(function, tasks)

    def _map_threads(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        pending: deque[Future[Any]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix=POOL)
        try:
            for task in tasks:
                pending.append(pool.submit(self._timed, function, task))
                if len(pending) >= IN_FLIGHT * self.workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also on an error or Ctrl-C: what has not started never starts
            pool.shutdown(cancel_futures=True)

    def hold(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._timed(function, arguments)

    def close(self) -> None:
        pass

    def timeline(self) -> Timeline:
        return self._timeline

    def _timed(self, function: Callable[..., Any], task: tuple[Any, ...]) -> Any:
        started = time.time()
        try:
            return function(*task)
        finally:
            number = threading.current_thread().name.rpartition(f"{POOL}_")[2]
            worker = f"thread {int(number) + 1}" if number.isdecimal() else "main thread"
            self._timeline.add(worker, function.__name__, started, time.time())
