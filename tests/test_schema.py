"""The schema for editors agrees with the parser, and editors find it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pytest

from dmkl.cli.main import main
from dmkl.config import parse_config
from dmkl.errors import ConfigError
from dmkl.kernels.functions import KERNELS
from dmkl.run import EXAMPLES, resolved
from dmkl.run.init import schema, schema_file
from dmkl.runtime.jobs import SCHEDULERS
from dmkl.runtime.jobs.profile import template
from dmkl.solvers import FORMULATIONS
from dmkl.version import __version__

PYTHON = {"integer": int, "string": str, "boolean": bool, "array": list, "object": dict, "number": (int, float)}
KEYWORDS = {  # all that draft 4 and 2020-12 mean the same by; editors know no more than draft 4
    *("$schema", "title", "description", "default", "type", "enum", "anyOf", "oneOf"),
    *("properties", "additionalProperties", "required", "items"),
}


def fits(value: Any, schema: Any) -> bool:
    """The keywords above, as the standard has them."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= KEYWORDS
    kind = schema.get("type")
    if kind and (not isinstance(value, PYTHON[kind]) or (kind != "boolean" and isinstance(value, bool))):
        return False
    if value not in schema.get("enum", [value]):
        return False
    if "anyOf" in schema and not any(fits(value, option) for option in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(fits(value, option) for option in schema["oneOf"]) != 1:
        return False
    if kind == "array":
        return all(fits(item, schema.get("items", True)) for item in value)
    if kind == "object":
        if not set(schema.get("required", [])) <= set(value):
            return False
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        return all(fits(item, known.get(key, others)) for key, item in value.items())
    return True


GOOD: dict[str, Any] = {"data": {"path": "x.npz"}, "kernels": [{"kernel": "rbf", "width": ["1 median", 2.0]}]}
BAD: list[dict[str, Any]] = [
    {**GOOD, "solver": {}},
    {**GOOD, "solve": {"tolerance": 1}},
    {**GOOD, "solve": {"tol": "small"}},
    {**GOOD, "solve": {"seed": 1.5}},
    {**GOOD, "solve": {"baselines": 1}},
    {**GOOD, "solve": {"oracle": "svm"}},
    {**GOOD, "solve": {"method": "steepest"}},
    {**GOOD, "data": {"path": "x.npz", "lables": "y"}},
    {**GOOD, "data": {"path": "x.npz", "task": "guess"}},
    {**GOOD, "run": {"kernels": "stored"}},
    {**GOOD, "views": {"a": {"kind": "kernels"}}},
    {**GOOD, "kernels": [{"kernel": "rbv"}]},
    {**GOOD, "kernels": [{"kernel": "rbf", "degree": 2}]},
    {**GOOD, "kernels": [{"width": 1}]},
    {**GOOD, "formulation": {"name": "l1", "q": 2}},
    {**GOOD, "formulation": {"name": "vskll"}},
    {**GOOD, "tune": {"rule": "worst"}},
    {**GOOD, "tune": {"grid": [1, 2]}},
    {"data": {"path": "x.npz"}},
]


def test_a_new_configuration_names_the_schema_of_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.savez(tmp_path / "data.npz", X=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)
    assert main(["init", str(tmp_path / "data.npz"), "-q", "-o", str(tmp_path / "data.toml")]) == 0
    text = (tmp_path / "data.toml").read_text()
    address = text.partition("\n")[0].removeprefix("#:schema ")
    path = Path(unquote(urlparse(address).path))
    assert address == path.as_uri()
    assert __version__ in path.name
    assert json.loads(path.read_text()) == schema()
    assert fits(tomllib.loads(text), json.loads(path.read_text()))


def test_the_command_prints_the_same_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["init", "--schema"]) == 0
    path = schema_file()
    assert path is not None
    assert capsys.readouterr().out == path.read_text()


def test_a_cache_that_cannot_be_written_costs_the_schema_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert schema_file() is None
    np.savez(tmp_path / "data.npz", X=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)
    assert main(["init", str(tmp_path / "data.npz"), "-q", "-o", str(tmp_path / "data.toml")]) == 0
    assert (tmp_path / "data.toml").read_text().startswith("# 20 samples")


def test_every_key_of_the_cluster_table_is_explained() -> None:
    cluster = schema()["properties"]["cluster"]["properties"]
    for table in (cluster, cluster["coordinator"]["properties"]):
        assert all(key["description"] for key in table.values())


@pytest.mark.parametrize("table", BAD, ids=[json.dumps({k: t[k] for k in t if t[k] != GOOD.get(k)}) for t in BAD])
def test_what_the_parser_refuses_the_schema_refuses(table: dict[str, Any]) -> None:
    assert fits(GOOD, schema())
    assert not fits(table, schema())
    with pytest.raises(ConfigError):
        resolved(parse_config(table))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_schema_takes_the_examples(name: str) -> None:
    assert fits(EXAMPLES[name], schema())


@pytest.mark.parametrize("name", FORMULATIONS)
def test_the_schema_takes_every_formulation_as_it_is_written_down(name: str) -> None:
    config = parse_config({**GOOD, "formulation": {"name": name, **({"C": 1} if name == "obscure" else {})}})
    own = resolved(config)["formulation"]
    assert fits({**GOOD, "formulation": {"name": name, **own["params"]}}, schema())


@pytest.mark.parametrize("name", KERNELS)
def test_the_schema_takes_every_kernel_as_it_is_written_down(name: str) -> None:
    table = resolved(parse_config({**GOOD, "kernels": [{"kernel": name}]}))["kernels"][0]
    assert fits({**GOOD, "kernels": [{**table.pop("params"), **table}]}, schema())


def test_the_schema_takes_the_files_of_the_documents_and_the_cluster_profile() -> None:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *sorted((root / "dmkl/docs/guide").glob("*.md"))]
    blocks = [block for page in pages for block in page.read_text().split("```toml\n")[1:]]
    assert len(blocks) >= 3
    profile = tomllib.loads(template("slurm", SCHEDULERS["slurm"].title))
    for block in blocks:
        table = tomllib.loads(block.partition("```")[0])
        assert fits({**table, "cluster": profile}, schema())
        resolved(parse_config(table))
