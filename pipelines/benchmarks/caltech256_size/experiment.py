"""The size of Caltech-256: kernels on disk, a memory limit, 32 of 257 classes certified, and a projection for all.

The store is removed at the end. With DMKL_KEEP=1 an interrupted run leaves its store and continues with it if it is
complete: seconds are always those of whole commands.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np

from dmkl._util.tiling import Grid
from dmkl._util.units import parse_bytes
from dmkl.run import interruptible
from dmkl.solvers.fixed_weights import solve_classes
from dmkl.store import projected_bytes
from pipelines.common.caltech256 import CLASSES, KERNELS, write_data
from pipelines.common.commands import Ran, dmkl
from pipelines.common.data import MissingData
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

MARGIN = 1.03  # of the disk, for what is not tiles
LARGEST_TILE = 1024  # dmkl's own


def run(context: Context) -> Outcome:
    folder = context.folder / "work"
    require_room(context, folder)
    try:
        with interruptible():
            built, trained = built_and_trained(context, folder)
            events = [json.loads(line) for line in (folder / "run" / "events.jsonl").read_text().splitlines()]
            rounds = [event for event in events if event["event"] == "RoundDone"]
            growing = rounds_seconds(folder / "run", rounds)
    finally:
        if not os.environ.get("DMKL_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
    return outcome(context.settings, built, trained, rounds, growing)


def require_room(context: Context, folder: Path) -> None:
    """Print the room that is needed on disk, and stop at once if it is not free."""
    tiles = projected_bytes(Grid.cut(context.settings["n"], LARGEST_TILE), KERNELS)
    limit = parse_bytes(context.settings["memory"])
    there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())  # of an interrupted run
    free, needed = shutil.disk_usage(context.folder).free, MARGIN * tiles - there
    needs = f"{needed / 1e9:.1f} GB of disk in {folder}, {limit / 1e9:.1f} GB of memory"
    context.progress(f"needs {needs}")
    if needed > free:
        raise MissingData(f"it needs {needs}: there are {free / 1e9:.1f} GB free, choose another --folder")


def built_and_trained(context: Context, folder: Path) -> tuple[Ran, Ran]:
    """Time and memory of `dmkl kernels` and `dmkl train`."""
    settings, done = context.settings, folder / "kernels.json"
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        y = np.arange(settings["n"]) % CLASSES
        chosen = np.linspace(0, CLASSES, settings["classes"], endpoint=False, dtype=np.int64)
        write_data(folder, y, (y[:, None] == chosen).astype(np.uint8))
        built = dmkl(folder, "kernels", "config.toml", "-o", "k.zarr")
        done.write_text(json.dumps(dataclasses.asdict(built)))
    built = Ran(**json.loads(done.read_text()))
    context.progress(f"kernels: {built.facts['nbytes'] / 1e9:.1f} GB in {built.seconds:.0f} s")
    shutil.rmtree(folder / "run", ignore_errors=True)
    limits = "--memory", settings["memory"], "--tol", str(settings["tol"])
    trained = dmkl(folder, "train", "k.zarr", "-o", "run", *limits)
    context.progress(f"train: {trained.seconds:.0f} s, {trained.facts['train']['passes']} passes")
    return built, trained


def rounds_seconds(run: Path, rounds: list[Row]) -> float:
    """Seconds of the rounds, from the end of the outline; this part grows with the classes."""
    timeline = json.loads((run / "timeline.json").read_text())
    ends = [max(row["bins"]) + 1 for row in timeline["rows"] if row["function"] == solve_classes.__name__]
    return float(rounds[-1]["time"] - timeline["start"] - max(ends) * timeline["width"])


def outcome(settings: Row, built: Ran, trained: Ran, rounds: list[Row], growing: float) -> Outcome:
    kernels, facts = built.facts, trained.facts["train"]
    seconds, limit = built.seconds + trained.seconds, parse_bytes(settings["memory"])
    size: Row = {
        "samples": kernels["n"],
        "kernels": kernels["kernels"],
        "tiles, GB": kernels["nbytes"] / 1e9,
        "classes": facts["classes"],
        "rounds": facts["rounds"],
        "passes": facts["passes"],
        "SVM calls": facts["svm_calls"],
        "gap": facts["gap"],
        "sum of objectives": math.fsum(facts["objective"]),
    }
    cost = [cost_row("dmkl kernels", built), cost_row("dmkl train", trained)]
    return Outcome(
        [
            Table("What was solved", [size], formats={"tiles, GB": ".2f", "gap": ".2e", "sum of objectives": ".6f"}),
            Table("What it took", cost, tuple(cost[0])[1:], formats=dict.fromkeys(cost[0], ".2f"), note=COST),
            Table("Round by round", [round_row(event) for event in rounds], ("minutes",), note=ROUNDS),
            projection(built, trained, growing),
        ],
        [
            Goal("minutes in all", seconds / 60, "<=", settings["minutes"], measured=True),
            Goal("largest gap", facts["gap"], "<=", settings["tol"]),
            Goal("peak memory of dmkl train, GB", trained.peak / 1e9, "<=", limit / 1e9, measured=True),
        ],
    )


COST = (
    "Peak: the largest resident set of the process. Read: all it asked of files (`rchar`). From disk (`read_bytes`): "
    "what of it the page cache did not have, and what the system read ahead that nobody wanted."
)
ROUNDS = "A round serves one batch of classes; passes include one that sums all kernels for a first outline."


def cost_row(name: str, ran: Ran) -> Row:
    return {
        "command": name,
        "minutes": ran.seconds / 60,
        "peak, GB": ran.peak / 1e9,
        "read, GB": ran.read / 1e9,
        "from disk, GB": ran.from_disk / 1e9,
        "written, GB": ran.written / 1e9,
    }


def round_row(event: Row) -> Row:
    return {
        "round": event["round"],
        "certified": event["finished"],
        "passes": event["passes"],
        "SVM calls": event["svm_calls"],
        "largest gap": event["gap"],
        "minutes": event["seconds"] / 60,
    }


def projection(built: Ran, trained: Ran, growing: float) -> Table:
    """Time and bytes for all classes: all parts of a batch, which run once a batch, grow with the classes."""
    facts, tiles = trained.facts["train"], built.facts["nbytes"]
    factor = CLASSES / facts["classes"]
    once = built.seconds + trained.seconds - growing
    row: Row = {
        "classes": CLASSES,
        "passes": round(1 + factor * (facts["passes"] - 1)),
        "minutes": (once + factor * growing) / 60,
        "read, TB": (tiles + factor * (trained.read - tiles)) / 1e12,
    }
    note = (
        f"Once, whatever the classes: building, starting and ending, and the outline, one pass over all tiles, "
        f"{once / 60:.1f} minutes. The rounds take the classes in batches, one after the other, so that they grow with "
        f"the classes: {CLASSES}/{facts['classes']} x {growing / 60:.1f} minutes."
    )
    return Table("Projection for all 257 classes", [row], ("minutes", "read, TB"), note=note)
