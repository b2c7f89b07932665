"""A run directory: everything one training run leaves behind.

config.json       the resolved configuration          checkpoint    the solver's state, until the run is finished
manifest.json     versions, machine, hashes, command  model.zarr.zip, scores.json, report.html
events.jsonl      one line an event, as it happens    kernels.zarr  the kernel store, unless it is kept elsewhere
predictions.npz   what was said of held-out samples   calibration.json  from their scores to probabilities
timeline.json     who worked when, in the last turn
tuning/           what `dmkl tune` has finished, until it has chosen; then tuning.json, tuning.csv, tuning.svg
cluster/          jobs of the run: scripts, logs, the queue as it was last seen
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dmkl._util.files import append_line, locked, make_folder, read_json, write_atomically, write_json
from dmkl._util.machine import cores, cpu
from dmkl.config import Config
from dmkl.errors import OutputError, StoreError, one_line
from dmkl.events import Event, Progress
from dmkl.runtime import Runtime

PACKAGES = (
    "dmkl",
    "dask",
    "distributed",
    "numpy",
    "scipy",
    "zarr",
    "libsvm-official",
    "numba",
    "scikit-learn",
)
SELDOM = 30.0  # seconds between two writings of the timeline while a run goes on
SAME = ("data", "views", "kernels", "formulation", "tune")  # sections that make a run what it is


class RunDirectory:
    """Claims a folder for one run: a new one, or the same one that was cut short."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "kernels.zarr"
        self.checkpoint = path / "checkpoint"
        self.model = path / "model.zarr.zip"
        self.scores = path / "scores.json"
        self.report = path / "report.html"
        self.predictions = path / "predictions.npz"
        self.calibration = path / "calibration.json"
        self.timeline = path / "timeline.json"
        self.cluster = path / "cluster"
        self.tuning = path / "tuning"
        self.tuned = path / "tuning.json"
        self.events = path / "events.jsonl"
        self.config = path / "config.json"
        self.manifest = path / "manifest.json"
        self._kept = 0.0
        self._lock = path / ".lock"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder against other processes, from before workers are started: a second coordinator would take a
        first one's for left over."""
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        make_folder(self.path)
        taken = OutputError(f"another process works on {self.path}", "wait for it, or choose another -o")
        try:
            with locked(self._lock, taken):
                yield
        finally:
            for folder in made:
                with contextlib.suppress(OSError):  # refused before anything was there, or it isn't empty
                    folder.rmdir()

    def claim(self, config: Config) -> bool:
        """Take the folder; True when an unfinished run of the same configuration goes on."""
        resumed = self.check(config)
        if not resumed:
            make_folder(self.path)
            write_json(self.config, config.to_dict())
        return resumed

    def check(self, config: Config) -> bool:
        """What `claim` would answer, touching nothing."""
        if not self.path.exists() or (self.path.is_dir() and set(self.path.iterdir()) <= {self.cluster, self._lock}):
            return False
        if not self.config.is_file():
            raise OutputError(f"{self.path} exists and is not a dmkl run", "choose another -o")
        if self.scores.exists():
            raise OutputError(f"{self.path} holds a finished run", "choose another -o or remove it")
        before = read_json(self.config)
        now = json.loads(json.dumps(config.to_dict()))
        for section in SAME:
            if before.get(section) != now[section]:
                raise OutputError(
                    f"{self.path} holds an unfinished run with another [{section}]",
                    "choose another -o or remove it",
                )
        return True

    def write_manifest(self, **facts: Any) -> None:
        """What it would take to do this again."""
        write_json(
            self.manifest,
            {
                "command": sys.argv,
                "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "host": platform.node(),
                "platform": platform.platform(),
                "python": platform.python_version(),
                "cpu": cpu(),
                "cores": cores(),
                "versions": {name: version(name) for name in PACKAGES},
                **facts,
            },
        )

    def log(self, event: Event) -> None:
        """An observer that appends events; progress ticks are left to the progress bar."""
        if isinstance(event, Progress):
            return
        facts = dataclasses.asdict(event)
        line = {"time": round(time.time(), 3), "event": type(event).__name__, **facts}
        append_line(self.events, json.dumps(finite(line)))

    def happened(self) -> Iterator[dict[str, Any]]:
        """All events of all turns; a line that is being written is left out."""
        lines = self.events.read_text(errors="replace").splitlines() if self.events.is_file() else []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)

    def rounds(self) -> Iterator[dict[str, Any]]:
        """Those of finished rounds."""
        return (event for event in self.happened() if event.get("event") == "RoundDone")

    def keep_timeline(self, runtime: Runtime, *, seldom: bool = False) -> None:
        """Write down who worked when; `seldom` while there is more to come."""
        if not seldom or time.monotonic() - self._kept > SELDOM:
            self._kept = time.monotonic()
            write_atomically(self.timeline, json.dumps(runtime.timeline().to_dict()).encode())

    def forget_predictions(self) -> None:
        """There is a new model, of which nothing has been predicted yet."""
        for path in (self.predictions, self.calibration):
            path.unlink(missing_ok=True)

    def finish(self, scores: dict[str, Any]) -> None:
        """Mark the run as finished; its checkpoint is no longer needed."""
        write_json(self.scores, finite(scores))
        for path in (self.checkpoint, self.checkpoint.with_name(self.checkpoint.name + ".previous")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.tuning, ignore_errors=True)


@contextlib.contextmanager
def trusting(run: RunDirectory) -> Iterator[None]:
    """Turn whatever goes wrong because the files of a run are not what dmkl wrote into one refusal."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(f"the files of {run.path} are damaged ({one_line(error)})") from error


def finite(value: Any) -> Any:
    """The same value without infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
