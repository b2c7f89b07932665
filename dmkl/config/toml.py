"""A configuration as TOML again, with the origin of every value beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

DEFAULT = "default"
BARE = re.compile(r"[A-Za-z0-9_-]+")


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
