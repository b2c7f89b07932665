"""The experiment a command is given: a configuration file, a bundled example or a kernel store."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from dmkl._util.registry import Registry
from dmkl._util.types import StrPath, Table
from dmkl.config import Config, Settings, construct, from_environment, parse_config, read_config
from dmkl.errors import ConfigError, DataError
from dmkl.kernels.functions import KERNELS
from dmkl.kernels.plan import grid
from dmkl.oracles import ORACLES
from dmkl.problems import FORMULATIONS, Formulation
from dmkl.store import KernelStore

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
        A configuration file, or the directory of a kernel store.
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
    path = Path(target)
    if path.is_dir():
        store = KernelStore(path)
        return Experiment(stored_config(store, overrides, environment), store, path.stem)
    return Experiment(read_config(path, overrides, environment), None, path.stem)


def stored_config(store: KernelStore, overrides: Settings, environment: Settings | None = None) -> Config:
    """The configuration a store was built with, under the settings of the environment and the command line.

    The data and kernels of a finished store cannot be overridden. Where to run is not read from the store: a store
    from elsewhere could otherwise bring a job script of its own.
    """
    fixed = [key for key in (*overrides, *(environment or {})) if key.split(".")[0] in ("data", "views", "kernels")]
    if fixed:
        raise DataError(
            f"{store.path} is already built, so {fixed[0]} cannot be changed", "train from the configuration file"
        )
    tables = {key: table for key, table in store.config.items() if key != "cluster"}
    if isinstance(tables.get("run"), dict):
        tables["run"] = {key: value for key, value in tables["run"].items() if key != "cluster"}
    return parse_config(tables, overrides=overrides, environment=environment, source=f"store {store.path}")


def resolved(config: Config) -> Table:
    """The plain tables with the defaults of the kernels and the formulation they name; unknown names are refused."""
    tables = config.to_dict()
    ORACLES[config.solve.oracle]
    formulation = make_formulation(config)
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
