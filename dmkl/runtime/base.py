"""What every runtime answers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import threadpoolctl

from dmkl.runtime.timeline import Timeline


class Runtime(Protocol):
    """Runs tasks with one BLAS thread each and hands their results back in order."""

    workers: int
    remote: bool  # tasks run in other processes
    memory: int  # bytes those processes may use; 0 when tasks share this process's

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """`function(*task)` for every task, results in the order of the tasks.

        The order makes every reduction over results the same on 1 thread and on 4 workers; only a bounded number of
        tasks is in flight, so results that wait for their turn fit in memory.
        """

    def hold(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A value that many tasks will take as an argument, computed once, near the tasks."""

    def close(self) -> None:
        """Let go of what was opened for it, and leave nothing in workers of others."""

    def timeline(self) -> Timeline:
        """Who worked when, since this runtime was opened."""


class _BlasPin:
    """Counts who needs one BLAS thread: the limit is process-wide, so the last one out restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit: Any = None
        self._known = -1  # modules when the libraries were last looked for: it takes 5 ms, more than a small solve
        self._libraries: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limit = self._found().limit(limits=1, user_api="blas")
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._limit.restore_original_limits()

    def _found(self) -> Any:
        """The libraries with threads of their own; looked for again when modules have come, which may bring others."""
        if len(sys.modules) != self._known:
            self._known, self._libraries = len(sys.modules), threadpoolctl.ThreadpoolController()
        return self._libraries


one_blas_thread = _BlasPin()


def run_task(function: Callable[..., Any], *arguments: Any) -> Any:
    """A task as every runtime runs it: with one BLAS thread, so that its bits do not depend on the machine."""
    with one_blas_thread():
        return function(*arguments)


def itself(value: Any) -> Any:
    """For `hold`: a value that is sent once and taken by many tasks."""
    return value
