"""Scikit-learn estimators: one small class each, everything common in `base.py`."""

from dmkl.estimators.base import KernelClassifier, KernelEstimator, KernelRegressor
from dmkl.estimators.spicy import SpicyMKLClassifier, SpicyMKLRegressor

ESTIMATORS = (SpicyMKLClassifier, SpicyMKLRegressor)

__all__ = [
    "ESTIMATORS",
    "KernelClassifier",
    "KernelEstimator",
    "KernelRegressor",
    "SpicyMKLClassifier",
    "SpicyMKLRegressor",
]
