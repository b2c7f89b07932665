"""Stacks over a store: tiles held in memory, read from disk, computed in every pass, or held by Dask workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dmkl._util.machine import Budget
from dmkl._util.types import StrPath
from dmkl.errors import ConfigError
from dmkl.runtime import Local, Runtime
from dmkl.stack.held import fits_here, held_here, held_on_workers
from dmkl.stack.sources import Source
from dmkl.stack.stack import KernelStack
from dmkl.stack.stored import ComputedSource, StoredSource
from dmkl.store import KernelStore

if TYPE_CHECKING:
    from distributed import Client

BACKENDS = ("auto", "memory", "disk", "computed", "cluster")


def open_stack(
    store: KernelStore | StrPath,
    *,
    workers: int = 0,
    memory: int | None = None,
    client: Client | None = None,
    runtime: Runtime | None = None,
    backend: str = "auto",
) -> KernelStack:
    """Open a finished store.

    Parameters
    ----------
    store : the folder of a store, or a store that is open
    workers : threads, 0 for as many as there are cores
    memory : bytes that this process may take, most of what is free if None
    client : a `distributed.Client`
    runtime : where tasks run, in place of `workers` and `client`
    backend : 'memory' holds all tiles in this process, 'disk' reads them in every pass, 'computed' computes them in
        every pass, 'cluster' has workers hold them if they fit; 'auto' is 'cluster' on a cluster, 'memory' if all tiles
        fit, and 'disk' or 'computed', as the store has them, if they do not

    Raises
    ------
    ConfigError
        If there is no such backend, or the store has no tiles to read from disk.
    StoreError
        If there is no store, or it is damaged or not finished.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"unknown stack backend '{backend}'", f"use one of {', '.join(BACKENDS)}")
    store = store if isinstance(store, KernelStore) else KernelStore(Path(store))
    store.require_complete()
    if runtime is None:
        runtime = _cluster(client) if client is not None else Local(workers)
    budget = Budget(memory) if memory else Budget.default()
    if backend == "disk" and store.computed:
        raise ConfigError(f"{store.path} has no tiles to read from disk", "use the backend 'computed' or 'auto'")
    source: Source = ComputedSource(store) if store.computed or backend == "computed" else StoredSource(store)
    if backend == "auto":
        backend = "cluster" if runtime.remote else "memory" if fits_here(source, budget) else source.backend
    if backend == "memory":
        source = held_here(source, runtime)
    if backend == "cluster":
        source = held_on_workers(source, runtime)
    names = [kernel.name for kernel in store.bank.kernels]
    stack = KernelStack(source, names=names, groups=store.bank.groups, runtime=runtime, memory=budget, backend=backend)
    stack.own_groups = False  # checkpoints name the store's id alone
    return stack


def on_cluster(stack: KernelStack, client: Client) -> tuple[KernelStack, Runtime]:
    """A stack where the workers of a Dask client can read it, and the client's runtime. An array stays here."""
    runtime = _cluster(client)
    return stack.moved(runtime), runtime


def _cluster(client: Client) -> Runtime:
    from dmkl.runtime.dask import DaskRuntime

    return DaskRuntime(client)
