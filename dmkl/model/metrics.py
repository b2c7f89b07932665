"""How good predictions are, in the terms of the task."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.model.model import Model, predicted


def score(model: Model, scores: Float64, truth: Labels) -> dict[str, float]:
    """The task's metrics, the leading one first; the leading one is better when it is larger."""
    return METRICS[model.task](scores, model.predict(scores), truth)


def score_like(scores: Float64, truth: Labels) -> dict[str, float]:
    """The same of scores that come from no model, for the task and classes of the truth."""
    return METRICS[truth.task](scores, predicted(scores, truth.task, truth.classes), truth)


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


def _of_targets(scores: Float64, predicted: Labels, truth: Labels) -> dict[str, float]:
    """Errors in the unit of the target; r2 compares with the mean of the truth, and is nan where that never errs."""
    errors = predicted.values - truth.values
    constant = np.ptp(truth.values) == 0
    return {
        "r2": np.nan if constant else 1.0 - float(np.mean(errors**2) / np.var(truth.values)),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "mae": float(np.mean(np.abs(errors))),
    }


def _of_classes(scores: Float64, predicted: Labels, truth: Labels) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    right = predicted.values == truth.values
    recalls = [right[truth.values == code].mean() for code in np.unique(truth.values)]
    result = {"accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(recalls))}
    if truth.task == "binary" and len(np.unique(truth.values)) == 2:
        result["roc_auc"] = float(roc_auc_score(truth.values, scores[:, 0]))
    return result


def _of_labels(scores: Float64, predicted: Labels, truth: Labels) -> dict[str, float]:
    from sklearn.metrics import f1_score

    return {
        "mean_average_precision": mean_average_precision(scores, truth),
        "micro_f1": float(f1_score(truth.values, predicted.values, average="micro", zero_division=0)),
    }


def mean_average_precision(scores: Float64, truth: Labels) -> float:
    """Area under the precision-recall curve, averaged over the labels that occur."""
    from sklearn.metrics import average_precision_score

    columns = [k for k in range(scores.shape[1]) if truth.values[:, k].any()]
    return float(np.mean([average_precision_score(truth.values[:, k], scores[:, k]) for k in columns]))


METRICS: dict[str, Callable[[Float64, Labels, Labels], dict[str, float]]] = {
    "binary": _of_classes,
    "multiclass": _of_classes,
    "multilabel": _of_labels,
    "regression": _of_targets,
}
