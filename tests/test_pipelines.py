"""The frame of `pipelines/`: settings, what is kept, what is compared, what is written; and every experiment's file."""

from __future__ import annotations

import importlib
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from pipelines import run as command
from pipelines.common import experiment, journal, record, results
from pipelines.common.data import data_file
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Experiment, Goal, Outcome, Table

NAMES = experiment.known()
TOML = """
[experiment]
title = "Thirds: a table"
order = 1
about = "What a third is."
[whole]
rows = 3
seed = 0
[quick]
rows = 2
[paper]
third = 0.33
"""
CODE = """
import itertools
from pathlib import Path

from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Goal, Outcome, Table

CLOCK = itertools.count(1)  # what differs from run to run
COMPUTED = []


def run(context):
    rows = []
    for i in range(context.settings["rows"]):
        third = context.cell(f"row {i}", lambda i=i: COMPUTED.append(i) or (i + context.settings.get("shift", 0)) / 3)
        if (context.folder / "break").exists() and i == 1:
            raise KeyboardInterrupt
        rows.append({"i": i, "ours": third, "paper": context.paper["third"], "seconds": next(CLOCK)})
    goals = [Goal("the last", rows[-1]["ours"], "<=", 0.5), Goal("seconds", next(CLOCK), ">=", 1, measured=True)]
    panel = Panel("thirds", "i", "third", [Line("ours", [1, 2], [1 / 3, 2 / 3], error=[0.1, 0.1])])
    return Outcome([Table("Rows", rows, ("seconds",), {"ours": ".2f"})], goals, ["Thirds."], {"thirds": [panel]})
"""


