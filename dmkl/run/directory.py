"""A run directory: everything that one run leaves behind, and the keys of its JSON files.

config.json       the resolved configuration          checkpoint    the solver's state, until the run is finished
manifest.json     versions, machine, hashes, command  model.zarr.zip, scores.json, report.html
events.jsonl      one line for each event             kernels.zarr  the kernel store, unless it is kept elsewhere
predictions.npz   scores of the held-out samples      calibration.json  turns scores into probabilities
timeline.json     the tasks of each worker, since the command was last started
tuning/           finished fits of `dmkl tune` until it has chosen; then tuning.json, tuning.csv, tuning.svg
cluster/          batch jobs of the run: scripts, logs and the last known state of the queue

The types at the end are what dmkl writes into manifest.json and scores.json, and shows as a run's status. Files are
read back as plain `Table`: anybody may have written them, so nothing about their keys is taken for granted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NotRequired, TypedDict

from dmkl._util.files import (
    append_line,
    finite,
    is_url,
    locked,
    make_folder,
    read_json,
    write_atomically,
    write_json,
)
from dmkl._util.machine import cores, cpu
from dmkl._util.types import StrPath, Table
from dmkl.config import Config
from dmkl.errors import ConfigError, OutputError, StoreError, one_line
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
TIMELINE_SECONDS = 30.0  # between two writings of the timeline while a run goes on
IDENTITY = ("data", "views", "kernels", "formulation", "tune")  # sections that must not change within a run


class RunDirectory:
    """The paths inside the directory of one run, and what is written there.

    Parameters
    ----------
    path : Path or str
        A directory that does not exist, or that of a run.
    """

    def __init__(self, path: StrPath) -> None:
        if is_url(os.fspath(path)):
            raise ConfigError(
                f"a run directory is a local folder, not {os.fspath(path)}", "only the kernel store may be at a URL"
            )
        self.path = path = Path(path)
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
        self._timeline_written = 0.0
        self._lock = path / ".lock"

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the directory against other processes.

        The lock is taken before workers are started: a second coordinator would take the workers of the first for
        leftovers of an earlier turn. Directories made for the lock are removed when nothing was written to them.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        make_folder(self.path)
        taken = OutputError(f"another process is working on {self.path}", "wait until it ends, or choose another -o")
        try:
            with locked(self._lock, taken):
                yield
        finally:
            for folder in made:
                with contextlib.suppress(OSError):  # not empty, or refused before it was made
                    folder.rmdir()

    def claim(self, config: Config) -> bool:
        """Take the directory for a run; True when it holds an unfinished run of the same configuration."""
        resumed = self.check(config)
        if not resumed:
            make_folder(self.path)
            write_json(self.config, config.to_dict())
        return resumed

    def check(self, config: Config) -> bool:
        """The result of `claim`, without writing anything; refuses a directory that cannot be taken."""
        if not self.path.exists() or (self.path.is_dir() and set(self.path.iterdir()) <= {self.cluster, self._lock}):
            return False
        if not self.config.is_file():
            raise OutputError(f"{self.path} exists and is not a dmkl run", "choose another -o")
        if self.scores.exists():
            raise OutputError(f"{self.path} holds a finished run", "choose another -o or remove it")
        before = read_json(self.config)
        now, defaults = json.loads(json.dumps(config.to_dict())), Config().to_dict()
        for section in IDENTITY:
            found = before.get(section)
            if isinstance(found, dict):  # an earlier version of dmkl may have had fewer keys
                found = {**defaults[section], **found}
            if found != now[section]:
                raise OutputError(
                    f"{self.path} holds an unfinished run with a different [{section}] section",
                    "choose another -o or remove it",
                )
        return True

    def write_manifest(self, inputs: RunInputs) -> None:
        """Write down what is needed to repeat the run: its inputs, the command, the versions and the machine."""
        manifest: Manifest = {
            "command": sys.argv,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "host": platform.node(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cpu": cpu(),
            "cores": cores(),
            "versions": {name: version(name) for name in PACKAGES},
            **inputs,
        }
        write_json(self.manifest, manifest)

    def log(self, event: Event) -> None:
        """An observer that appends events to events.jsonl; progress ticks are for progress bars only."""
        if isinstance(event, Progress):
            return
        facts = dataclasses.asdict(event)
        line = {"time": round(time.time(), 3), "event": type(event).__name__, **facts}
        append_line(self.events, json.dumps(finite(line)))

    def logged(self) -> Iterator[Table]:
        """All events so far, also of earlier turns of the run; a line that is still being written is left out."""
        lines = self.events.read_text(errors="replace").splitlines() if self.events.is_file() else []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)

    def rounds(self) -> Iterator[Table]:
        """The events of finished rounds."""
        return (event for event in self.logged() if event.get("event") == "RoundDone")

    def keep_timeline(self, runtime: Runtime, *, seldom: bool = False) -> None:
        """Write the timeline of the workers; with `seldom` only if the last writing is some time ago."""
        if not seldom or time.monotonic() - self._timeline_written > TIMELINE_SECONDS:
            self._timeline_written = time.monotonic()
            write_atomically(self.timeline, json.dumps(runtime.timeline().to_dict()).encode())

    def forget_predictions(self) -> None:
        """Remove the predictions and the calibration of an earlier model."""
        for path in (self.predictions, self.calibration):
            path.unlink(missing_ok=True)

    def finish(self, scores: Summary) -> None:
        """Mark the run as finished; its checkpoint is no longer needed."""
        write_json(self.scores, finite(scores))
        for path in (self.checkpoint, self.checkpoint.with_name(self.checkpoint.name + ".previous")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.tuning, ignore_errors=True)


@contextlib.contextmanager
def trusting(run: RunDirectory) -> Iterator[None]:
    """Refuse a run with one message when its files are not what dmkl wrote."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(f"the files of {run.path} are damaged ({one_line(error)})") from error


