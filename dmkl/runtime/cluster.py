"""Tasks on a Dask cluster that may lose workers, data, its scheduler and all of itself.

The coordinator keeps the question of every value it still needs. What the cluster loses is asked again: under a new
key when the task killed its workers, on a new cluster when the old one is gone. Answers depend on the questions only,
so the result has the same bits. Every wait has a limit, and what ends a run is said in one line.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, get_worker
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError

from dmkl._util.machine import keep_freed
from dmkl.errors import ClusterError
from dmkl.runtime.base import run_task
from dmkl.runtime.links import UNLIMITED, Given, Link, Loneliness, Refused
from dmkl.runtime.timeline import Timeline

IN_FLIGHT = 4  # tasks per worker thread that may be running or waiting for their turn
POLL = 5.0  # seconds without a result before looking at the cluster
LOOK = 30.0  # seconds after which it is looked at even though results keep coming
RESUBMITS = 2  # times a task is asked again that killed its workers (each time up to four of them) or got lost
RECOVERY = 120.0  # seconds in which a lost cluster has to come back
LATE = 60.0  # seconds by which a finished task may be heard of after later ones; also what clocks may differ by
PAUSED = 0.7  # of a worker's memory: distributed pauses it at 0.8 and ends it at 0.95
RECOVERIES = 5  # lost clusters in a row, without one result from any

GONE = (CancelledError, CommClosedError, ClosedClientError, OSError, TimeoutError)


class Placed:
    """A value on the cluster, and the question it answers."""

    __slots__ = ("__weakref__", "arguments", "function", "future", "generation")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments
        self.future: Future | None = None
        self.generation = -1


class Cluster:
    """Runs tasks through the client of a link (or a `distributed.Client` as it is)."""

    remote = True

    def __init__(self, link: Link | Client) -> None:
        self._link: Link = Given(link) if isinstance(link, Client) else link
        self.client = self._link.connect()
        self.workers: int
        self.memory: int
        self.workers, self.memory = self._link.size(self.client)
        self._generation = 0
        self._recoveries = 0
        self._looked = time.monotonic()
        self._session = uuid.uuid4().hex[:8]
        self.asked = 0  # tasks so far, held values included
        self._timeline = Timeline()
        self._threads: dict[tuple[str, int], str] = {}
        self._heard: dict[tuple[str, float], float] = {}  # tasks in the timeline that may be told of again
        self.timeline()  # makes the scheduler keep what it hears from now on

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        pending: deque[Placed] = deque()
        try:
            for task in tasks:
                pending.append(self.hold(function, *task))
                if len(pending) >= IN_FLIGHT * self.workers:
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            for placed in pending:
                if placed.future is not None:
                    placed.future.release()

    def hold(self, function: Callable[..., Any], *arguments: Any) -> Any:
        placed = Placed(function, arguments)
        while True:
            try:
                self._place(placed)
                return placed
            except GONE as error:
                self._recover(error)

    def close(self) -> None:
        self._link.close()

    def timeline(self) -> Timeline:
        """From the scheduler's stream of finished tasks, as far as it has not been read yet."""
        since = max(self._heard.values(), default=0.0) - LATE
        try:
            records = self.client.get_task_stream(start=since)
        except GONE:  # whoever asks for a result next finds out
            return self._timeline
        for record in records:
            _, function, session = (*str(record["key"]).split("-"), "", "")[:3]
            for part in record["startstops"]:
                told = (record["key"], part["start"])
                if session == self._session and told not in self._heard:
                    self._heard[told] = part["stop"]
                    name = function if part["action"] == "compute" else part["action"]
                    worker = self._thread(record["worker"], record["thread"])
                    self._timeline.add(worker, name, part["start"], part["stop"])
        since = max(self._heard.values(), default=0.0) - LATE
        self._heard = {told: stop for told, stop in self._heard.items() if stop >= since}
        return self._timeline

    def _thread(self, worker: str, thread: int) -> str:
        """A name for one thread of a worker."""
        if (worker, thread) not in self._threads:
            earlier = sum(address == worker for address, _ in self._threads)
            name = worker.rpartition("/")[2]
            self._threads[worker, thread] = f"{name} thread {earlier + 1}" if earlier else name
        return self._threads[worker, thread]

    def _place(self, placed: Placed) -> Future:
        """The future of a value; asked for again if this cluster has never heard of it, or has lost it."""
        future = placed.future
        if future is None or placed.generation != self._generation or future.status in ("cancelled", "lost"):
            arguments = [self._placed(argument) for argument in placed.arguments]
            key = f"dmkl-{placed.function.__name__}-{self._session}-{self.asked}"
            self.asked += 1
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                future = self.client.submit(run_there, placed.function, *arguments, key=key, pure=False)
            placed.future, placed.generation = future, self._generation
        return future

    def _placed(self, value: Any) -> Any:
        """An argument with futures where it has placed values, in lists and dictionaries too."""
        if isinstance(value, Placed):
            return self._place(value)
        if type(value) in (list, tuple):
            return type(value)(self._placed(item) for item in value)
        if type(value) is dict:
            return {key: self._placed(item) for key, item in value.items()}
        return value

    def _result(self, placed: Placed) -> Any:
        attempts = 0
        while True:
            future = None
            try:
                future = self._place(placed)
                value = self._wait(future)
            except KilledWorker as error:
                attempts += 1
                if attempts > RESUBMITS:
                    raise ClusterError(
                        f"a task killed the workers that ran it, {attempts} times over ({error.task})",
                        "give the workers more memory or lower --memory",
                    ) from error
                self._link.note(f"a task killed its workers; asked again ({attempts} of {RESUBMITS})")
                _forget(placed)
            except GONE as error:
                if future is not None and future.status == "error":  # the task's own refusal, not the cluster's end
                    raise
                attempts = self._lost(error, attempts)
            else:
                self._recoveries = 0
                return value

    def _wait(self, future: Future) -> Any:
        lonely = Loneliness()
        while True:
            if time.monotonic() - self._looked > LOOK:
                self._look()
            try:
                return future.result(timeout=POLL)
            except TimeoutError:
                if future.done():  # the task itself ran into a timeout
                    raise
            except UnboundLocalError as error:  # dask/distributed#8514: how a cancelled wait for an answer ends
                if future.status == "error":  # the task's own
                    raise
                raise CancelledError from error
            if not lonely.borne(self._look(), self._link.patience):
                raise ClusterError(
                    f"the cluster has had no worker for {self._link.patience:.0f} s",
                    "start workers and run the same command again; it goes on where it was",
                )

    def _look(self) -> int:
        self._looked = time.monotonic()
        return self._link.look(self.client)

    def _lost(self, error: BaseException, attempts: int) -> int:
        """Find out what was lost, one value or all; how often single values of this task were."""
        if isinstance(error, CancelledError) and attempts < RESUBMITS:
            try:
                self._look()
            except GONE:
                pass
            else:
                return attempts + 1
        self._recover(error)
        return attempts

    def _recover(self, error: BaseException) -> None:
        """Another cluster in place of one that is gone, or the one line that ends the run."""
        self._recoveries += 1
        if not self._link.renewable or self._recoveries > RECOVERIES:
            raise _gone(error) from error
        self._link.note(f"the cluster is gone ({type(error).__name__}); connecting again")
        deadline, delay = time.monotonic() + RECOVERY, 1.0
        while True:
            self._link.close()
            try:
                self.client = self._link.connect()
            except Refused:
                raise
            except (ClusterError, *GONE) as failure:
                if time.monotonic() + delay > deadline:
                    raise _gone(error) from failure
                time.sleep(delay)
                delay = min(2 * delay, 20.0)
            else:
                self._generation += 1
                self._looked = time.monotonic()
                self.timeline()
                return


def run_there(function: Callable[..., Any], *arguments: Any) -> Any:
    """A task on a worker."""
    keep_freed()
    return run_task(function, *arguments)


def _forget(placed: Placed) -> None:
    """Have a value asked for anew, with everything it was made of that failed."""
    if placed.future is not None and placed.future.status == "error":
        placed.future = None
    for value in _inside(placed.arguments):
        _forget(value)


def _inside(value: Any) -> Iterator[Placed]:
    if isinstance(value, Placed):
        yield value
    elif type(value) in (list, tuple):
        for item in value:
            yield from _inside(item)
    elif type(value) is dict:
        yield from _inside(list(value.values()))


def _gone(error: BaseException) -> ClusterError:
    return ClusterError(
        f"the cluster is gone ({type(error).__name__})",
        "start it and run the same command again; it goes on where it was",
    )


def threads_here() -> int:
    """Threads of the worker whose task this is."""
    return int(get_worker().state.nthreads)


def memory_here() -> int:
    """Bytes that the worker whose task this is may use before it is told to pause."""
    limit = get_worker().memory_manager.memory_limit
    return int(PAUSED * (limit or UNLIMITED))
