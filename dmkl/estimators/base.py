"""What all scikit-learn estimators share: an estimator is a formulation and those of its constants that can be set.

Parameters are dataclass fields, so a class lists each of them once; nothing is checked before `fit`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from dmkl._util.in_memory import in_memory
from dmkl._util.types import Array, Float64, StrPath
from dmkl.data import Dataset, Labels
from dmkl.errors import ConfigError, DataError
from dmkl.estimators import docstrings
from dmkl.estimators.inputs import KernelInput
from dmkl.estimators.training_set import TrainingSet
from dmkl.model import TrainingKernels, make_model
from dmkl.problems import Formulation
from dmkl.runtime import Local, Runtime, open_runtime
from dmkl.solvers import solve
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

_Inputs = tuple[TrainingKernels, KernelStack, Labels, Float64 | None]  # of `solve`


@dataclass(kw_only=True, eq=False, repr=False)
class KernelEstimator(KernelInput):
    """An estimator that learns weights of kernels over named groups of features.

    X may be an array or a table, divided into views by its columns; a dict of views such as `{"colour": X1, "D_words":
    distances}`; a stack of precomputed kernels; or the path of a kernel store, which has its own kernels and labels.

    Parameters
    ----------
    <shared parameters>

    Attributes
    ----------
    <shared attributes>
    """

    formulation: ClassVar[type[Formulation]]
    _sections: ClassVar[dict[str, str]] = {
        "shared parameters": docstrings.INPUTS + docstrings.SOLVING,
        "shared attributes": docstrings.FITTED,
        "shared errors": docstrings.RAISES,
    }
    __metadata_request__predict = {"split": True}  # noqa: RUF012 - scikit-learn's own: no request needed for it
    __doc__ = docstrings.complete(__doc__, _sections) if __doc__ else None

    tol: float = 1e-3
    method: str | None = None
    oracle: str | None = None
    max_seconds: float = np.inf
    seed: int = 0
    cluster: str = "none"

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__:
            cls.__doc__ = docstrings.complete(cls.__doc__, cls._sections)

    def fit(self, X: object, y: object = None) -> Self:
        """Learn kernel weights and coefficients.

        Parameters
        ----------
        X : array of shape (n, n_features), dict of views, stack of kernels (n, n, s), or path of a store
            The training samples.
        y : array of shape (n,)
            Their classes or targets; may be left out for a store that holds labels.

        Returns
        -------
        self

        Warns
        -----
        ConvergenceWarning
            If the gap is not certified to `tol`.
        """
        return self._fit(X, y)

    def _fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        with self._runtime() as runtime:
            if isinstance(X, str | os.PathLike):
                inputs = self._opened(X, y, sample_weight, runtime)
            else:
                inputs = self._built(X, y, sample_weight, runtime)
            origin, stack, labels, counts = inputs
            fit = solve(
                stack,
                labels,
                self._formulation(),
                tol=self.tol,
                method=self.method,
                oracle=self.oracle,
                seed=self.seed,
                sample_weight=counts,
                max_seconds=self.max_seconds,
            )
        self.model_ = make_model(origin, fit)
        self.kernel_weights_ = self.model_.weights
        self.kernel_names_ = [kernel.name for kernel in self.model_.bank.kernels]
        self.intercept_ = self.model_.intercept
        self.gap_ = fit.worst_gap
        self.n_passes_ = fit.passes
        return self

    def _built(self, X: object, y: object, sample_weight: object, runtime: Runtime) -> _Inputs:
        """Kernels computed from samples; samples of weight 0 are left out."""
        views, targets = self._training_views(X, y)
        data, counts = Dataset(views), self._counts(targets, sample_weight)
        if counts is not None and not counts.all():
            self._kept = np.flatnonzero(counts)
            if len(self._kept) < 2:
                raise ValueError(f"{len(self._kept)} samples have a weight above 0, at least two are needed")
            data, targets, counts = data.among(self._kept), targets[self._kept], counts[self._kept]
        labels = self._learnt(targets)
        samples = TrainingSet.fit(self._tables(), Dataset(data.views, labels), runtime)
        return samples, samples.stack(runtime), labels, counts

    def _opened(self, path: StrPath, y: object, sample_weight: object, runtime: Runtime) -> _Inputs:
        """The kernels of a store; `y` or else its own labels."""
        if self.kernels is not None or self.views is not None:
            raise ConfigError("a store has its own kernels and views", "leave kernels and views out")
        store, y = KernelStore(path), in_memory(y, "y")
        targets = validate_data(self, y=_names(store.labels) if y is None and store.labels is not None else y)
        self.columns_ = self._kept = None
        counts = self._counts(targets, sample_weight)
        return store, open_stack(store, runtime=runtime), self._learnt(targets), counts

    def _counts(self, y: object, sample_weight: object) -> Float64 | None:
        """The factor of each sample's loss, None if all are 1."""
        if sample_weight is None:
            return None
        given = in_memory(sample_weight, "sample_weight")
        return np.asarray(_check_sample_weight(given, y, dtype=np.float64, ensure_non_negative=True))

    def _learnt(self, y: Array) -> Labels:
        """The labels or targets to train on."""
        raise NotImplementedError  # classifiers and regressors define it

    def _scores(self, X: object) -> Float64:
        """Scores (n, m) of new samples."""
        data = self._new_views(X)
        return self.model_.decision(data, Local(self._threads()))

    def _shares(self, X: object) -> Float64:
        """(n, m, s): what each kernel contributes to the scores; the rest is the intercept."""
        data = self._new_views(X)
        return self.model_.shares(data, Local(self._threads()))

    def _runtime(self) -> AbstractContextManager[Runtime]:
        if not isinstance(self.cluster, str):
            raise ConfigError(
                "cluster should be a text, because scikit-learn copies parameters",
                'use cluster="current" inside client.as_current(), or its address',
            )
        return open_runtime(self.cluster, workers=self._threads())

    def _formulation(self) -> Formulation:
        """The formulation with the constants that are parameters here; the others have their defaults."""
        parameters = self.get_params(deep=False)
        constants = [field.name for field in dataclasses.fields(self.formulation) if field.name in parameters]
        return self.formulation(**{name: parameters[name] for name in constants})


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """A classifier for two or more classes.

    Parameters
    ----------
    <shared parameters>

    Attributes
    ----------
    <shared attributes>
    """

    _sections: ClassVar[dict[str, str]] = {
        **KernelEstimator._sections,
        "shared attributes": docstrings.CLASSES + docstrings.FITTED,
    }
    __metadata_request__decision_function = {"split": True}  # noqa: RUF012 - as above

    def predict(self, X: object, *, split: bool = False) -> Array:
        """The class of each sample.

        Parameters
        ----------
        X : array of shape (n, n_features), dict of views, or stack of kernels (n, n_train, s)
            New samples.
        split : bool, default False
            Return instead what each kernel contributes to the scores.

        Returns
        -------
        array of shape (n,), or (n, m, s) with `split`
        """
        if split:
            return self._shares(X)
        scores = self._scores(X)
        return np.asarray(self.classes_[self.model_.predict(scores).values])

    def decision_function(self, X: object, *, split: bool = False) -> Float64:
        """The scores of each sample.

        Parameters
        ----------
        X : array of shape (n, n_features), dict of views, or stack of kernels (n, n_train, s)
            New samples.
        split : bool, default False
            Return instead what each kernel contributes to the scores; with `intercept_` the contributions add up to
            the scores.

        Returns
        -------
        array of shape (n,) for two classes, positive for the second; (n, m) for more; (n, m, s) with `split`
        """
        if split:
            return self._shares(X)
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _learnt(self, y: Array) -> Labels:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_[0]!r}), at least two are needed")
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        return Labels(task, codes.astype(np.int64), tuple(str(name) for name in self.classes_))


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedClassifier(KernelClassifier):
    """A classifier whose objective is a sum over samples, so that samples can have weights.

    Parameters
    ----------
    <shared parameters>

    Attributes
    ----------
    <shared attributes>
    """

    _sections: ClassVar[dict[str, str]] = {
        **KernelClassifier._sections,
        "shared parameters": docstrings.CLASS_WEIGHT + docstrings.INPUTS + docstrings.SOLVING,
    }

    class_weight: Mapping[Hashable, float] | str | None = None

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn kernel weights and coefficients.

        Parameters
        ----------
        X : array of shape (n, n_features), dict of views, stack of kernels (n, n, s), or path of a store
            The training samples.
        y : array of shape (n,)
            Their classes; may be left out for a store that holds labels.
        sample_weight : array of shape (n,), optional
            Factor of each sample's loss: a weight of 2 duplicates a sample, 0 removes it.

        Returns
        -------
        self

        Warns
        -----
        ConvergenceWarning
            If the gap is not certified to `tol`.
        """
        return self._fit(X, y, sample_weight)

    def _counts(self, y: object, sample_weight: object) -> Float64 | None:
        counts = super()._counts(y, sample_weight)
        if self.class_weight is None:
            return counts
        by_class: Float64 = compute_sample_weight(self.class_weight, y)
        return by_class if counts is None else counts * by_class


class KernelRegressor(RegressorMixin, KernelEstimator):
    """A regressor for one real target.

    Parameters
    ----------
    <shared parameters>

    Attributes
    ----------
    <shared attributes>
    """

    def predict(self, X: object, *, split: bool = False) -> Float64:
        """The predicted target of each sample.

        Parameters
        ----------
        X : array of shape (n, n_features), dict of views, or stack of kernels (n, n_train, s)
            New samples.
        split : bool, default False
            Return instead what each kernel contributes to the predictions; with `intercept_` the contributions add up
            to them.

        Returns
        -------
        array of shape (n,), or (n, 1, s) with `split`
        """
        return self._shares(X) if split else self._scores(X)[:, 0]

    def _learnt(self, y: Array) -> Labels:
        return Labels("regression", np.asarray(y, dtype=np.float64), ())


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedRegressor(KernelRegressor):
    """A regressor whose samples can have weights.

    Parameters
    ----------
    <shared parameters>

    Attributes
    ----------
    <shared attributes>
    """

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn kernel weights and coefficients.

        Parameters
        ----------
        X : array of shape (n, n_features), dict of views, stack of kernels (n, n, s), or path of a store
            The training samples.
        y : array of shape (n,)
            Their targets; may be left out for a store that holds targets.
        sample_weight : array of shape (n,), optional
            Factor of each sample's loss: a weight of 2 duplicates a sample, 0 removes it.

        Returns
        -------
        self

        Warns
        -----
        ConvergenceWarning
            If the gap is not certified to `tol`.
        """
        return self._fit(X, y, sample_weight)


def _names(labels: Labels) -> Array:
    """The labels of a store as a y: names of classes, or targets."""
    if labels.task == "multilabel":
        raise DataError("the store holds several labels a sample", "give y, one label a sample, or use dmkl.solve")
    return labels.values if labels.task == "regression" else np.array(labels.classes)[labels.values]
