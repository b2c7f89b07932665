"""One machine a class, one against the rest, as scikit-learn estimators: weights given, or learnt for every class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.weighted import WeightedClassifier, WeightedRegressor
from dmkl.problems.losses import LossLike
from dmkl.solvers import L1MKL, VSKL, LpMKL, UniformMKL


@dataclass(kw_only=True, eq=False, repr=False)
class UniformMKLClassifier(WeightedClassifier):
    """The average kernel, with `loss` "hinge", "logistic" or "squared": the baseline."""

    formulation: ClassVar = UniformMKL

    C: float = 1.0
    intercept: bool = True
    loss: LossLike = "hinge"


@dataclass(kw_only=True, eq=False, repr=False)
class UniformMKLRegressor(WeightedRegressor):
    """The average kernel, with `loss` "squared", or "epsilon" with its tube: the baseline of a regression."""

    formulation: ClassVar = UniformMKL

    C: float = 1.0
    loss: LossLike = "squared"
    epsilon: float = 0.1


@dataclass(kw_only=True, eq=False, repr=False)
class VSKLClassifier(WeightedClassifier):
    """Few kernels inside a view; all views used (q = inf), or fewer (q = 1 to 2)."""

    formulation: ClassVar = VSKL

    q: float = 2.0
    C: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class L1MKLClassifier(WeightedClassifier):
    """Few kernels overall."""

    formulation: ClassVar = L1MKL

    C: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class LpMKLClassifier(WeightedClassifier):
    """From few kernels (p = 1) to all of them alike (p = inf)."""

    formulation: ClassVar = LpMKL

    p: float = 2.0
    C: float = 1.0
