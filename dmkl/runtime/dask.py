"""Tasks on a Dask cluster that may lose workers, data, its scheduler and all of itself.

The coordinator keeps the function and arguments of every value that it still needs. A value that the cluster loses is
computed again: under a new key when the task killed its workers, on a new cluster when the old one is gone. Values
depend on function and arguments only, so results have the same bits. Every wait has a limit, and a run that ends for
want of a cluster says so in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import Future as Answer
from concurrent.futures import wait as answered
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import dask
from distributed import Client, Future, KilledWorker, get_worker
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError

from dmkl._util import stopping
from dmkl._util.kept import forget_kept
from dmkl._util.machine import keep_freed
from dmkl.errors import ClusterError
from dmkl.runtime import connections
from dmkl.runtime.base import PairwiseSum, itself
from dmkl.runtime.blas import one_blas_thread
from dmkl.runtime.connections import Absence, ClientConnection, Connection, Refused
from dmkl.runtime.timeline import Timeline

R = TypeVar("R")

GONE = (CancelledError, CommClosedError, ClosedClientError, OSError, TimeoutError)


@dataclass(frozen=True)
class RecoveryOptions:
    """How a run deals with losses.

    Attributes
    ----------
    in_flight
        Tasks per worker thread that may be running or waiting for their turn.
    reduced
        Times as many, where results stay on the workers and half of the tasks only add them up.
    poll
        Seconds without a result before the workers are looked at.
    attention
        Seconds after which a wait looks at its deadline, and at requests to stop.
    look
        Seconds after which the workers are looked at even though results keep coming.
    resubmits
        How often a task is submitted again that killed its workers (each time up to four of them) or was lost.
    recovery
        Seconds in which a lost cluster has to come back.
    recoveries
        Lost clusters in a row, without one result from any, after which a run gives up.
    longest_delay
        Seconds, the longest wait between two attempts to connect again.
    late
        Seconds by which the scheduler may report a task after later ones; also what clocks may differ by.
    memory_share
        Share of a worker's memory that a task may use: distributed pauses the worker at 0.8, and ends it at 0.95.
    """

    in_flight: int = 4
    reduced: int = 4
    poll: float = 5.0
    attention: float = 0.5
    look: float = 30.0
    resubmits: int = 2
    recovery: float = 120.0
    recoveries: int = 5
    longest_delay: float = 20.0
    late: float = 60.0
    memory_share: float = 0.7


OPTIONS = RecoveryOptions()


class RemoteValue(Generic[R]):
    """A value on the cluster, with the function and arguments that it can be computed from again."""

    __slots__ = ("__weakref__", "arguments", "function", "future", "generation", "held")

    def __init__(self, function: Callable[..., R], arguments: tuple[object, ...], *, held: bool = False) -> None:
        self.function, self.arguments = function, arguments
        self.held = held  # for other tasks, maybe those of later calls, so there is no limit to its time
        self.future: Future | None = None
        self.generation = -1

    def release(self) -> None:
        """Let the cluster forget the value, until it is needed again."""
        if self.future is not None:
            self.future.release()
        self.future = None


class DaskRuntime:
    """Runs tasks on the cluster of a connection, or of a `distributed.Client`.

    Parameters
    ----------
    connection
        How to reach the cluster. A client is used as it is, and left open.
    """

    remote = True

    def __init__(self, connection: Connection | Client) -> None:
        self._connection: Connection = ClientConnection(connection) if isinstance(connection, Client) else connection
        self._options = OPTIONS
        self.together = self._connection.together
        self.client = self._connection.connect()
        self.processes: int
        self.workers: int
        self.memory: int
        self.processes, self.workers, self.memory = self._connection.size(self.client)
        self._generation = 0
        self._recoveries = 0
        self._passed_on: tuple[str, ...] = ()  # requests to stop that the workers know of
        self._watched = time.monotonic()
        self._session = uuid.uuid4().hex[:8]
        self.submitted = 0  # tasks so far, held values included
        self._timeline = Timeline()
        self._threads: dict[tuple[str, int], str] = {}
        self._seen: dict[tuple[str, float], float] = {}  # tasks in the timeline that may be reported again
        self.timeline()  # from now on the scheduler keeps what workers report

    def map(self, function: Callable[..., R], tasks: Iterable[tuple[object, ...]]) -> Iterator[R]:
        pending: deque[RemoteValue[R]] = deque()
        stopping.must_stop()  # noticed now, so that these tasks have time
        try:
            for task in tasks:
                pending.append(self._submit(RemoteValue(function, task)))
                if len(pending) >= self._options.in_flight * self.workers:
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            for remote in pending:
                remote.release()

    def reduce(
        self,
        combine: Callable[[R, R], R],
        function: Callable[..., R],
        tasks: Iterable[tuple[object, ...]],
        done: Callable[[], None],
    ) -> R:
        pending: deque[RemoteValue[R]] = deque()
        stopping.must_stop()  # noticed now, so that these tasks have time

        def submitted(what: Callable[..., R], arguments: tuple[object, ...]) -> RemoteValue[R]:
            pending.append(self._submit(RemoteValue(what, arguments)))
            return pending[-1]

        def finished() -> None:
            remote = pending.popleft()
            self._result(remote, fetched=False)
            if remote.function is combine:
                for part in _remote_values(remote.arguments):
                    part.release()
            else:
                done()

        found = PairwiseSum[RemoteValue[R]](lambda one, two: submitted(combine, (one, two)))
        try:
            for task in tasks:
                found.add(submitted(function, task))
                while len(pending) >= self._options.reduced * self._options.in_flight * self.workers:
                    finished()
            last = found.total()
            while pending:
                finished()
            return self._result(last)
        finally:
            for remote in pending:
                remote.release()

    def hold(self, function: Callable[..., R], *arguments: object) -> R:
        return cast(R, self._submit(RemoteValue(function, arguments, held=True)))  # tasks receive the value itself

    def share(self, value: R) -> R:
        remote = value if isinstance(value, RemoteValue) else self._submit(RemoteValue(itself, (value,), held=True))
        if self.processes > 1:
            self._result(remote, fetched=False)
            with contextlib.suppress(*GONE):  # then one process has it, and the others fetch it
                self.client.replicate([self._place(remote)])
        return cast(R, remote)

    def _submit(self, remote: RemoteValue[R]) -> RemoteValue[R]:
        while True:
            try:
                self._place(remote)
                return remote
            except GONE as error:
                self._recover(error)

    def forget(self) -> None:
        with contextlib.suppress(*GONE):
            self.client.sync(self.client._run, forget_kept, on_error="ignore", callback_timeout=connections.LIMITS.call)

    def close(self) -> None:
        self._connection.close()

    def timeline(self) -> Timeline:
        """Who worked when, brought up to date from the scheduler's stream of finished tasks."""
        since = max(self._seen.values(), default=0.0) - self._options.late
        try:
            records = self.client.get_task_stream(start=since)
        except GONE:  # the next wait for a result deals with it
            return self._timeline
        for record in records:
            _, function, session = (*str(record["key"]).split("-"), "", "")[:3]
            for part in record["startstops"]:
                task = (record["key"], part["start"])
                if session == self._session and task not in self._seen:
                    self._seen[task] = part["stop"]
                    name = function if part["action"] == "compute" else part["action"]
                    worker = self._thread(record["worker"], record["thread"])
                    self._timeline.add(worker, name, part["start"], part["stop"])
        since = max(self._seen.values(), default=0.0) - self._options.late
        self._seen = {task: stop for task, stop in self._seen.items() if stop >= since}
        return self._timeline

    def _thread(self, worker: str, thread: int) -> str:
        """A name for one thread of a worker."""
        if (worker, thread) not in self._threads:
            earlier = sum(address == worker for address, _ in self._threads)
            name = worker.rpartition("/")[2]
            self._threads[worker, thread] = f"{name} thread {earlier + 1}" if earlier else name
        return self._threads[worker, thread]

    def _place(self, remote: RemoteValue[R]) -> Future:
        """The future of a value; submitted again if this cluster does not know it, or has lost it."""
        future = remote.future
        if future is None or remote.generation != self._generation or future.status in ("cancelled", "lost"):
            arguments = [self._with_futures(argument) for argument in remote.arguments]
            key = f"dmkl-{remote.function.__name__}-{self._session}-{self.submitted}"
            self.submitted += 1
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                limits = None if remote.held else stopping.sent()
                future = self.client.submit(run_there, limits, remote.function, *arguments, key=key, pure=False)
            remote.future, remote.generation = future, self._generation
        return future

    def _with_futures(self, value: Any) -> Any:
        """An argument with futures in place of remote values, in lists and dictionaries too."""
        if isinstance(value, RemoteValue):
            return self._place(value)
        if type(value) in (list, tuple):
            return type(value)(self._with_futures(item) for item in value)
        if type(value) is dict:
            return {key: self._with_futures(item) for key, item in value.items()}
        return value

    def _result(self, remote: RemoteValue[R], *, fetched: bool = True) -> R:
        """The value; None where it need not be fetched, once it is there."""
        attempts = 0
        while True:
            future = None
            try:
                future = self._place(remote)
                value = self._wait(future, fetched)
            except KilledWorker as error:
                attempts += 1
                if attempts > self._options.resubmits:
                    raise ClusterError(
                        f"a task killed the workers that ran it, {attempts} times over ({error.task})",
                        "give the workers more memory or lower --memory",
                    ) from error
                self._connection.note(
                    f"a task killed its workers; submitted again ({attempts} of {self._options.resubmits})"
                )
                _discard_failed(remote)
            except GONE as error:
                if future is not None and future.status == "error":  # raised by the task, not by a loss
                    raise
                attempts = self._lost(error, attempts)
            else:
                self._recoveries = 0
                if isinstance(value, Late):
                    raise stopping.Stopped
                return cast(R, value)

    def _wait(self, future: Future, fetched: bool) -> object:
        """Wait until a value is there, and fetched. Looks at the cluster do not end the fetching: over a slow network
        it takes longer than the time between two of them."""
        waiting = _gathered(self.client, future) if fetched else _computed(future)
        answer = asyncio.run_coroutine_threadsafe(waiting, self.client.loop.asyncio_loop)
        try:
            self._watch_until(answer)
            return answer.result()
        finally:
            answer.cancel()

    def _watch_until(self, answer: Answer[object]) -> None:
        """Look at the cluster and at the time until there is an answer."""
        absence, polled = Absence(), time.monotonic()
        while not answer.done():
            if time.monotonic() - self._watched > self._options.look:
                self._watch()
            stopping.end_if_late()
            self._pass_on_requests()
            answered([answer], timeout=self._options.attention)
            if answer.done() or time.monotonic() - polled < self._options.poll:
                continue
            polled = time.monotonic()
            if not absence.tolerated(self._watch(), self._connection.patience):
                raise ClusterError(
                    f"the cluster has had no worker for {self._connection.patience:.0f} s",
                    "start workers and run the same command again; it continues from its checkpoint",
                )

    def _pass_on_requests(self) -> None:
        """Have the workers told, whose tasks cannot see it, that somebody asked to stop."""
        names = stopping.requests_made()
        if names != self._passed_on:
            self._passed_on = names
            self.client.loop.add_callback(_tell, self.client, names)

    def _watch(self) -> int:
        self._watched = time.monotonic()
        return self._connection.watch(self.client)

    def _lost(self, error: BaseException, attempts: int) -> int:
        """Recover from a loss, of one value or of the whole cluster; how often single values of this task were lost."""
        if isinstance(error, CancelledError) and attempts < self._options.resubmits:
            try:
                self._watch()
            except GONE:
                pass
            else:
                return attempts + 1
        self._recover(error)
        return attempts

    def _recover(self, error: BaseException) -> None:
        """Connect again to a cluster that was lost, or end the run."""
        self._recoveries += 1
        if not self._connection.renewable or self._recoveries > self._options.recoveries:
            raise _gone(error) from error
        self._connection.note(f"the cluster is gone ({type(error).__name__}); connecting again")
        deadline, delay = time.monotonic() + self._options.recovery, 1.0
        while True:
            self._connection.close()
            try:
                self.client = self._connection.connect()
            except Refused:
                raise
            except (ClusterError, *GONE) as failure:
                if time.monotonic() + delay > deadline:
                    raise _gone(error) from failure
                _sleep(delay)
                delay = min(2 * delay, self._options.longest_delay)
            else:
                self._generation += 1
                self._watched = time.monotonic()
                self.timeline()
                return


