"""Dataclasses from tables: unknown keys, wrong types and missing values are refused by name.

Whatever is no key of a dataclass with `params` belongs to the variant it names (a kernel, a formulation), and is
checked by the layer that owns the variant.
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
WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def construct(cls: type[T], table: Any, where: str, origins: Mapping[str, str] | None = None) -> T:
    """Build a dataclass from a table; messages call it `where`, and say of keys in `origins` where those came from."""
    assert dataclasses.is_dataclass(cls)
    table = dict(require_table(table, where))
    hints = type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if "params" in fields:  # keys of the named variant, checked by its owner
        own = require_table(table.pop("params", {}), f"{where} params")
        table["params"] = {**own, **{key: table.pop(key) for key in list(table) if key not in fields}}
    known = origins or {}
    called = {key: f"{where} {key}" + (f", from the {known[key]}," if key in known else "") for key in table}
    refuse_unknown(table, list(fields), where)
    values = {key: _coerce(value, hints[key], called[key]) for key, value in table.items()}
    for key, value in values.items():
        choices = fields[key].metadata.get("choices")
        if choices and value not in choices:
            raise ConfigError(f"{called[key]} can't be '{value}'", did_you_mean(value, list(choices)))
    needed = [name for name, f in fields.items() if is_needed(f)]
    missing = ", ".join(name for name in needed if name not in values)
    if missing:
        raise ConfigError(f"{where} lacks {missing}", f"add {missing} = ...")
    return typing.cast(T, cls(**values))


def is_needed(field: dataclasses.Field[Any]) -> bool:
    """Whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@functools.cache  # evaluating annotations takes 0.15 ms, and a bank may have thousands of kernels
def type_hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _coerce(value: Any, hint: Any, where: str) -> Any:
    options = variants(hint)
    for option in options:
        accepted = _accepted(value, option, where)
        if accepted is not None:
            return accepted
    wanted = " or ".join(_word(option) for option in options)
    raise ConfigError(f"{where} should be {wanted}, not {value!r}")


def variants(hint: Any) -> tuple[Any, ...]:
    """The types of a union that a value in a table can have, or the one type.

    None stands for a value that is not written, and other classes for objects that only Python code can pass.
    """
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return (hint,)
    return tuple(option for option in typing.get_args(hint) if option in WORDS or typing.get_origin(option))


def _accepted(value: Any, hint: Any, where: str) -> Any:
    """The value as this type has it, None if it is of another."""
    origin = typing.get_origin(hint)
    if origin is tuple:
        items = [value] if isinstance(value, str | int | float) else value
        if isinstance(items, list | tuple):
            return tuple(_coerce(item, typing.get_args(hint)[0], where) for item in items)
    elif origin is dict:
        return dict(value) if isinstance(value, Mapping) else None
    elif hint is float:
        return _number(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    return None


def _word(hint: Any) -> str:
    if typing.get_origin(hint) in (tuple, dict):
        return "a list" if typing.get_origin(hint) is tuple else "a table"
    return WORDS.get(hint, str(hint))


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in ("inf", "nan"):  # JSON has no infinity
        return float(value)
    return None


def require_table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} should be a table, not {value!r}")
    return value


def refuse_unknown(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key '{key}' in {where}", did_you_mean(key, list(known)))
