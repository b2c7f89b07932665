"""The keys of an experiment: a frozen dataclass for each table, a line for each key with its default and meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Parameters = dict[str, Any]
TASKS = ("auto", "binary", "multiclass", "multilabel", "regression")
KINDS = ("features", "distance", "kernel")
WHERE_KERNELS = ("auto", "store", "compute")
RULES = ("one-se", "best")
COMBINATIONS = ("product", "mean")


def key(default: T, means: str, choices: tuple[str, ...] = ()) -> T:
    """A field of a dataclass with its default, its meaning (for the schema and the profile) and the values it may have.

    To type checkers it is the default.
    """
    found: T = field(default=default, metadata={"means": means, "choices": choices})
    return found


@dataclass(frozen=True)
class DataConfig:
    """Where samples and labels come from, and which samples are held out."""

    path: tuple[str, ...] = key((), "files; relative paths start at the folder of the configuration")
    example: str = key("", "name of a bundled example, in place of path")
    labels: str = key("y", "array or column of the labels")
    task: str = key("auto", "kind of problem; auto decides by the labels", TASKS)
    test: float = key(0.3, "fraction of samples held out, 0 for none")
    split: str = key("", "in place of test: an array that is non-zero for training samples")


@dataclass(frozen=True)
class ViewConfig:
    """A named block of data: an array of the file, or columns of a table.

    With `each`, a kernel of all columns has views = "NAME", kernels of single columns have "NAME.*", and both have
    ["NAME", "NAME.*"].
    """

    array: str = key("", "array of the file; default: X_NAME, D_NAME or K_NAME according to the kind, or NAME")
    columns: tuple[str, ...] = key((), "columns of a table, in place of array: names or patterns like 'pixel_*'")
    kind: str = key("features", "whether the numbers are features, distances or kernel values", KINDS)
    symmetric: bool = key(True, "false for a kernel with k(x, z) different from k(z, x)")
    each: bool = key(False, "every column is also a view 'NAME.COLUMN' (its name in a table, else 0, 1, ...)")


@dataclass(frozen=True)
class KernelConfig:
    """A kernel function on one or more views; parameters with lists of values span a grid of kernels.

    Every view has kernels of its own, unless `combine` makes one kernel of all of them.
    """

    kernel: str
    views: tuple[str, ...] = key(("*",), "names or patterns of views")
    normalise: tuple[str, ...] = key(
        (), "any of unit-diagonal, centre, unit-trace and unit-mean; they are applied in this order"
    )
    group: str = key("", "name of the kernel's group, for norms over groups of kernels; default: the view")
    subsets: int | tuple[tuple[int, ...], ...] = key(
        0, "a kernel for each of so many random sets of columns of a view, or for each of these sets; 0: all columns"
    )
    combine: str = key(
        "", "one kernel of all the views: the product or the mean of the function on each of them", ("", *COMBINATIONS)
    )
    weights: tuple[float, ...] = key((), "of the views in a mean, which names them all; default: equal ones")
    params: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class FormulationConfig:
    """Which problem is solved; `params` are the constants of the formulation (C, q, p ...)."""

    name: str = "uniform"
    params: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class SolveConfig:
    """How the problem is solved."""

    tol: float = key(1e-3, "relative duality gap to reach")
    oracle: str = key("smo", "solver of support vector machines")
    method: str = key("", "algorithm of the formulation; default: the formulation's own")
    seed: int = key(0, "seed of splits and starting points")
    max_rounds: int = key(100, "maximum number of rounds; the best model so far is saved, marked as not certified")
    max_time: str = key("", "e.g. '90 s', '30 m', '2 h': then the run stops with the best certified model")
    baselines: bool = key(False, "also score the average kernel and every kernel alone")


@dataclass(frozen=True)
class RunConfig:
    """Where the run takes place, and the resources it may use."""

    cluster: str = key(
        "none",
        "none, local[:N[xT]], a batch scheduler[:PROFILE] (slurm, moab, pbs, sge, lsf, htcondor, oar), tcp://host:port "
        "or tls://host:port",
    )
    workers: int = key(0, "threads of the in-process run; 0 = all cores")
    memory: str = key("", "resident memory to stay under, e.g. '4 GB'; default: 60 % of the free memory")
    store: str = key("", "path or URL of the kernel store; default: inside the run directory")
    kernels: str = key(
        "auto", "kernels in a store on disk, computed when needed, or the cheaper of the two", WHERE_KERNELS
    )
    tile: int = key(1024, "samples along the side of a tile")
    full: bool = key(
        False, "also store the tiles below the diagonal, for other programs that read the store: twice the disk"
    )


@dataclass(frozen=True)
class TuneConfig:
    """The points that `dmkl tune` tries, and the rule by which it chooses."""

    folds: int = key(5, "number of folds of the cross-validation")
    repeats: int = key(1, "number of cross-validations, each with other folds")
    rule: str = key("one-se", "choose the simplest point within one standard error of the best, or the best", RULES)
    metric: str = key("", "the metric that chooses, e.g. accuracy, roc_auc or rmse; default: that of the task")
    apart: bool = key(False, "a task for every point of every fold, without warm starts: for a large cluster")
    formulations: tuple[str, ...] = key((), "names of formulations to try; default: that of [formulation]")
    grid: Parameters = field(default_factory=dict, metadata={"means": "constants to try, e.g. { C = [1, 10] }"})


@dataclass(frozen=True)
class Config:
    """A whole experiment. `origins` says where values came from ('solve.tol': 'command line'); others are defaults."""

    data: DataConfig = DataConfig()
    views: dict[str, ViewConfig] = field(default_factory=dict)
    kernels: tuple[KernelConfig, ...] = ()
    formulation: FormulationConfig = FormulationConfig()
    solve: SolveConfig = SolveConfig()
    run: RunConfig = RunConfig()
    tune: TuneConfig = TuneConfig()
    cluster: Parameters = field(default_factory=dict)  # values that replace those of the cluster profile
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_dict(self) -> Parameters:
        """The configuration as plain tables, from which it can be read again."""
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


SECTIONS: dict[str, type] = {  # the tables with fixed keys; views, kernels and cluster hold tables
    "data": DataConfig,
    "formulation": FormulationConfig,
    "solve": SolveConfig,
    "run": RunConfig,
    "tune": TuneConfig,
}
TABLES = tuple(f.name for f in dataclasses.fields(Config) if f.name != "origins")


def _plain(value: DataclassInstance) -> Parameters:
    plain: Parameters = json.loads(json.dumps(dataclasses.asdict(value)))
    return plain
