"""From the text of `--cluster` to a runtime, and back to nothing when the run ends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from dmkl.errors import ClusterError, ConfigError
from dmkl.memory import cores
from dmkl.runtime.base import Runtime
from dmkl.runtime.local import Local
from dmkl.version import __version__

CONNECT_SECONDS = 15  # distributed fails on every connection with a limit below 11
WORKER_SECONDS = 60  # for the first worker: one that has just been started imports for a while


@contextlib.contextmanager
def open_runtime(cluster: str = "none", *, workers: int = 0) -> Iterator[Runtime]:
    """'none' runs in this process, 'local[:N]' starts N worker processes, 'tcp://...' uses a running scheduler."""
    if cluster == "none":
        yield Local(workers)
    elif cluster.startswith(("tcp://", "tls://")):
        with _remote(cluster) as runtime:
            yield runtime
    else:
        with _own_workers(_worker_count(cluster, workers)) as runtime:
            yield runtime


def _worker_count(cluster: str, workers: int) -> int:
    kind, _, number = cluster.partition(":")
    if kind == "local" and not number:
        return workers or cores()
    if kind != "local" or not number.isdecimal() or int(number) < 1:
        raise ConfigError(
            f"'{cluster}' is not a cluster", "use none, local, local:N or tcp://HOST:PORT of a Dask scheduler"
        )
    return int(number)


@contextlib.contextmanager
def _own_workers(count: int) -> Iterator[Runtime]:
    """One process and one thread each; spilling stays off because every task is sized before it starts."""
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address=":0",  # None would still open port 8787
            silence_logs=logging.ERROR,
        ) as cluster,
        _connected(cluster) as runtime,
    ):
        yield runtime


@contextlib.contextmanager
def _remote(address: str) -> Iterator[Runtime]:
    with _connected(address) as runtime:
        yield runtime


@contextlib.contextmanager
def _connected(target: Any) -> Iterator[Runtime]:
    from distributed import Client

    from dmkl.runtime.cluster import Cluster

    try:
        client = Client(target, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no scheduler answers at {target} ({type(error).__name__})",
            "start one with: dask scheduler --port PORT",
        ) from error
    with client:
        _check_workers(client)
        yield Cluster(client)


def _check_workers(client: Any) -> None:
    """At least one worker, each with this very version: a worker without dmkl would die task by task."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError:
        raise ClusterError(
            f"the scheduler at {client.scheduler.address} has had no worker for {WORKER_SECONDS} s",
            f"start some with: dask worker {client.scheduler.address} --nthreads 1",
        ) from None
    try:
        versions = set(client.run(version, "dmkl").values())
    except PackageNotFoundError:
        raise ClusterError("dmkl is not installed on the cluster's workers") from None
    if versions != {__version__}:
        raise ClusterError(f"the workers run dmkl {', '.join(sorted(versions))}, this is {__version__}")
