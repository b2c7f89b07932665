"""dmkl rerun: is a run what its directory says it is?"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dmkl._util.files import make_folder
from dmkl.cli import options
from dmkl.cli.console import Console
from dmkl.cli.source import budget
from dmkl.cli.training import carry_out
from dmkl.errors import NotTheSame


@click.command()
@click.argument("run", type=click.Path(), metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OTHER",
    help="Keep the second run here (default: compared and removed).",
)
@options.where
@options.output
def rerun(run: str, output: str | None, as_json: bool, verbose: int, quiet: bool, **named: Any) -> None:
    """Train again what RUN holds, and compare: model arrays bit for bit, certificate, scores.

    Exit code 0 means the same. Otherwise what differs is listed, and which versions changed.
    """
    from dmkl.run import RunDirectory, train, tune_run
    from dmkl.run.rerun import compare, recorded

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    first = RunDirectory(Path(run))
    config, memory = recorded(first, options.overrides((), **named))
    with _place(first.path, output) as folder:
        unsaid = () if output else ("report",)  # it will be gone
        work = tune_run if first.tuned.exists() else train
        carry_out(work, config, RunDirectory(folder), budget(config, memory), console, unsaid=unsaid)
        found = compare(first, RunDirectory(folder))
    for text in found.changed:
        console.line("changed", text)
    for text in found.differences:
        console.line("differs", text)
    if found.same:
        console.line("rerun", "the same: model bit for bit, certificate, scores")
    console.result({"same": found.same, "differences": found.differences, "changed": found.changed})
    if not found.same:
        raise NotTheSame(f"{run} gave something else this time: {found.differences[0]}")


@contextmanager
def _place(first: Path, output: str | None) -> Iterator[Path]:
    """Where the second run goes: a folder that stays, or one beside the first that does not."""
    if output:
        yield Path(output)
        return
    make_folder(first.parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{first.name}.", dir=first.absolute().parent))
    try:
        yield folder / "run"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
