"""dmkl kernels: build or resume a kernel store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count
from dmkl.cli.signals import terminable
from dmkl.cli.source import read_source


@click.command()
@click.argument("config", type=click.Path(), required=False, metavar="[CONFIG]")
@click.option("-o", "--output", type=click.Path(), metavar="STORE", help="Where the store is or will be.")
@click.option("--dry-run", is_flag=True, help="Say what would be built and how large it is.")
@options.experiment
@options.run
@options.output
def kernels(
    config: str | None,
    output: str | None,
    dry_run: bool,
    example: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    verbose: int,
    quiet: bool,
    **named: Any,
) -> None:
    """Build the kernel store of CONFIG, or finish one that was cut short."""
    from dmkl.run import build, prepare, project
    from dmkl.runtime import open_runtime
    from dmkl.store import KernelStore, check_space

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    source = read_source(config, example, options.overrides(settings, **named))
    path = Path(output or source.config.run.store or (source.store.path if source.store else f"{source.name}.zarr"))
    started = time.perf_counter()
    prepared = prepare(source.config)
    for text in prepared.notes:
        console.note(text)
    projection = project(prepared, source.config)
    facts = {**projection.to_dict(), "store": str(path)}
    console.line("kernels", *_words(facts))
    if path.exists():
        KernelStore(path).check_same(prepared.bank, prepared.train, computed=False)
    else:
        check_space(path, projection.nbytes)
    if dry_run:
        console.result({**facts, "dry_run": True})
        return
    run = source.config.run
    where: dict[str, Any] = {"workers": run.workers, "settings": source.config.cluster, "note": console.note}
    with console.progress(), terminable(), open_runtime(run.cluster, **where) as runtime:
        build(prepared, source.config, path, runtime, console.observe)
    seconds = time.perf_counter() - started
    console.line("store", str(path), seconds=seconds)
    console.result({**facts, "seconds": seconds})


def _words(facts: dict[str, Any]) -> list[str]:
    tiles = f"{count(facts['tiles'], 'tile')} of {facts['tile']:,} x {facts['tile']:,}"
    return [
        str(facts["kernels"]),
        count(facts["views"], "view"),
        f"n = {facts['n']:,}",
        tiles,
        f"{facts['nbytes'] / 1e6:,.0f} MB",
    ]
