"""Scikit-learn estimators: one small class each, everything common in `base.py`."""

from dmkl.estimators.base import KernelClassifier, KernelEstimator, KernelRegressor
from dmkl.estimators.joint import ObscureClassifier, SharedMKLClassifier
from dmkl.estimators.kernel_bank import KernelBank
from dmkl.estimators.mikl import MIKLClassifier
from dmkl.estimators.separate import (
    L1MKLClassifier,
    LpMKLClassifier,
    UniformMKLClassifier,
    UniformMKLRegressor,
    VSKLClassifier,
)
from dmkl.estimators.spicy import SpicyMKLClassifier, SpicyMKLRegressor

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
    "SharedMKLClassifier",
    "SpicyMKLClassifier",
    "SpicyMKLRegressor",
    "UniformMKLClassifier",
    "UniformMKLRegressor",
    "VSKLClassifier",
]