async def _tell(client: Client, names: tuple[str, ...]) -> None:
    """Make requests to stop on all workers; one that does not hear of it ends when its task does."""
    with contextlib.suppress(Exception, CancelledError):
        await client._run(stopping.request_here, names, on_error="ignore")


async def _gathered(client: Client, future: Future) -> object:
    return await client.gather(future, asynchronous=True)


async def _computed(future: Future) -> None:
    """Wait for a value that stays where it is; an error of its task is raised here."""
    error = await future.exception()
    if error is not None:
        raise error
    if future.cancelled():
        raise CancelledError


class Late:
    """In place of the result of a task that there was no time for; distributed would log `Stopped` as an error."""


def run_there(limits: stopping.Sent | None, function: Callable[..., R], *arguments: object) -> R | Late:
    """A task on a worker, which may have one core of its machine, under the limits that its sender is under."""
    keep_freed()
    if any(isinstance(argument, Late) for argument in arguments):
        return Late()
    with one_blas_thread(cores=1):
        if limits is None:
            return function(*arguments)
        try:
            with stopping.received(limits):
                stopping.end_if_late()
                return function(*arguments)
        except stopping.Stopped:
            return Late()


def _sleep(seconds: float) -> None:
    """Wait; `Stopped` if the run has to end meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if stopping.must_stop():
            raise stopping.Stopped
        time.sleep(min(seconds, OPTIONS.attention))


def _discard_failed(remote: RemoteValue[R]) -> None:
    """Have a value computed again, with those of its arguments that failed."""
    if remote.future is not None and remote.future.status == "error":
        remote.future = None
    for argument in _remote_values(remote.arguments):
        _discard_failed(argument)


def _remote_values(value: Any) -> Iterator[RemoteValue[object]]:
    if isinstance(value, RemoteValue):
        yield value
    elif type(value) in (list, tuple):
        for item in value:
            yield from _remote_values(item)
    elif type(value) is dict:
        yield from _remote_values(list(value.values()))


def _gone(error: BaseException) -> ClusterError:
    return ClusterError(
        f"the cluster is gone ({type(error).__name__})",
        "start it and run the same command again; it continues from its checkpoint",
    )


def threads_here() -> int:
    """Threads of the worker that runs this task."""
    return int(get_worker().state.nthreads)


def memory_here() -> int:
    """Bytes that the worker that runs this task may use before Dask pauses it."""
    limit = get_worker().memory_manager.memory_limit
    return int(OPTIONS.memory_share * (limit or connections.LIMITS.unlimited_bytes))
