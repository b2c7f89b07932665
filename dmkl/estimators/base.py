"""What every scikit-learn estimator of dmkl shares: an estimator is its formulation and the constants it lets one set.

Parameters are dataclass fields, so that a class lists each of them once; nothing is checked before `fit`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dmkl.config import KernelConfig, construct
from dmkl.data import Dataset, Labels, View, make_view
from dmkl.errors import ConfigError, did_you_mean
from dmkl.estimators.training import TrainingSet
from dmkl.model import make_model
from dmkl.runtime import Local, open_runtime
from dmkl.solvers import solve

DEFAULT_KERNELS = ({"kernel": "rbf", "width": ["0.5 median", "1 median", "2 median"]},)
WHOLE = "x"  # the name of the one view of an X that is not divided


@dataclass(kw_only=True, eq=False, repr=False)
class KernelEstimator(BaseEstimator):
    """Learns weights of kernels over named groups of features.

    `kernels` are tables like those of a configuration file, e.g. `{"kernel": "rbf", "width": ["1 median", 2.0]}`, by
    default three Gaussian widths. `views` names groups of columns of X, `{"colour": slice(0, 3), "size": ["height",
    "width"]}`; by default all columns are one view, "x". `tol` is the relative gap to prove, `max_seconds` a limit
    after which the best model found is kept. `n_jobs` threads work, or the workers of `cluster` ("local:4",
    "tls://head:8786"); the model does not depend on them.

    After `fit`: `kernel_weights_` (m, s) for each class or target, `kernel_names_`, the proved `gap_`, `n_passes_`,
    and `model_`, which `dmkl.model.save_model` keeps as one file.
    """

    formulation: ClassVar[type[Any]]

    kernels: Sequence[Mapping[str, Any]] | None = None
    views: Mapping[str, Any] | None = None
    tol: float = 1e-3
    max_seconds: float = np.inf
    seed: int = 0
    cluster: str = "none"
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Learn weights and coefficients from samples X (dense or sparse) and their labels or targets y."""
        X, y = validate_data(self, X, y, accept_sparse="csr", ensure_min_samples=2, y_numeric=is_regressor(self))
        data = Dataset(self._views(X), self._learnt(y))
        with open_runtime(self.cluster, workers=self._threads()) as runtime:
            samples = TrainingSet.fit(self._kernels(), data, runtime)
            fit = solve(
                samples.stack(runtime),
                data.labels,
                self._formulation(),
                tol=self.tol,
                seed=self.seed,
                max_seconds=self.max_seconds,
            )
        if not fit.converged:
            message = f"the gap is {fit.worst_gap:.1e} after {fit.rounds} rounds, not {self.tol:g}"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self.model_ = make_model(samples, fit)
        self.kernel_weights_ = self.model_.weights
        self.kernel_names_ = [kernel.name for kernel in self.model_.bank.kernels]
        self.gap_ = fit.worst_gap
        self.n_passes_ = fit.passes
        return self

    def _learnt(self, y: NDArray[Any]) -> Labels:
        """The labels or targets to train on."""
        raise NotImplementedError

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, m) of new samples."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        return self.model_.decision(Dataset(self._views(X)), Local(self._threads()))

    def _threads(self) -> int:
        """Threads as scikit-learn counts them (None is one, -1 all cores) in the words of a runtime (0 is all)."""
        return max(0, self.n_jobs or 1)

    def _formulation(self) -> Any:
        """The problem to solve: of its constants those that are parameters here, the others as by default."""
        parameters = self.get_params(deep=False)
        constants = [field.name for field in dataclasses.fields(self.formulation) if field.name in parameters]
        return self.formulation(**{name: parameters[name] for name in constants})

    def _kernels(self) -> list[KernelConfig]:
        tables = DEFAULT_KERNELS if self.kernels is None else self.kernels
        return [construct(KernelConfig, table, f"kernels[{number}]") for number, table in enumerate(tables)]

    def _views(self, X: Any) -> dict[str, View]:
        columns = {WHOLE: slice(None)} if self.views is None else self.views
        return {name: make_view(name, "features", X[:, self._columns(name, columns[name])]) for name in columns}

    def _columns(self, view: str, chosen: Any) -> Any:
        """Column numbers from a slice, numbers, a mask, or names when X was a table with names."""
        names = list(getattr(self, "feature_names_in_", ()))
        chosen = [chosen] if isinstance(chosen, str | int) else chosen
        if not isinstance(chosen, slice) and any(isinstance(key, str) for key in chosen):
            for key in chosen:
                if key not in names:
                    raise ConfigError(f"view '{view}': X has no column '{key}'", did_you_mean(key, names[:50]))
            return [names.index(key) for key in chosen]
        try:
            return np.arange(self.n_features_in_)[chosen]
        except IndexError as error:
            raise ConfigError(f"view '{view}': {error}") from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """Two classes, or many, one against the rest."""

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each sample."""
        scores = self._scores(X)
        return np.asarray(self.classes_[self.model_.predict(scores).values])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores: (n,) for two classes, positive for the second; else (n, m)."""
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

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The target of each sample."""
        return self._scores(X)[:, 0]

    def _learnt(self, y: NDArray[Any]) -> Labels:
        return Labels("regression", np.asarray(y, dtype=np.float64), ())
