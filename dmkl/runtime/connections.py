"""Connections to a Dask scheduler: through a client of the caller, by its address, or with worker processes of our own.

A connection connects, says how large the cluster is, watches its workers, and closes; `dask.py` does the rest, the same
for all of them. Every call has a limit. The connection to worker jobs is `jobs/workers.py`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distributed import Client, LocalCluster, Status

from dmkl._util.kept import forget_kept
from dmkl._util.machine import release_scratch
from dmkl.errors import ClusterError
from dmkl.version import __version__

if TYPE_CHECKING:
    from distributed.security import Security

Note = Callable[[str], None]  # takes a line for the user
WorkerFacts = dict[str, Any]  # what the scheduler knows of a worker


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of calls to a Dask scheduler, in seconds, and of a worker that has none, in bytes.

    Attributes
    ----------
    connect
        For a connection. Distributed fails on every connection when its own limit is below 11 s.
    first_worker
        For the first worker: a process that has just been started imports for a while.
    call
        For the answer to one question.
    close
        For closing a client or a cluster.
    patience
        Without a single worker, before a run gives up.
    unlimited_bytes
        Bytes that a worker without a memory limit may be sent.
    """

    connect: float = 15.0
    first_worker: float = 60.0
    call: float = 30.0
    close: float = 5.0
    patience: float = 120.0
    unlimited_bytes: int = 4_000_000_000


LIMITS = ConnectionLimits()


IMPORTED = ("dmkl.store", "dmkl.stack", "dmkl.solvers")  # by workers as they start, before their first task


def silent(text: str) -> None:
    """A note that goes nowhere."""


class Refused(ClusterError):
    """A refusal that trying again will not change."""


class ClusterSize(NamedTuple):
    """Processes, threads and bytes of all workers together."""

    processes: int
    threads: int
    nbytes: int


class Connection(Protocol):
    """A connection to a cluster."""

    renewable: bool  # connect may be called again after the cluster was lost
    together: bool  # whether all workers are known to be on this machine
    note: Note

    @property
    def patience(self) -> float:
        """Seconds without a single worker before giving up."""

    def connect(self) -> Client:
        """A client of a scheduler that has at least one worker with the same version of dmkl."""

    def size(self, client: Client) -> ClusterSize:
        """The size of the cluster."""

    def watch(self, client: Client) -> int:
        """Replace workers that are gone, where the connection can; the number of workers."""

    def close(self) -> None:
        """Let go of everything that `connect` made. Never raises, never hangs."""


class KnownWorkers:
    """What connections share whose cluster is as large as the scheduler says."""

    together = False

    @property
    def patience(self) -> float:
        return LIMITS.patience

    def size(self, client: Client) -> ClusterSize:
        return total(workers_of(client).values())

    def watch(self, client: Client) -> int:
        return len(workers_of(client))


class ClientConnection(KnownWorkers):
    """A client that the caller opened, and will close."""

    renewable = False

    def __init__(self, client: Client) -> None:
        self.note: Note = silent
        self._client = client

    def connect(self) -> Client:
        return self._client

    def close(self) -> None:
        release_workers(self._client)


class AddressConnection(KnownWorkers):
    """A scheduler that somebody else runs: when it goes, it is called until it has been started again."""

    renewable = True

    def __init__(self, address: str, security: Security | None = None, note: Note = silent) -> None:
        self.note = note
        self._address, self._security = address, security
        self._client: Client | None = None

    def connect(self) -> Client:
        host, _, port = self._address.partition("://")[2].rpartition(":")
        hint = f"start one with: dask scheduler --host {host} --port {port}"
        self._client = connect_client(self._address, hint, security=self._security)
        check_workers(self._client)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            release_workers(self._client)
        close_client(self._client)
        self._client = None


