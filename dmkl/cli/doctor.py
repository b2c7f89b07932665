"""dmkl doctor: is this machine ready?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import click

from dmkl.cli import options
from dmkl.cli.console import Console
from dmkl.errors import DmklError


class Finding(NamedTuple):
    """One thing looked at."""

    name: str
    good: bool
    text: str


class Unwell(DmklError):
    """Something that dmkl needs is missing."""


@click.command()
@options.output
def doctor(as_json: bool, verbose: int, quiet: bool) -> None:
    """Check packages, compiler, threads, memory, disk and a real solve."""
    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    findings = []
    for check in (_packages, _compiler, _threads, _memory, _disk, _oracles):
        for finding in check():
            findings.append(finding)
            console.line("ok" if finding.good else "PROBLEM", f"{finding.name}: {finding.text}")
    console.result([finding._asdict() for finding in findings])
    bad = [finding.name for finding in findings if not finding.good]
    if bad:
        raise Unwell(f"found a problem with {', '.join(bad)}")


def _packages() -> Iterator[Finding]:
    for name in ("dmkl", "dask", "distributed", "numpy", "scipy", "zarr", "numba", "libsvm-official"):
        try:
            yield Finding(name, True, version(name))
        except PackageNotFoundError:
            yield Finding(name, False, "not installed; pip install dmkl")


def _compiler() -> Iterator[Finding]:
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    yield Finding("compiler", True, found or "none (only needed to install libsvm-official)")


def _threads() -> Iterator[Finding]:
    import numpy  # noqa: F401  (loads the BLAS that is looked at)
    import threadpoolctl

    from dmkl.memory import cores

    pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    text = ", ".join(f"{p['internal_api']} with {p['num_threads']} threads" for p in pools) or "BLAS not recognised"
    yield Finding("threads", bool(pools), f"{cores()} cores; {text}; tasks use one each")


def _memory() -> Iterator[Finding]:
    from dmkl.memory import Budget, available

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
            speed = size / (time.perf_counter() - started)
    except OSError as error:
        yield Finding("disk", False, f"cannot write to {Path.cwd()}: {error.strerror}")
        return
    free = shutil.disk_usage(".").free
    yield Finding("disk", True, f"{free / 1e9:.0f} GB free at {Path.cwd()}, writes {speed / 1e9:.1f} GB/s")


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
