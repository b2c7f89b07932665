"""dmkl rerun: train a finished run again and compare."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmkl.cli.console import Console, StageLines, cluster_options, output_options, read_overrides
from dmkl.errors import Interrupted, NotTheSame

if TYPE_CHECKING:
    from dmkl.runtime import Diagnostics


@click.command()
@click.argument("run", type=click.Path(), metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OTHER",
    help="Keep the second run in this directory (default: removed after the comparison).",
)
@cluster_options
@output_options
def rerun(run: str, output: str | None, diagnostics: Diagnostics, console: Console, **named: object) -> None:
    """Train again with the configuration of the finished run RUN, and compare the model arrays bit for bit, the
    certificate and the scores.

    Exit code 0 means that everything is the same. Otherwise the differences and the changed versions are listed.
    """
    from dmkl.run import RunDirectory, open_run, train_run, tune_run
    from dmkl.run.train import compare, recorded

    first = RunDirectory(run)
    config, memory = recorded(first, read_overrides((), **named))
    with _second_directory(first.path, output) as folder:
        second = RunDirectory(folder)
        listener = StageLines(console, report=bool(output))  # otherwise the report is removed at once
        with (
            console.progress(),
            open_run(
                config,
                second,
                default_memory=memory,
                observer=console.observe,
                listener=listener,
                diagnostics=diagnostics,
            ) as context,
        ):
            repeat = tune_run if first.tuned.exists() else train_run
            result = repeat(context)
        if not result.finished:
            raise Interrupted("the second run did not end", "run the same command again")
        comparison = compare(first, second)
    for text in comparison.changed:
        console.line("changed", text)
    for text in comparison.differences:
        console.line("differs", text)
    if comparison.same:
        console.line("rerun", "the same: model bit for bit, certificate, scores")
    console.result(
        {"same": comparison.same, "differences": comparison.differences, "changed": comparison.changed},
    )
    if not comparison.same:
        raise NotTheSame(f"the second run of {run} differs from the first: {comparison.differences[0]}")


@contextmanager
def _second_directory(first: Path, output: str | None) -> Iterator[Path]:
    """The directory of the second run: the named one, or a temporary one beside the first."""
    if output:
        yield Path(output)
        return
    folder = Path(tempfile.mkdtemp(prefix=f".{first.name}.", dir=first.absolute().parent))
    try:
        yield folder / "run"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
