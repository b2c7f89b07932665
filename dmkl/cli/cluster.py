"""dmkl cluster: certificates for encrypted clusters, and profiles of batch schedulers."""

from __future__ import annotations

import click

from dmkl.cli.console import Console, output_options


@click.group()
def cluster() -> None:
    """Certificates for encrypted clusters, and profiles of batch schedulers."""


@cluster.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder of the certificates (default: ~/.config/dmkl/keys); all nodes must be able to read it.",
)
@output_options
def keys(output: str | None, console: Console) -> None:
    """Make the certificates for tls:// addresses and for tls = true in a cluster profile.

    Scheduler, workers and coordinator identify themselves by the same certificate: anyone who can read the folder can
    connect.
    """
    from dmkl.runtime.tls import AUTHORITY, CERTIFICATE, KEY, keys_folder, make_keys

    folder = make_keys(keys_folder(output or True))
    console.line("keys", str(folder), "keep key.pem as secret as a password")
    tls = f"--tls-ca-file {folder / AUTHORITY} --tls-cert {folder / CERTIFICATE} --tls-key {folder / KEY}"
    console.line("by hand", f"dask scheduler --protocol tls --dashboard-address 127.0.0.1:8787 {tls}")
    console.line("", f"dask worker tls://HOST:8786 --dashboard-address 127.0.0.1:0 {tls}")
    console.result({"keys": str(folder)})


@cluster.command()
@click.argument("scheduler", metavar="SCHEDULER")
@output_options
def profile(scheduler: str, console: Console) -> None:
    """Print a profile for a batch scheduler: every key with its default and its meaning.

    SCHEDULER is slurm, moab, pbs, sge, lsf, htcondor or oar. For example: dmkl cluster profile slurm > slurm.toml
    """
    from dmkl.runtime.jobs import SCHEDULERS
    from dmkl.runtime.jobs.profile import template

    text = template(scheduler, SCHEDULERS[scheduler].title, SCHEDULERS[scheduler].notes)
    if not console.as_json:
        console.text(text.rstrip("\n"))
    console.result({"profile": text})
