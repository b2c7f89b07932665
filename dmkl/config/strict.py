"""Dataclasses from tables: unknown keys, wrong types and missing values are refused by name.

A dataclass with a field `params` describes something of which there are variants (a kernel, a formulation): keys that
it does not have belong to the variant, and are checked by the layer that knows the variant.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dmkl.errors import ConfigError, did_you_mean

T = TypeVar("T")
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


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
            return tuple(_convert(item, typing.get_args(hint)[0], where) for item in items)
    elif origin is dict:
        return dict(value) if isinstance(value, Mapping) else None
    elif hint is float:
        return _number(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    return None


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in ("inf", "nan"):  # JSON has no infinity
        return float(value)
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
