"""README, the guide and the papers: their Python runs, their commands and options exist, the README stays short."""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np
import pytest
from conftest import three_classes

import dmkl
from dmkl.cli.main import cli
from dmkl.cli.reference import reference
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.kernels import plan_bank
from dmkl.problems import FORMULATIONS
from dmkl.runtime import Local
from dmkl.solvers.methods import METHODS
from dmkl.store import build_store

ROOT = Path(dmkl.__file__).parent.parent
GUIDE = ROOT / "dmkl/docs/guide"
PAPERS = ROOT / "dmkl/docs/papers"
README = ROOT / "README.md"
PAGES = [README, *sorted(GUIDE.glob("*.md")), *sorted(PAPERS.glob("*.md"))]
LONGEST_README = 1200  # words, without code and without the race


def blocks(page: Path, language: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [text for named, text in every if named == language]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The names that the examples use: ten columns X, classes y, a store of kernels on them, some of its samples."""
    monkeypatch.chdir(tmp_path)
    data = three_classes(90)
    assert data.labels is not None
    X = np.hstack([np.asarray(view.values) for view in data.views.values()])[:, :10]
    samples = Dataset({"x": make_view("x", "features", X)}, make_labels(data.labels.values))
    kernels = [KernelConfig("rbf", params={"width": ["0.5 median", "1 median", "2 median"]})]
    build_store(tmp_path / "photos.zarr", plan_bank(kernels, samples), samples, Local(2))
    return {"np": np, "X": X, "y": data.labels.values, "samples": np.arange(0, 90, 2)}


PYTHON = [page for page in PAGES if blocks(page, "python") and page.stem != "coming-from"]  # which test_migration runs


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_python_examples_run(page: Path, names: dict[str, object]) -> None:
    """The code of a page runs from top to bottom."""
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)


def test_there_are_examples() -> None:
    assert {page.stem for page in PYTHON} >= {"README", "python", "tuning", "clusters", "vskl", "mikl"}


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "dmkl/docs/reference/cli.md").read_text()
    assert written == reference(), "run: python -m dmkl.cli.reference"


def commands(page: Path) -> list[list[str]]:
    """Every dmkl command in the shell blocks of a page, without comments."""
    lines = [line.split(" #")[0].strip() for block in blocks(page, "") for line in block.splitlines()]
    parts = [part for line in lines for part in re.split(r"\s{4,}(?=dmkl )|&& \S*(?=dmkl )", line)]
    return [part.split()[1:] for part in parts if part.startswith("dmkl ")]


def test_the_pages_have_commands() -> None:
    everywhere = {words[0] for page in PAGES for words in commands(page)}
    assert {words[0] for words in commands(README)} >= {"init", "train", "tune", "evaluate", "predict", "doctor"}
    assert everywhere == set(cli.commands)


@pytest.mark.parametrize(
    "words", [words for page in PAGES for words in commands(page)], ids=lambda words: " ".join(words)
)
def test_commands_and_options_exist(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= known


def test_the_readme_is_short() -> None:
    text = re.sub(r"<!-- race -->.*?<!-- /race -->|```.*?```", "", README.read_text(), flags=re.DOTALL)
    assert len(text.split()) <= LONGEST_README


def test_the_two_commands_of_a_newcomer_come_first() -> None:
    """`.ci/run` takes the first line with each of these words and runs it."""
    lines = README.read_text().splitlines()
    train = next(line for line in lines if "dmkl train --example" in line)
    test = next(line for line in lines if "-m pytest" in line)
    assert train == "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/dmkl train --example digits"
    assert test.startswith("python3 -m venv --clear .venv && .venv/bin/pip install -q -e '.[test]' && ")


def test_the_methods_in_the_table_exist() -> None:
    """The last two columns name methods of the formulation in the first; the default is named as such."""
    lines = README.read_text().splitlines()
    rows = [line.split(" | ") for line in lines if re.match(r"\| `\w+` \(`[A-Z]", line)]
    assert {row[0].split("`")[1] for row in rows} == set(FORMULATIONS)
    for row in rows:
        found = [one.name for one in METHODS[FORMULATIONS[row[0].split("`")[1]]]]
        default, papers = (re.findall(r"`([^`]+)`", cell) for cell in row[3:5])
        assert {*default, *papers} <= set(found)
        assert default[0] == found[0]
