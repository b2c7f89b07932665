"""The JSON objects of a run directory, as types: what dmkl writes into scores.json, manifest.json and status output.

Files are read back as plain `Table`: anybody may have written them, so nothing about their keys is taken for
granted.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from dmkl._util.types import Table

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
