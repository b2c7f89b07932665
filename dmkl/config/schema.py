"""Tables and dataclasses: a dataclass built strictly from a table, and the JSON schema of the tables for editors.

Unknown keys, wrong types and missing values are refused by name. A dataclass with a field `params` describes something
of which there are variants (a kernel, a formulation): keys that it does not have belong to the variant, and are checked
by the layer that knows the variant.

The schema is made from the dataclasses, the kernels and the formulations. It declares draft 2020-12 but uses only
keywords that draft 4 has too, because taplo, which checks TOML in most editors, knows no others: an `enum` with one
value in place of `const`, one alternative for each variant, no references.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dmkl.config.sections import (
    TABLES,
    DataConfig,
    FormulationConfig,
    KernelConfig,
    RunConfig,
    SolveConfig,
    TuneConfig,
    ViewConfig,
)
from dmkl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
Schema = dict[str, Any]
TYPES = {int: {"type": "integer"}, str: {"type": "string"}, bool: {"type": "boolean"}}
NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf"]}]}


def construct(cls: type[T], table: object, where: str, origins: Mapping[str, str] | None = None) -> T:
    """Build a dataclass from a table.

    Parameters
    ----------
    cls
        The dataclass.
    table
        A mapping from the names of its fields to values.
    where
        The name of the table in messages.
    origins
        Where single values come from, if not from the table's file, for messages.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or a value is of another type than the field.
    """
    assert dataclasses.is_dataclass(cls)
    values: dict[str, Any] = dict(require_table(table, where))
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if "params" in fields:
        own = require_table(values.pop("params", {}), f"{where} params")
        values["params"] = {**own, **{key: values.pop(key) for key in list(values) if key not in fields}}
    refuse_unknown(values, list(fields), where)
    for key, value in values.items():
        hint, choices = type_hints(cls)[key], fields[key].metadata.get("choices")
        name = f"{where} {key}" + (f", from the {origins[key]}," if origins and key in origins else "")
        if dataclasses.is_dataclass(hint):
            values[key] = construct(typing.cast(type, hint), value, f"[{key}] of {where}")
        else:
            values[key] = _convert(value, hint, name)
        if choices and values[key] not in choices:
            raise ConfigError(f"{name} can't be '{values[key]}'", did_you_mean(values[key], list(choices)))
    missing = ", ".join(name for name, f in fields.items() if is_required(f) and name not in values)
    if missing:
        raise ConfigError(f"{where} lacks {missing}", f"add {missing} = ...")
    return cls(**values)


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@functools.cache  # evaluating annotations takes 0.15 ms, and a bank may have thousands of kernels
def type_hints(cls: type) -> dict[str, object]:
    return typing.get_type_hints(cls)


def alternatives(hint: object) -> tuple[object, ...]:
    """The types of a union that a value in a table can have, or the one type.

    None stands for a value that is not written, and other classes for objects that only Python code can pass.
    """
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return (hint,)
    return tuple(option for option in typing.get_args(hint) if option in NAMES or typing.get_origin(option))


def _convert(value: object, hint: object, where: str) -> object:
    options = alternatives(hint)
    for option in options:
        converted = _as_type(value, option, where)
        if converted is not None:
            return converted
    expected = " or ".join(_name(option) for option in options)
    raise ConfigError(f"{where} should be {expected}, not {value!r}")


def _as_type(value: object, hint: object, where: str) -> object:
    """The value as a field of this type stores it; None if it is of another type."""
    origin = typing.get_origin(hint)
    if origin is tuple:
        items = [value] if isinstance(value, str | int | float) else value
        if isinstance(items, list | tuple):
            own = typing.get_args(hint)[0]
            if all(type(item) is own for item in items):  # sets of columns may have a million members
                return tuple(items)
            return tuple(_convert(item, own, where) for item in items)
    elif origin is dict:
        return dict(value) if isinstance(value, Mapping) else None
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return float(value) if isinstance(value, str) and value in ("inf", "nan") else None  # JSON has no infinity
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    return None


def _name(hint: object) -> str:
    if typing.get_origin(hint) in (tuple, dict):
        return "a list" if typing.get_origin(hint) is tuple else "a table"
    return NAMES[hint] if isinstance(hint, type) and hint in NAMES else str(hint)


def require_table(value: object, where: str) -> Mapping[str, Any]:
    """The value, if it is a table."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} should be a table, not {value!r}")
    return value


