"""Many small fits, divided among processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

PROCESSES = 2


def in_processes(function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
    """`map` with results in order; each process has one BLAS thread, so that they do not compete for cores."""
    context = get_context("spawn")  # a fork would copy threads' locks
    with ProcessPoolExecutor(PROCESSES, context, threadpool_limits, (1,)) as pool:
        yield from pool.map(function, *arguments)


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in a process that does nothing else, so that its peak memory is the function's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
