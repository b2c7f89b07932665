"""The walks of CONTRIBUTING.md, carried out as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dmkl

ROOT = Path(dmkl.__file__).parent.parent
FILE = re.compile(r"\d\. `(\S+\.py)`:\n   ```python\n(.*?)   ```\n", re.DOTALL)
LINE = re.compile(r"\d\. `(\S+\.py)`: `(.*?)`(?: in `(\w+)`)?\n")
COMMAND = re.compile(r"\d\. `((?:dmkl|python) .*?)`")


def section(title: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def insert(path: Path, line: str, table: str) -> None:
    """At the end of a file, or at the head of a table in it."""
    text = path.read_text()
    if not table:
        path.write_text(f"{text}{line}\n")
        return
    head = re.compile(rf"^({table} = [({{]\n)", re.MULTILINE)
    changed = head.sub(lambda match: f"{match[1]}    {line}\n", text, count=1)
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("title", "name"), [("Adding a kernel", "cauchy"), ("Adding a solver", "aligned")], ids=["kernel", "solver"]
)
def test_a_walk_is_what_it_takes(title: str, name: str, tmp_path: Path) -> None:
    text = section(title)
    for part in ("dmkl", "tests", "README.md", "cluster", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, tmp_path / part)
    files, lines, commands = FILE.findall(text), LINE.findall(text), COMMAND.findall(text)
    assert (len(files), len(lines), len(commands)) == (1, 3, 2)
    for path, block in files:
        (tmp_path / path).write_text(re.sub(r"^   ", "", block, flags=re.MULTILINE))
    for path, line, table in lines:
        insert(tmp_path / path, line, table)
    said = [run(command, tmp_path) for command in commands]
    assert re.search(rf"\[{name}\] PASSED", said[-1])