class LocalProcesses(KnownWorkers):
    """Worker processes on this machine, with a scheduler in this process."""

    renewable = True
    together = True

    def __init__(self, count: int, threads: int = 1, note: Note = silent) -> None:
        self.note = note
        self._count, self._threads = count, threads
        self._cluster: LocalCluster | None = None
        self._client: Client | None = None

    def connect(self) -> Client:
        self._cluster = LocalCluster(
            n_workers=self._count,
            threads_per_worker=self._threads,
            dashboard_address="127.0.0.1:0",  # None would still open port 8787
            preload=list(IMPORTED),
            silence_logs=logging.CRITICAL,  # errors of tasks come back; others are those of processes that end
        )
        self._client = connect_client(self._cluster, "this machine refuses connections to itself")
        check_workers(self._client)
        return self._client

    def watch(self, client: Client) -> int:
        found = super().watch(client)
        if found < self._count and self._cluster is not None:
            self._cluster.scale(self._count)  # replaces workers whose supervisor has died too
        return found

    def close(self) -> None:
        close_client(self._client)
        if self._cluster is not None:
            supervisors = list(self._cluster.workers.values())
            close_cluster(self._cluster)
            for supervisor in supervisors:  # without its scheduler, closing may not have reached them
                with contextlib.suppress(Exception):
                    supervisor.process.process.kill()
        self._client = self._cluster = None


class Absence:
    """How long there has been no worker. The time starts again when the patience changes, as it does when a job that
    was queued for hours starts to run."""

    def __init__(self) -> None:
        self._since, self._patience = 0.0, -1.0

    def tolerated(self, workers: int, patience: float) -> bool:
        """Whether there is a worker, or there has been none for no longer than `patience` seconds."""
        now = time.monotonic()
        if workers or patience != self._patience:
            self._since, self._patience = now, -1.0 if workers else patience
        return now - self._since <= patience


def connect_client(target: Any, hint: str, *, security: Security | None = None) -> Client:
    """A client of a cluster or of a scheduler's address; the hint says what to do when nothing answers."""
    try:
        return Client(target, timeout=LIMITS.connect, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(f"no scheduler answers at {target} ({type(error).__name__})", hint) from error


def release_workers(client: Client) -> None:
    """Free the scratch and shared memory of workers that other users go on with."""
    with contextlib.suppress(Exception):
        client.sync(client._run, _release_memory, callback_timeout=LIMITS.close)


def _release_memory() -> None:
    release_scratch()
    forget_kept()


def close_client(client: Client | None) -> None:
    if client is not None:
        with contextlib.suppress(Exception):
            client.close(timeout=LIMITS.close)


def close_cluster(cluster: Any) -> None:
    """Close a cluster, or abandon it: without its scheduler it would wait longer than the limit, and log errors until
    the process ends."""
    with contextlib.suppress(Exception):
        cluster.close(timeout=LIMITS.close)
    if cluster.status != Status.closed:
        with contextlib.suppress(Exception):
            cluster._loop_runner.stop()
        cluster.status = Status.closed


def workers_of(client: Client) -> dict[str, WorkerFacts]:
    """What the scheduler knows of its workers; OSError or TimeoutError when it does not answer."""
    if client.status != "running" or client.scheduler is None:
        raise OSError(f"the connection to the scheduler is {client.status}")
    identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=LIMITS.call)
    return dict(identity["workers"])


def total(workers: Iterable[WorkerFacts]) -> ClusterSize:
    """The size of a cluster with these workers."""
    sizes = [(int(worker["nthreads"]), int(worker["memory_limit"] or LIMITS.unlimited_bytes)) for worker in workers]
    threads, nbytes = sum(threads for threads, _ in sizes), sum(nbytes for _, nbytes in sizes)
    return ClusterSize(max(1, len(sizes)), max(1, threads), nbytes)


def check_workers(client: Client) -> None:
    """Refuse a cluster without workers, or with another version of dmkl: its workers would die task by task."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        client.wait_for_workers(1, timeout=LIMITS.first_worker)
    except TimeoutError:
        raise ClusterError(
            f"the scheduler at {client.scheduler.address} has had no worker for {LIMITS.first_worker:.0f} s",
            f"start some with: dask worker {client.scheduler.address} --nthreads 1",
        ) from None
    try:  # `version` is in the standard library, so a worker without dmkl can run it
        found = client.sync(client._run, version, "dmkl", on_error="ignore", callback_timeout=LIMITS.call)
        if not found:
            client.run(version, "dmkl", workers=list(workers_of(client))[:1])
    except PackageNotFoundError:
        raise Refused("dmkl is not installed on the cluster's workers") from None
    versions = {str(answer) for answer in found.values()}
    if versions - {__version__}:
        raise Refused(f"the workers run dmkl {', '.join(sorted(versions))}, this is {__version__}")
