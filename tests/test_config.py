"""The configuration is read strictly; every message names the table, the key and the value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.config import from_environment, parse_config, read_config, to_toml
from dmkl.errors import ConfigError

GOOD: dict[str, Any] = {"data": {"example": "digits"}, "kernels": [{"kernel": "rbf", "width": [1, 2]}]}


def changed(section: str, **values: Any) -> dict[str, Any]:
    return {**GOOD, section: {**GOOD.get(section, {}), **values}}


def test_defaults_and_variant_parameters() -> None:
    config = parse_config(changed("formulation", name="uniform", C=10))
    assert config.kernels[0].params == {"width": [1, 2]}
    assert config.formulation.params == {"C": 10}
    assert config.solve.tol == 1e-3


def test_a_configuration_survives_being_written_down() -> None:
    config = parse_config(changed("views", colour={"columns": "red*", "kind": "features"}))
    assert parse_config(config.to_dict()) == config


def test_paths_count_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[data]\npath = "x.npz"\n[[kernels]]\nkernel = "rbf"\n[run]\nstore = "s.zarr"\n')
    config = read_config(tmp_path / "a.toml")
    assert config.data.path == (str(tmp_path / "x.npz"),)
    assert config.run.store == str(tmp_path / "s.zarr")


def test_overrides_are_toml_values_or_bare_words() -> None:
    overrides = {"formulation.C": "100", "run.cluster": "local:2", "solve.tol": "1e-5", "data.path": "['a', 'b']"}
    config = parse_config({**GOOD, "data": {}}, overrides=overrides)
    assert config.formulation.params == {"C": 100}
    assert (config.run.cluster, config.solve.tol, config.data.path) == ("local:2", 1e-5, ("a", "b"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({**GOOD, "solver": {}}, "unknown key 'solver' in the configuration; did you mean 'solve'"),
        (changed("solve", tolerance=1), r"unknown key 'tolerance' in \[solve\]"),
        (changed("data", lables="y"), r"unknown key 'lables' in \[data\]; did you mean 'labels'"),
        (changed("solve", tol="small"), r"\[solve\] tol should be a number, not 'small'"),
        (changed("solve", seed=1.5), r"\[solve\] seed should be a whole number, not 1.5"),
        (changed("solve", baselines=1), r"\[solve\] baselines should be true or false, not 1"),
        (changed("solve", tol=0), "tol should be positive"),
        (changed("data", test=1.0), r"test should be a fraction in \[0, 1\), not 1"),
        (changed("data", path="x.npz"), "names both path and example"),
        ({**GOOD, "data": {}}, "names neither path nor example"),
        ({**GOOD, "kernels": []}, "names no kernel"),
        ({**GOOD, "kernels": {"kernel": "rbf"}}, r"write \[\[kernels\]\]"),
        ({**GOOD, "kernels": [{"width": 1}]}, r"\[\[kernels\]\] number 1 lacks kernel"),
        ({**GOOD, "data": 3}, r"\[data\] should be a table, not 3"),
        (changed("run", memory="many"), "'many' is not an amount of memory; write it like '4 GB'"),
        (changed("run", workers=-1), "workers at least 0"),
    ],
)
def test_wrong_configurations_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(table)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[data\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_config(tmp_path / "bad.toml")


def test_overrides_need_a_section() -> None:
    with pytest.raises(ConfigError, match="use SECTION"):
        parse_config(GOOD, overrides={"tol": "1"})


@given(st.integers(1, 10**6), st.sampled_from(["", "B", "kB", "MB", "GB", "MiB", "GiB", "TB"]))
def test_amounts_of_memory(number: int, unit: str) -> None:
    factor = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "MiB": 2**20, "GiB": 2**30, "TB": 1e12}[unit]
    assert parse_bytes(f"{number} {unit}") == parse_bytes(f"{number}{unit}") == int(number * factor)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90 s", 90), ("30m", 1800), ("1.5 h", 5400)])
def test_amounts_of_time(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "1 d", "-3 s", "0", "inf"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a"):
        parse_seconds(text)


def test_another_formulation_starts_from_its_own_defaults() -> None:
    kernels = [{"kernel": "linear"}]
    table = {"data": {"example": "digits"}, "kernels": kernels, "formulation": {"name": "vskl", "q": 3.0, "C": 5.0}}
    assert parse_config(table, overrides={"formulation.C": "7"}).formulation.params == {"q": 3.0, "C": 7}
    other = parse_config(table, overrides={"formulation.name": "shared", "formulation.mode": "max"}).formulation
    assert (other.name, other.params) == ("shared", {"mode": "max"})
    assert parse_config(table, overrides={"formulation.name": "vskl"}).formulation.params["q"] == 3.0


ENVIRONMENT = {"DMKL_SOLVE_TOL": "1e-4", "DMKL_RUN_MEMORY": "4 GB", "DMKL_FORMULATION_C": "3", "DMKL_CLUSTER_JOBS": "2"}


def test_the_environment_lies_between_the_file_and_the_command_line() -> None:
    table = {**GOOD, "formulation": {"name": "vskl", "C": 1.0}, "solve": {"tol": 1e-2, "seed": 4}}
    config = parse_config(table, overrides={"solve.tol": "1e-5"}, environment=from_environment(ENVIRONMENT))
    assert (config.solve.tol, config.solve.seed, config.run.memory) == (1e-5, 4, "4 GB")
    assert (config.formulation.params, config.cluster) == ({"C": 3}, {"jobs": 2})
    assert config.origins["solve.tol"] == "command line"
    assert config.origins["solve.seed"] == "file"
    assert config.origins["run.memory"] == "environment DMKL_RUN_MEMORY"
    assert config.origins["formulation.C"] == "environment DMKL_FORMULATION_C"
    assert "solve.max_rounds" not in config.origins


def test_variables_of_others_are_left_alone_and_misspelt_ones_are_not() -> None:
    assert from_environment({"DMKL_DATA": "/data", "DMKL_SLURM_PORT": "1", "PATH": "/bin"}) == {}
    with pytest.raises(ConfigError, match=r"DMKL_SOLVE_TOLL: unknown key 'toll' in \[solve\]; did you mean 'tol'"):
        from_environment({"DMKL_SOLVE_TOLL": "1"})
    with pytest.raises(ConfigError, match="DMKL_SOVLE_TOL: no section 'sovle'; did you mean 'solve'"):
        from_environment({"DMKL_SOVLE_TOL": "1"})


@given(
    tol=st.floats(1e-9, 1.0),
    words=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20),
    view=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8),
    widths=st.lists(st.one_of(st.floats(0.1, 1e9), st.sampled_from(["1 median", "inf"])), min_size=1, max_size=4),
)
def test_written_as_toml_it_reads_the_same(tol: float, words: str, view: str, widths: list[Any]) -> None:
    table = {
        "data": {"path": ["a.npz", words]},
        "views": {view: {"columns": [words, "x_*"], "each": True}},
        "kernels": [{"kernel": "rbf", "width": widths}, {"kernel": "linear"}],
        "formulation": {"name": "vskl", "q": float("inf")},
        "solve": {"tol": tol},
        "cluster": {"queue": words, "coordinator": {"memory": "1 GB"}},
    }
    config = parse_config(table)
    assert parse_config(tomllib.loads(to_toml(config.to_dict(), config.origins))) == config
