"""From what a command is given to training data, a bank of fitted kernels and a finished store.

A command is given a configuration file, a bundled example or a kernel store: its experiment.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from dmkl._util.registry import Registry
from dmkl._util.tiling import Grid
from dmkl._util.types import StrPath, Table
from dmkl.config import Config, Settings, construct, from_environment, parse_config, read_config
from dmkl.data import Dataset, Labels, load_split
from dmkl.errors import ConfigError, DataError
from dmkl.events import Note, Observer
from dmkl.kernels import Bank, cheaper_computed, plan_bank
from dmkl.kernels.functions import KERNELS
from dmkl.kernels.plan import grid, is_constant
from dmkl.problems import FORMULATIONS, Formulation
from dmkl.run.context import RunContext
from dmkl.run.directory import KernelRecord
from dmkl.runtime import Runtime
from dmkl.solvers.methods import find
from dmkl.store import Folder, KernelStore, Place, build_store, place_of, projected_bytes

LISTED_VIEWS = 5  # in a note
EXAMPLES: Registry[Table] = Registry("example")
EXAMPLES.register(
    "digits",
    {
        "data": {"example": "digits", "test": 0.3},
        "kernels": [{"kernel": "rbf", "width": ["0.5 median", "1 median", "2 median"]}],
        "formulation": {"name": "vskl", "q": 2.0, "C": 10.0},
        "solve": {"tol": 1e-3, "baselines": True},
    },
)
EXAMPLES.register(
    "diabetes",
    {
        "data": {"example": "diabetes", "task": "regression", "test": 0.3},
        "views": {"x": {"columns": ["*"], "each": True}},
        "kernels": [{"kernel": "rbf", "views": ["x", "x.*"], "width": ["0.5 mean", "1 mean", "2 mean", "4 mean"]}],
        "formulation": {"name": "spicy", "loss": "squared", "C": 2000.0},
        "solve": {"tol": 1e-3, "baselines": True},
    },
)


@dataclass(frozen=True)
class Experiment:
    """A configuration, the open store it was read from if there is one, and a short name for outputs."""

    config: Config
    store: KernelStore | None
    name: str


def read_experiment(target: StrPath | None, example: str | None, overrides: Settings) -> Experiment:
    """Read a configuration file, a kernel store or a bundled example; exactly one of the two arguments names it.

    Parameters
    ----------
    target : path, str or None
        A configuration file, or the directory or URL of a kernel store.
    example : str or None
        The name of a bundled example.
    overrides : mapping
        Settings of the command line, 'section.key' to a value as TOML writes it. They win over the environment,
        which wins over the file.
    """
    if (target is None) == (example is None):
        raise ConfigError(
            "exactly one of a configuration file, a kernel store and --example is needed", "see dmkl train --help"
        )
    environment = from_environment(os.environ)
    if example is not None:
        tables, source = EXAMPLES[example], f"example {example}"
        return Experiment(
            parse_config(tables, overrides=overrides, environment=environment, source=source), None, example
        )
    assert target is not None
    place = place_of(target)
    if isinstance(place, Folder) and not place.path.is_dir():
        config = read_config(place.path, overrides, environment)
        if config.run.store:
            place_of(config.run.store)  # a URL with a password is refused before anything is written
        return Experiment(config, None, place.stem)
    place.check_lasting()
    store = KernelStore(place)
    return Experiment(stored_config(store, overrides, environment), store, place.stem)


def stored_config(store: KernelStore, overrides: Settings, environment: Settings | None = None) -> Config:
    """The configuration a store was built with, under the settings of the environment and the command line.

    The data and kernels of a finished store cannot be overridden. Where to run is not read from the store: a store
    from elsewhere could otherwise bring a job script of its own.
    """
    fixed = [key for key in (*overrides, *(environment or {})) if key.split(".")[0] in ("data", "views", "kernels")]
    if fixed:
        raise DataError(
            f"{store.place} is already built, so {fixed[0]} cannot be changed", "train from the configuration file"
        )
    tables = {key: table for key, table in store.config.items() if key != "cluster"}
    if isinstance(tables.get("run"), dict):
        tables["run"] = {key: value for key, value in tables["run"].items() if key != "cluster"}
    return parse_config(tables, overrides=overrides, environment=environment, source=f"store {store.place}")


def resolved(config: Config) -> Table:
    """The plain tables with the defaults of the kernels and the formulation they name; unknown names are refused."""
    tables = config.to_dict()
    formulation = make_formulation(config)
    find(formulation, config.solve.method, config.solve.oracle)
    constants = formulation.constants()
    tables["formulation"]["params"] = {key: value for key, value in constants.items() if value is not None}
    for table, kernel in zip(tables["kernels"], config.kernels, strict=True):
        for params in grid(kernel.params):
            construct(KERNELS[kernel.kernel], params, f"kernel {kernel.kernel}")
        defaults = {f.name: f.default for f in dataclasses.fields(KERNELS[kernel.kernel])}
        table["params"] = {**defaults, **table["params"]}
    return tables


def make_formulation(config: Config) -> Formulation:
    """The formulation that the configuration names, with its constants."""
    formulation: Formulation = construct(
        FORMULATIONS[config.formulation.name], config.formulation.params, "[formulation]"
    )
    return formulation


@dataclass(frozen=True)
class PreparedData:
    """Training samples with their fitted bank of kernels, and the samples held out."""

    train: Dataset
    test: Dataset | None
    bank: Bank

    @property
    def notes(self) -> list[str]:
        """Facts that a user may not expect."""
        used = self.bank.view_kinds
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
    grid = Grid.cut(prepared.train.n, config.run.tile, full=config.run.full or not prepared.bank.symmetric)
    return Projection(
        kernels=len(prepared.bank),
        views=len(prepared.bank.view_kinds),
        n=grid.n,
        tiles=grid.tiles,
        tile=grid.tile,
        nbytes=projected_bytes(grid, len(prepared.bank), prepared.bank.dtype),
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
    directory.check(config)
    started = time.perf_counter()
    if run.store is None:
        prepared = prepare_data(config)
        if prepared.train.labels is not None:
            check(prepared.train.labels)
        place = place_of(config.run.store or directory.store)
        place.check_lasting()
        existing = KernelStore(place) if place.exists() else None
        computed = _computed(prepared, config, existing, fits)
        if existing is not None:
            existing.check_same(prepared.bank, prepared.train, computed, full=config.run.full)
        _claim(run, prepared.notes)
        run.store = build(prepared, config, place, run.runtime, run.observe, computed=computed)
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
            "store": str(store.place),
            "seed": config.solve.seed,
            "threads": run.runtime.workers,
            "memory": run.memory.limit,
            "kernel_hash": store.bank.fingerprint(),
            "kernels": store.bank.recipes(),
        }
    )
    record: KernelRecord = {
        "kernels": store.s,
        "views": len(store.bank.view_kinds),
        "n": store.n,
        "bytes": store.nbytes,
        "computed": store.computed,
        "store": str(store.place),
        "seconds": time.perf_counter() - started,
    }
    run.listener.kernels_ready(record)
    if store.labels is None:
        raise ConfigError(f"{store.place} holds no labels to train on")
    run.deadline.start()
    return TrainingInputs(store, store.labels, test, record)


def build(
    prepared: PreparedData,
    config: Config,
    place: Place,
    runtime: Runtime,
    observer: Observer,
    *,
    computed: bool = False,
) -> KernelStore:
    """Build the store at `place`, or finish the one that is there."""
    return build_store(
        place,
        prepared.bank,
        prepared.train,
        runtime,
        largest_tile=config.run.tile,
        config=config.to_dict(),
        computed=computed,
        full=config.run.full,
        observer=observer,
    )


def _computed(prepared: PreparedData, config: Config, existing: KernelStore | None, fits: int) -> bool:
    """Whether the kernels are computed at every pass instead of stored.

    The setting `run.kernels` decides, then an existing store. A store with a name is always written, and one that is
    wanted full. Otherwise the cheaper way over so many fits is taken.
    """
    if config.run.full and config.run.kernels == "compute":
        raise ConfigError(
            "run.full stores every tile, run.kernels = 'compute' stores none", "leave one of the two settings out"
        )
    if config.run.kernels != "auto":
        return config.run.kernels == "compute"
    if existing is not None:
        return existing.computed and not config.run.full
    tile = Grid.cut(prepared.train.n, config.run.tile).tile
    wanted = config.run.store or config.run.full
    return not wanted and cheaper_computed(prepared.bank, prepared.train.views, tile, fits)


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
