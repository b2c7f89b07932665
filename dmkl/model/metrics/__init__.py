"""Metrics: how good scores and the predictions made from them are on samples with known labels or targets.

A new metric is one file with a `Metric` and one line in the table here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.errors import ConfigError, did_you_mean
from dmkl.model.model import Model, predicted


@dataclass(frozen=True)
class Metric:
    """One number that tells how good predictions are.

    Parameters
    ----------
    name : str
        As in `METRICS`, in configuration files and in results.
    tasks : tuple of str
        The tasks it is defined for: "binary", "multiclass", "multilabel", "regression".
    compute : callable
        `compute(scores, predicted, truth)`: scores of shape (n, m), the `Labels` predicted from them and the true
        `Labels`. Returns a float, or None if the metric is undefined on these samples.
    larger_is_better : bool
        False for errors.
    reported : tuple of str
        The tasks whose reports contain it whether or not it was selected.
    title : str
        Its name in reports; by default `name` with spaces.
    digits : int
        Significant digits in reports.
    """

    name: str
    tasks: tuple[str, ...]
    compute: Callable[[Float64, Labels, Labels], float | None]
    larger_is_better: bool = True
    reported: tuple[str, ...] = ()
    title: str = ""
    digits: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))

    def shown(self, value: float | None) -> str:
        """The value as reports print it, "-" if it is undefined."""
        return "-" if value is None or not math.isfinite(value) else f"{value:.{self.digits}g}"

    @property
    def sign(self) -> float:
        """What a value is multiplied by so that larger is better."""
        return 1.0 if self.larger_is_better else -1.0


METRICS: Registry[Metric] = Registry("metric")  # in the order of reports; the first one reported for a task leads
METRICS.register("accuracy", "dmkl.model.metrics.standard:ACCURACY")
METRICS.register("balanced_accuracy", "dmkl.model.metrics.standard:BALANCED_ACCURACY")
METRICS.register("roc_auc", "dmkl.model.metrics.standard:ROC_AUC")
METRICS.register("mean_average_precision", "dmkl.model.metrics.standard:MEAN_AVERAGE_PRECISION")
METRICS.register("micro_f1", "dmkl.model.metrics.standard:MICRO_F1")
METRICS.register("macro_f1", "dmkl.model.metrics.standard:MACRO_F1")
METRICS.register("f1", "dmkl.model.metrics.standard:F1")
METRICS.register("average_precision", "dmkl.model.metrics.standard:AVERAGE_PRECISION")
METRICS.register("r2", "dmkl.model.metrics.standard:R2")
METRICS.register("rmse", "dmkl.model.metrics.standard:RMSE")
METRICS.register("mae", "dmkl.model.metrics.standard:MAE")


def leading_metric(task: str, name: str = "") -> Metric:
    """The metric that a choice is made by.

    Parameters
    ----------
    task : str
        "binary", "multiclass", "multilabel" or "regression".
    name : str
        A name in `METRICS`; "" stands for the first metric that is reported for the task.

    Returns
    -------
    Metric

    Raises
    ------
    ConfigError
        If there is no metric of this name, or if it is not defined for the task.
    """
    if not name:
        return next(metric for metric in METRICS.values() if task in metric.reported)
    fitting = [known for known, metric in METRICS.items() if task in metric.tasks]
    if name in fitting:
        return METRICS[name]
    if name in METRICS:
        meant = ", ".join(METRICS[name].tasks)
        raise ConfigError(f"metric '{name}' is for {meant}, the task is {task}", f"choose from: {', '.join(fitting)}")
    raise ConfigError(f"unknown metric '{name}'", did_you_mean(name, fitting))


def measure(scores: Float64, truth: Labels, metric: str = "") -> dict[str, float]:
    """The metrics of scores, the leading one first.

    Parameters
    ----------
    scores : array of shape (n, m)
        One column an output: one for two classes and for a regression, otherwise one for each class or label.
    truth : Labels
        The true labels or targets of the n samples.
    metric : str
        The leading metric, "" for the usual one of the task.

    Returns
    -------
    dict of str to float
        The leading metric, then all that are reported for the task. A metric that is undefined on these samples is left
        out; the leading one is nan then.

    Raises
    ------
    ConfigError
        If the metric is unknown or does not fit the task.
    """
    leading = leading_metric(truth.task, metric)
    labels = predicted(scores, truth.task, truth.classes)
    values = {leading.name: leading.compute(scores, labels, truth)}
    for other in METRICS.values():
        if truth.task in other.reported and other is not leading:
            values[other.name] = other.compute(scores, labels, truth)
    if values[leading.name] is None:
        values[leading.name] = np.nan
    return {name: value for name, value in values.items() if value is not None}


def per_class(model: Model, scores: Float64, truth: Labels) -> list[dict[str, float | str]]:
    """Average precision of every class that occurs; a regression has no classes."""
    from sklearn.metrics import average_precision_score

    if model.task == "regression":
        return []
    rows: list[dict[str, float | str]] = []
    for k, (name, sign) in enumerate(zip(model.outputs, truth.signs().T, strict=True)):
        if (sign > 0).any():
            rows.append({"class": name, "average_precision": float(average_precision_score(sign > 0, scores[:, k]))})
    return rows
