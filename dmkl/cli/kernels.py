"""dmkl kernels: build a kernel store, or continue to build it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dmkl.cli.console import Console, count, experiment_options, output_options, read_overrides, run_options

if TYPE_CHECKING:
    from dmkl.runtime import Diagnostics


@click.command()
@click.argument("config", type=click.Path(), required=False, metavar="[CONFIG]")
@click.option(
    "-o", "--output", type=click.Path(), metavar="STORE", help="Directory or URL of the store (default: NAME.zarr)."
)
@click.option(
    "--full",
    is_flag=True,
    default=None,
    help="Also store the tiles below the diagonal, for other programs that read the store: twice the disk.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be built and its size, and do nothing else.")
@experiment_options
@run_options
@output_options
def kernels(
    config: str | None,
    output: str | None,
    dry_run: bool,
    example: str | None,
    settings: tuple[str, ...],
    diagnostics: Diagnostics,
    console: Console,
    **named: object,
) -> None:
    """Build the kernel store of CONFIG, or continue to build it after an interruption."""
    from dmkl.events import Note
    from dmkl.run import build, interruptible, prepare_data, project, read_experiment
    from dmkl.runtime import open_runtime
    from dmkl.store import KernelStore, check_space, place_of

    experiment = read_experiment(config, example, read_overrides(settings, **named))
    run = experiment.config.run
    diagnostics.check(run.cluster)
    default = str(experiment.store.place) if experiment.store else f"{experiment.name}.zarr"
    place = place_of(output or run.store or default)
    place.check_lasting()
    started = time.perf_counter()
    prepared = prepare_data(experiment.config)
    for text in prepared.notes:
        console.observe(Note(text))
    projection = project(prepared, experiment.config)
    facts = {**projection.to_dict(), "store": str(place)}
    console.line(
        "kernels",
        str(projection.kernels),
        count(projection.views, "view"),
        f"n = {projection.n:,}",
        f"{count(projection.tiles, 'tile')} of {projection.tile:,} x {projection.tile:,}",
        f"{projection.nbytes / 1e6:,.0f} MB",
    )
    if place.exists():
        KernelStore(place).check_same(prepared.bank, prepared.train, computed=False, full=run.full)
    else:
        check_space(place, projection.nbytes)
    if dry_run:
        console.result({**facts, "dry_run": True})
        return
    runtime = open_runtime(
        run.cluster,
        workers=run.workers,
        settings=experiment.config.cluster,
        note=console.note,
        diagnostics=diagnostics,
    )
    with console.progress(), interruptible(console.note), runtime as open_workers:
        build(prepared, experiment.config, place, open_workers, console.observe)
    seconds = time.perf_counter() - started
    console.line("store", str(place), seconds=seconds)
    console.result({**facts, "seconds": seconds})
