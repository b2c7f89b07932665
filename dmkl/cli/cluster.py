"""dmkl cluster: what clusters need besides workers: keys and profiles."""

from __future__ import annotations

import click

from dmkl.cli import options
from dmkl.cli.console import Console


@click.group()
def cluster() -> None:
    """Keys of encrypted clusters, and profiles of batch schedulers."""


@cluster.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder to write (default: ~/.config/dmkl/keys); all nodes must see it.",
)
@options.output
def keys(output: str | None, as_json: bool, verbose: int, quiet: bool) -> None:
    """Make the certificates of tls:// and of tls = true in a cluster profile.

    Scheduler, workers and coordinator show each other the same certificate: whoever can read the folder can connect.
    """
    from dmkl.runtime.tls import AUTHORITY, CERTIFICATE, KEY, keys_folder, make_keys

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    folder = make_keys(keys_folder(output or True))
    console.line("keys", str(folder), "key.pem is as good as a password")
    tls = f"--tls-ca-file {folder / AUTHORITY} --tls-cert {folder / CERTIFICATE} --tls-key {folder / KEY}"
    console.line("by hand", f"dask scheduler --protocol tls --dashboard-address 127.0.0.1:8787 {tls}")
    console.line("", f"dask worker tls://HOST:8786 --dashboard-address 127.0.0.1:0 {tls}")
    console.result({"keys": str(folder)})


@cluster.command()
@click.argument("scheduler", metavar="SCHEDULER")
@options.output
def profile(scheduler: str, as_json: bool, verbose: int, quiet: bool) -> None:
    """Print a profile for a batch scheduler, such as slurm: every key with its default and its meaning.

    For example: dmkl cluster profile slurm > slurm.toml
    """
    from dmkl.runtime.jobs import SCHEDULERS
    from dmkl.runtime.jobs.profile import template

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    text = template(scheduler, SCHEDULERS[scheduler].title)
    if not as_json:
        console.text(text.rstrip("\n"))
    console.result({"profile": text})
