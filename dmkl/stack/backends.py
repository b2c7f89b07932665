"""Stacks over a store: held in memory, streamed from disk, computed at every pass, or sharded over Dask workers."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from dmkl._util.machine import Budget
from dmkl.errors import ConfigError
from dmkl.runtime import Local, Runtime
from dmkl.stack.computed import ComputedShard
from dmkl.stack.parts import PartStack
from dmkl.stack.shards import StoreShard, hold
from dmkl.stack.stack import KernelStack
from dmkl.store import KernelStore, Mended

HOLD_SHARE = 0.4  # of the memory left; the rest is for the solver
WORKER_SHARE = 0.5  # of the workers' memory that held shards may take
NEAR_SHARE = 0.3  # of its memory that all tiles may take for a worker to hold them all
BACKENDS = ("auto", "memory", "disk", "computed", "cluster")


def open_stack(
    path: Path,
    *,
    workers: int = 0,
    memory: int | None = None,
    client: Any = None,
    runtime: Runtime | None = None,
    backend: str = "auto",
) -> KernelStack:
    """Open a finished store. 'auto': the cluster if there is one, memory if all tiles fit, else as the store has them.

    'disk' reads tiles at every pass and 'computed' computes them, which any store can.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"unknown stack backend '{backend}'", f"use one of {', '.join(BACKENDS)}")
    store = KernelStore(path)
    store.require_complete()
    if runtime is None:
        runtime = _cluster(client) if client is not None else Local(workers)
    budget = Budget(memory) if memory else Budget.default()
    if backend == "auto":
        fits = store.projected_bytes <= HOLD_SHARE * budget.left
        backend = "cluster" if runtime.remote else "memory" if fits else "computed" if store.computed else "disk"
    if backend == "disk" and store.computed:
        raise ConfigError(f"{store.path} has no tiles to read from disk", "use the backend 'computed' or 'auto'")
    mended = Mended(store.path)
    kind = ComputedShard if store.computed or backend == "computed" else StoreShard
    shards: list[Any] = [kind(str(store.path), store.id, store.grid, i, store.s) for i in range(store.grid.blocks)]
    if backend == "memory":
        shards = list(runtime.map(hold, ((shard,) for shard in shards)))
    near = list(shards) if runtime.remote else None
    if backend == "cluster" and store.projected_bytes <= WORKER_SHARE * runtime.memory:
        shards = [runtime.hold(hold, shard) for shard in shards]
        if near_fits(store.projected_bytes, runtime):
            near = shards
    return KernelStack(
        shards,
        store.grid,
        [kernel.name for kernel in store.bank.kernels],
        groups=store.bank.groups,
        dtype="float32",
        runtime=runtime,
        memory=budget,
        near=near,
        indefinite=store.bank.indefinite,
        given=store.bank.unproven,
        backend=backend,
        identity=functools.partial(str, store.id),
        source=path,
        mended=mended,
    )


def near_fits(nbytes: int, runtime: Runtime) -> bool:
    """Whether every worker has room for all tiles."""
    return nbytes <= NEAR_SHARE * runtime.memory / runtime.workers


def on_cluster(stack: KernelStack, client: Any) -> tuple[KernelStack, Runtime]:
    """A stack and the runtime of a Dask client: stored tiles are read by its workers, an array stays here."""
    if isinstance(stack, PartStack):
        parent, runtime = on_cluster(stack.parent, client)
        return parent.restrict(stack.places), runtime
    runtime = _cluster(client)
    if stack.source is None:
        return stack, runtime
    return open_stack(stack.source, memory=stack.memory.limit, runtime=runtime), runtime


def _cluster(client: Any) -> Runtime:
    from dmkl.runtime.dask import DaskRuntime

    return DaskRuntime(client)
