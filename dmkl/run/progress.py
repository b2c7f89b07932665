"""How far a run is, from the files of its directory alone."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from dmkl._util.files import read_json_if_any
from dmkl.errors import OutputError
from dmkl.run.rundir import RunDirectory, trusting

ALIVE = 90.0  # seconds since something was last written that count as running
RECENT = 6  # rounds whose gaps are extrapolated


def progress(run: RunDirectory) -> dict[str, Any]:
    """State, round, gap, passes, queue and an estimate of the seconds left; what is not known is None."""
    job, queue = read_json_if_any(run.cluster / "job.json"), read_json_if_any(run.cluster / "state.json")
    config = read_json_if_any(run.config)
    if not (config or job or queue):
        raise OutputError(f"{run.path} is not a run directory", "name what dmkl train wrote")
    with trusting(run):
        return _facts(run, config, job, queue)


def _facts(run: RunDirectory, config: dict[str, Any], job: dict[str, Any], queue: dict[str, Any]) -> dict[str, Any]:
    events = list(run.happened())
    rounds, points = _rounds(events), [event for event in events if event.get("event") == "PointDone"]
    last, newest = (found[-1] if found else {} for found in (rounds, events))
    tol = float(config.get("solve", {}).get("tol", 1e-3))
    seen = max([part["time"] for part in (newest, queue, job) if "time" in part], default=None)
    state = _state(run, job, bool(config or queue), seen)
    return {
        "run": str(run.path),
        "state": state,
        "job": job.get("job"),
        "seen": None if seen is None else max(0.0, time.time() - seen),
        "workers": queue.get("workers"),
        "queue": queue.get("jobs"),
        "reasons": queue.get("reasons"),
        "relaunched": queue.get("relaunched"),
        **{name: last.get(name) for name in ("round", "passes", "svm_calls", "finished", "classes", "gap")},
        "tol": tol,
        "tiles": None if rounds or points else _tiles(run, config),
        "tuned": [points[-1]["done"], points[-1]["total"]] if points else None,
        "eta": None if state == "finished" else seconds_left(rounds, tol),
    }


def _state(run: RunDirectory, job: dict[str, Any], begun: bool, seen: float | None) -> str:
    if run.scores.exists():
        return "finished"
    if job and not begun:
        return "queued"
    return "running" if seen is not None and time.time() - seen < ALIVE else "silent"


def _rounds(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Finished rounds of the last turn."""
    found: list[dict[str, Any]] = []
    for event in events:
        if event.get("event") == "RoundDone":
            again = found and event["seconds"] < found[-1]["seconds"]
            found = [event] if again else [*found, event]
    return found


def seconds_left(rounds: list[dict[str, Any]], tol: float) -> float | None:
    """By the classes that get finished where there are many, else by how fast the gap has been falling."""
    if not rounds:
        return None
    last = rounds[-1]
    first = {"seconds": 0.0, "finished": 0} if last is rounds[0] else rounds[0]
    spent, finished = last["seconds"] - first["seconds"], last["finished"] - first["finished"]
    if finished > 0:
        return float((last["classes"] - last["finished"]) * spent / finished)
    falling = [(r["seconds"], math.log(r["gap"])) for r in rounds[-RECENT:] if r["gap"]]  # infinity is written as null
    if len(falling) < 2 or falling[-1][1] >= falling[0][1]:
        return None
    slope = (falling[-1][1] - falling[0][1]) / max(falling[-1][0] - falling[0][0], 1e-9)
    return max(0.0, float((math.log(tol) - falling[-1][1]) / slope))


def _tiles(run: RunDirectory, config: dict[str, Any]) -> list[int] | None:
    """Tiles that are there and tiles in all, while the store is being built."""
    from dmkl.errors import DmklError
    from dmkl.store import KernelStore

    path = Path(config.get("run", {}).get("store") or run.store)
    try:
        return list(KernelStore(path).tiles)
    except (DmklError, OSError):
        return None
