"""From a configuration to training data, a bank of fitted kernels and a finished store."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmkl._util.tiling import Grid
from dmkl._util.types import Table
from dmkl.config import Config
from dmkl.data import Dataset, Labels, load_split
from dmkl.errors import ConfigError, DataError
from dmkl.events import Note, Observer
from dmkl.kernels import Bank, cheaper_computed, plan_bank
from dmkl.kernels.plan import is_constant
from dmkl.oracles import ORACLES
from dmkl.run.context import RunContext
from dmkl.run.records import KernelRecord
from dmkl.runtime import Runtime
from dmkl.store import KernelStore, build_store, projected_bytes

LISTED_VIEWS = 5  # in a note


@dataclass(frozen=True)
class PreparedData:
    """Training samples with their fitted bank of kernels, and the samples held out."""

    train: Dataset
    test: Dataset | None
    bank: Bank

    @property
    def notes(self) -> list[str]:
        """Facts that a user may not expect."""
        used = {kernel.view for kernel in self.bank.kernels}
        skipped = [name for name, view in self.train.views.items() if name not in used and is_constant(view)]
        if not skipped:
            return []
        names = ", ".join(skipped[:LISTED_VIEWS]) + (", ..." if len(skipped) > LISTED_VIEWS else "")
        views = "1 view is" if len(skipped) == 1 else f"{len(skipped)} views are"
        return [f"{views} constant over the training samples and so without kernels: {names}"]


@dataclass(frozen=True)
class Projection:
    """The size of a store, known before anything is computed."""

    kernels: int
    views: int
    n: int
    tiles: int
    tile: int
    nbytes: int
    groups: int
    classes: int

    def to_dict(self) -> Table:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TrainingInputs:
    """The finished store of a run with its labels, the held-out samples, and the record of the kernels."""

    store: KernelStore
    labels: Labels
    test: Dataset | None
    record: KernelRecord


def prepare_data(config: Config) -> PreparedData:
    """Read and check the data and fit the kernels; nothing is written."""
    train, test = load_split(config.data, config.views, config.solve.seed)
    return PreparedData(train, test, plan_bank(config.kernels, train))


def project(prepared: PreparedData, config: Config) -> Projection:
    """The size of the store that `config` asks for."""
    grid = Grid.cut(prepared.train.n, config.run.tile, full=not prepared.bank.symmetric)
    return Projection(
        kernels=len(prepared.bank),
        views=len({kernel.view for kernel in prepared.bank.kernels}),
        n=grid.n,
        tiles=grid.tiles,
        tile=grid.tile,
        nbytes=projected_bytes(grid, len(prepared.bank)),
        groups=int(prepared.bank.groups.max()) + 1,
        classes=len(prepared.train.labels.classes) if prepared.train.labels else 0,
    )


def prepare_kernels(run: RunContext, check: Callable[[Labels], object], *, fits: int = 1) -> TrainingInputs:
    """Claim the run directory and build the kernels, or finish those of an unfinished run.

    Parameters
    ----------
    run : RunContext
        Its `store` is used as it is when there is one; otherwise it is set to the store that is built here.
    check : callable
        Takes the training labels and raises for those that the formulation cannot use. It is called before anything
        is written.
    fits : int, optional
        How many fits the kernels are for: computing them at every pass pays only for few.
    """
    config, directory = run.config, run.directory
    ORACLES[config.solve.oracle]  # an unknown name is refused before any work
    directory.check(config)
    started = time.perf_counter()
    if run.store is None:
        prepared = prepare_data(config)
        if prepared.train.labels is not None:
            check(prepared.train.labels)
        path = Path(config.run.store) if config.run.store else directory.store
        existing = KernelStore(path) if path.exists() else None
        computed = _computed(prepared, config, existing, fits)
        if existing is not None:
            existing.check_same(prepared.bank, prepared.train, computed)
        _claim(run, prepared.notes)
        run.store = build(prepared, config, path, run.runtime, run.observe, computed=computed)
        test = prepared.test
    else:
        if run.store.labels is not None:
            check(run.store.labels)
        _claim(run, [])
        test = _held_out(config, run.store)
    store = run.store
    directory.write_manifest(
        {
            "origins": dict(config.origins),
            "data": store.data_hash,
            "store": str(store.path),
            "seed": config.solve.seed,
            "threads": run.runtime.workers,
            "memory": run.memory.limit,
            "kernel_hash": store.bank.fingerprint(),
            "kernels": store.bank.recipes(),
        }
    )
    record: KernelRecord = {
        "kernels": store.s,
        "views": len({kernel.view for kernel in store.bank.kernels}),
        "n": store.n,
        "bytes": store.nbytes,
        "computed": store.computed,
        "store": str(store.path),
        "seconds": time.perf_counter() - started,
    }
    run.listener.kernels_ready(record)
    if store.labels is None:
        raise ConfigError(f"{store.path} holds no labels to train on")
    run.deadline.start()
    return TrainingInputs(store, store.labels, test, record)


def build(
    prepared: PreparedData,
    config: Config,
    path: Path,
    runtime: Runtime,
    observer: Observer,
    *,
    computed: bool = False,
) -> KernelStore:
    """Build the store at `path`, or finish the one that is there."""
    return build_store(
        path,
        prepared.bank,
        prepared.train,
        runtime,
        largest_tile=config.run.tile,
        config=config.to_dict(),
        computed=computed,
        observer=observer,
    )


def _computed(prepared: PreparedData, config: Config, existing: KernelStore | None, fits: int) -> bool:
    """Whether the kernels are computed at every pass instead of stored.

    The setting `run.kernels` decides, then an existing store. A store with a name is always written. Otherwise the
    cheaper way over so many fits is taken.
    """
    if config.run.kernels != "auto":
        return config.run.kernels == "compute"
    if existing is not None:
        return existing.computed
    tile = Grid.cut(prepared.train.n, config.run.tile).tile
    return not config.run.store and cheaper_computed(prepared.bank, prepared.train.views, tile, fits)


def _claim(run: RunContext, notes: list[str]) -> None:
    if run.directory.claim(run.config):
        run.observe(Note(f"continuing the unfinished run in {run.directory.path}"))
    for text in notes:
        run.observe(Note(text))


def _held_out(config: Config, store: KernelStore) -> Dataset | None:
    """The test samples of the data a store was built from, if the data still exist and have not changed."""
    try:
        train, test = load_split(config.data, config.views, config.solve.seed)
    except DataError:
        return None
    return test if train.fingerprint() == store.data_hash else None
