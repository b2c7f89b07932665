"""Options that several commands share, as decorators."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TypeVar

import click

from dmkl.cli.completion import setting_names
from dmkl.cli.console import Console
from dmkl.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])


def _stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_output = _stacked(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines."),
    click.option("-v", "--verbose", count=True, help="Print more details while running."),
    click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
)


def output(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about output; the command receives the `console` that they describe."""

    @functools.wraps(command)
    def with_console(*, as_json: bool, verbose: int, quiet: bool, **others: object) -> None:
        command(console=Console(as_json=as_json, verbosity=-1 if quiet else verbose), **others)

    return _output(with_console)


where = _stacked(
    click.option(
        "--cluster",
        metavar="WHERE",
        help="Where tasks run: none, local[:N], a batch scheduler (slurm[:PROFILE]), or tcp://HOST:PORT (tls://) of a "
        "Dask scheduler.",
    ),
    click.option(
        "--workers", type=click.IntRange(1), metavar="N", help="Number of threads, when tasks run in this process."
    ),
    click.option("--memory", metavar="SIZE", help="Limit on resident memory, e.g. '4 GB'."),
)

run = _stacked(where, click.option("--seed", type=int, help="Random seed of splits and starting points."))

experiment = _stacked(
    click.option("--example", metavar="NAME", help="Use a bundled example instead of a configuration file."),
    click.option(
        "-s",
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=setting_names,
        help="Replace a value of the configuration, e.g. formulation.C=10; repeatable.",
    ),
)

fit = _stacked(
    click.option("-o", "--output", type=click.Path(), metavar="RUN", help="Run directory (default: runs/NAME)."),
    click.option("--tol", type=float, help="Relative duality gap to certify."),
    click.option(
        "--max-time",
        metavar="TIME",
        help="Stop after e.g. '30 m' or '2 h' with the best model so far; the same command continues the run.",
    ),
    click.option("--oracle", metavar="NAME", help="SVM solver: smo or libsvm."),
)

SECTIONS = dict.fromkeys(("cluster", "workers", "memory"), "run")
SECTIONS |= dict.fromkeys(("seed", "tol", "oracle", "max_time"), "solve")
SECTIONS |= dict.fromkeys(("folds", "repeats", "rule", "metric", "formulations"), "tune")


def overrides(settings: tuple[str, ...], **named: object) -> dict[str, str]:
    """'section.key' to its value, from --set and from the options that stand for one key."""
    result: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set '{setting}' lacks '='", "write SECTION.KEY=VALUE, e.g. formulation.C=10")
        result[key.strip()] = value.strip()
    for name, option in named.items():
        if option is not None:
            result[f"{SECTIONS[name]}.{name}"] = json.dumps(option)  # text stays text: memory may be all digits
    return result
