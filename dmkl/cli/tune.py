"""dmkl tune: constants and formulation by cross-validation, then the model of the choice."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console
from dmkl.cli.source import budget, read_source
from dmkl.cli.training import carry_out, conclude
from dmkl.errors import ConfigError


@click.command()
@click.argument("source", type=click.Path(), required=False, metavar="[CONFIG|STORE]")
@click.option(
    "-g", "--grid", multiple=True, metavar="NAME=VALUES", help="Values of a constant, e.g. C=1,10,100 (default: usual)."
)
@click.option(
    "--formulation", "formulations", multiple=True, metavar="NAME", help="What to try, e.g. vskl; repeatable."
)
@click.option("--folds", type=int, metavar="N", help="Folds of the cross-validation (default 5).")
@click.option("--repeats", type=int, metavar="N", help="Times the folds are dealt anew.")
@click.option("--rule", metavar="RULE", help="one-se (the simplest within a standard error of the best) or best.")
@click.option("--metric", metavar="NAME", help="What decides, e.g. balanced_accuracy (default: that of the task).")
@options.fit
@options.experiment
@options.run
@options.output
def tune(
    source: str | None,
    output: str | None,
    grid: tuple[str, ...],
    formulations: tuple[str, ...],
    example: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    verbose: int,
    quiet: bool,
    **named: Any,
) -> None:
    """Choose constants by cross-validation on the training samples of CONFIG or STORE, train the choice on all of them,
    and write a run directory.

    The same command again goes on with a run that was cut short.
    """
    from dmkl.run import RunDirectory, tune_run

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    asked = options.overrides(settings, formulations=formulations or None, **named)
    values = dict(map(_values, grid))
    if len(values) < len(grid):
        raise ConfigError("--grid names a constant twice", "give all its values at once, e.g. C=1,10,100")
    given = read_source(source, example, {**asked, **values})
    directory = RunDirectory(Path(output or Path("runs", given.name)))
    directory.check(given.config)  # before a cluster is started
    tuned = carry_out(tune_run, given.config, directory, budget(given.config), console, given.store)
    conclude(tuned, given.config, console)


def _values(text: str) -> tuple[str, str]:
    """'q=1,2,inf' as the setting that it stands for, a list as TOML has it."""
    name, equals, values = text.partition("=")
    pieces = [piece.strip() for piece in values.split(",")]
    if not (equals and name.strip() and all(pieces)):
        raise ConfigError(f"--grid '{text}' is not understood", "write NAME=VALUE,VALUE, e.g. C=1,10,100")
    return f"tune.grid.{name.strip()}", f"[{', '.join(map(_literal, pieces))}]"


def _literal(piece: str) -> str:
    """A number or truth value as it is, anything else as text."""
    try:
        tomllib.loads(f"value = {piece}")
    except tomllib.TOMLDecodeError:
        return json.dumps(piece)
    return piece
