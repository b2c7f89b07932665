"""The experiment file for editors: a JSON schema made from the dataclasses, the kernels and the formulations.

It declares draft 2020-12 but uses only keywords that draft 4 has too, because taplo, which checks TOML in most editors,
knows no others: an `enum` with one value in place of `const`, one alternative for each variant, no references.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

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
from dmkl.config.strict import alternatives, is_required, type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Schema = dict[str, Any]
TYPES = {int: {"type": "integer"}, str: {"type": "string"}, bool: {"type": "boolean"}}
NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf"]}]}


def json_schema(
    kernels: Mapping[str, type[DataclassInstance]],
    formulations: Mapping[str, type[DataclassInstance]],
    oracles: Iterable[str],
    cluster: type[DataclassInstance],
) -> Schema:
    """The schema of experiments.

    Parameters
    ----------
    kernels, formulations
        The dataclass of each variant's constants, by name.
    oracles
        Names of oracles.
    cluster
        The dataclass of cluster profiles.
    """
    solve = _table(SolveConfig)
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
