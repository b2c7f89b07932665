"""dmkl report: the report of a run, written again."""

from __future__ import annotations

from pathlib import Path

import click

from dmkl.cli import options
from dmkl.cli.console import Console


@click.command()
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Where to (default: report.html in RUN).")
@click.option(
    "--open-sample",
    "opened",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Show what the kernels added for held-out sample N, counted from 0; several times for several samples.",
)
@options.output
def report(run: str, output: str | None, opened: tuple[int, ...], as_json: bool, verbose: int, quiet: bool) -> None:
    """Write the report of RUN as one HTML file; of an unfinished run, with what is there so far."""
    from dmkl.run import RunDirectory
    from dmkl.run import report as write
    from dmkl.runtime import Local

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    directory = RunDirectory(Path(run))
    path = Path(output) if output else directory.report
    contents = write(directory, path, Local(), opened)
    console.line("report", str(path), *([] if contents.finished else ["of an unfinished run"]))
    console.result({"report": str(path), "bytes": path.stat().st_size, "finished": contents.finished})
