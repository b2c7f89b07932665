"""From the text of `--cluster` to a runtime, and back to nothing when the run ends."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmkl._util.machine import cores
from dmkl.config import construct
from dmkl.errors import ConfigError
from dmkl.runtime.base import Runtime
from dmkl.runtime.local import Local
from dmkl.runtime.profile import read_profile, require_private

if TYPE_CHECKING:
    from dmkl.runtime.links import Link

CHATTY = ("distributed.client", "distributed.core", "distributed.comm", "distributed.utils", "tornado.application")
FOLDER = Path("dmkl-cluster")  # of the jobs' logs, in a folder each, for runs without a directory


@dataclass(frozen=True)
class Told:
    """What `settings` may say of a scheduler that others run; a SLURM profile has the same names."""

    tls: bool | str = True
    insecure: bool = False


def is_slurm(cluster: str) -> bool:
    return cluster.partition(":")[0] == "slurm"


@contextlib.contextmanager
def open_runtime(
    cluster: str = "none",
    *,
    workers: int = 0,
    settings: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Runtime]:
    """'none' runs in this process, 'local[:N]' starts N worker processes, 'tcp://...' and 'tls://...' use a running
    scheduler, 'current' the Dask client that is current, 'slurm[:PROFILE]' starts worker jobs (logs and job script in
    `folder`).

    `settings` replaces values of the SLURM profile; of the others only `tls`, the folder of keys, and
    `insecure`, which allows tcp:// beyond loopback, mean something.
    """
    if cluster == "none":
        yield Local(workers)
        return
    if cluster == "current":
        with _current_client() as client:
            from dmkl.runtime.cluster import Cluster

            yield Cluster(client)
        return
    folder = folder or FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"  # it names the jobs: one run's only
    link = _link(cluster, workers, settings or {}, folder, note)
    from dmkl.runtime.cluster import Cluster

    with _unheard():
        try:
            yield Cluster(link)
        finally:
            link.close()


@contextlib.contextmanager
def _current_client() -> Iterator[Any]:
    """Somebody else's client, left open; inside a Dask task that of its worker, whose thread other tasks may take."""
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
def _unheard() -> Iterator[None]:
    """Keep distributed's tracebacks of a cluster that goes away: what matters is said by a note or an error."""
    before = {name: logging.getLogger(name).level for name in CHATTY}
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _link(cluster: str, workers: int, settings: Mapping[str, Any], folder: Path, note: Callable[[str], None]) -> Link:
    if is_slurm(cluster):
        profile = read_profile(cluster, settings)
        from dmkl.runtime.slurm import SlurmJobs

        return SlurmJobs(profile, folder, note)
    told = construct(Told, settings, f"[cluster] for '{cluster}'")
    if not cluster.startswith(("tcp://", "tls://")):
        count = _worker_count(cluster, workers)
        from dmkl.runtime.links import LocalWorkers

        return LocalWorkers(count, note)
    from dmkl.runtime.keys import security
    from dmkl.runtime.links import Remote

    if cluster.startswith("tls://"):
        return Remote(cluster, security(told.tls), note)
    host = cluster.removeprefix("tcp://").rpartition(":")[0]
    require_private(host, tls=False, insecure=told.insecure)
    return Remote(cluster, None, note)


def _worker_count(cluster: str, workers: int) -> int:
    kind, _, number = cluster.partition(":")
    if kind == "local" and not number:
        return workers or cores()
    if kind != "local" or not number.isdecimal() or int(number) < 1:
        raise ConfigError(
            f"'{cluster}' is not a cluster",
            "use none, local, local:N, slurm, slurm:PROFILE, tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler, "
            "or current",
        )
    return int(number)
