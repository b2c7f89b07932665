"""dmkl report: write the report of a run again."""

from __future__ import annotations

from pathlib import Path

import click

from dmkl.cli.console import Console, output_options


@click.command()
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="The file to write (default: report.html in RUN).")
@click.option(
    "--open-sample",
    "explained",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Explain the prediction for held-out sample N, counted from 0, by the kernels' contributions; repeatable.",
)
@output_options
def report(run: str, output: str | None, explained: tuple[int, ...], console: Console) -> None:
    """Write the report of RUN, finished or not, as one HTML file."""
    from dmkl.run import RunDirectory, write_run_report
    from dmkl.runtime import Local

    directory = RunDirectory(run)
    path = Path(output) if output else directory.report
    contents = write_run_report(directory, path, Local(), explained)
    console.line("report", str(path), *([] if contents.finished else ["of an unfinished run"]))
    console.result({"report": str(path), "bytes": path.stat().st_size, "finished": contents.finished})
