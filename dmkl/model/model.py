"""A trained model: recipes of its kernels, weights, support samples, coefficients. Predicts without the training store.

    f_k(x) = sum_a weights[k, a] scale_a sum_i (coef[i, k] - shift[k] if a is centred) k_a(x_i, x) + intercept[k]

Where every kernel has coefficients of its own (MIKL) `coef[i, k s + a]` stands for weight and coefficient; x_i is the
first argument of the kernel, which may not be symmetric.

Centring needs no training means at prediction: subtracting row means from k_a is subtracting the mean coefficient
`shift` from the coefficients, and the constant that remains is part of the intercept. With a free intercept the
coefficients of a class sum to zero and the shift is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.tiling import Grid
from dmkl._util.types import Float64
from dmkl.data import Dataset, Labels, View
from dmkl.errors import DataError, did_you_mean
from dmkl.kernels import Bank
from dmkl.runtime import Runtime
from dmkl.solvers import Fit, describe

BATCH_BYTES = 64e6  # kernel values of one batch of new samples
LARGEST_BATCH = 4096
NEGLIGIBLE = 1e-9  # a sum of coefficients this small against their sizes is rounding


@dataclass(frozen=True)
class Model:
    """Everything prediction needs; arrays of kernels follow `bank`, rows of `coef` follow `samples`."""

    bank: Bank
    views: dict[str, View]  # support samples of the feature views
    samples: NDArray[np.int64]  # which training rows they are
    weights: Float64  # (m, s)
    scales: Float64  # (s,)
    coef: Float64  # (support, m), or (support, m s)
    shift: Float64  # one a column
    intercept: Float64  # (m,)
    task: str
    classes: tuple[str, ...]
    about: dict[str, Any]  # formulation, certificate, counters: for people
    per_kernel: bool = False  # whether coefficients belong to a sample and a kernel

    def of_kernel(self, a: int) -> Float64:
        """(support, m): what the values of kernel a are multiplied by."""
        coef = self.coef - self.shift if self.bank.kernels[a].centred else self.coef
        if self.per_kernel:
            return np.asarray(coef[:, a :: len(self.bank)] * self.scales[a])
        return np.asarray(coef * (self.weights[:, a] * self.scales[a]))

    def relevance(self, k: int) -> Float64:
        """(support, s): the coefficients of one output, sample by kernel."""
        s = len(self.bank)
        return self.coef[:, k * s : (k + 1) * s] if self.per_kernel else self.coef[:, [k]] * self.weights[k]

    def decision(self, data: Dataset, runtime: Runtime) -> Float64:
        """Scores (n, m) of new samples, in batches of bounded size."""
        return self._batched(scores_of, data, runtime)

    def shares(self, data: Dataset, runtime: Runtime) -> Float64:
        """What every kernel adds to the scores of new samples, (n, m, s); the rest is the intercept."""
        return self._batched(shares_of, data, runtime)

    def _batched(self, function: Callable[[Model, Dataset], Float64], data: Dataset, runtime: Runtime) -> Float64:
        self.check_views(data)
        tasks = ((self, data.take(np.arange(data.n)[span])) for span in self.spans(data.n))
        return np.concatenate(list(runtime.map(function, tasks)))

    def spans(self, n: int) -> list[slice]:
        """n new samples in batches whose kernel values against all support samples fit."""
        step = self.batch_rows
        return [slice(start, start + step) for start in range(0, n, step)]

    @property
    def batch_rows(self) -> int:
        """New samples in one batch."""
        return max(1, min(LARGEST_BATCH, int(BATCH_BYTES / (8 * max(1, len(self.samples))))))

    def predict(self, scores: Float64) -> Labels:
        return predicted(scores, self.task, self.classes)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What each column of scores is about: a class, a label, or the target of a regression."""
        if self.task == "regression":
            return ("target",)
        return self.classes[1:] if self.task == "binary" else self.classes

    def check_views(self, data: Dataset) -> None:
        """Refuse data that lack a view, or have one of another kind or width."""
        check_views(self.bank, self.about["widths"], data)


def check_views(bank: Bank, widths: Mapping[str, int], data: Dataset) -> None:
    """Refuse data that lack a view of these kernels, or have one of another kind or width than in training."""
    for kernel in bank.kernels:
        if kernel.view not in data.views:
            hint = did_you_mean(kernel.view, list(data.views))
            raise DataError(f"the model needs view '{kernel.view}', the data lack it", hint)
        view = data.views[kernel.view]
        wanted = widths[kernel.view]
        if view.kind != kernel.function.view_kind or view.values.shape[1] != wanted:
            raise DataError(
                f"view '{kernel.view}' is a {view.kind} view with {view.values.shape[1]} columns, the model "
                f"was trained on a {kernel.function.view_kind} view with {wanted}"
            )


def predicted(scores: Float64, task: str, classes: tuple[str, ...]) -> Labels:
    """Labels from scores: the score itself, the sign for one column, the best class, or every positive label."""
    if task == "regression":
        values: NDArray[Any] = scores[:, 0]
    elif task == "binary":
        values = (scores[:, 0] > 0).astype(np.int64)
    elif task == "multiclass":
        values = scores.argmax(axis=1)
    else:
        values = (scores > 0).astype(np.uint8)
    return Labels(task, values, classes)


