"""Kernels as a transformer: from samples to their kernel values against the training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils import Tags

from dmkl._util.types import Array, Block, Float32
from dmkl.data import Dataset
from dmkl.estimators.docstrings import INPUTS, complete
from dmkl.estimators.inputs import KernelInput
from dmkl.estimators.training_set import TrainingSet
from dmkl.model import check_views
from dmkl.runtime import Local

ROWS = 1024  # samples of one task


@dataclass(kw_only=True, eq=False, repr=False)
class KernelBank(TransformerMixin, KernelInput):
    """Kernel values of samples against the training samples, for estimators with `kernels="precomputed"`.

    Widths, normalisers and centres are fitted on the training samples.

    Parameters
    ----------
    <shared parameters>

    Attributes
    ----------
    kernel_names_ : list of s str
        View, kernel and constants of each kernel, e.g. "x/rbf(width=1 median)".
    groups_ : dict of str to lists of int
        The kernels of each group: the parameter `views` of an estimator that is fitted on the stack.
    training_ : TrainingSet
        The training samples with their fitted kernels.
    columns_ : dict of str to arrays of int, or None
        The columns of each view; None if X was a dict.
    n_features_in_ : int
        Number of columns of X, if X was an array or a table.
    feature_names_in_ : array of str
        Names of the columns, if X had names.

    See Also
    --------
    VSKLClassifier : Takes such a stack, and learns few kernels in every group.

    Examples
    --------
    >>> import numpy as np
    >>> from dmkl import KernelBank, VSKLClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> y = np.where(X[:, 0] > X[:, 2], "yes", "no")
    >>> bank = KernelBank(views={"first": [0, 1], "last": [2, 3]})
    >>> stack = bank.fit_transform(X)
    >>> stack.shape
    (60, 60, 6)
    >>> model = VSKLClassifier(C=10, kernels="precomputed", views=bank.groups_).fit(stack, y)
    >>> model.predict(bank.transform([[1, 0, -1, 0], [-1, 0, 1, 0]]))
    array(['yes', 'no'], dtype='<U3')
    """

    __doc__ = complete(__doc__, {"shared parameters": INPUTS}) if __doc__ else None

    def fit(self, X: object, y: object = None) -> Self:
        """Fit widths, normalisers and centres on the samples X, and keep the samples; y is ignored."""
        views, _ = self._training_views(X)
        self.training_ = TrainingSet.fit(self._tables(), Dataset(views), Local(self._threads()))
        bank = self.training_.bank
        self.kernel_names_ = [kernel.name for kernel in bank.kernels]
        self.groups_: dict[str, list[int]] = {}
        for a, kernel in enumerate(bank.kernels):
            self.groups_.setdefault(kernel.group, []).append(a)
        return self

    def transform(self, X: object) -> Float32:
        """The kernel values of new samples X, of shape (n, n_train, s)."""
        data = self._new_views(X)
        widths = {name: view.values.shape[1] for name, view in self.training_.data.views.items()}
        check_views(self.training_.bank, widths, data)
        spans = [np.arange(start, min(start + ROWS, data.n)) for start in range(0, data.n, ROWS)]
        stack = np.empty((data.n, self.training_.grid.n, len(self.kernel_names_)), np.float32)
        tasks = ((self.training_, data.take(rows), stack[rows[0] : rows[-1] + 1]) for rows in spans)
        for _ in Local(self._threads()).map(_fill, tasks):
            pass
        return stack

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]  # the type of kernel values
        return tags


class AgainstTraining:
    """Pairs of new samples and training samples, as kernels take them."""

    same = False

    def __init__(self, training: Dataset, new: Dataset) -> None:
        self._training, self._new = training, new

    def sides(self, view: str) -> tuple[Block, Block]:
        return self._new.views[view].values, self._training.views[view].values

    def matrix(self, view: str) -> Array:
        return self._new.views[view].values


def _fill(training: TrainingSet, new: Dataset, stack: Float32) -> None:
    """Write the kernel values of new samples into their rows of the stack."""
    bank = training.bank
    for a, values in bank.values(AgainstTraining(training.data, new)):
        means = training.means[a]
        stack[:, :, a] = bank.finished(a, values, values.mean(axis=1, dtype=np.float64), means, means)
