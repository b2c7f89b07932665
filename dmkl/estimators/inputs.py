"""The X of `fit` and `predict` as named views, and `KernelBank`, which turns them into kernel values.

X is a table of features, divided by its columns; a dict of views; or a stack of kernels (n, n, s), divided by its last
axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, TypeGuard

import numpy as np
from joblib import effective_n_jobs
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin, is_regressor
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dmkl._util.in_memory import in_memory
from dmkl._util.types import Array, Block, Float32, Samples, Table
from dmkl.config import KernelConfig, construct
from dmkl.data import Dataset, View, announced, make_view
from dmkl.errors import ConfigError, DataError, did_you_mean
from dmkl.estimators.docstrings import INPUTS, complete
from dmkl.estimators.training_set import TrainingSet
from dmkl.model import check_views
from dmkl.runtime import Local

DEFAULT_KERNELS = ({"kernel": "rbf", "width": ["0.5 median", "1 median", "2 median"]},)
PRECOMPUTED = "precomputed"
WHOLE = "x"  # the view of an X that is not divided
NO_LABELS = "no_validation"  # scikit-learn's mark for a y that is not there
ROWS = 1024  # new samples of one task of `KernelBank.transform`
Columns: TypeAlias = slice | str | int | Sequence[str] | Sequence[int] | Array  # names, numbers or a mask


@dataclass(kw_only=True, eq=False, repr=False)
class KernelInput(BaseEstimator):
    """Kernels over named views of X; `KernelEstimator` describes the parameters."""

    kernels: Sequence[Mapping[str, object]] | str | None = None
    views: Mapping[str, Columns | Callable[[Any], Columns]] | None = None
    n_jobs: int | None = None

    @property
    def _stacked(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == PRECOMPUTED

    def _threads(self) -> int:
        """The number of threads that `n_jobs` stands for in scikit-learn and joblib."""
        return int(effective_n_jobs(self.n_jobs))

    def _training_views(self, X: object, y: object = NO_LABELS) -> tuple[dict[str, View], Any]:
        """The views of the training samples, and y after scikit-learn's checks."""
        self.columns_: dict[str, Samples] | None = None
        self._kept: Samples | None = None  # samples with a weight above 0, None if all have one
        X, y = in_memory(X, "X"), in_memory(y, "y")
        of_y = {} if y is NO_LABELS else {"y_numeric": is_regressor(self)}
        if _is_dict(X):
            return _mapped(X), y if y is NO_LABELS else validate_data(self, y=y, **of_y)
        checked = validate_data(self, X, y, ensure_min_samples=2, **self._accepted(), **of_y)
        values, y = checked if isinstance(checked, tuple) else (checked, y)
        self.columns_ = self._chosen(X, values)
        return self._divided(values), y

    def _new_views(self, X: object) -> Dataset:
        """The views of new samples; of distances and kernels the columns of the samples that were kept in training."""
        check_is_fitted(self)
        X = in_memory(X, "X")
        if _is_dict(X):
            views = _mapped(X)
        elif self.columns_ is None:
            raise DataError("this was fitted on views with names", "give a dict of views of the same names")
        else:
            views = self._divided(validate_data(self, X, reset=False, **self._accepted()))
        if self._kept is not None:
            apart = {name: view for name, view in views.items() if view.kind != "features"}
            views |= {name: replace(view, values=view.values[:, self._kept]) for name, view in apart.items()}
        return Dataset(views)

    def _accepted(self) -> Table:
        return {"accept_sparse": False if self._stacked else "csr", "allow_nd": self._stacked}

    def _tables(self) -> list[KernelConfig]:
        """The kernels as configuration tables; precomputed ones are grouped by `views`."""
        if self._stacked:
            groups = self.columns_ or {}
            return [KernelConfig(PRECOMPUTED, _layers(name, groups[name]), group=name) for name in groups]
        if isinstance(self.kernels, str):
            raise ConfigError(f"kernels should be tables or '{PRECOMPUTED}', not '{self.kernels}'")
        tables = DEFAULT_KERNELS if self.kernels is None else self.kernels
        return [construct(KernelConfig, table, f"kernels[{number}]") for number, table in enumerate(tables)]

    def _chosen(self, X: object, values: Block) -> dict[str, Samples]:
        """The columns of every view, or the kernels of every group."""
        count = _depth(values) if self._stacked else values.shape[1]
        names = [] if self._stacked else list(getattr(self, "feature_names_in_", ()))
        if self.views is None:
            return {WHOLE: np.arange(count)}
        return {
            view: _columns(view, chosen(X) if callable(chosen) else chosen, names, count)
            for view, chosen in self.views.items()
        }

    def _divided(self, values: Block) -> dict[str, View]:
        assert self.columns_ is not None
        if not self._stacked:
            return {name: make_view(name, "features", values[:, chosen]) for name, chosen in self.columns_.items()}
        stack = np.moveaxis(values.reshape(*values.shape[:2], -1), 2, 0)
        used = max(int(chosen.max(initial=-1)) for chosen in self.columns_.values())
        if used >= len(stack):
            raise DataError(f"X has {len(stack)} kernels, more were fitted", "give them all, shaped (n, n_train, s)")
        stack = np.ascontiguousarray(stack, dtype=np.float32)  # the type of tiles
        return {
            layer: View(layer, "kernel", stack[a])
            for name, chosen in self.columns_.items()
            for layer, a in zip(_layers(name, chosen), chosen, strict=True)
        }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.three_d_array = self._stacked
        tags.input_tags.sparse = not self._stacked
        return tags


def _is_dict(X: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(X, Mapping) and not issparse(X)  # a dok_array is a mapping too


def _depth(values: Array) -> int:
    if values.ndim > 3 or values.shape[0] != values.shape[1]:
        raise ValueError(f"precomputed kernels are shaped (n, n, s), X is {values.shape}")
    return 1 if values.ndim == 2 else int(values.shape[2])


def _layers(name: str, chosen: Samples) -> tuple[str, ...]:
    return tuple(f"{name}.{a}" for a in chosen)


def _mapped(X: Mapping[str, object]) -> dict[str, View]:
    """Views by name; D_name and K_name are distances and kernels, as in data files."""
    views = {}
    for array, values in X.items():
        kind, name = announced(array)
        views[name] = make_view(name, kind or "features", values)
    return views


def _columns(view: str, chosen: Columns, names: list[str], count: int) -> Samples:
    """Column numbers from a slice, numbers, a mask, or names if X is a table."""
    if not isinstance(chosen, slice):
        keys: list[object] = [chosen] if isinstance(chosen, str | int) else list(chosen)
        if any(isinstance(key, str) for key in keys):
            for key in keys:
                if key not in names:
                    raise ConfigError(f"view '{view}': X has no column '{key}'", did_you_mean(str(key), names[:50]))
            return np.array([names.index(str(key)) for key in keys])
        chosen = np.asarray(keys, dtype=None if keys else np.int64)
    try:
        return np.asarray(np.arange(count)[chosen])
    except IndexError as error:
        raise ConfigError(f"view '{view}': {error}") from None


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
