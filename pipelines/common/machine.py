"""The machine and the software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

import dmkl
from dmkl._util.machine import cores, cpu

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "dask", "zarr", "libsvm-official")


def described(*code: Path) -> dict[str, Any]:
    """Processor, memory, versions, how busy the machine was before, and the commit `code` is of."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "processor": cpu(),
        "cores": cores(),
        "memory GB": round(psutil.virtual_memory().total / 1e9),
        "load": round(os.getloadavg()[0], 1),
        "commit": _commit(code),
        "versions": {"dmkl": dmkl.__version__, "python": platform.python_version()} | versions,
    }


def _commit(code: tuple[Path, ...]) -> str:
    """The commit, with a + where files of the code differ from it."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    return commit + "+" * bool(_git("status", "--porcelain", "--", *map(str, code)))


def _git(*arguments: str) -> str:
    """The output of git, empty without a repository."""
    asked = ["git", *arguments]
    return subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
