"""How good predictions are, in the terms of the task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmkl.data import Labels
from dmkl.model.model import Model

Float64 = NDArray[np.float64]


def score(model: Model, scores: Float64, truth: Labels) -> dict[str, float]:
    """The task's metrics, the leading one first."""
    from sklearn.metrics import f1_score, roc_auc_score

    predicted = model.predict(scores)
    if model.task == "multilabel":
        return {
            "mean_average_precision": mean_average_precision(scores, truth),
            "micro_f1": float(f1_score(truth.values, predicted.values, average="micro", zero_division=0)),
        }
    right = predicted.values == truth.values
    recalls = [right[truth.values == code].mean() for code in np.unique(truth.values)]
    result = {"accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(recalls))}
    if model.task == "binary" and len(np.unique(truth.values)) == 2:
        result["roc_auc"] = float(roc_auc_score(truth.values, scores[:, 0]))
    return result


def mean_average_precision(scores: Float64, truth: Labels) -> float:
    """Area under the precision-recall curve, averaged over the labels that occur."""
    from sklearn.metrics import average_precision_score

    columns = [k for k in range(scores.shape[1]) if truth.values[:, k].any()]
    return float(np.mean([average_precision_score(truth.values[:, k], scores[:, k]) for k in columns]))


def per_class(model: Model, scores: Float64, truth: Labels) -> list[dict[str, float | str]]:
    """Average precision of every class that occurs."""
    from sklearn.metrics import average_precision_score

    rows: list[dict[str, float | str]] = []
    names = model.classes[1:] if model.task == "binary" else model.classes
    for k, (name, sign) in enumerate(zip(names, truth.signs().T, strict=True)):
        if (sign > 0).any():
            rows.append({"class": name, "average_precision": float(average_precision_score(sign > 0, scores[:, k]))})
    return rows
