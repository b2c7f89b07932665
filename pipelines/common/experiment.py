"""What an experiment is: a folder of `pipelines/` with `experiment.toml` and `experiment.py`.

The TOML has the texts and the settings:

    [experiment]
    title = "VSKL, table 1: Caltech-101"      # a heading of RESULTS.md
    order = 10                                # its place there
    about = "..."                             # what is compared, for readers who do not know the paper
    differs = "..."                           # how data or protocol differ from the paper's
    [whole]                                   # settings of the whole run, free names
    splits = 10
    [quick]                                   # those that differ in `--quick`
    splits = 1
    [paper]                                   # the paper's numbers, free names

`experiment.py` has one function, `run(context: Context) -> Outcome`. All results go through `Outcome`, so that
RESULTS.md, its figures and the comparison of two runs have one implementation each.
"""

from __future__ import annotations

import importlib
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dmkl
from pipelines.common.drawing import Panel
from pipelines.common.journal import Journal

PIPELINES = Path(__file__).resolve().parents[1]
Row = dict[str, Any]  # texts and plain numbers


@dataclass(frozen=True)
class Table:
    """Rows with the same keys. Columns named in `measured` (seconds, memory) may differ in a second run."""

    title: str
    rows: Sequence[Row]
    measured: tuple[str, ...] = ()
    formats: dict[str, str] = field(default_factory=dict)  # of numbers, ".4g" where nothing is said
    note: str = ""
    shown: bool = True  # in RESULTS.md; else in the record alone


@dataclass(frozen=True)
class Goal:
    """A goal. Goals of times and memory are `measured`: they may differ in a second run."""

    what: str
    value: float
    sign: str  # "<=" or ">="
    limit: float
    measured: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.limit if self.sign == "<=" else self.value >= self.limit


@dataclass(frozen=True)
class Outcome:
    """The results of an experiment."""

    tables: Sequence[Table]
    goals: Sequence[Goal] = ()
    remarks: Sequence[str] = ()  # sentences made of the numbers found; what is known beforehand belongs into the TOML
    figures: dict[str, Sequence[Panel]] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """The input of a run: its settings, the paper's numbers, a folder for intermediate results."""

    settings: dict[str, Any]
    paper: dict[str, Any]
    folder: Path
    quick: bool
    journal: Journal

    def cell(self, key: str, compute: Callable[[], Any]) -> Any:
        """The result of `compute` (plain values), which is saved, so that an interrupted run continues after it."""
        return self.journal.cell(key, compute)

    def splits(self, counts: Mapping[str, int], compute: Callable[[str, int, Row], list[Row]]) -> list[Row]:
        """All rows that `compute(data, split, settings)` gives for so many splits of each data set, a cell a split."""
        rows: list[Row] = []
        for name, count in counts.items():
            for split in range(count):
                key = f"{name}, split {split}"
                rows += self.cell(key, partial(compute, name, split, self.settings))
                self.progress(key)
        return rows

    def progress(self, text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Experiment:
    name: str  # "titanic", "benchmarks/race"
    words: dict[str, Any]
    whole: dict[str, Any]
    quick: dict[str, Any]
    paper: dict[str, Any]

    @classmethod
    def load(cls, name: str) -> Experiment:
        file = PIPELINES / name / "experiment.toml"
        if not file.is_file():
            raise SystemExit(f"no experiment {name}: there are {', '.join(known())}")
        parts = tomllib.loads(file.read_text())
        unknown = set(parts) - {"experiment", "whole", "quick", "paper"}
        strange = set(parts.get("quick", {})) - set(parts["whole"])
        if unknown or strange:
            raise SystemExit(f"{file}: what is {', '.join(sorted(unknown | strange))}?")
        return cls(name, parts["experiment"], parts["whole"], parts.get("quick", {}), parts.get("paper", {}))

    @property
    def code(self) -> tuple[Path, ...]:
        """The code that the numbers depend on."""
        return PIPELINES / self.name, PIPELINES / "common", Path(dmkl.__file__).parent

    def run(self, folder: Path, quick: bool) -> Outcome:
        settings = self.whole | (self.quick if quick else {})
        module = importlib.import_module(f"pipelines.{self.name.replace('/', '.')}.experiment")
        found = module.run(Context(settings, self.paper, folder, quick, Journal(folder, settings)))
        assert isinstance(found, Outcome)
        return found


def known() -> list[str]:
    """Names of all experiments, in the order of RESULTS.md."""
    files = sorted(PIPELINES.glob("**/experiment.toml"))
    names = [str(file.parent.relative_to(PIPELINES)) for file in files]
    return sorted(names, key=lambda name: Experiment.load(name).words["order"])