@pytest.fixture
def thirds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An experiment of its own in a folder of its own; its module."""
    place = tmp_path / "pipelines"
    (place / "thirds").mkdir(parents=True)
    (place / "thirds" / "experiment.toml").write_text(TOML)
    (place / "thirds" / "experiment.py").write_text(CODE)
    monkeypatch.setattr(experiment, "PIPELINES", place)
    monkeypatch.setattr(record, "RESULTS", place / "results")
    monkeypatch.setattr(results, "FILE", place / "RESULTS.md")
    spec = importlib.util.spec_from_file_location("pipelines.thirds.experiment", place / "thirds" / "experiment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.chdir(tmp_path)
    return module


def page() -> str:
    return results.FILE.read_text()


def test_a_whole_run_is_kept_and_written(thirds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["thirds"]) == 0
    kept = record.read("thirds")
    assert kept is not None
    assert [row["ours"] for row in kept["tables"][0]["rows"]] == [0, 1 / 3, 2 / 3]
    assert [goal["met"] for goal in kept["goals"]] == [False, True]
    assert kept["again"] is None
    assert "| 1 | 0.33 | 0.33 |" in page()
    assert "* the last: 0.6667 <= 0.5, **MISSED**" in page()
    assert "not yet | 1 of 2 met" in page()
    assert kept["machine"]["versions"]["dmkl"] in page()
    assert not Path("runs/pipelines/thirds").exists()
    assert "0.6667 <= 0.5, **MISSED**" in capsys.readouterr().out


def test_figures_are_the_same_bytes_for_the_same_numbers(thirds: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from pipelines.common.drawing import draw

    panel = Panel("t", "x", "y", [Line("l", [1, 2], [3, 4])])
    drawn = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert draw(tmp_path / name / "figure.svg", [panel, panel, panel])
        drawn.append((tmp_path / name / "figure.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_a_second_run_that_repeats_is_noted(thirds: Any) -> None:
    command.main(["thirds"])
    before = record.read("thirds")
    assert command.main(["thirds", "--again"]) == 0
    after = record.read("thirds")
    assert before is not None
    assert after is not None
    assert after["again"] == after["date"]
    assert after | {"again": None} == before  # the first run's times stay
    assert f"the same, {after['again']}" in page()


def test_a_second_run_that_does_not_repeat_says_where(
    thirds: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["thirds"])
    before = record.read("thirds")
    run = thirds.run

    def other(context: Context) -> Outcome:
        context.settings["shift"] = 1e-15
        return run(context)

    monkeypatch.setattr(thirds, "run", other)
    assert command.main(["thirds", "--again"]) == 1
    assert "not the same again: Rows, row 1, ours: 0.0, now 3" in capsys.readouterr().err
    assert record.read("thirds") == before


def test_a_second_run_elsewhere_says_what_was_another(thirds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["thirds"])
    kept = record.read("thirds")
    assert kept is not None
    machine = kept["machine"] | {"processor": "Abacus", "versions": kept["machine"]["versions"] | {"numpy": "0.1"}}
    record.write(kept | {"machine": machine}, "thirds")
    assert command.main(["thirds", "--again"]) == 0  # nothing to explain where all numbers are the same
    assert "Abacus" not in capsys.readouterr().err
    kept["tables"][0]["rows"][1]["ours"] = 0.3333
    record.write(kept | {"machine": machine}, "thirds")
    assert command.main(["thirds", "--again"]) == 1
    said = capsys.readouterr().err
    assert "not the same again: Rows, row 2, ours: 0.3333, now 0.3333333333333333" in said
    assert f"processor was Abacus, now {kept['machine']['processor']}; numpy was 0.1, now" in said


def test_an_interrupted_run_goes_on(thirds: Any) -> None:
    folder = Path("runs/pipelines/thirds")
    folder.mkdir(parents=True)
    (folder / "break").touch()
    with pytest.raises(KeyboardInterrupt):
        command.main(["thirds"])
    assert thirds.COMPUTED == [0, 1]
    assert record.read("thirds") is None
    (folder / "break").unlink()
    with (folder / "cells.jsonl").open("a") as file:
        file.write('{"key": "row 1", "ce')  # killed while it wrote
    assert command.main(["thirds"]) == 0
    assert thirds.COMPUTED == [0, 1, 2]


def test_a_quick_run_keeps_nothing(thirds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["thirds", "--quick"]) == 0
    assert "| 1 | 0.33 |" in capsys.readouterr().out
    assert record.read("thirds") is None
    assert not results.FILE.exists()


def test_comparing_before_running_is_refused(thirds: Any) -> None:
    with pytest.raises(SystemExit, match="thirds has not been run"):
        command.main(["thirds", "--again"])


def test_missing_data_stop_one_experiment_only(
    thirds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "pipelines" / "sixths" / "experiment.toml"
    other.parent.mkdir()
    other.write_text(TOML.replace("Thirds", "Sixths").replace("order = 1", "order = 0"))
    lacking = types.ModuleType("pipelines.sixths.experiment")
    lacking.run = lambda context: data_file("sixths.npz", "draw some yourself")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, lacking.__name__, lacking)
    assert command.main(["all"]) == 3
    told = "sixths is not run: sixths.npz is neither in $DMKL_DATA nor in ../shared/data: draw some yourself"
    assert told in capsys.readouterr().err
    assert "Not run yet: `python -m pipelines.run sixths`" in page()
    assert "| 1 | 0.33 | 0.33 |" in page()


def test_what_is_not_known_is_refused(thirds: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no experiment fourths: there are thirds"):
        command.main(["fourths"])
    file = tmp_path / "pipelines" / "thirds" / "experiment.toml"
    file.write_text(TOML.replace("[quick]\nrows", "[quick]\nroes"))
    with pytest.raises(SystemExit, match="what is roes"):
        command.main(["thirds"])


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    journal.Journal(tmp_path, {"a": 1})
    journal.Journal(tmp_path, {"a": 1})
    with pytest.raises(SystemExit, match="other settings"):
        journal.Journal(tmp_path, {"a": 2})


def test_nan_equals_itself_and_missing_rows_are_told() -> None:
    def kept(rows: list[dict[str, Any]]) -> dict[str, Any]:
        outcome = Outcome([Table("T", rows)], [Goal("g", math.nan, "<=", 1)])
        return record.made(outcome, {}, {}, "2026-01-01", 1.0)

    one = kept([{"x": math.nan}, {"x": 1.0}])
    assert record.differences(one, kept([{"x": math.nan}, {"x": 1.0}])) == []
    assert record.differences(one, kept([{"x": math.nan}])) == ["T, row 2, x: 1.0, now nothing"]
    assert record.differences(one, one | {"settings": {"seed": 1}}) == ["the settings are others"]


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_complete(name: str) -> None:
    """Its file can be read, its module has `run`, its title is its own and its quick cut is one."""
    found = Experiment.load(name)
    assert {"title", "order", "about"} <= set(found.words)
    assert set(found.words) <= {"title", "order", "about", "differs"}
    module = importlib.import_module(f"pipelines.{name.replace('/', '.')}.experiment")
    assert callable(module.run)
    for words in (Experiment.load(other).words for other in NAMES if other != name):
        assert words["title"] != found.words["title"]
        assert words["order"] != found.words["order"]
    assert found.quick


@pytest.mark.parametrize("name", NAMES)
def test_kept_runs_are_of_the_settings_that_are_there(name: str) -> None:
    """RESULTS.md would otherwise show numbers that its own command does not give."""
    kept = record.read(name)
    if kept is not None:
        assert kept["settings"] == Experiment.load(name).whole
        for figure in kept["figures"]:
            assert (record.RESULTS / f"{figure}.svg").is_file()


def test_the_page_is_made_of_the_records() -> None:
    if results.FILE.is_file():
        assert results.FILE.read_text() == results.markdown(), "run: python -m pipelines.run --results"


def test_links_of_the_overview_lead_to_headings() -> None:
    text = results.markdown()
    headings = {results._anchor(line.removeprefix("## ")) for line in text.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= headings
