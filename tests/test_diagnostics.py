"""Dask's dashboard and its performance report: of a real cluster, and refused where there is nothing to show."""

from __future__ import annotations

import builtins
import re
import urllib.request
from pathlib import Path
from typing import Any

import click
import pytest
from test_cli import folder

from dmkl.cli.main import cli, main
from dmkl.errors import ConfigError, OutputError
from dmkl.runtime import Diagnostics, open_runtime
from dmkl.runtime import diagnostics as module
from dmkl.runtime.jobs.profile import template

__all__ = ["folder"]  # a fixture


@pytest.fixture
def without_bokeh(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith(("distributed.dashboard", "bokeh")):
            raise ImportError("No module named 'bokeh'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_the_dashboard_and_the_report_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("bokeh")
    options = ["--cluster", "local:1", "--dashboard", "--performance-report", "work.html"]
    assert main(["train", "config.toml", "-o", "run", *options]) == 0
    shown = capsys.readouterr().err
    assert re.search(r"^dashboard http://127\.0\.0\.1:\d+/status$", shown, re.MULTILINE)
    assert re.search(r"^performance report work\.html$", shown, re.MULTILINE)
    report = Path("work.html").read_text()
    assert "Dask Performance Report" in report
    assert "Task Stream" in report
    assert not re.search(r'<script[^>]+src="http', report)  # it can be read without the internet
    tasks = re.search(r"number of tasks: (\d+)", report)
    assert tasks is not None
    assert int(tasks[1]) > 0


def test_the_link_leads_to_the_dashboard() -> None:
    pytest.importorskip("bokeh")
    notes: list[str] = []
    with open_runtime("local:1", note=notes.append, diagnostics=Diagnostics(dashboard=True)) as runtime:
        (note,) = notes
        with urllib.request.urlopen(note.removeprefix("dashboard "), timeout=30) as answer:
            page = answer.read().decode()
        assert "js/bokeh-widgets" in page  # the plots; without bokeh there is a page with advice
        assert list(runtime.map(abs, [(-1,)])) == [1]
    assert notes == [note]


def test_a_report_that_cannot_be_written_does_not_fail_the_run(tmp_path: Path) -> None:
    """A scheduler of somebody else may lack bokeh, or be gone by then."""
    pytest.importorskip("bokeh")
    notes: list[str] = []
    path = tmp_path / "work.html"
    with open_runtime("local:1", note=notes.append, diagnostics=Diagnostics(report=path)) as runtime:
        assert list(runtime.map(abs, [(-1,)])) == [1]
        path.mkdir()
    assert len(notes) == 1
    assert notes[0].startswith("there is no performance report: ")
    assert "Is a directory" in notes[0]


COMMANDS = sorted(
    name
    for name, command in cli.commands.items()
    if any("--cluster" in parameter.opts for parameter in command.params if isinstance(parameter, click.Option))
)


def test_every_command_with_a_cluster_has_the_options() -> None:
    assert COMMANDS == ["kernels", "rerun", "submit", "train", "tune"]
    for name in COMMANDS:
        options = {option for parameter in cli.commands[name].params for option in parameter.opts}
        assert {"--dashboard", "--performance-report"} <= options


@pytest.mark.parametrize("option", [["--dashboard"], ["--performance-report", "work.html"]])
@pytest.mark.parametrize("command", ["kernels", "train", "tune"])
def test_without_a_cluster_there_is_nothing_to_show(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, option: list[str]
) -> None:
    before = sorted(folder.iterdir())
    assert main([command, "config.toml", "-o", "out", *option]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error: there is nothing for Dask to show: without --cluster everything runs in threads of this process\n"
        "hint: add --cluster local:4, or leave out --dashboard and --performance-report\n"
    )
    assert sorted(folder.iterdir()) == before


def test_a_rerun_without_a_cluster_has_nothing_to_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "config.toml", "-q", "-o", "run"]) == 0
    before = sorted(folder.iterdir())
    assert main(["rerun", "run", "--dashboard"]) == 2
    assert "there is nothing for Dask to show" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_bokeh_is_asked_for_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], without_bokeh: None
) -> None:
    assert main(["train", "config.toml", "-o", "run", "--cluster", "local:1", "--dashboard"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: Dask's dashboard and performance report need bokeh (No module named 'bokeh')\n")
    assert "hint: pip install 'dmkl[dashboard]'" in shown
    assert not Path("run").exists()


def test_reports_are_html_files_in_folders_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"a performance report is an HTML file, not 'data\.npz'; name it NAME\.html"):
        Diagnostics(report=Path("data.npz")).check("local:1")
    with pytest.raises(OutputError, match=r"cannot write no/work\.html: there is no such folder"):
        Diagnostics(report=Path("no/work.html")).check("local:1")


def test_a_scheduler_of_somebody_else_needs_no_bokeh_here(without_bokeh: None) -> None:
    wanted = Diagnostics(dashboard=True)
    wanted.check("tcp://127.0.0.1:8786")
    wanted.check("current")
    with pytest.raises(ConfigError, match="need bokeh"):
        wanted.check("slurm")
    Diagnostics().check("none")


class Served:
    """A runtime whose scheduler has these services."""

    def __init__(self, **services: int) -> None:
        self.client, self.services = self, services

    def scheduler_info(self) -> dict[str, Any]:
        return {"services": self.services}


def test_links_of_schedulers_elsewhere_and_in_jobs(two_workers: Any) -> None:
    def line(runtime: Any, cluster: str) -> str:
        return module._dashboard(runtime, cluster)

    assert line(two_workers, "tcp://head:8786") == f"dashboard {two_workers.client.dashboard_link}"
    assert line(Served(), "tcp://head:8786") == "this scheduler serves no dashboard"
    assert line(Served(dashboard=40123), "slurm") == "dashboard http://127.0.0.1:40123/status"


def test_a_submitted_run_gets_the_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("bokeh")
    Path("cluster").mkdir()
    Path("cluster/slurm.toml").write_text(template("slurm", "SLURM"))
    options = ["--dashboard", "--performance-report", "work.html"]
    assert main(["submit", "config.toml", "-o", "run", "--dry-run", *options]) == 0
    script = capsys.readouterr().out
    assert f"--dashboard --performance-report {folder / 'work.html'}" in script
