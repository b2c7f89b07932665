"""From a file, the environment and the command line to one checked configuration."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.config.overrides import overridden, variable
from dmkl.config.sections import (
    TABLES,
    Config,
    DataConfig,
    FormulationConfig,
    KernelConfig,
    RunConfig,
    SolveConfig,
    TuneConfig,
    ViewConfig,
)
from dmkl.config.strict import construct, refuse_unknown, require_table
from dmkl.errors import ConfigError

COMMAND_LINE = "command line"
Settings = Mapping[str, str]  # 'section.key' = 'value as in TOML'


def read_config(path: Path, overrides: Settings | None = None, environment: Settings | None = None) -> Config:
    """Read a TOML file; relative data paths are resolved against its folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such config file: {path}", "write one with: dmkl init DATA") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", "it should be a text file that you may read") from None
    except (ValueError, RecursionError) as error:  # a number too long, tables too deep
        raise ConfigError(f"{path} is not valid TOML: {error}", "mend that line") from None
    return parse_config(table, base=path.parent, overrides=overrides, environment=environment, source=f"file {path}")


def parse_config(
    table: Mapping[str, Any],
    *,
    base: Path | None = None,
    overrides: Settings | None = None,
    environment: Settings | None = None,
    source: str = "file",
) -> Config:
    """Turn plain tables, under the settings of the environment and those of the command line, into a `Config`."""
    try:
        return _parsed(table, base, overrides or {}, environment or {}, source)
    except RecursionError:
        raise ConfigError(
            "the configuration is nested too deeply", "tables inside tables need no more than three"
        ) from None


def _parsed(
    table: Mapping[str, Any], base: Path | None, overrides: Settings, environment: Settings, source: str
) -> Config:
    settings = {**environment, **overrides}
    refuse_unknown(table, TABLES, "the configuration")
    table = overridden(table, settings)
    refuse_unknown(table, TABLES, "the configuration")
    laid = {dotted: f"environment {variable(dotted)}" for dotted in environment}
    laid |= dict.fromkeys(overrides, COMMAND_LINE)
    config = Config(
        data=construct(DataConfig, table.get("data", {}), "[data]", _inside("data", laid)),
        views={
            name: construct(ViewConfig, view, f"[views.{name}]")
            for name, view in require_table(table.get("views", {}), "[views]").items()
        },
        kernels=tuple(
            construct(KernelConfig, kernel, f"[[kernels]] number {number}")
            for number, kernel in enumerate(_list(table.get("kernels", [])), 1)
        ),
        formulation=construct(
            FormulationConfig, table.get("formulation", {}), "[formulation]", _inside("formulation", laid)
        ),
        solve=construct(SolveConfig, table.get("solve", {}), "[solve]", _inside("solve", laid)),
        run=construct(RunConfig, table.get("run", {}), "[run]", _inside("run", laid)),
        tune=construct(TuneConfig, table.get("tune", {}), "[tune]", _inside("tune", laid)),
        cluster=dict(require_table(table.get("cluster", {}), "[cluster]")),
        origins={**dict.fromkeys(_keys(table), source), **laid},
    )
    if base is not None:
        config = _anchored(config, base)
    _check(config)
    return config


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"kernels should be a list of tables, not {value!r}", "write [[kernels]]")
    return list(value)


def _keys(value: Any, prefix: str = "") -> list[str]:
    """'solve.tol', 'kernels.0.width' ...: dotted names of all values; `params` are keys of the table around them."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif prefix == "kernels." and isinstance(value, list | tuple):
        items = [(str(number), item) for number, item in enumerate(value)]
    else:
        return [prefix.removesuffix(".")]
    return [name for key, item in items for name in _keys(item, prefix if key == "params" else f"{prefix}{key}.")]


def _inside(section: str, origins: Mapping[str, str]) -> dict[str, str]:
    return {name.partition(".")[2]: origin for name, origin in origins.items() if name.startswith(f"{section}.")}


def _anchored(config: Config, base: Path) -> Config:
    paths = tuple(str((base / Path(p).expanduser()).resolve()) for p in config.data.path)
    store = str((base / Path(config.run.store).expanduser()).resolve()) if config.run.store else ""
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, path=paths),
        run=dataclasses.replace(config.run, store=store),
    )


def _check(config: Config) -> None:
    if not config.data.path and not config.data.example:
        raise ConfigError("[data] names neither path nor example", 'write path = "FILE"')
    if config.data.path and config.data.example:
        raise ConfigError("[data] names both path and example", "keep one")
    if not 0 <= config.data.test < 1:
        raise ConfigError(f"[data] test should be a fraction in [0, 1), not {config.data.test:g}", "0.3 is usual")
    if not config.kernels:
        raise ConfigError("the configuration names no kernel", "add a [[kernels]] table, e.g. kernel = 'rbf'")
    if not config.solve.tol > 0:
        raise ConfigError(f"[solve] tol should be positive, not {config.solve.tol:g}", "1e-3 is usual")
    if config.solve.max_rounds < 1 or config.run.workers < 0 or config.run.tile < 1:
        raise ConfigError("[solve] max_rounds and [run] tile should be at least 1, workers at least 0")
    if config.tune.folds < 2 or config.tune.repeats < 1:
        raise ConfigError("[tune] folds should be at least 2, repeats at least 1", "5 folds and 1 repeat are usual")
    if config.run.memory:
        parse_bytes(config.run.memory)
    if config.solve.max_time:
        parse_seconds(config.solve.max_time)