class CrossPair:
    """New samples against support samples."""

    same = False

    def __init__(self, model: Model, data: Dataset) -> None:
        self._model, self._data = model, data

    def sides(self, view: str) -> tuple[Any, Any]:
        return self._data.views[view].values, self._model.views[view].values

    def given(self, view: str) -> Any:
        return self._data.views[view].values[:, self._model.samples]


class TurnedPair(CrossPair):
    """Support samples against new ones: for kernels that are not the same the other way round."""

    def sides(self, view: str) -> tuple[Any, Any]:
        new, support = super().sides(view)
        return support, new

    def given(self, view: str) -> Any:
        return super().given(view).T  # its columns are first arguments already


def scores_of(model: Model, data: Dataset) -> Float64:
    """Scores of one batch."""
    scores = np.tile(model.intercept, (data.n, 1))
    for a, values in kernel_values(model, data):
        scores += values @ model.of_kernel(a)
    return scores


def shares_of(model: Model, data: Dataset) -> Float64:
    """Kernel by kernel, of one batch."""
    shares = np.zeros((data.n, len(model.weights), len(model.bank)))
    for a, values in kernel_values(model, data):
        shares[:, :, a] = values @ model.of_kernel(a)
    return shares


def kernel_values(model: Model, data: Dataset) -> Iterator[tuple[int, NDArray[Any]]]:
    """The values of each kernel with weight, new samples against support samples."""
    active = [int(a) for a in np.flatnonzero(np.abs(model.weights).max(axis=0))]
    skew = [a for a in active if not model.bank.kernels[a].function.symmetric]
    yield from model.bank.values(CrossPair(model, data), [a for a in active if a not in skew])
    for a, values in model.bank.values(TurnedPair(model, data), skew):
        yield a, values.T


class TrainingViews(Protocol):
    """The views of the training samples."""

    @property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        """Kind and shape of every view."""

    def take(self, view: str, chosen: NDArray[np.int64], tile: int) -> View:
        """The chosen samples (ascending) of a feature view, read in blocks of `tile`."""


class TrainingKernels(Protocol):
    """The kernels that a fit was computed from: a `KernelStore`, or those of training samples in memory."""

    @property
    def bank(self) -> Bank: ...

    @property
    def grid(self) -> Grid: ...

    @property
    def views(self) -> TrainingViews: ...

    def row_means(self) -> Float64:
        """(s, n), zero where nothing is centred."""


def make_model(source: TrainingKernels, fit: Fit, kernels: list[int] | None = None) -> Model:
    """Keep of a fit what prediction needs; `kernels` says which of the source's kernels the fit was over."""
    n = source.grid.n
    bank = source.bank if kernels is None else source.bank.subset(kernels)
    row_means = source.row_means() if kernels is None else source.row_means()[kernels]
    grand_means = row_means.mean(axis=1)
    scales = np.array([kernel.scale(n, grand_means[a]) for a, kernel in enumerate(bank.kernels)])
    coef = fit.coef_matrix
    own = len(bank) if fit.per_kernel else 1
    weights = np.broadcast_to(fit.weights, (coef.shape[1] // own, len(bank)))
    totals = coef.sum(axis=0)
    totals = np.where(np.abs(totals) > NEGLIGIBLE * np.abs(coef).sum(axis=0), totals, 0.0)
    shift = totals / n if bank.centred else np.zeros_like(totals)
    if fit.per_kernel:
        centred = np.tile([kernel.centred for kernel in bank.kernels], len(weights))
        shift = np.where(centred, shift, 0.0)
        means = np.einsum("ai,ika->ka", row_means, coef.reshape(n, -1, own))
        constant = (means - totals.reshape(-1, own) * grand_means) * scales
    else:
        constant = ((row_means @ coef).T - np.outer(totals, grand_means)) * weights * scales
    support = np.flatnonzero(coef.any(axis=1)) if not shift.any() else np.arange(n)
    used = {kernel.view for kernel in bank.kernels}
    views = {name: entry for name, entry in source.views.entries.items() if name in used}
    return Model(
        bank=bank,
        views={
            name: source.views.take(name, support, source.grid.tile)
            for name, entry in views.items()
            if entry["kind"] == "features"
        },
        samples=support,
        weights=np.ascontiguousarray(weights),
        scales=scales,
        coef=coef[support],
        shift=shift,
        intercept=np.atleast_1d(fit.intercept) - constant.sum(axis=1),
        task=fit.task,
        classes=fit.classes,
        about=_about(fit, {name: entry["shape"][1] for name, entry in views.items()}),
        per_kernel=fit.per_kernel,
    )


def _about(fit: Fit, widths: Mapping[str, int]) -> dict[str, Any]:
    return {
        "formulation": describe(fit.formulation),
        "gap": np.atleast_1d(fit.gap).tolist(),
        "objective": np.atleast_1d(fit.objective).tolist(),
        "dual": np.atleast_1d(fit.dual).tolist(),
        "converged": fit.converged,
        "passes": fit.passes,
        "rounds": fit.rounds,
        "svm_calls": fit.svm_calls,
        "widths": dict(widths),
    }


def support_per_class(model: Model) -> Iterator[int]:
    """How many samples carry a coefficient, class by class."""
    for coef in np.split(model.coef, len(model.weights), axis=1):
        yield int(coef.any(axis=1).sum())
