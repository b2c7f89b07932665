"""The result of a search: mean and standard error of every point over the folds, and the rule that chooses one."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, Table
from dmkl.config import RULES
from dmkl.errors import ConfigError, SolverError, did_you_mean
from dmkl.problems import FORMULATIONS, Formulation, describe

NUMBERS = ("mean", "se", "kernels", "passes", "svm_calls", "unproved", "seconds")  # columns of a table


@dataclass(frozen=True)
class FoldScore:
    """The score of one point on one fold."""

    point: int
    fold: int
    metrics: dict[str, float]  # of the held-out samples, the leading one first
    kernels: float  # with weight, in the mean over classes
    passes: int
    svm_calls: int
    rounds: int
    gap: float
    converged: bool  # to the tolerance, or to where the formulation's own rule ends a run
    seconds: float

    @property
    def value(self) -> float:
        """The leading metric."""
        return next(iter(self.metrics.values()))


@dataclass(frozen=True)
class PointScore:
    """The score of one point over all folds."""

    formulation: Formulation
    mean: float
    se: float  # standard error of the mean
    kernels: float  # with weight, in the mean over classes and folds
    values: tuple[float, ...]  # the leading metric, fold by fold
    passes: int
    svm_calls: int
    unproved: int  # fits that did not reach the tolerance, nor a rule of their own that ends them
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """The result of `dmkl.tune`.

    Attributes
    ----------
    formulation : Formulation
        The chosen point, to be solved on all samples.
    rows : tuple of PointScore
        One row a point: its formulation, the mean of the metric over the folds, the standard error of that mean, the
        mean number of kernels with weight, the values fold by fold, and what the fits took.
    metric : str
        The name of the metric.
    larger_is_better : bool
        False if the metric is an error.
    folds, repeats : int
    rule : str
        "one-se" or "best".
    best, chosen : int
        The row with the best mean, and the row that the rule chose.
    passes, svm_calls : int
        Sums over all fits.
    seconds : float
        How long the search took.
    """

    rows: tuple[PointScore, ...]
    metric: str
    folds: int
    repeats: int
    rule: str
    best: int
    chosen: int
    seconds: float
    larger_is_better: bool = True

    @property
    def formulation(self) -> Formulation:
        return self.rows[self.chosen].formulation

    @property
    def passes(self) -> int:
        return sum(row.passes for row in self.rows)

    @property
    def svm_calls(self) -> int:
        return sum(row.svm_calls for row in self.rows)

    def to_dict(self) -> Table:
        """The table for JSON, with the constants of every point by name."""
        names = {cls: name for name, cls in FORMULATIONS.items()}
        table = []
        for row in self.rows:
            numbers = {name: getattr(row, name) for name in NUMBERS}
            constants = {"name": names[type(row.formulation)], **row.formulation.constants()}
            table.append(
                {"point": describe(row.formulation), "formulation": constants, **numbers, "values": row.values}
            )
        return {
            "metric": self.metric,
            "larger_is_better": self.larger_is_better,
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
        """The table with one line a point; the last columns hold the values fold by fold."""
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
        """The table as lines of text, the chosen point marked with a star."""
        width = max(len(describe(row.formulation)) for row in self.rows)
        heads = f"  {'':<{width}}  {self.metric.replace('_', ' '):>18}  kernels  passes  SVM calls"
        return [heads] + [
            f"{'*' if i == self.chosen else ' '} {describe(row.formulation):<{width}}  "
            f"{row.mean:>8.4f} +- {row.se:.4f}  {row.kernels:>7.1f}  {row.passes:>6}  {row.svm_calls:>9}"
            for i, row in enumerate(self.rows)
        ]


def table_of(points: Sequence[Formulation], scores: Sequence[FoldScore], folds: int) -> tuple[PointScore, ...]:
    """One row a point.

    The standard error is the standard deviation over all folds divided by the root of the number of folds of one
    repeat: repeats make the estimate steadier, but they use the same samples and are no further evidence.
    """
    rows = []
    for number, point in enumerate(points):
        mine = sorted((score for score in scores if score.point == number), key=lambda score: score.fold)
        values = np.array([score.value for score in mine])
        rows.append(
            PointScore(
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


def choose(rows: Sequence[PointScore], rule: str, *, larger_is_better: bool = True) -> tuple[int, int]:
    """The row with the best mean and the row that the rule chooses.

    With "one-se" every row within one standard error of the best mean is a candidate, with "best" only rows that equal
    it. Among the candidates the simplest is chosen: the fewest kernels with weight, to a tenth; then the strongest
    regularisation among those of one formulation; then the best mean; then the first.
    """
    check_rule(rule)
    sign = 1.0 if larger_is_better else -1.0
    means = np.array([sign * row.mean for row in rows])
    if np.isnan(means).all():
        raise SolverError(
            "no point has a score on every fold",
            "the metric may be undefined on a fold with one class or a constant target: use fewer folds",
        )
    highest = np.nanmax(means)
    best = _simplest(rows, means, [i for i, mean in enumerate(means) if mean == highest])
    if rule == "best":
        return best, best
    return best, _simplest(rows, means, [i for i, mean in enumerate(means) if mean >= highest - rows[best].se])


def check_rule(rule: str) -> None:
    if rule not in RULES:
        raise ConfigError(f"unknown rule '{rule}'", did_you_mean(rule, list(RULES)))


def _simplest(rows: Sequence[PointScore], means: Float64, among: Sequence[int]) -> int:
    """Fewest kernels first; among the points of the first formulation with so few, the strongest regularisation."""
    fewest = min(round(rows[i].kernels, 1) for i in among)
    sparse = [i for i in among if round(rows[i].kernels, 1) == fewest]
    kind = type(rows[sparse[0]].formulation)
    alike = [i for i in sparse if type(rows[i].formulation) is kind]
    return max(alike, key=lambda i: (rows[i].formulation.strength, means[i], -i))
