"""dmkl info: the contents of a store or a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmkl.cli.console import Console, count, metric_text, output_options, short
from dmkl.errors import StoreError

if TYPE_CHECKING:
    from dmkl.store import KernelStore, Place


@click.command()
@click.argument("path", type=click.Path(), metavar="STORE|RUN")
@click.option("--verify", is_flag=True, help="Read every tile of a store and compare it with its checksum.")
@output_options
def info(path: str, verify: bool, console: Console) -> None:
    """Show what a kernel store or a run directory contains."""
    from dmkl.store import Folder, place_of

    place = place_of(path)
    if isinstance(place, Folder) and (place.path / "config.json").is_file():
        _show_run(place.path, console)
    elif place.has_group():
        _show_store(place, verify, console)
    else:
        raise StoreError(
            f"{place} is neither a kernel store nor a run directory",
            "give a path that dmkl kernels or dmkl train wrote",
        )


def _show_run(folder: Path, console: Console) -> None:
    from dmkl._util.files import read_json
    from dmkl.model import load_model
    from dmkl.run import RunDirectory

    run = RunDirectory(folder)
    if not run.scores.exists():
        console.line("run", str(folder), "unfinished", "continue it with the same dmkl train command")
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
        console.line("score", metric_text(name, value))
    console.result({"run": str(folder), "finished": True, **summary})


def _show_store(place: Place, verify: bool, console: Console) -> None:
    from dmkl.store import KernelStore

    store = KernelStore(place)
    present, total = store.tiles
    missing = total - present
    facts: dict[str, object] = {
        "store": str(place),
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
    state = f"{missing:,} of {count(total, 'tile')} missing" if missing else "complete"
    console.line("store", str(place), f"n = {store.n:,}", size, state)
    for kernel in store.bank.kernels:
        console.line("kernel", kernel.name, f"group {kernel.group}", *kernel.normalise)
    unusable = _unusable(store, console) if verify else []
    if verify:
        facts["unusable"] = unusable
        facts["verified"] = not unusable
    console.result(facts)
    if unusable:
        raise StoreError(
            f"{len(unusable)} of {count(total, 'tile')} cannot be used",
            "training computes damaged tiles again; or delete their files and run dmkl kernels",
        )


def _unusable(store: KernelStore, console: Console) -> list[str]:
    """The files of tiles that are missing or that differ from their checksums."""
    from dmkl.store import UnusableTile

    found = []
    for i, j in store.pairs:
        try:
            for a in range(store.s):
                store.read_tile(a, i, j)
        except UnusableTile as error:
            found.append(store.place.named(store.tile_name(i, j)))
            console.line("verify", error.message)
    if not found:
        console.line("verify", f"{count(len(store.pairs), 'tile')} read, every checksum right")
    if not store.centring_done:
        store.require_complete()
    return found
