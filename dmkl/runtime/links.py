"""Ways to a scheduler: given by the caller, named by its address, or with workers that are ours.

A link connects, says how large the cluster is, looks after its workers, and closes; `cluster.py` does the rest, the
same for all of them. Every call has a limit.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from distributed import Client, LocalCluster, Status

from dmkl.errors import ClusterError
from dmkl.runtime.scratch import release
from dmkl.version import __version__

CONNECT_SECONDS = 15.0  # distributed fails on every connection with a limit below 11
WORKER_SECONDS = 60.0  # for the first worker: one that has just been started imports for a while
CALL_SECONDS = 30.0  # for a question to the scheduler
CLOSE_SECONDS = 5.0
UNLIMITED = 4_000_000_000  # bytes a worker without a memory limit is trusted with

Note = Callable[[str], None]


def silent(text: str) -> None:
    """For callers who do not want to know."""


class Refused(ClusterError):
    """What trying again will not change."""


class Link(Protocol):
    """A way to a cluster."""

    renewable: bool  # connect may be called again after the cluster was lost
    note: Note  # what a person would want to know

    @property
    def patience(self) -> float:
        """Seconds without a single worker before giving up."""

    def connect(self) -> Client:
        """A client of a scheduler with at least one worker that runs this very dmkl."""

    def size(self, client: Client) -> tuple[int, int]:
        """Threads and bytes of the workers."""

    def look(self, client: Client) -> int:
        """Look after the workers; how many are there."""

    def close(self) -> None:
        """Let go of everything that `connect` made. Never raises, never hangs."""


class Counted:
    """A link to as many workers as the scheduler knows."""

    patience = 120.0

    def size(self, client: Client) -> tuple[int, int]:
        return total(workers_of(client))

    def look(self, client: Client) -> int:
        return len(workers_of(client))


class Given(Counted):
    """A client somebody else opened, and will close."""

    renewable = False

    def __init__(self, client: Client) -> None:
        self.note: Note = silent
        self._client = client

    def connect(self) -> Client:
        return self._client

    def close(self) -> None:
        tidy(self._client)


class Remote(Counted):
    """A scheduler that others run: when it goes, it is looked for until somebody has started it again."""

    renewable = True

    def __init__(self, address: str, security: Any = None, note: Note = silent) -> None:
        self.note = note
        self._address, self._security = address, security
        self._client: Client | None = None

    def connect(self) -> Client:
        host, _, port = self._address.partition("://")[2].rpartition(":")
        hint = f"start one with: dask scheduler --host {host} --port {port}"
        self._client = connected(self._address, hint, security=self._security)
        check_workers(self._client)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            tidy(self._client)
        close_client(self._client)
        self._client = None


class LocalWorkers(Counted):
    """Worker processes of this machine, one thread each, in a cluster of our own."""

    renewable = True

    def __init__(self, count: int, note: Note = silent) -> None:
        self.note = note
        self._count = count
        self._cluster: LocalCluster | None = None
        self._client: Client | None = None

    def connect(self) -> Client:
        self._cluster = LocalCluster(
            n_workers=self._count,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # None would still open port 8787
            silence_logs=logging.ERROR,
        )
        self._client = connected(self._cluster, "this machine refuses connections to itself")
        check_workers(self._client)
        return self._client

    def look(self, client: Client) -> int:
        here = super().look(client)
        if here < self._count and self._cluster is not None:
            self._cluster.scale(self._count)  # starts those again whose supervisor has died too
        return here

    def close(self) -> None:
        close_client(self._client)
        if self._cluster is not None:
            supervisors = list(self._cluster.workers.values())
            close_cluster(self._cluster)
            for supervisor in supervisors:  # where the scheduler had gone, closing may not have reached them
                with contextlib.suppress(Exception):
                    supervisor.process.process.kill()
        self._client = self._cluster = None


class Loneliness:
    """How long there has been no worker; from the start again when it changes how long that is borne, as it does when a
    job that was queued for hours starts to run."""

    def __init__(self) -> None:
        self._since, self._patience = 0.0, -1.0

    def borne(self, workers: int, patience: float) -> bool:
        now = time.monotonic()
        if workers or patience != self._patience:
            self._since, self._patience = now, -1.0 if workers else patience
        return now - self._since <= patience


def connected(target: Any, hint: str, *, security: Any = None) -> Client:
    try:
        return Client(target, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(f"no scheduler answers at {target} ({type(error).__name__})", hint) from error


def tidy(client: Client) -> None:
    """Leave nothing in workers that others go on with."""
    with contextlib.suppress(Exception):
        client.sync(client._run, release, callback_timeout=CLOSE_SECONDS)


def close_client(client: Client | None) -> None:
    if client is not None:
        with contextlib.suppress(Exception):
            client.close(timeout=CLOSE_SECONDS)


def close_cluster(cluster: Any) -> None:
    """Close, or let go: without its scheduler a cluster waits longer than we do, and would complain ever after."""
    with contextlib.suppress(Exception):
        cluster.close(timeout=CLOSE_SECONDS)
    if cluster.status != Status.closed:
        with contextlib.suppress(Exception):
            cluster._loop_runner.stop()
        cluster.status = Status.closed


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler knows of its workers; OSError or TimeoutError when it does not answer."""
    if client.status != "running" or client.scheduler is None:
        raise OSError(f"the connection to the scheduler is {client.status}")
    identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=CALL_SECONDS)
    return dict(identity["workers"])


def total(workers: dict[str, Any]) -> tuple[int, int]:
    threads = sum(int(worker["nthreads"]) for worker in workers.values())
    return max(1, threads), sum(int(worker["memory_limit"] or UNLIMITED) for worker in workers.values())


def check_workers(client: Client, wait: float = WORKER_SECONDS) -> None:
    """At least one worker, each with this very version: a worker without dmkl would die task by task."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        client.wait_for_workers(1, timeout=wait)
    except TimeoutError:
        raise ClusterError(
            f"the scheduler at {client.scheduler.address} has had no worker for {wait:.0f} s",
            f"start some with: dask worker {client.scheduler.address} --nthreads 1",
        ) from None
    try:  # the question is of the standard library, so that a worker without dmkl can answer it
        found = client.sync(client._run, version, "dmkl", on_error="ignore", callback_timeout=CALL_SECONDS)
        if not found:
            client.run(version, "dmkl", workers=list(workers_of(client))[:1])
    except PackageNotFoundError:
        raise Refused("dmkl is not installed on the cluster's workers") from None
    versions = {str(answer) for answer in found.values()}
    if versions - {__version__}:
        raise Refused(f"the workers run dmkl {', '.join(sorted(versions))}, this is {__version__}")
