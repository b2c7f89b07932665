"""dmkl submit: the whole run as a batch job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console
from dmkl.cli.source import read_source
from dmkl.config import from_environment
from dmkl.errors import ConfigError


@click.command()
@click.argument("source", type=click.Path(), required=False, metavar="[CONFIG|STORE]")
@options.fit
@click.option("--dry-run", is_flag=True, help="Print the batch script and do nothing else.")
@options.experiment
@options.run
@options.output
def submit(
    source: str | None,
    output: str | None,
    dry_run: bool,
    example: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    verbose: int,
    quiet: bool,
    **named: Any,
) -> None:
    """Queue `dmkl train` as a SLURM job that starts its own worker jobs (--cluster slurm unless another is named).

    Before its walltime it goes back into the queue, and on from the checkpoint. See how far it is: dmkl status RUN.
    """
    from dmkl.run import RunDirectory
    from dmkl.runtime import batch, is_slurm, read_profile
    from dmkl.runtime.profile import require_private

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    named["cluster"] = named.get("cluster") or "slurm"
    overrides = options.overrides(settings, **named)
    given = read_source(source, example, overrides)
    if is_slurm(named["cluster"]):
        profile = read_profile(named["cluster"], given.config.cluster)
        require_private(profile.interface, tls=profile.tls, insecure=profile.insecure)
    else:
        raise ConfigError(
            f"dmkl submit needs a SLURM profile, not '{named['cluster']}'", "use --cluster slurm[:PROFILE]"
        )
    run = RunDirectory(Path(output or Path("runs", given.name)).absolute())
    run.check(given.config)
    what = ["--example", example] if example else [str(Path(str(source)).absolute())]
    command = [profile.python or sys.executable, "-m", "dmkl", "train", *what, "-o", str(run.path)]
    for key, value in {**from_environment(os.environ), **overrides}.items():  # a job may have another environment
        command += ["-s", f"{key}={value}"]
    script = batch.coordinator_script(profile, run.cluster, given.name, command)
    if dry_run:
        console.text(script)
        return
    job = batch.submit(script, run.cluster)
    console.line("job", job, str(run.path), f"see dmkl status {run.path}")
    console.result({"job": job, "run": str(run.path), "script": str(run.cluster / batch.SCRIPT)})
