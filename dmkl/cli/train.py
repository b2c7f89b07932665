"""dmkl train: from a configuration or a store to a model with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console
from dmkl.cli.source import budget, read_source
from dmkl.cli.training import carry_out, conclude
from dmkl.config import Config
from dmkl.errors import ConfigError


@click.command()
@click.argument("source", type=click.Path(), required=False, metavar="[CONFIG|STORE]")
@options.fit
@click.option(
    "--dry-run", is_flag=True, help="With worker jobs (--cluster slurm): print their script and do nothing else."
)
@click.option("--print-config", is_flag=True, help="Print every value with its origin, as TOML, and do nothing else.")
@options.experiment
@options.run
@options.output
def train(
    source: str | None,
    output: str | None,
    dry_run: bool,
    print_config: bool,
    example: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    verbose: int,
    quiet: bool,
    **named: Any,
) -> None:
    """Train on CONFIG (its kernels are built first) or on a STORE, and write a run directory.

    The same command again goes on with a run that was cut short.
    """
    from dmkl.run import RunDirectory
    from dmkl.run import train as train_run

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    given = read_source(source, example, options.overrides(settings, **named))
    if print_config:
        _print(given.config, console)
        return
    out = Path(output or Path("runs", given.name))
    directory = RunDirectory(out)
    if dry_run:
        console.text(_script(given.config, directory.cluster))
        return
    directory.check(given.config)  # before a cluster is started
    trained = carry_out(train_run, given.config, directory, budget(given.config), console, given.store)
    conclude(trained, given.config, console)


def _print(config: Config, console: Console) -> None:
    from dmkl.config import to_toml
    from dmkl.run import resolved

    if not console.as_json:
        console.text(to_toml(resolved(config), config.origins))
    console.result({"config": resolved(config), "origins": config.origins})


def _script(config: Config, folder: Path) -> str:
    from dmkl.runtime.jobs import default_scheduler, find_scheduler
    from dmkl.runtime.jobs.profile import read_profile

    scheduler = find_scheduler(config.run.cluster)
    if scheduler is None:
        raise ConfigError("--dry-run prints the script of worker jobs", f"add --cluster {default_scheduler()}")
    profile = read_profile(config.run.cluster, config.cluster)
    from dmkl.runtime.jobs.workers import worker_script

    return worker_script(scheduler, profile, folder)
