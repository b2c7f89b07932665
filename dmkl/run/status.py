"""How far a run has come, read from the files of its directory alone."""

from __future__ import annotations

import math
import time

from dmkl._util.files import read_json_if_any
from dmkl._util.types import Table
from dmkl.errors import DmklError, OutputError
from dmkl.run.directory import RunDirectory, RunStatus, trusting
from dmkl.store import KernelStore

ALIVE_SECONDS = 90.0  # a run counts as running when its files changed within this time
EXTRAPOLATED_ROUNDS = 6  # the last rounds, whose gaps are extrapolated


def run_status(run: RunDirectory) -> RunStatus:
    """State, round, gap, passes, batch queue and an estimate of the seconds left; None for what is not known."""
    job, queue = read_json_if_any(run.cluster / "job.json"), read_json_if_any(run.cluster / "state.json")
    config = read_json_if_any(run.config)
    if not (config or job or queue):
        raise OutputError(f"{run.path} is not a run directory", "give a directory that dmkl train wrote")
    with trusting(run):
        events = list(run.logged())
        rounds = _rounds(events)
        points = [event for event in events if event.get("event") == "PointDone"]
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
            "round": last.get("round"),
            "passes": last.get("passes"),
            "svm_calls": last.get("svm_calls"),
            "finished": last.get("finished"),
            "classes": last.get("classes"),
            "gap": last.get("gap"),
            "tol": tol,
            "tiles": None if rounds or points else _tiles(run, config),
            "tuned": [points[-1]["done"], points[-1]["total"]] if points else None,
            "eta": None if state == "finished" else seconds_left(rounds, tol),
        }


def _state(run: RunDirectory, job: Table, begun: bool, seen: float | None) -> str:
    """'finished', 'queued' as a batch job, 'running', or 'silent': nothing has been written for some time."""
    if run.scores.exists():
        return "finished"
    if job and not begun:
        return "queued"
    return "running" if seen is not None and time.time() - seen < ALIVE_SECONDS else "silent"


def _rounds(events: list[Table]) -> list[Table]:
    """Finished rounds since the command was last started: there the seconds begin again."""
    found: list[Table] = []
    for event in events:
        if event.get("event") == "RoundDone":
            again = found and event["seconds"] < found[-1]["seconds"]
            found = [event] if again else [*found, event]
    return found


def seconds_left(rounds: list[Table], tol: float) -> float | None:
    """Extrapolate the number of finished classes or, when none has finished lately, the fall of the gap."""
    if not rounds:
        return None
    last = rounds[-1]
    first = {"seconds": 0.0, "finished": 0} if last is rounds[0] else rounds[0]
    spent, finished = last["seconds"] - first["seconds"], last["finished"] - first["finished"]
    if finished > 0:
        return float((last["classes"] - last["finished"]) * spent / finished)
    recent = rounds[-EXTRAPOLATED_ROUNDS:]
    falling = [(r["seconds"], math.log(r["gap"])) for r in recent if r["gap"]]  # an infinite gap is written as null
    if len(falling) < 2 or falling[-1][1] >= falling[0][1]:
        return None
    slope = (falling[-1][1] - falling[0][1]) / max(falling[-1][0] - falling[0][0], 1e-9)
    return max(0.0, float((math.log(tol) - falling[-1][1]) / slope))


def _tiles(run: RunDirectory, config: Table) -> list[int] | None:
    """Finished and total tiles while the store is being built."""
    path = config.get("run", {}).get("store") or run.store
    try:
        return list(KernelStore(path).tiles)
    except (DmklError, OSError):
        return None