def refuse_unknown(table: Mapping[str, object], known: Sequence[str], where: str) -> None:
    """Refuse a table with a key that is not among the known ones."""
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key '{key}' in {where}", did_you_mean(key, list(known)))


def json_schema(
    kernels: Mapping[str, type[DataclassInstance]],
    formulations: Mapping[str, type[DataclassInstance]],
    methods: Iterable[str],
    oracles: Iterable[str],
    cluster: type[DataclassInstance],
) -> Schema:
    """The schema of experiments.

    Parameters
    ----------
    kernels, formulations
        The dataclass of each variant's constants, by name.
    methods, oracles
        Names of methods, of any formulation, and of oracles.
    cluster
        The dataclass of cluster profiles.
    """
    solve = _table(SolveConfig)
    solve["properties"]["method"]["enum"] = ["", *methods]  # "" is the default of the formulation
    solve["properties"]["oracle"]["enum"] = list(oracles)
    sections = {
        "data": _table(DataConfig),
        "views": {"type": "object", "additionalProperties": _table(ViewConfig)},
        "kernels": {
            "type": "array",
            "items": {"oneOf": [_variant(KernelConfig, "kernel", name, kernels[name], grid=True) for name in kernels]},
        },
        "formulation": {
            "oneOf": [_variant(FormulationConfig, "name", name, formulations[name]) for name in formulations]
        },
        "solve": solve,
        "run": _table(RunConfig),
        "tune": _table(TuneConfig),
        "cluster": _table(cluster),
    }
    assert tuple(sections) == TABLES
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dmkl experiment",
        "type": "object",
        "properties": sections,
        "additionalProperties": False,
        "required": ["data", "kernels"],
    }


def _table(cls: type[DataclassInstance], *, grid: bool = False) -> Schema:
    """A table with the fields of a dataclass as keys; with `grid` each value may be a list of such values."""
    hints = type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.name != "params"]
    table: Schema = {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").partition("\n\n")[0].split()),
        "properties": {field.name: _field(field, hints[field.name], grid) for field in fields},
        "additionalProperties": False,
    }
    needed = [field.name for field in fields if is_required(field)]
    return {**table, "required": needed} if needed else table


def _variant(
    cls: type[DataclassInstance], naming: str, name: str, own: type[DataclassInstance], *, grid: bool = False
) -> Schema:
    """The table of one kernel or formulation: the keys all of them have, and its own."""
    table, constants = _table(cls), _table(own, grid=grid)
    properties = {**table["properties"], **constants["properties"], naming: {"enum": [name]}}
    return {**table, "description": constants["description"], "properties": properties, "required": [naming]}


def _field(field: dataclasses.Field[Any], hint: object, grid: bool) -> Schema:
    schema = _type(hint)
    if field.metadata.get("choices"):
        schema = {"enum": list(field.metadata["choices"])}
    if grid:
        schema = {"anyOf": [schema, {"type": "array", "items": schema}]}
    if "means" in field.metadata:
        schema = {**schema, "description": field.metadata["means"]}
    if field.default not in (dataclasses.MISSING, None, (), ""):
        schema = {**schema, "default": _plain(field.default)}
    return schema


def _plain(default: object) -> object:
    if isinstance(default, tuple):
        return list(default)
    return str(default) if default in (float("inf"), float("-inf")) else default


def _type(hint: object) -> Schema:
    options = alternatives(hint)
    if len(options) > 1:
        return {"anyOf": [_type(option) for option in options]}
    hint = options[0]
    if typing.get_origin(hint) is tuple:
        item = _type(typing.get_args(hint)[0])
        return {"anyOf": [item, {"type": "array", "items": item}]}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _table(hint)
    if hint is float:
        return dict(NUMBER)
    return dict(TYPES[hint]) if isinstance(hint, type) and hint in TYPES else {"type": "object"}
