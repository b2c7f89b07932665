"""dmkl doctor: check that dmkl works on this machine."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import click

from dmkl.cli.console import Console, count, output_options
from dmkl.errors import DmklError

OLDEST_PYTHON = (3, 11)
EXTRAS = (
    ("dask-jobqueue", "jobs", "for batch schedulers, such as --cluster slurm"),
    ("bokeh", "dashboard", "for Dask's dashboard"),
    ("pyarrow", "parquet", "for .parquet files"),
    ("obstore", "cloud", "for stores at s3://, gs://, az:// and memory://"),
    ("matplotlib", "plot", "for figures"),
)


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    good: bool
    text: str


class CheckFailed(DmklError):
    """Something that dmkl needs is missing."""

    remedy = "see the lines marked PROBLEM above"


@click.command()
@output_options
def doctor(console: Console) -> None:
    """Check versions, compiler, BLAS threads, memory, disk, batch schedulers, dashboard, and solve a tiny problem."""
    findings = []
    for check in CHECKS:
        for finding in check():
            findings.append(finding)
            console.line("ok" if finding.good else "PROBLEM", f"{finding.name}: {finding.text}")
    console.result([finding._asdict() for finding in findings])
    bad = [finding.name for finding in findings if not finding.good]
    if bad:
        raise CheckFailed(f"found a problem with {', '.join(bad)}")


def _packages() -> Iterator[Finding]:
    from dmkl.run.directory import PACKAGES

    yield Finding("python", sys.version_info >= OLDEST_PYTHON, f"{platform.python_version()} at {sys.executable}")
    for name in PACKAGES:
        found = _version(name)
        yield Finding(name, bool(found), found or "not installed; pip install dmkl")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _extras() -> Iterator[Finding]:
    for name, extra, purpose in EXTRAS:
        found = _version(name)
        yield Finding(name, True, found or f"not installed, only needed {purpose}; pip install 'dmkl[{extra}]'")


def _schedulers() -> Iterator[Finding]:
    from dmkl.runtime.jobs import SCHEDULERS

    absent = []
    for name, scheduler in SCHEDULERS.items():
        missing = scheduler.missing()
        found = [program for program in scheduler.programs if program not in missing]
        if not found:
            absent.append(scheduler.title)
        elif missing:
            yield Finding(name, False, f"{', '.join(missing)} not found, though {', '.join(found)} are; correct PATH")
        else:
            yield Finding(name, True, f"{', '.join(found)} found")
    if absent:
        yield Finding("schedulers", True, f"no commands of {', '.join(absent)} here (only needed for their jobs)")


def _dashboard() -> Iterator[Finding]:
    served = "--dashboard prints its link, where there is a --cluster"
    yield Finding("dashboard", True, served if _version("bokeh") else "needs bokeh, see above")


def _compiler() -> Iterator[Finding]:
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    yield Finding("compiler", True, found or "none (only needed to install libsvm-official)")


def _threads() -> Iterator[Finding]:
    import numpy  # noqa: F401 - loads the BLAS that is checked
    import threadpoolctl

    from dmkl._util.machine import cores

    pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    found = [f"{p['internal_api']} with {count(p['num_threads'], 'thread')}" for p in pools]
    text = ", ".join(found) or "BLAS not recognised"
    yield Finding("threads", bool(pools), f"{count(cores(), 'core')}; {text}; every task uses one thread")


def _memory() -> Iterator[Finding]:
    from dmkl._util.machine import Budget, available

    yield Finding(
        "memory",
        True,
        f"{available() / 1e9:.1f} GB free, default limit {Budget.default().limit / 1e9:.1f} GB",
    )


def _disk() -> Iterator[Finding]:
    size = 64 << 20
    try:
        with tempfile.NamedTemporaryFile(dir=".") as file:
            started = time.perf_counter()
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
            wrote = size / (time.perf_counter() - started)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # read from the disk, not from memory
            started = time.perf_counter()
            Path(file.name).read_bytes()
            read = size / (time.perf_counter() - started)
    except OSError as error:
        yield Finding("disk", False, f"cannot write to {Path.cwd()}: {error.strerror}")
        return
    free = f"{shutil.disk_usage('.').free / 1e9:.0f} GB free at {Path.cwd()}"
    yield Finding("disk", True, f"{free}, writes {wrote / 1e9:.1f} GB/s, reads {read / 1e9:.1f} GB/s")


def _oracles() -> Iterator[Finding]:
    import numpy as np

    from dmkl.oracles import ORACLES

    y = np.array([1.0, 1.0, -1.0, -1.0])
    for name, oracle in ORACLES.items():
        try:
            primal = oracle(np.eye(4), y, 1.0).primal
        except (OSError, ImportError, DmklError) as error:
            yield Finding(f"oracle {name}", False, str(error))
        else:
            yield Finding(f"oracle {name}", abs(primal - 2.0) < 1e-3, f"solved a tiny SVM, objective {primal:.4g} of 2")


CHECKS = (_packages, _extras, _compiler, _threads, _memory, _disk, _schedulers, _dashboard, _oracles)
