"""From a TOML file, the environment and the command line to one checked configuration, and from there to TOML again.

`-s section.key=value` on the command line replaces DMKL_SECTION_KEY of the environment, which replaces the file. The
configuration is written with the origin of every value beside it.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmkl._util.files import is_url
from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.config.schema import construct, refuse_unknown, require_table
from dmkl.config.sections import (
    SECTIONS,
    TABLES,
    Config,
    DataConfig,
    FormulationConfig,
    KernelConfig,
    Parameters,
    RunConfig,
    SolveConfig,
    TuneConfig,
    ViewConfig,
)
from dmkl.errors import ConfigError, did_you_mean

PREFIX = "DMKL_"
SETTABLE = (*SECTIONS, "cluster")
COMMAND_LINE = "command line"
DEFAULT = "default"
BARE = re.compile(r"[A-Za-z0-9_-]+")
Table = Mapping[str, Any]  # as TOML and JSON read it
Settings = Mapping[str, str]  # 'section.key' = 'value as in TOML'


def read_config(path: Path, overrides: Settings | None = None, environment: Settings | None = None) -> Config:
    """Read a TOML file; relative data paths are resolved against its folder.

    Parameters
    ----------
    path
        The file.
    overrides, environment
        'section.key' = value of the command line and of the environment.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a section, key or value is wrong.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such config file: {path}", "write one with: dmkl init DATA") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", "it should be a text file that you may read") from None
    except (ValueError, RecursionError) as error:  # a number too long, tables too deep
        raise ConfigError(f"{path} is not valid TOML: {error}", "correct that line") from None
    return parse_config(table, base=path.parent, overrides=overrides, environment=environment, source=f"file {path}")


def parse_config(
    table: Table,
    *,
    base: Path | None = None,
    overrides: Settings | None = None,
    environment: Settings | None = None,
    source: str = "file",
) -> Config:
    """Turn plain tables, with the settings of the environment and of the command line, into a `Config`.

    Parameters
    ----------
    table
        The sections as tables.
    base
        The folder against which relative paths are resolved; None leaves them as they are.
    overrides, environment
        'section.key' = value of the command line and of the environment.
    source
        The origin of the values in `table`.

    Raises
    ------
    ConfigError
        If a section, key or value is wrong.
    """
    try:
        config = _parse(table, overrides or {}, environment or {}, source)
    except RecursionError:
        raise ConfigError(
            "the configuration is nested too deeply", "tables inside tables need no more than three"
        ) from None
    if base is not None:
        config = _resolve_paths(config, base)
    _check(config)
    return config


def _parse(table: Table, overrides: Settings, environment: Settings, source: str) -> Config:
    refuse_unknown(table, TABLES, "the configuration")
    table = replace_values(table, {**environment, **overrides})
    refuse_unknown(table, TABLES, "the configuration")
    origins = {dotted: f"environment {variable(dotted)}" for dotted in environment}
    origins |= dict.fromkeys(overrides, COMMAND_LINE)
    kernels = table.get("kernels", [])
    if not isinstance(kernels, list | tuple):
        raise ConfigError(f"kernels should be a list of tables, not {kernels!r}", "write [[kernels]]")

    def origins_in(section: str) -> dict[str, str]:
        return {name.partition(".")[2]: where for name, where in origins.items() if name.startswith(f"{section}.")}

    return Config(
        data=construct(DataConfig, table.get("data", {}), "[data]", origins_in("data")),
        views={
            name: construct(ViewConfig, view, f"[views.{name}]")
            for name, view in require_table(table.get("views", {}), "[views]").items()
        },
        kernels=tuple(
            construct(KernelConfig, kernel, f"[[kernels]] number {number}") for number, kernel in enumerate(kernels, 1)
        ),
        formulation=construct(
            FormulationConfig, table.get("formulation", {}), "[formulation]", origins_in("formulation")
        ),
        solve=construct(SolveConfig, table.get("solve", {}), "[solve]", origins_in("solve")),
        run=construct(RunConfig, table.get("run", {}), "[run]", origins_in("run")),
        tune=construct(TuneConfig, table.get("tune", {}), "[tune]", origins_in("tune")),
        cluster=dict(require_table(table.get("cluster", {}), "[cluster]")),
        origins={**dict.fromkeys(_dotted_names(table), source), **origins},
    )


