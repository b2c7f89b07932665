"""Estimators whose samples may count more than once, or less: for formulations that are sums of losses of samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sklearn.utils.class_weight import compute_sample_weight

from dmkl._util.types import Float64
from dmkl.estimators.base import KernelClassifier, KernelRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedClassifier(KernelClassifier):
    """`class_weight`, a dict by class or "balanced", multiplies the weights of the samples of each class."""

    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from samples X and their labels y; a weight of 2 is as good as the sample twice, 0 as without it."""
        return self._fit(X, y, sample_weight)

    def _counts(self, y: Any, sample_weight: Any) -> Float64 | None:
        counts = super()._counts(y, sample_weight)
        if self.class_weight is None:
            return counts
        by_class: Float64 = compute_sample_weight(self.class_weight, y)
        return by_class if counts is None else counts * by_class


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedRegressor(KernelRegressor):
    """One real target."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from samples X and their targets y; a weight of 2 is as good as the sample twice, 0 as without it."""
        return self._fit(X, y, sample_weight)
