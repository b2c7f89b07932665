"""From a configuration to training data, a bank of kernels and a finished store."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmkl._util.tiling import Grid
from dmkl.config import Config, Settings, construct, parse_config
from dmkl.data import Dataset, load_split
from dmkl.errors import DataError
from dmkl.events import Observer
from dmkl.kernels import Bank, cheaper_computed, plan_bank
from dmkl.kernels.functions import KERNELS
from dmkl.kernels.plan import grid, is_constant
from dmkl.oracles import ORACLES
from dmkl.runtime import Runtime
from dmkl.solvers import FORMULATIONS
from dmkl.store import KernelStore, build_store, projected_bytes

NAMED = 5  # views in a note


@dataclass(frozen=True)
class Prepared:
    """Training samples with their fitted bank, and the samples held out."""

    train: Dataset
    test: Dataset | None
    bank: Bank

    @property
    def notes(self) -> list[str]:
        """What a user may not expect."""
        used = {kernel.view for kernel in self.bank.kernels}
        passed = [name for name, view in self.train.views.items() if name not in used and is_constant(view)]
        if not passed:
            return []
        names = ", ".join(passed[:NAMED]) + (", ..." if len(passed) > NAMED else "")
        return [f"constant over the training samples, so no kernels on it: {names} ({len(passed)})"]


@dataclass(frozen=True)
class Projection:
    """What a store will be, known before anything is computed."""

    kernels: int
    views: int
    n: int
    tiles: int
    tile: int
    nbytes: int
    groups: int
    classes: int

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def prepare(config: Config) -> Prepared:
    """Read and check the data, fit the kernels; nothing is written."""
    train, test = load_split(config.data, config.views, config.solve.seed)
    return Prepared(train, test, plan_bank(config.kernels, train))


def project(prepared: Prepared, config: Config) -> Projection:
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


def on_the_fly(prepared: Prepared, config: Config, path: Path, fits: int = 1) -> bool:
    """Whether the kernels are computed at every pass: as asked, else as in the store that is there, else by their cost
    over so many fits.

    Who names a store wants to have one.
    """
    run = config.run
    if run.kernels != "auto":
        return run.kernels == "compute"
    if path.exists():
        return KernelStore(path).computed
    tile = Grid.cut(prepared.train.n, run.tile).tile
    return not run.store and cheaper_computed(prepared.bank, prepared.train.views, tile, fits)


def build(
    prepared: Prepared, config: Config, path: Path, runtime: Runtime, observer: Observer, *, computed: bool = False
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


def stored_config(store: KernelStore, overrides: Settings, environment: Settings | None = None) -> Config:
    """The configuration a store was built with; what it was built from can't be overridden any more.

    Where to run is for whoever runs it to say: else a store from elsewhere could bring a job script of its own.
    """
    fixed = [key for key in (*overrides, *(environment or {})) if key.split(".")[0] in ("data", "views", "kernels")]
    if fixed:
        raise DataError(f"{store.path} is built: {fixed[0]} can't be changed", "train from the configuration file")
    told = {key: table for key, table in store.config.items() if key != "cluster"}
    if isinstance(told.get("run"), dict):
        told["run"] = {key: value for key, value in told["run"].items() if key != "cluster"}
    return parse_config(told, overrides=overrides, environment=environment, source=f"store {store.path}")


def resolved(config: Config) -> dict[str, Any]:
    """The plain tables with the defaults of the kernels and the formulation they name; unknown names are refused."""
    tables = config.to_dict()
    ORACLES[config.solve.oracle]
    own = formulation_of(config).constants()
    tables["formulation"]["params"] = {key: value for key, value in own.items() if value is not None}
    for table, kernel in zip(tables["kernels"], config.kernels, strict=True):
        for params in grid(kernel.params):
            construct(KERNELS[kernel.kernel], params, f"kernel {kernel.kernel}")
        defaults = {f.name: f.default for f in dataclasses.fields(KERNELS[kernel.kernel])}
        table["params"] = {**defaults, **table["params"]}
    return tables


def formulation_of(config: Config) -> Any:
    return construct(FORMULATIONS[config.formulation.name], config.formulation.params, "[formulation]")


def held_out(config: Config, store: KernelStore) -> Dataset | None:
    """The test samples of the data a store was built from, if the data are still there and still the same."""
    try:
        train, test = load_split(config.data, config.views, config.solve.seed)
    except DataError:
        return None
    return test if train.fingerprint() == store.data_hash else None
