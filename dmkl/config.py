"""The experiment file: TOML read strictly into frozen dataclasses.

Every key is known here or belongs to a named variant (a kernel's or formulation's own parameters, kept in `params` and
checked by the layer that owns the variant). Whatever else is found is refused with a suggestion.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dmkl.errors import ConfigError, did_you_mean
from dmkl.units import parse_bytes, parse_seconds

T = TypeVar("T")
Parameters = dict[str, Any]
WHERE_KERNELS = ("auto", "store", "compute")


@dataclass(frozen=True)
class DataConfig:
    """Where samples and labels come from and which of them are held out."""

    path: tuple[str, ...] = ()  # files; relative ones count from the config file
    example: str = ""  # or the name of a bundled example
    labels: str = "y"  # array or column that holds the labels
    task: str = "auto"  # auto | binary | multiclass | multilabel | regression
    test: float = 0.3  # fraction of samples held out, 0 for none
    split: str = ""  # or: array that is non-zero for training samples


@dataclass(frozen=True)
class ViewConfig:
    """One named block of data: an array of the file, or columns of a table.

    With `each`, kernels take the whole as views = "NAME", every column alone as "NAME.*", both as ["NAME", "NAME.*"].
    """

    array: str = ""
    columns: tuple[str, ...] = ()  # names or patterns like "pixel_*"
    kind: str = "features"  # features | distance | kernel
    symmetric: bool = True  # of a kernel: false if k(x, z) is not k(z, x)
    each: bool = False  # besides, every column is a view "NAME.column" (its name in a table, else 0, 1, ...)


@dataclass(frozen=True)
class KernelConfig:
    """One kernel function on one or more views; list-valued parameters span a grid."""

    kernel: str
    views: tuple[str, ...] = ("*",)
    normalise: tuple[str, ...] = ()
    group: str = ""  # default: the view
    params: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class FormulationConfig:
    """Which problem is solved; `params` are its own (C, q, p ...)."""

    name: str = "uniform"
    params: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class SolveConfig:
    """How it is solved."""

    tol: float = 1e-3
    oracle: str = "smo"
    method: str = ""  # how the formulation is solved; default: its own choice
    seed: int = 0
    max_rounds: int = 100
    max_time: str = ""  # e.g. "90 s", "30 m", "2 h": stop after it with the best certified model
    baselines: bool = False  # also score every kernel alone


@dataclass(frozen=True)
class RunConfig:
    """Where it runs and with what."""

    cluster: str = "none"  # none | local[:N] | slurm[:PROFILE] | tcp://host:port | tls://host:port
    workers: int = 0  # threads of the in-process run; 0 = all cores
    memory: str = ""  # e.g. "4 GB"; default: 60 % of what is free
    store: str = ""  # kernel store; default: inside the run directory
    kernels: str = "auto"  # store | compute (on the fly: no tiles on disk) | auto: whichever is cheaper
    tile: int = 1024  # largest side of a square tile


@dataclass(frozen=True)
class TuneConfig:
    """What `dmkl tune` tries, and by which rule it chooses."""

    folds: int = 5
    repeats: int = 1
    rule: str = "one-se"  # one-se | best
    formulations: tuple[str, ...] = ()  # default: that of [formulation]
    grid: Parameters = field(default_factory=dict)  # values of constants; default: each formulation's usual ones


@dataclass(frozen=True)
class Config:
    """A whole experiment."""

    data: DataConfig = DataConfig()
    views: dict[str, ViewConfig] = field(default_factory=dict)
    kernels: tuple[KernelConfig, ...] = ()
    formulation: FormulationConfig = FormulationConfig()
    solve: SolveConfig = SolveConfig()
    run: RunConfig = RunConfig()
    tune: TuneConfig = TuneConfig()
    cluster: Parameters = field(default_factory=dict)  # values that replace the SLURM profile's

    def to_dict(self) -> dict[str, Any]:
        """The plain tables this configuration would be read from."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


