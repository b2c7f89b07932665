"""What is laid over a file: `-s section.key=value` on the command line, and DMKL_SECTION_KEY in the environment."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Mapping
from typing import Any

from dmkl.config.sections import SECTIONS
from dmkl.config.strict import require_table
from dmkl.errors import ConfigError, did_you_mean

PREFIX = "DMKL_"
SETTABLE = (*SECTIONS, "cluster")


def from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """'section.key' = value of every DMKL_SECTION_KEY; other variables that begin with DMKL_ are somebody else's.

    Keys are found whatever their case. Constants of formulations are told apart by it (C, q) and stand as they are
    written: DMKL_FORMULATION_q.
    """
    found: dict[str, str] = {}
    for name, value in variables.items():
        word, _, rest = name.removeprefix(PREFIX).partition("_")
        section = word.lower()
        if not (name.startswith(PREFIX) and rest):
            continue
        if section in SETTABLE:
            found[f"{section}.{_key(name, section, rest)}"] = value
        elif near := difflib.get_close_matches(section, SETTABLE, n=1, cutoff=0.8):
            raise ConfigError(f"environment variable {name}: no section '{section}'", f"did you mean '{near[0]}'?")
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


def overridden(table: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """A copy of the tables with each 'section.key' replaced by a value written as in TOML (bare words are text)."""
    result: dict[str, Any] = json.loads(json.dumps(table, default=str))
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
        target[last] = _value(text)
    return result


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
