"""Scikit-learn estimators: small classes for the formulations; everything they share is in `base.py`."""

from dmkl.estimators.base import KernelClassifier, KernelEstimator, KernelRegressor
from dmkl.estimators.classifiers import (
    L1MKLClassifier,
    LpMKLClassifier,
    MIKLClassifier,
    ObscureClassifier,
    SharedMKLClassifier,
    SpicyMKLClassifier,
    UniformMKLClassifier,
    VSKLClassifier,
)
from dmkl.estimators.inputs import KernelBank
from dmkl.estimators.regressors import ObscureRegressor, SpicyMKLRegressor, UniformMKLRegressor

ESTIMATORS = (
    UniformMKLClassifier,
    UniformMKLRegressor,
    VSKLClassifier,
    L1MKLClassifier,
    LpMKLClassifier,
    SpicyMKLClassifier,
    SpicyMKLRegressor,
    SharedMKLClassifier,
    ObscureClassifier,
    ObscureRegressor,
    MIKLClassifier,
)

__all__ = [
    "ESTIMATORS",
    "KernelBank",
    "KernelClassifier",
    "KernelEstimator",
    "KernelRegressor",
    "L1MKLClassifier",
    "LpMKLClassifier",
    "MIKLClassifier",
    "ObscureClassifier",
    "ObscureRegressor",
    "SharedMKLClassifier",
    "SpicyMKLClassifier",
    "SpicyMKLRegressor",
    "UniformMKLClassifier",
    "UniformMKLRegressor",
    "VSKLClassifier",
]
