"""The walks of dmkl/docs/adding, carried out as they are written: one new file and one line each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dmkl

ROOT = Path(dmkl.__file__).parent.parent
ADDING = ROOT / "dmkl/docs/adding"
FILE = re.compile(r"^\d\. New file `(\S+)`:\n\n   ```python\n(.*?)^   ```\n", re.DOTALL | re.MULTILINE)
LINE = re.compile(
    r"^\d\. One line (?:below the others in|in `(\w+)` of) `(\S+)`:\n\n   ```python\n   (.*)\n   ```\n", re.MULTILINE
)
COMMAND = re.compile(r"^\d\. .*`((?:dmkl|python) [^`]+)`$", re.MULTILINE)
STEP = re.compile(r"^\d\. ", re.MULTILINE)
WALKS = {  # the test that names the new thing
    "kernel": r"test_kernels\.py::\w+\[cauchy\] PASSED",
    "loss": r"test_losses\.py::\w+\[quantile\] PASSED",
    "solver": r"test_methods\.py::\w+\[LpMKL-alternating\] PASSED",
    "metric": r"test_metrics\.py::\w+\[matthews-multiclass\] PASSED",
    "report-part": r"test_report\.py::\w+\[support\] PASSED",
    "scheduler": r"test_schedulers\.py::\w+\[torque\] PASSED",
    "source": r"test_sources\.py::\w+\[products\] PASSED",
}


def insert(path: Path, line: str, table: str) -> None:
    """At the head of a table in a file, or below the last line that calls the same function."""
    text = path.read_text()
    if table:
        head = re.compile(rf"^({table}\b.* = .*[({{\[]\n)", re.MULTILINE)
        changed = head.sub(lambda match: f"{match[1]}    {line}\n", text, count=1)
    else:
        others = re.compile(rf"(.*^{re.escape(line.partition('(')[0])}\([^\n]*\n)", re.DOTALL | re.MULTILINE)
        changed = others.sub(lambda match: f"{match[1]}{line}\n", text, count=1)
    assert changed != text
    path.write_text(changed)


def run(command: str, folder: Path) -> str:
    """As a shell in that folder would, with this Python; one numba cache serves all copies."""
    words = command.replace("python ", f"{sys.executable} ", 1).replace("dmkl init", f"{sys.executable} -m dmkl init")
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    options = " -v -p no:cacheprovider" if "pytest" in command else ""
    done = subprocess.run(
        words + options, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_every_page_is_a_walk() -> None:
    assert {page.stem for page in ADDING.glob("*.md")} == {*WALKS, "README"}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_one_file_and_one_line(name: str) -> None:
    """Nothing else is edited; commands may write generated files and run tests."""
    text = (ADDING / f"{name}.md").read_text()
    files, lines, commands = FILE.findall(text), LINE.findall(text), COMMAND.findall(text)
    assert (len(files), len(lines)) == (1, 1)
    assert len(STEP.findall(text)) == 2 + len(commands)
    assert not (ROOT / files[0][0]).exists()
    assert (ROOT / lines[0][1]).is_file()
    assert "pytest" in commands[-1]


@pytest.mark.long
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_what_it_takes(name: str, tmp_path: Path) -> None:
    text = (ADDING / f"{name}.md").read_text()
    for part in ("dmkl", "tests", "README.md", "cluster", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, tmp_path / part)
    [(path, code)], [(table, place, line)] = FILE.findall(text), LINE.findall(text)
    (tmp_path / path).write_text(textwrap.dedent(code))
    insert(tmp_path / place, line, table)
    printed = [run(command, tmp_path) for command in COMMAND.findall(text)]
    assert re.search(WALKS[name], printed[-1])