Metrics = dict[str, float]


class RunInputs(TypedDict):
    """What a run was made from."""

    origins: dict[str, str]
    data: str
    store: str
    seed: int
    threads: int
    memory: int
    kernel_hash: str
    kernels: list[Table]


class Manifest(RunInputs):
    """manifest.json: the inputs of a run, its command, the versions of all packages and the machine."""

    command: list[str]
    started: str
    host: str
    platform: str
    python: str
    cpu: str
    cores: int
    versions: dict[str, str]


class KernelRecord(TypedDict):
    """The kernels of a run, ready for training."""

    kernels: int
    views: int
    n: int
    bytes: int
    computed: bool
    store: str
    seconds: float


class PointRecord(TypedDict):
    """One row of a search: a formulation with its constants and its scores over the folds."""

    point: str
    formulation: Table
    mean: float
    se: float
    kernels: float
    passes: int
    svm_calls: int
    unproved: int
    seconds: float
    values: list[float]


class TuneRecord(TypedDict):
    """A finished search: its table, the best and the chosen row."""

    metric: str
    folds: int
    repeats: int
    rule: str
    points: int
    chosen: int
    best: int
    passes: int
    svm_calls: int
    unproved: int
    kernels_fitted_on: str
    seconds: float
    table: list[PointRecord]
    formulation: str
    lines: list[str]


class TrainRecord(TypedDict):
    """A fit: what was solved, at what cost, and its certificate."""

    formulation: str
    task: str
    classes: int
    rounds: int
    passes: int
    svm_calls: int
    block_steps: float
    gap: float
    converged: bool
    out_of_time: bool
    rule: str  # that ended it in place of the tolerance, in words; empty if there is none
    objective: list[float]
    backend: str
    peak_bytes: int
    seconds: float


class KernelMetrics(TypedDict):
    """The score of a baseline; the name of its kernel is empty for the average of all kernels."""

    kernel: str
    metrics: Metrics


class HeldOutRecord(TypedDict):
    """How good the predictions of the held-out samples are."""

    n: int
    metrics: Metrics
    per_class: list[dict[str, float | str]]


class ScoreRecord(HeldOutRecord):
    """The same with the time it took, and the scores of the baselines if they were asked for."""

    seconds: float
    average: NotRequired[KernelMetrics]
    best_single: NotRequired[KernelMetrics]


class Summary(TypedDict):
    """scores.json: one record for each stage of a run."""

    kernels: KernelRecord
    tune: NotRequired[TuneRecord]
    train: TrainRecord
    score: NotRequired[ScoreRecord]


class RunStatus(TypedDict):
    """How far a run is; None marks what is not known."""

    run: str
    state: str
    job: str | None
    seen: float | None
    workers: int | None
    queue: dict[str, int] | None
    reasons: list[str] | None
    relaunched: int | None
    round: int | None
    passes: int | None
    svm_calls: int | None
    finished: int | None
    classes: int | None
    gap: float | None
    tol: float
    tiles: list[int] | None
    tuned: list[int] | None
    eta: float | None
