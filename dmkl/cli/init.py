"""dmkl init: a first configuration for a data file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from dmkl.cli.console import Console, count, output_options
from dmkl.errors import ConfigError, OutputError


@click.command()
@click.argument("data", type=click.Path(), nargs=-1, metavar="DATA...")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="The configuration to write (default: the name of the data with the suffix .toml).",
)
@click.option("--labels", metavar="NAME", default="", help="Array or column that holds the labels.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of configurations and do nothing else.")
@output_options
def init(data: tuple[str, ...], output: str | None, labels: str, force: bool, schema: bool, console: Console) -> None:
    """Look at the files DATA and write a commented configuration to train on them."""
    from dmkl._util.files import write_atomically
    from dmkl.run import init as configurations

    if schema:
        console.text(json.dumps(configurations.schema(), indent=1, allow_nan=False))
        return
    if not data:
        raise ConfigError("no data file is named", "e.g. dmkl init photos.npz; see dmkl init --help")
    out = Path(output or f"{Path(data[0]).stem}.toml")
    if out.exists() and not force:
        raise OutputError(f"{out} exists", "choose another -o, or --force to replace it")
    text, seen = configurations.first_config(data, out, labels)
    write_atomically(out, text.encode())
    console.line("data", count(len(seen.labels), "sample"), seen.labels.task, f"labels '{seen.labels_name}'")
    for view in seen.views:
        console.line("view", view.name, view.kind, *view.facts)
        for name, reason in view.left_out.items():
            console.line("", f"left out: column '{name}' {reason}")
    console.line("written", str(out), f"next: dmkl train {out}")
    views = [dataclasses.asdict(view) for view in seen.views]
    console.result({"config": str(out), "n": len(seen.labels), "task": seen.labels.task, "views": views})
