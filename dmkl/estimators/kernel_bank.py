"""Kernels as a transformer: from samples to a stack of kernel values against the training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin

from dmkl.data import Dataset
from dmkl.estimators.inputs import KernelInput
from dmkl.estimators.training import TrainingSet
from dmkl.model import check_views
from dmkl.runtime import Local

Float32 = NDArray[np.float32]
ROWS = 1024  # samples of one task


@dataclass(kw_only=True, eq=False, repr=False)
class KernelBank(TransformerMixin, KernelInput):
    """Kernel values (n, n_train, s) of samples against the training samples, as estimators with
    `kernels="precomputed"` take them.

    `kernels`, `views` and `n_jobs` are those of estimators. Widths, normalisers and centres are fitted on the training
    samples, and kept. After `fit`: `kernel_names_`, and `groups_`, which kernels belong together: what `views` is to an
    estimator that takes the stack.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Measure widths, traces and means; keep the samples."""
        views, _ = self._training_views(X)
        self.training_ = TrainingSet.fit(self._tables(), Dataset(views), Local(self._threads()))
        bank = self.training_.bank
        self.kernel_names_ = [kernel.name for kernel in bank.kernels]
        self.groups_: dict[str, list[int]] = {}
        for a, kernel in enumerate(bank.kernels):
            self.groups_.setdefault(kernel.group, []).append(a)
        return self

    def transform(self, X: Any) -> Float32:
        """The stack of X against the training samples."""
        data = self._new_views(X)
        widths = {name: view.values.shape[1] for name, view in self.training_.data.views.items()}
        check_views(self.training_.bank, widths, data)
        spans = [np.arange(start, min(start + ROWS, data.n)) for start in range(0, data.n, ROWS)]
        stack = np.empty((data.n, self.training_.grid.n, len(self.kernel_names_)), np.float32)
        tasks = ((self.training_, data.take(rows), stack[rows[0] : rows[-1] + 1]) for rows in spans)
        for _ in Local(self._threads()).map(fill, tasks):
            pass
        return stack

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]  # what kernels are kept in
        return tags


class AgainstTraining:
    """New samples against the training samples."""

    same = False

    def __init__(self, training: Dataset, new: Dataset) -> None:
        self._training, self._new = training, new

    def sides(self, view: str) -> tuple[Any, Any]:
        return self._new.views[view].values, self._training.views[view].values

    def given(self, view: str) -> Any:
        return self._new.views[view].values


def fill(training: TrainingSet, new: Dataset, stack: Float32) -> None:
    """The rows of new samples."""
    bank = training.bank
    for a, values in bank.values(AgainstTraining(training.data, new)):
        means = training.means[a]
        stack[:, :, a] = bank.finished(a, values, values.mean(axis=1, dtype=np.float64), means, means)