def read_config(path: Path, overrides: Mapping[str, str] | None = None) -> Config:
    """Read a TOML file; relative data paths are resolved against its folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such config file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    return parse_config(table, base=path.parent, overrides=overrides)


def parse_config(
    table: Mapping[str, Any], *, base: Path | None = None, overrides: Mapping[str, str] | None = None
) -> Config:
    """Turn plain tables (plus 'section.key' = 'TOML value' overrides) into a `Config`."""
    table = _overridden(table, overrides or {})
    _refuse_unknown(table, [f.name for f in dataclasses.fields(Config)], "the configuration")
    config = Config(
        data=construct(DataConfig, table.get("data", {}), "[data]"),
        views={
            name: construct(ViewConfig, view, f"[views.{name}]")
            for name, view in _table(table.get("views", {}), "[views]").items()
        },
        kernels=tuple(
            construct(KernelConfig, kernel, f"[[kernels]] number {number}")
            for number, kernel in enumerate(_list(table.get("kernels", [])), 1)
        ),
        formulation=construct(FormulationConfig, table.get("formulation", {}), "[formulation]"),
        solve=construct(SolveConfig, table.get("solve", {}), "[solve]"),
        run=construct(RunConfig, table.get("run", {}), "[run]"),
        tune=construct(TuneConfig, table.get("tune", {}), "[tune]"),
        cluster=dict(_table(table.get("cluster", {}), "[cluster]")),
    )
    if base is not None:
        config = _anchored(config, base)
    _check(config)
    return config


def construct(cls: type[T], table: Any, where: str) -> T:
    """Build a dataclass from a table, refusing unknown keys, wrong types and missing values by name."""
    assert dataclasses.is_dataclass(cls)
    table = dict(_table(table, where))
    hints = _type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]
    if "params" in known:  # keys of the named variant, checked by its owner
        own = _table(table.pop("params", {}), f"{where} params")
        table["params"] = {**own, **{key: table.pop(key) for key in list(table) if key not in known}}
    _refuse_unknown(table, known, where)
    values = {key: _coerce(value, hints[key], f"{where} {key}") for key, value in table.items()}
    try:
        return typing.cast(T, cls(**values))
    except TypeError:
        needed = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        missing = ", ".join(name for name in needed if name not in values)
        raise ConfigError(f"{where} lacks {missing}") from None


@functools.cache  # evaluating annotations takes 0.15 ms, and a bank may have thousands of kernels
def _type_hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _coerce(value: Any, hint: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        for option in typing.get_args(hint):
            try:
                return _coerce(value, option, where)
            except ConfigError:
                continue
    elif origin is tuple:
        items = [value] if isinstance(value, str | int | float) else value
        if isinstance(items, list | tuple):
            return tuple(_coerce(item, typing.get_args(hint)[0], where) for item in items)
    elif origin is dict:
        return dict(_table(value, where))
    elif hint is float:
        number = _number(value)
        if number is not None:
            return number
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where} should be {wanted}, not {value!r}")


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in ("inf", "nan"):  # JSON has no infinity
        return float(value)
    return None


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} should be a table, not {value!r}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"kernels should be a list of tables, not {value!r}", "write [[kernels]]")
    return list(value)


def _refuse_unknown(table: Mapping[str, Any], known: list[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key '{key}' in {where}", did_you_mean(key, known))


def _overridden(table: Mapping[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    """A copy of the tables with each 'section.key' replaced by a value written as in TOML (bare words are text)."""
    result: dict[str, Any] = json.loads(json.dumps(table, default=str))
    own = result.get("formulation", {})
    if isinstance(own, dict) and overrides.get("formulation.name", own.get("name")) != own.get("name"):
        result["formulation"] = {}  # the constants of another formulation
    for dotted, text in overrides.items():
        section, _, key = dotted.partition(".")
        if not key or section == "kernels":
            raise ConfigError(f"cannot set '{dotted}'", "use SECTION.KEY=VALUE, e.g. formulation.C=10")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        target = result.setdefault(section, {})
        *path, last = key.split(".")
        for name in path:
            target = target.setdefault(name, {})
        target[last] = value
    return result


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
        raise ConfigError("[data] names neither path nor example")
    if config.data.path and config.data.example:
        raise ConfigError("[data] names both path and example", "keep one")
    if not 0 <= config.data.test < 1:
        raise ConfigError(f"[data] test should be a fraction in [0, 1), not {config.data.test:g}")
    if not config.kernels:
        raise ConfigError("the configuration names no kernel", "add a [[kernels]] table, e.g. kernel = 'rbf'")
    if not config.solve.tol > 0:
        raise ConfigError(f"[solve] tol should be positive, not {config.solve.tol:g}")
    if config.solve.max_rounds < 1 or config.run.workers < 0 or config.run.tile < 1:
        raise ConfigError("[solve] max_rounds and [run] tile should be at least 1, workers at least 0")
    if config.run.kernels not in WHERE_KERNELS:
        raise ConfigError(
            f"[run] kernels = '{config.run.kernels}' is not understood",
            did_you_mean(config.run.kernels, list(WHERE_KERNELS)),
        )
    if config.run.memory:
        parse_bytes(config.run.memory)
    if config.solve.max_time:
        parse_seconds(config.solve.max_time)
