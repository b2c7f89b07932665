"""README and CLI.md say what is: their Python runs, their commands exist, the reference is the commands' own."""

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
from dmkl.runtime import Local
from dmkl.store import build_store

ROOT = Path(dmkl.__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [text for named, text in every if named == language]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the examples take for granted: ten columns X, classes y, a store of kernels on them, some of its samples."""
    monkeypatch.chdir(tmp_path)
    data = three_classes(90)
    assert data.labels is not None
    X = np.hstack([np.asarray(view.values) for view in data.views.values()])[:, :10]
    samples = Dataset({"x": make_view("x", "features", X)}, make_labels(data.labels.values))
    kernels = [KernelConfig("rbf", params={"width": ["0.5 median", "1 median", "2 median"]})]
    build_store(tmp_path / "photos.zarr", plan_bank(kernels, samples), samples, Local(2))
    return {"np": np, "X": X, "y": data.labels.values, "samples": np.arange(0, 90, 2)}


def test_python_examples_run(names: dict[str, object]) -> None:
    """One after the other, as they are read; the last ones, for people from elsewhere, have test_migration.py."""
    for code in [code for code in blocks("python") if code not in README.partition("## Coming from ")[2]]:
        exec(compile(code, "README.md", "exec"), names)


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "dmkl/CLI.md").read_text()
    assert written == reference(), "run: python -m dmkl.cli.reference > dmkl/CLI.md"


def commands() -> list[list[str]]:
    """Every dmkl command in the README's shell blocks, without comments."""
    lines = [line.split(" #")[0].strip() for block in blocks("") for line in block.splitlines()]
    parts = [part for line in lines for part in re.split(r"\s{4,}(?=dmkl )|&& \S*(?=dmkl )", line)]
    return [part.split()[1:] for part in parts if part.startswith("dmkl ")]


def test_the_readme_has_commands() -> None:
    assert {words[0] for words in commands()} >= {"init", "kernels", "train", "evaluate", "predict", "info", "doctor"}


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_and_options_exist(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= known
