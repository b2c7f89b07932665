"""dmkl train: from a configuration or a store to a model with a certificate."""

from __future__ import annotations

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
@fit_options
@click.option(
    "--dry-run", is_flag=True, help="With worker jobs (--cluster slurm): print their script and do nothing else."
)
@click.option("--print-config", is_flag=True, help="Print every value with its origin, as TOML, and do nothing else.")
@experiment_options
@run_options
@output_options
def train(
    source: str | None,
    output: str | None,
    dry_run: bool,
    print_config: bool,
    example: str | None,
    settings: tuple[str, ...],
    diagnostics: Diagnostics,
    console: Console,
    **named: object,
) -> None:
    """Train on CONFIG, whose kernels are built first, or on the kernel store STORE, and write a run directory.

    The same command continues a run that was interrupted.
    """
    from dmkl.config import to_toml
    from dmkl.run import RunDirectory, open_run, read_experiment, resolved, train_run

    experiment = read_experiment(source, example, read_overrides(settings, **named))
    config = experiment.config
    if print_config:
        if not console.as_json:
            console.text(to_toml(resolved(config), config.origins))
        console.result({"config": resolved(config), "origins": config.origins})
        return
    directory = RunDirectory(output or Path("runs", experiment.name))
    if dry_run:
        from dmkl.runtime.jobs import default_scheduler, find_scheduler
        from dmkl.runtime.jobs.profile import read_profile

        scheduler = find_scheduler(config.run.cluster)
        if scheduler is None:
            raise ConfigError("--dry-run prints the script of worker jobs", f"add --cluster {default_scheduler()}")
        profile = read_profile(config.run.cluster, config.cluster)
        from dmkl.runtime.jobs.workers import worker_script

        console.text(worker_script(scheduler, profile, directory.cluster))
        return
    with (
        console.progress(),
        open_run(
            config,
            directory,
            store=experiment.store,
            observer=console.observe,
            listener=StageLines(console),
            diagnostics=diagnostics,
        ) as run,
    ):
        result = train_run(run)
    conclude(console, result, config)
