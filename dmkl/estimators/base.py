"""What every scikit-learn estimator of dmkl shares: an estimator is its formulation and the constants it lets one set.

Parameters are dataclass fields, so that a class lists each of them once; nothing is checked before `fit`.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from dmkl._util.types import Float64
from dmkl.data import Dataset, Labels
from dmkl.errors import ConfigError, DataError
from dmkl.estimators.inputs import KernelInput
from dmkl.estimators.training import TrainingSet
from dmkl.model import Source, make_model
from dmkl.runtime import Local, Runtime, open_runtime
from dmkl.solvers import solve
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

_Asked = tuple[Source, KernelStack, Labels, Float64 | None]


@dataclass(kw_only=True, eq=False, repr=False)
class KernelEstimator(KernelInput):
    """Learns weights of kernels over named groups of features.

    `kernels` are tables like those of a configuration file, e.g. `{"kernel": "rbf", "width": ["1 median", 2.0]}`, by
    default three Gaussian widths. `views` names groups of columns of X, `{"colour": slice(0, 3), "size": ["height",
    "width"]}`, also by selectors such as `make_column_selector`; by default all columns are one view, "x". X may be a
    dict of views instead, `{"colour": X1, "D_words": distances}`; or the path of a store, which has its own kernels and
    labels. With `kernels="precomputed"` X is a stack of kernels shaped (n, n, s), to predict (n_new, n, s), and `views`
    divides its last axis into groups.

    `tol` is the relative gap to prove, `max_seconds` a limit after which the best model found is kept. `n_jobs` threads
    work, or the workers of `cluster`: "local:4", "tls://head:8786", or "current" for the Dask client that is current;
    the model does not depend on them.

    After `fit`: `kernel_weights_` (m, s) for each class or target, `kernel_names_`, `intercept_`, the proved `gap_`,
    `n_passes_`, and `model_`, which `dmkl.model.save_model` keeps as one file.
    """

    formulation: ClassVar[type[Any]]
    __metadata_request__predict = {"split": True}  # noqa: RUF012 - scikit-learn's own: no request needed for it

    tol: float = 1e-3
    max_seconds: float = np.inf
    seed: int = 0
    cluster: str = "none"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn weights and coefficients from samples X and their labels or targets y."""
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        with self._runtime() as runtime:
            stored = isinstance(X, str | os.PathLike)
            source, stack, labels, counts = (self._opened if stored else self._built)(X, y, sample_weight, runtime)
            fit = solve(
                stack,
                labels,
                self._formulation(),
                tol=self.tol,
                seed=self.seed,
                sample_weight=counts,
                max_seconds=self.max_seconds,
            )
        if not fit.converged:
            message = f"the gap is {fit.worst_gap:.1e} after {fit.rounds} rounds, not {self.tol:g}"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        self.model_ = make_model(source, fit)
        self.kernel_weights_ = self.model_.weights
        self.kernel_names_ = [kernel.name for kernel in self.model_.bank.kernels]
        self.intercept_ = self.model_.intercept
        self.gap_ = fit.worst_gap
        self.n_passes_ = fit.passes
        return self

    def _built(self, X: Any, y: Any, sample_weight: Any, runtime: Runtime) -> _Asked:
        """Kernels computed from samples, those of weight 0 left out."""
        views, y = self._training_views(X, y)
        data, counts = Dataset(views), self._counts(y, sample_weight)
        if counts is not None and not counts.all():
            self._kept = np.flatnonzero(counts)
            if len(self._kept) < 2:
                raise ValueError(f"{len(self._kept)} samples have a weight above 0, at least two are needed")
            data, y, counts = data.among(self._kept), y[self._kept], counts[self._kept]
        labels = self._learnt(y)
        samples = TrainingSet.fit(self._tables(), Dataset(data.views, labels), runtime)
        return samples, samples.stack(runtime), labels, counts

    def _opened(self, X: Any, y: Any, sample_weight: Any, runtime: Runtime) -> _Asked:
        """The kernels of a store, and its labels unless there are others."""
        if self.kernels is not None or self.views is not None:
            raise ConfigError("a store has its own kernels and views", "leave kernels and views out")
        store = KernelStore(Path(X))
        y = _names(store.labels) if y is None and store.labels is not None else y
        y = validate_data(self, y=y)
        self.columns_ = self._kept = None
        counts = self._counts(y, sample_weight)
        return store, open_stack(store.path, runtime=runtime), self._learnt(y), counts

    def _counts(self, y: Any, sample_weight: Any) -> Float64 | None:
        """How many times each sample counts; None where that is once."""
        if sample_weight is None:
            return None
        return np.asarray(_check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True))

    def _learnt(self, y: NDArray[Any]) -> Labels:
        """The labels or targets to train on."""
        raise NotImplementedError  # classifiers and regressors each have their own

    def _scores(self, X: Any) -> Float64:
        """Scores (n, m) of new samples."""
        data = self._new_views(X)
        return self.model_.decision(data, Local(self._threads()))

    def _shares(self, X: Any) -> Float64:
        """(n, m, s): what each kernel adds to the scores; the intercept is the rest."""
        data = self._new_views(X)
        return self.model_.shares(data, Local(self._threads()))

    def _runtime(self) -> AbstractContextManager[Runtime]:
        if not isinstance(self.cluster, str):
            raise ConfigError(
                "cluster should be a text, because scikit-learn copies parameters",
                'use cluster="current" inside client.as_current(), or its address',
            )
        return open_runtime(self.cluster, workers=self._threads())

    def _formulation(self) -> Any:
        """The problem to solve: of its constants those that are parameters here, the others as by default."""
        parameters = self.get_params(deep=False)
        constants = [field.name for field in dataclasses.fields(self.formulation) if field.name in parameters]
        return self.formulation(**{name: parameters[name] for name in constants})


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """Two classes, or many, one against the rest."""

    __metadata_request__decision_function = {"split": True}  # noqa: RUF012 - as above

    def predict(self, X: Any, *, split: bool = False) -> NDArray[Any]:
        """The class of each sample; with `split` the shares (n, m, s) of the kernels in its scores."""
        if split:
            return self._shares(X)
        scores = self._scores(X)
        return np.asarray(self.classes_[self.model_.predict(scores).values])

    def decision_function(self, X: Any, *, split: bool = False) -> Float64:
        """Scores: (n,) for two classes, positive for the second; else (n, m).

        With `split` the shares (n, m, s) of the kernels, whose sum with `intercept_` they are.
        """
        if split:
            return self._shares(X)
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _learnt(self, y: NDArray[Any]) -> Labels:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_[0]!r}), at least two are needed")
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        return Labels(task, codes.astype(np.int64), tuple(str(name) for name in self.classes_))


class KernelRegressor(RegressorMixin, KernelEstimator):
    """One real target."""

    def predict(self, X: Any, *, split: bool = False) -> Float64:
        """The target of each sample; with `split` the shares (n, 1, s) of the kernels in it."""
        return self._shares(X) if split else self._scores(X)[:, 0]

    def _learnt(self, y: NDArray[Any]) -> Labels:
        return Labels("regression", np.asarray(y, dtype=np.float64), ())


def _names(labels: Labels) -> NDArray[Any]:
    """Labels as somebody would give them."""
    if labels.task == "multilabel":
        raise DataError("the store holds several labels a sample", "give y, one label a sample, or use dmkl.solve")
    return labels.values if labels.task == "regression" else np.array(labels.classes)[labels.values]
