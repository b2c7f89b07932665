"""What a search found: every point's mean and standard error over the folds, and the rule that chooses one."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmkl.config import RULES
from dmkl.errors import ConfigError, SolverError, did_you_mean
from dmkl.solvers import FORMULATIONS, describe


@dataclass(frozen=True)
class Score:
    """One point on one fold."""

    point: int
    fold: int
    metrics: dict[str, float]  # of the held-out samples, the leading one first
    kernels: float  # with weight, in the mean over classes
    passes: int
    svm_calls: int
    rounds: int
    gap: float
    converged: bool
    seconds: float

    @property
    def value(self) -> float:
        return next(iter(self.metrics.values()))


@dataclass(frozen=True)
class Row:
    """One point over all folds."""

    formulation: Any
    mean: float
    se: float  # standard error of the mean
    kernels: float  # with weight, in the mean over classes and folds
    values: tuple[float, ...]  # of the leading metric, fold by fold
    passes: int
    svm_calls: int
    unproved: int  # fits that did not reach the tolerance
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """The table of a search; `formulation` is the choice."""

    rows: tuple[Row, ...]
    metric: str
    folds: int
    repeats: int
    rule: str
    best: int  # the row with the highest mean
    chosen: int
    seconds: float

    @property
    def formulation(self) -> Any:
        return self.rows[self.chosen].formulation

    @property
    def passes(self) -> int:
        return sum(row.passes for row in self.rows)

    @property
    def svm_calls(self) -> int:
        return sum(row.svm_calls for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the constants of every point by name."""
        names = {cls: name for name, cls in FORMULATIONS.items()}
        table = []
        for row in self.rows:
            facts = {field: getattr(row, field) for field in NUMBERS}
            constants = {"name": names[type(row.formulation)], **row.formulation.constants()}
            table.append({"point": describe(row.formulation), "formulation": constants, **facts, "values": row.values})
        return {
            "metric": self.metric,
            "folds": self.folds,
            "repeats": self.repeats,
            "rule": self.rule,
            "points": len(self.rows),
            "chosen": self.chosen,
            "best": self.best,
            "passes": self.passes,
            "svm_calls": self.svm_calls,
            "unproved": sum(row.unproved for row in self.rows),
            "kernels_fitted_on": "all training samples, without labels",
            "seconds": self.seconds,
            "table": table,
        }

    def to_csv(self) -> str:
        """One line a point, the folds' values in the last columns."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["point", "chosen", "best", *NUMBERS, *(f"fold {i + 1}" for i in range(len(self.rows[0].values)))]
        )
        for i, row in enumerate(self.rows):
            marks = [int(i == self.chosen), int(i == self.best)]
            writer.writerow([describe(row.formulation), *marks, *(getattr(row, name) for name in NUMBERS), *row.values])
        return text.getvalue()

    def lines(self) -> list[str]:
        """The table for people."""
        width = max(len(describe(row.formulation)) for row in self.rows)
        heads = f"  {'':<{width}}  {self.metric.replace('_', ' '):>18}  kernels  passes  SVM calls"
        return [heads] + [
            f"{'*' if i == self.chosen else ' '} {describe(row.formulation):<{width}}  "
            f"{row.mean:>8.4f} +- {row.se:.4f}  {row.kernels:>7.1f}  {row.passes:>6}  {row.svm_calls:>9}"
            for i, row in enumerate(self.rows)
        ]


NUMBERS = ("mean", "se", "kernels", "passes", "svm_calls", "unproved", "seconds")


def table_of(points: Sequence[Any], scores: Sequence[Score], folds: int) -> tuple[Row, ...]:
    """One row a point. The standard error is the deviation over all folds by the root of the folds of one repeat:
    repeats steady both, but they see the same samples and are no further evidence."""
    rows = []
    for number, point in enumerate(points):
        mine = sorted((score for score in scores if score.point == number), key=lambda score: score.fold)
        values = np.array([score.value for score in mine])
        rows.append(
            Row(
                formulation=point,
                mean=float(values.mean()),
                se=float(values.std(ddof=1) / np.sqrt(folds)),
                kernels=float(np.mean([score.kernels for score in mine])),
                values=tuple(values.tolist()),
                passes=sum(score.passes for score in mine),
                svm_calls=sum(score.svm_calls for score in mine),
                unproved=sum(not score.converged for score in mine),
                seconds=sum(score.seconds for score in mine),
            )
        )
    return tuple(rows)


def choose(rows: Sequence[Row], rule: str) -> tuple[int, int]:
    """(best, chosen) of the rows. Of what is as good (the same mean, or with 'one-se' within one standard error of the
    best) the simplest: the fewest kernels with weight, to a tenth; then the strongest regularisation among those of
    one formulation; then the highest mean; then the first."""
    check_rule(rule)
    means = np.array([row.mean for row in rows])
    if np.isnan(means).all():
        raise SolverError("no point has a score on every fold", "the target may be constant in one: use fewer folds")
    highest = np.nanmax(means)
    best = _simplest(rows, [i for i, mean in enumerate(means) if mean == highest])
    if rule == "best":
        return best, best
    return best, _simplest(rows, [i for i, mean in enumerate(means) if mean >= highest - rows[best].se])


def check_rule(rule: str) -> None:
    if rule not in RULES:
        raise ConfigError(f"unknown rule '{rule}'", did_you_mean(rule, list(RULES)))


def _simplest(rows: Sequence[Row], among: Sequence[int]) -> int:
    """Fewest kernels first; of the formulation that comes first with so few, the strongest."""
    fewest = min(round(rows[i].kernels, 1) for i in among)
    sparse = [i for i in among if round(rows[i].kernels, 1) == fewest]
    kind = type(rows[sparse[0]].formulation)
    alike = [i for i in sparse if type(rows[i].formulation) is kind]
    return max(alike, key=lambda i: (rows[i].formulation.strength, rows[i].mean, -i))
