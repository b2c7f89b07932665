"""The keys of an experiment: one frozen dataclass a table, one line a key with its default and what it means."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Parameters = dict[str, Any]
TASKS = ("auto", "binary", "multiclass", "multilabel", "regression")
KINDS = ("features", "distance", "kernel")
WHERE_KERNELS = ("auto", "store", "compute")
RULES = ("one-se", "best")


def key(default: T, means: str, choices: tuple[str, ...] = ()) -> T:
    """A field with its default and a word on it for the schema; to type checkers it is the default."""
    found: T = field(default=default, metadata={"means": means, "choices": choices})
    return found


@dataclass(frozen=True)
class DataConfig:
    """Where samples and labels come from and which of them are held out."""

    path: tuple[str, ...] = key((), "files; relative ones count from the config file")
    example: str = key("", "or the name of a bundled example")
    labels: str = key("y", "array or column that holds the labels")
    task: str = key("auto", "auto finds it out from the labels", TASKS)
    test: float = key(0.3, "fraction of samples held out, 0 for none")
    split: str = key("", "or: array that is non-zero for training samples")


@dataclass(frozen=True)
class ViewConfig:
    """One named block of data: an array of the file, or columns of a table.

    With `each`, kernels take the whole as views = "NAME", every column alone as "NAME.*", both as ["NAME", "NAME.*"].
    """

    array: str = key("", "the array of the file; default: X_NAME, D_NAME or K_NAME by its kind, or NAME")
    columns: tuple[str, ...] = key((), "or columns of a table: names or patterns like 'pixel_*'")
    kind: str = key("features", "what the numbers are", KINDS)
    symmetric: bool = key(True, "of a kernel: false if k(x, z) is not k(z, x)")
    each: bool = key(False, "besides, every column is a view 'NAME.column' (its name in a table, else 0, 1, ...)")


@dataclass(frozen=True)
class KernelConfig:
    """One kernel function on one or more views; list-valued parameters span a grid."""

    kernel: str
    views: tuple[str, ...] = key(("*",), "names or patterns of views")
    normalise: tuple[str, ...] = key((), "of unit-diagonal, centre, unit-trace or unit-mean, in this order")
    group: str = key("", "kernels that are weighed together; default: the view")
    params: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class FormulationConfig:
    """Which problem is solved; `params` are its own (C, q, p ...)."""

    name: str = "uniform"
    params: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class SolveConfig:
    """How it is solved."""

    tol: float = key(1e-3, "the relative gap to prove")
    oracle: str = key("smo", "SVM solver")
    method: str = key("", "how the formulation is solved; default: its own choice")
    seed: int = key(0, "of splits and starting points")
    max_rounds: int = key(100, "then the best model is saved as not proved")
    max_time: str = key("", "e.g. '90 s', '30 m', '2 h': stop after it with the best certified model")
    baselines: bool = key(False, "also score every kernel alone")


@dataclass(frozen=True)
class RunConfig:
    """Where it runs and with what."""

    cluster: str = key("none", "none, local[:N], slurm[:PROFILE], tcp://host:port or tls://host:port")
    workers: int = key(0, "threads of the in-process run; 0 = all cores")
    memory: str = key("", "e.g. '4 GB'; default: 60 % of what is free")
    store: str = key("", "kernel store; default: inside the run directory")
    kernels: str = key("auto", "on disk, computed on the fly, or whichever is cheaper", WHERE_KERNELS)
    tile: int = key(1024, "largest side of a square tile")


@dataclass(frozen=True)
class TuneConfig:
    """What `dmkl tune` tries, and by which rule it chooses."""

    folds: int = key(5, "of the cross-validation")
    repeats: int = key(1, "times the folds are dealt anew")
    rule: str = key("one-se", "the simplest point within a standard error of the best, or the best", RULES)
    metric: str = key("", "what decides, e.g. accuracy, roc_auc or rmse; default: the leading metric of the task")
    apart: bool = key(False, "every point of every fold is a task, from a cold start: for a large cluster")
    formulations: tuple[str, ...] = key((), "what is tried; default: that of [formulation]")
    grid: Parameters = field(default_factory=dict, metadata={"means": "values of constants, e.g. { C = [1, 10] }"})


@dataclass(frozen=True)
class Config:
    """A whole experiment. `origins` says where values came from ('solve.tol': 'command line'), if not from here."""

    data: DataConfig = DataConfig()
    views: dict[str, ViewConfig] = field(default_factory=dict)
    kernels: tuple[KernelConfig, ...] = ()
    formulation: FormulationConfig = FormulationConfig()
    solve: SolveConfig = SolveConfig()
    run: RunConfig = RunConfig()
    tune: TuneConfig = TuneConfig()
    cluster: Parameters = field(default_factory=dict)  # values that replace the SLURM profile's
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The plain tables this configuration would be read from."""
        return {
            "data": _plain(self.data),
            "views": {name: _plain(view) for name, view in self.views.items()},
            "kernels": [_plain(kernel) for kernel in self.kernels],
            "formulation": _plain(self.formulation),
            "solve": _plain(self.solve),
            "run": _plain(self.run),
            "tune": _plain(self.tune),
            "cluster": json.loads(json.dumps(self.cluster)),
        }


SECTIONS: dict[str, type[Any]] = {  # those with keys of their own; views, kernels and cluster hold tables
    "data": DataConfig,
    "formulation": FormulationConfig,
    "solve": SolveConfig,
    "run": RunConfig,
    "tune": TuneConfig,
}
TABLES = tuple(f.name for f in dataclasses.fields(Config) if f.name != "origins")


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return plain
