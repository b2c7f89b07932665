"""SpicyMKL as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.weighted import WeightedClassifier, WeightedRegressor
from dmkl.problems.losses import LossLike
from dmkl.solvers import SpicyMKL


@dataclass(kw_only=True, eq=False, repr=False)
class SpicyMKLClassifier(WeightedClassifier):
    """Few of many kernels for every class, fewer as C grows; `loss` is "hinge", "logistic" or "squared"."""

    formulation: ClassVar = SpicyMKL

    C: float = 1.0
    loss: LossLike = "hinge"
    ridge: float = 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class SpicyMKLRegressor(WeightedRegressor):
    """Few of many kernels for a real target, fewer as C grows; `loss` is "squared", or "epsilon" with its tube."""

    formulation: ClassVar = SpicyMKL

    C: float = 1.0
    loss: LossLike = "squared"
    epsilon: float = 0.1
    ridge: float = 0.0
