"""Options that several commands share, as decorators."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dmkl.cli.completion import setting_names
from dmkl.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def _stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


output = _stacked(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines."),
    click.option("-v", "--verbose", count=True, help="Say more while running."),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors."),
)

where = _stacked(
    click.option(
        "--cluster",
        metavar="WHERE",
        help="none, local[:N], a batch scheduler (slurm[:PROFILE]), or tcp://HOST:PORT (tls://) of a Dask scheduler.",
    ),
    click.option("--workers", type=click.IntRange(1), metavar="N", help="Threads of the in-process run."),
    click.option("--memory", metavar="SIZE", help="Resident memory to stay under, e.g. '4 GB'."),
)

run = _stacked(where, click.option("--seed", type=int, help="Seed of splits and starting points."))

experiment = _stacked(
    click.option("--example", metavar="NAME", help="Use a bundled example instead of a configuration file."),
    click.option(
        "-s",
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=setting_names,
        help="Override, e.g. formulation.C=10.",
    ),
)

fit = _stacked(
    click.option("-o", "--output", type=click.Path(), metavar="RUN", help="Run directory (default: runs/NAME)."),
    click.option("--tol", type=float, help="Certified relative gap to reach."),
    click.option("--max-time", metavar="TIME", help="Stop after '30 m' or '2 h'; the same command goes on."),
    click.option("--oracle", metavar="NAME", help="SVM solver: smo or libsvm."),
)

SECTIONS = dict.fromkeys(("cluster", "workers", "memory"), "run")
SECTIONS |= dict.fromkeys(("seed", "tol", "oracle", "max_time"), "solve")
SECTIONS |= dict.fromkeys(("folds", "repeats", "rule", "metric", "formulations"), "tune")


def verbosity(verbose: int, quiet: bool) -> int:
    return -1 if quiet else verbose


def overrides(settings: tuple[str, ...], **named: Any) -> dict[str, str]:
    """'section.key' = 'value' from --set and from the options that have a name of their own."""
    result: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set '{setting}' lacks '='", "write SECTION.KEY=VALUE, e.g. formulation.C=10")
        result[key.strip()] = value.strip()
    for name, value in named.items():
        if value is not None:
            result[f"{SECTIONS[name]}.{name}"] = json.dumps(value)  # text stays text: memory may be all digits
    return result
