"""Tasks on a Dask cluster. Every wait has a limit; a cluster that is gone is said in one line."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import dask
from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError

from dmkl.errors import ClusterError
from dmkl.runtime.base import run_task

IN_FLIGHT = 4  # tasks per worker thread that may be running or waiting for their turn
UNLIMITED = 4_000_000_000  # bytes a worker without a memory limit is trusted with
POLL = 5.0  # seconds between looks at a cluster that does not answer
PATIENCE = 120.0  # seconds without a single worker before giving up


class Cluster:
    """Runs tasks through a `distributed.Client`."""

    remote = True

    def __init__(self, client: Client) -> None:
        self.client = client
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        self.workers = max(1, sum(worker["nthreads"] for worker in workers))
        self.memory = sum(int(worker["memory_limit"] or UNLIMITED) for worker in workers)
        self._session = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        pending: deque[Future] = deque()
        try:
            for task in tasks:
                pending.append(self.hold(function, *task))
                if len(pending) >= IN_FLIGHT * self.workers:
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            for future in pending:
                future.release()

    def hold(self, function: Callable[..., Any], *arguments: Any) -> Any:
        key = f"dmkl-{function.__name__}-{self._session}-{next(self._numbers)}"
        try:
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                return self.client.submit(run_task, function, *arguments, key=key, pure=False)
        except (CommClosedError, ClosedClientError, OSError) as error:
            raise _gone(error) from error

    def _result(self, future: Future) -> Any:
        lonely_since = None
        while True:
            try:
                return future.result(timeout=POLL)
            except TimeoutError:
                if future.done():  # the task itself ran into a timeout
                    raise
                if self._worker_count():
                    lonely_since = None
                    continue
                lonely_since = lonely_since or time.monotonic()
                if time.monotonic() - lonely_since > PATIENCE:
                    raise ClusterError(
                        f"the cluster has had no worker for {PATIENCE:.0f} s",
                        "start workers and run the same command again; it goes on where it was",
                    ) from None
            except KilledWorker as error:
                raise ClusterError(
                    f"a task killed the workers that ran it ({error.task})",
                    "give the workers more memory or lower --memory",
                ) from error
            except (CancelledError, CommClosedError, ClosedClientError, OSError) as error:
                if future.status == "error":  # the task's own refusal, not the cluster's end
                    raise
                raise _gone(error) from error

    def _worker_count(self) -> int:
        try:
            return len(self.client.scheduler_info(n_workers=-1)["workers"])
        except (CommClosedError, ClosedClientError, OSError, KeyError) as error:
            raise _gone(error) from error


def _gone(error: BaseException) -> ClusterError:
    return ClusterError(
        f"the cluster is gone ({type(error).__name__})",
        "start it and run the same command again; it goes on where it was",
    )
