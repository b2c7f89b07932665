"""The standard metrics, of classes and labels and of regression."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dmkl._util.types import Float64, Mask
from dmkl.data import Labels
from dmkl.model.metrics import Metric

ONE_CLASS = ("binary", "multiclass")
CLASSES = (*ONE_CLASS, "multilabel")
REAL = ("regression",)


def accuracy(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """Share of samples with the right class."""
    return float((predicted.values == truth.values).mean())


def balanced_accuracy(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """Mean recall of the classes that occur."""
    right = predicted.values == truth.values
    return float(np.mean([right[truth.values == code].mean() for code in np.unique(truth.values)]))


def roc_auc(scores: Float64, predicted: Labels, truth: Labels) -> float | None:
    """Area under the ROC curve, averaged over the outputs that have samples on both sides."""
    from sklearn.metrics import roc_auc_score

    return _mean_of_outputs(roc_auc_score, scores, truth, lambda inside: bool(inside.any() and not inside.all()))


def average_precision(scores: Float64, predicted: Labels, truth: Labels) -> float | None:
    """Area under the precision-recall curve, averaged over the outputs that occur."""
    from sklearn.metrics import average_precision_score

    return _mean_of_outputs(average_precision_score, scores, truth, lambda inside: bool(inside.any()))


def _mean_of_outputs(
    function: Callable[[Mask, Float64], float], scores: Float64, truth: Labels, defined: Callable[[Mask], bool]
) -> float | None:
    inside = truth.signs() > 0
    values = [function(inside[:, k], scores[:, k]) for k in range(inside.shape[1]) if defined(inside[:, k])]
    return float(np.mean(values)) if values else None


def f1(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """Harmonic mean of precision and recall of the second class."""
    return _f1(predicted, truth, "binary")


def macro_f1(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """F1 of every class or label, averaged."""
    return _f1(predicted, truth, "macro")


def micro_f1(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """F1 over all pairs of samples and labels."""
    return _f1(predicted, truth, "micro")


def _f1(predicted: Labels, truth: Labels, average: str) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth.values, predicted.values, average=average, zero_division=0))


def r2(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """Share of the variance that is explained; nan if the true targets are constant."""
    if np.ptp(truth.values) == 0:
        return np.nan
    return 1.0 - float(np.mean(_errors(predicted, truth) ** 2) / np.var(truth.values))


def rmse(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """Root mean squared error, in the unit of the target."""
    return float(np.sqrt(np.mean(_errors(predicted, truth) ** 2)))


def mae(scores: Float64, predicted: Labels, truth: Labels) -> float:
    """Mean absolute error, in the unit of the target."""
    return float(np.mean(np.abs(_errors(predicted, truth))))


def _errors(predicted: Labels, truth: Labels) -> Float64:
    return np.asarray(predicted.values - truth.values, dtype=np.float64)


ACCURACY = Metric("accuracy", ONE_CLASS, accuracy, reported=ONE_CLASS)
BALANCED_ACCURACY = Metric("balanced_accuracy", ONE_CLASS, balanced_accuracy, reported=ONE_CLASS)
ROC_AUC = Metric("roc_auc", CLASSES, roc_auc, reported=("binary",), title="ROC AUC")
MEAN_AVERAGE_PRECISION = Metric("mean_average_precision", ("multilabel",), average_precision, reported=("multilabel",))
MICRO_F1 = Metric("micro_f1", ("multilabel",), micro_f1, reported=("multilabel",), title="micro F1")
MACRO_F1 = Metric("macro_f1", ("multiclass", "multilabel"), macro_f1, title="macro F1")
F1 = Metric("f1", ("binary",), f1, title="F1")
AVERAGE_PRECISION = Metric("average_precision", CLASSES, average_precision)
R2 = Metric("r2", REAL, r2, reported=REAL, title="R²")
RMSE = Metric("rmse", REAL, rmse, larger_is_better=False, reported=REAL, title="RMSE")
MAE = Metric("mae", REAL, mae, larger_is_better=False, reported=REAL, title="MAE")
