"""Metrics of real targets."""

from __future__ import annotations

import numpy as np

from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.model.metrics.base import Metric

REAL = ("regression",)


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


R2 = Metric("r2", REAL, r2, reported=REAL, title="R²")
RMSE = Metric("rmse", REAL, rmse, larger_is_better=False, reported=REAL, title="RMSE")
MAE = Metric("mae", REAL, mae, larger_is_better=False, reported=REAL, title="MAE")
