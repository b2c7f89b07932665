"""dmkl cluster: what clusters need besides workers."""

from __future__ import annotations

import click

from dmkl.cli import options
from dmkl.cli.console import Console


@click.group()
def cluster() -> None:
    """Keys for encrypted clusters."""


@cluster.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FOLDER",
    help="Where to (default: ~/.config/dmkl/keys); all nodes must see it.",
)
@options.output
def keys(output: str | None, as_json: bool, verbose: int, quiet: bool) -> None:
    """Make the certificates of tls:// and of tls = true in a SLURM profile.

    Scheduler, workers and coordinator show each other the same certificate: who has the folder can get in.
    """
    from dmkl.runtime.keys import AUTHORITY, CERTIFICATE, KEY, keys_folder, make_keys

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    folder = make_keys(keys_folder(output or True))
    console.line("keys", str(folder), "key.pem is as good as a password")
    tls = f"--tls-ca-file {folder / AUTHORITY} --tls-cert {folder / CERTIFICATE} --tls-key {folder / KEY}"
    console.line("by hand", f"dask scheduler --protocol tls --dashboard-address 127.0.0.1:8787 {tls}")
    console.line("", f"dask worker tls://HOST:8786 --dashboard-address 127.0.0.1:0 {tls}")
    console.result({"keys": str(folder)})
