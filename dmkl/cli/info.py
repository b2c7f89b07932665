"""dmkl info: what a store or a run holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count, figure, short
from dmkl.errors import StoreError

if TYPE_CHECKING:
    from dmkl.store import KernelStore


@click.command()
@click.argument("path", type=click.Path(), metavar="STORE|RUN")
@click.option("--verify", is_flag=True, help="Read every tile of a store and check it against its checksum.")
@options.output
def info(path: str, verify: bool, as_json: bool, verbose: int, quiet: bool) -> None:
    """Say what a kernel store or a run directory holds."""
    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    folder = Path(path)
    if (folder / "config.json").is_file():
        _run(folder, console)
    elif (folder / "zarr.json").is_file():
        _store(folder, verify, console)
    else:
        raise StoreError(
            f"{folder} is neither a kernel store nor a run directory", "name what dmkl kernels or dmkl train wrote"
        )


def _run(folder: Path, console: Console) -> None:
    from dmkl._util.files import read_json
    from dmkl.model import load_model
    from dmkl.run import RunDirectory

    run = RunDirectory(folder)
    if not run.scores.exists():
        console.line("run", str(folder), "unfinished", "go on with the same dmkl train command")
        console.result({"run": str(folder), "finished": False})
        return
    summary = read_json(run.scores)
    model = load_model(run.model)
    try:
        formulation, gap = str(summary["train"]["formulation"]), short(float(summary["train"]["gap"]))
        metrics = {name: float(value) for name, value in summary.get("score", {}).get("metrics", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{run.scores} is damaged ({error!r})") from error
    console.line("run", str(folder), formulation, f"gap {gap}", count(len(model.coef), "support sample"))
    for name, value in metrics.items():
        console.line("score", figure(name, value))
    console.result({"run": str(folder), "finished": True, **summary})


def _store(folder: Path, verify: bool, console: Console) -> None:
    from dmkl.store import KernelStore

    store = KernelStore(folder)
    there, total = store.tiles
    missing = total - there
    facts: dict[str, Any] = {
        "store": str(folder),
        "kernels": store.bank.recipes(),
        "n": store.n,
        "tile": store.grid.tile,
        "bytes": store.nbytes,
        "computed": store.computed,
        "tiles": total,
        "missing": missing,
        "data": store.data_hash,
    }
    size = "computed on the fly" if store.computed else f"{store.nbytes / 1e6:,.0f} MB"
    state = "complete" if not missing else f"{missing:,} of {total:,} tiles missing"
    console.line("store", str(folder), f"n = {store.n:,}", size, state)
    for kernel in store.bank.kernels:
        console.line("kernel", kernel.name, f"group {kernel.group}", *kernel.normalise)
    if verify:
        facts["unusable"] = _unusable(store, console)
        facts["verified"] = not facts["unusable"]
    console.result(facts)
    if verify and facts["unusable"]:
        raise StoreError(
            f"{len(facts['unusable'])} of {count(total, 'tile')} cannot be used",
            "training computes damaged ones again; or delete those files and run dmkl kernels",
        )


def _unusable(store: KernelStore, console: Console) -> list[str]:
    """The files of tiles that are missing, or not what their checksums say."""
    from dmkl.store import UnusableTile

    found = []
    for i, j in store.pairs:
        try:
            for a in range(store.s):
                store.read_tile(a, i, j)
        except UnusableTile as error:
            found.append(str(store.tile_path(i, j)))
            console.line("verify", error.message)
    if not found:
        console.line("verify", f"{count(len(store.pairs), 'tile')} read, every checksum right")
    if not store.centring_done:
        store.require_complete()
    return found