def _dotted_names(value: object, prefix: str = "") -> list[str]:
    """'solve.tol', 'kernels.0.width' ... of all values; `params` are keys of the table around them."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif prefix == "kernels." and isinstance(value, list | tuple):
        items = [(str(number), item) for number, item in enumerate(value)]
    else:
        return [prefix.removesuffix(".")]
    return [
        name for key, item in items for name in _dotted_names(item, prefix if key == "params" else f"{prefix}{key}.")
    ]


def _resolve_paths(config: Config, base: Path) -> Config:
    paths = tuple(str((base / Path(p).expanduser()).resolve()) for p in config.data.path)
    store = config.run.store
    if store and not is_url(store):
        store = str((base / Path(store).expanduser()).resolve())
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


def from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """'section.key' = value of every DMKL_SECTION_KEY; other variables that begin with DMKL_ are left alone.

    The case of a key does not matter, but for the constants of formulations, some of which differ in it only (C, q):
    DMKL_FORMULATION_q.

    Raises
    ------
    ConfigError
        If the section is a misspelt one, or the section has no such key.
    """
    found: dict[str, str] = {}
    for name, value in variables.items():
        word, _, rest = name.removeprefix(PREFIX).partition("_")
        section = word.lower()
        if not (name.startswith(PREFIX) and rest):
            continue
        if section in SETTABLE:
            found[f"{section}.{_key(name, section, rest)}"] = value
        elif similar := difflib.get_close_matches(section, SETTABLE, n=1, cutoff=0.8):
            raise ConfigError(f"environment variable {name}: no section '{section}'", f"did you mean '{similar[0]}'?")
    return found


def _key(name: str, section: str, rest: str) -> str:
    key = rest.lower()
    if section == "cluster":
        return key
    known = [f.name for f in dataclasses.fields(SECTIONS[section]) if f.name != "params"]
    if key in known:
        return key
    if section == "formulation":
        return rest
    raise ConfigError(f"environment variable {name}: unknown key '{key}' in [{section}]", did_you_mean(key, known))


def variable(dotted: str) -> str:
    """The environment variable of a setting."""
    section, _, key = dotted.partition(".")
    known = section != "formulation" or key == "name"
    return f"{PREFIX}{section.upper()}_{key.upper() if known else key}"


def replace_values(table: Table, settings: Settings) -> Parameters:
    """A copy of the tables with each 'section.key' replaced by a value written as in TOML (bare words are text)."""
    result: Parameters = json.loads(json.dumps(table, default=str))
    own = result.get("formulation", {})
    if isinstance(own, dict) and settings.get("formulation.name", own.get("name")) != own.get("name"):
        result["formulation"] = {}  # the constants of another formulation
    for dotted, text in settings.items():
        section, _, key = dotted.partition(".")
        if not key or section == "kernels":
            raise ConfigError(f"cannot set '{dotted}'", "use SECTION.KEY=VALUE, e.g. formulation.C=10")
        target = result.setdefault(section, {})
        *path, last = key.split(".")
        for name in path:
            require_table(target, f"[{section}]")
            target = target.setdefault(name, {})
        require_table(target, f"[{section}]")
        target[last] = _toml_or_text(text)
    return result


def _toml_or_text(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def to_toml(tables: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """The tables of `Config.to_dict()` as TOML; values without an origin are marked as defaults."""
    blocks = []
    for section, table in tables.items():
        if section == "views":
            blocks += [
                _block(f"[views.{toml_key(view)}]", f"views.{view}", own, origins) for view, own in table.items()
            ]
        elif section == "kernels":
            blocks += [_block("[[kernels]]", f"kernels.{a}", own, origins) for a, own in enumerate(table)]
        elif table:
            blocks.append(_block(f"[{section}]", section, table, origins))
    return "\n\n".join(blocks)


def _block(header: str, prefix: str, table: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    flat = {**{key: value for key, value in table.items() if key != "params"}, **table.get("params", {})}
    lines = {key: f"{toml_key(key)} = {toml_value(value)}" for key, value in flat.items()}
    width = max(map(len, lines.values()), default=0)
    shown = [
        f"{line:<{width}}  # {_origin(f'{prefix}.{key}', flat[key], origins)}".rstrip() for key, line in lines.items()
    ]
    return "\n".join([header, *shown])


def _origin(dotted: str, value: object, origins: Mapping[str, str]) -> str:
    """The origin of a value, or of the values inside a table."""
    inside = {origins[name] for name in origins if name.startswith(f"{dotted}.")} if isinstance(value, Mapping) else ()
    return origins.get(dotted) or ", ".join(sorted(inside)) or DEFAULT


def toml_key(key: str) -> str:
    """A key in the notation of TOML, quoted where it has to be."""
    return key if BARE.fullmatch(key) else _text(key)


def toml_value(value: object) -> str:
    """A number, text, truth value, list or table in the notation of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _text(value: str) -> str:
    """Text is written as in JSON, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
