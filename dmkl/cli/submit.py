"""dmkl submit: a whole run as a batch job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmkl.cli.console import Console, experiment_options, fit_options, output_options, read_overrides, run_options
from dmkl.errors import ConfigError

if TYPE_CHECKING:
    from dmkl.runtime import Diagnostics


@click.command()
@click.argument("source", type=click.Path(), required=False, metavar="[CONFIG|STORE]")
@fit_options
@click.option("--dry-run", is_flag=True, help="Print the batch script and do nothing else.")
@experiment_options
@run_options
@output_options
def submit(
    source: str | None,
    output: str | None,
    dry_run: bool,
    example: str | None,
    settings: tuple[str, ...],
    cluster: str | None,
    diagnostics: Diagnostics,
    console: Console,
    **named: object,
) -> None:
    """Submit `dmkl train` as a batch job that starts its own worker jobs.

    Without --cluster, the batch scheduler of this machine is used. Shortly before its time limit the job returns to
    the queue, and later continues from its last checkpoint. Follow it with: dmkl status RUN.
    """
    from dmkl._util.files import is_url
    from dmkl.config import from_environment
    from dmkl.run import RunDirectory, read_experiment
    from dmkl.runtime.jobs import SCHEDULERS, default_scheduler, find_scheduler
    from dmkl.runtime.jobs.coordinator import SCRIPT, coordinator_script, submit_script
    from dmkl.runtime.jobs.profile import read_profile
    from dmkl.runtime.tls import require_private

    cluster = cluster or default_scheduler()
    overrides = read_overrides(settings, **named, cluster=cluster)
    experiment = read_experiment(source, example, overrides)
    scheduler = find_scheduler(cluster)
    if scheduler is None:
        known = f"use --cluster SCHEDULER[:PROFILE] ({', '.join(SCHEDULERS)})"
        raise ConfigError(f"dmkl submit needs a batch scheduler, not '{cluster}'", known)
    diagnostics.check(cluster)
    profile = read_profile(cluster, experiment.config.cluster)
    require_private(profile.interface, tls=profile.tls, insecure=profile.insecure)
    run = RunDirectory(RunDirectory(output or Path("runs", experiment.name)).path.absolute())
    run.check(experiment.config)
    given = str(source)
    what = ["--example", example] if example else [given if is_url(given) else str(Path(given).absolute())]
    command = [profile.python or sys.executable, "-m", "dmkl", "train", *what, "-o", str(run.path)]
    for key, value in {**from_environment(os.environ), **overrides}.items():  # a job may have another environment
        command += ["-s", f"{key}={value}"]
    if diagnostics.dashboard:
        command.append("--dashboard")
    if diagnostics.report is not None:
        command += ["--performance-report", str(diagnostics.report.absolute())]
    script = coordinator_script(scheduler, profile, run.cluster, experiment.name, command)
    if dry_run:
        console.text(script)
        return
    job = submit_script(scheduler, script, run.cluster)
    console.line("job", job, str(run.path), f"follow it with: dmkl status {run.path}")
    console.result({"job": job, "run": str(run.path), "script": str(run.cluster / SCRIPT)})
