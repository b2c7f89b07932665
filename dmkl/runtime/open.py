"""From the text of `--cluster` to a runtime, which is closed when the run ends."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dmkl._util.machine import cores
from dmkl.config import construct
from dmkl.errors import ConfigError
from dmkl.runtime.base import Local, Runtime
from dmkl.runtime.diagnostics import Diagnostics
from dmkl.runtime.jobs import SCHEDULERS, find_scheduler

if TYPE_CHECKING:
    from distributed import Client

    from dmkl.runtime.connections import Connection

LOGGERS = ("distributed.client", "distributed.core", "distributed.comm", "distributed.utils", "tornado.application")
FOLDER = Path("dmkl-cluster")  # of the jobs' logs, in a folder each, for runs without a directory


@dataclass(frozen=True)
class AddressSettings:
    """The `[cluster]` keys of a scheduler that somebody else runs; cluster profiles have the same names."""

    tls: bool | str = True
    insecure: bool = False


@contextlib.contextmanager
def open_runtime(
    cluster: str = "none",
    *,
    workers: int = 0,
    settings: Mapping[str, object] | None = None,
    folder: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
    diagnostics: Diagnostics | None = None,
) -> Iterator[Runtime]:
    """Open a runtime, and close it at the end of the `with` block.

    Parameters
    ----------
    cluster
        'none' runs in this process, 'local[:N[xT]]' starts N worker processes of T threads each (1 if left out),
        'tcp://...' and 'tls://...' use a running scheduler, 'current' the current Dask client, 'slurm[:PROFILE]', like
        the name of every scheduler in `dmkl.runtime.jobs.SCHEDULERS`, starts worker jobs.
    workers
        Threads of 'none' and processes of 'local'; 0 stands for all cores.
    settings
        Values that replace those of the cluster profile. With an address only `tls` (the folder of the keys) and
        `insecure` (which allows tcp:// to other machines) have a meaning.
    folder
        Where the logs and scripts of worker jobs go. It names the jobs, so it belongs to one run.
    note
        Takes a line whenever the user should know of something, such as lost workers.
    diagnostics
        What Dask is to show of the work; nothing if left out.

    Raises
    ------
    ConfigError
        If `cluster` is none of these, or a setting is unknown, or there is nothing that Dask could show.
    ClusterError
        If the cluster cannot be reached, or would be open to everybody.
    """
    diagnostics = diagnostics or Diagnostics()
    diagnostics.check(cluster)
    if cluster == "none":
        yield Local(workers)
        return
    if cluster == "current":
        with _current_client() as client:
            from dmkl.runtime.dask import DaskRuntime

            runtime = DaskRuntime(client)
            with diagnostics.shown(runtime, cluster, note):
                yield runtime
        return
    folder = folder or FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    connection = _connection(cluster, workers, settings or {}, folder, note)
    from dmkl.runtime.dask import DaskRuntime

    with _silenced():
        try:
            runtime = DaskRuntime(connection)
            with diagnostics.shown(runtime, cluster, note):
                yield runtime
        finally:
            connection.close()


@contextlib.contextmanager
def _current_client() -> Iterator[Client]:
    """The current client, left open; inside a Dask task that of its worker, whose thread other tasks may take."""
    from distributed import get_client, worker_client
    from distributed.worker import thread_state

    if hasattr(thread_state, "execution_state"):
        with worker_client() as client:
            yield client
        return
    try:
        client = get_client()
    except ValueError:
        raise ConfigError("no Dask client is current", "make one before, e.g. distributed.Client()") from None
    yield client


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep distributed from logging tracebacks of a cluster that goes away: notes and errors say what matters."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _connection(
    cluster: str, workers: int, settings: Mapping[str, object], folder: Path, note: Callable[[str], None]
) -> Connection:
    """Imports of Dask take most of a second, so they wait until the text and the settings are known to be right."""
    scheduler = find_scheduler(cluster)
    if scheduler is not None:
        from dmkl.runtime.jobs.profile import read_profile

        profile = read_profile(cluster, settings)
        from dmkl.runtime.jobs.workers import WorkerJobs

        return WorkerJobs(scheduler, profile, folder, note)
    own = construct(AddressSettings, settings, f"[cluster] for '{cluster}'")
    if not cluster.startswith(("tcp://", "tls://")):
        processes, threads = _local_size(cluster, workers)
        from dmkl.runtime.connections import LocalProcesses

        return LocalProcesses(processes, threads, note)
    from dmkl.runtime.connections import AddressConnection
    from dmkl.runtime.tls import require_private, security

    if cluster.startswith("tls://"):
        return AddressConnection(cluster, security(own.tls), note)
    host = cluster.removeprefix("tcp://").rpartition(":")[0]
    require_private(host, tls=False, insecure=own.insecure)
    return AddressConnection(cluster, None, note)


def _local_size(cluster: str, workers: int) -> tuple[int, int]:
    """The number of worker processes on this machine, and the threads of each."""
    kind, _, size = cluster.partition(":")
    if kind == "local" and not size:
        return workers or cores(), 1
    found = re.fullmatch(r"([1-9]\d{0,3})(?:x([1-9]\d{0,3}))?", size)
    if kind != "local" or found is None:
        raise ConfigError(
            f"'{cluster}' is not a cluster",
            f"use none, local[:N[xT]], SCHEDULER[:PROFILE] ({', '.join(SCHEDULERS)}), tcp://HOST:PORT or "
            "tls://HOST:PORT of a Dask scheduler, or current",
        )
    return int(found[1]), int(found[2] or 1)
