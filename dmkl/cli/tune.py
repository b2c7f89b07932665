"""dmkl tune: a formulation and its constants by cross-validation, then the model of the choice."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmkl.cli.console import (
    Console,
    StageLines,
    conclude,
    experiment_options,
    fit_options,
    output_options,
    read_overrides,
    run_options,
)
from dmkl.errors import ConfigError

if TYPE_CHECKING:
    from dmkl.runtime import Diagnostics


@click.command()
@click.argument("source", type=click.Path(), required=False, metavar="[CONFIG|STORE]")
@click.option(
    "-g",
    "--grid",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values to try for a constant, e.g. C=1,10,100 (default: the usual values of the formulation); repeatable.",
)
@click.option(
    "--formulation", "formulations", multiple=True, metavar="NAME", help="Formulation to try, e.g. vskl; repeatable."
)
@click.option("--folds", type=int, metavar="N", help="Folds of the cross-validation (default: 5).")
@click.option("--repeats", type=int, metavar="N", help="Times the cross-validation is repeated with new folds.")
@click.option(
    "--rule", metavar="RULE", help="Choose the best point, or one-se: the simplest within a standard error of the best."
)
@click.option(
    "--metric", metavar="NAME", help="Metric that decides, e.g. balanced_accuracy (default: that of the task)."
)
@fit_options
@experiment_options
@run_options
@output_options
def tune(
    source: str | None,
    output: str | None,
    grid: tuple[str, ...],
    formulations: tuple[str, ...],
    example: str | None,
    settings: tuple[str, ...],
    diagnostics: Diagnostics,
    console: Console,
    **named: object,
) -> None:
    """Choose a formulation and its constants by cross-validation on the training samples of CONFIG or STORE, train it
    on all of them and write a run directory.

    The same command continues a run that was interrupted.
    """
    from dmkl.run import RunDirectory, open_run, read_experiment, tune_run

    overrides = read_overrides(settings, formulations=formulations or None, **named)
    values = dict(map(_values, grid))
    if len(values) < len(grid):
        raise ConfigError("--grid names a constant twice", "give all its values at once, e.g. C=1,10,100")
    experiment = read_experiment(source, example, {**overrides, **values})
    directory = RunDirectory(output or Path("runs", experiment.name))
    with (
        console.progress(),
        open_run(
            experiment.config,
            directory,
            store=experiment.store,
            observer=console.observe,
            listener=StageLines(console),
            diagnostics=diagnostics,
        ) as run,
    ):
        result = tune_run(run)
    conclude(console, result, experiment.config)


def _values(text: str) -> tuple[str, str]:
    """'q=1,2,inf' as a setting: 'tune.grid.q' and '[1, 2, inf]', a TOML list."""
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
