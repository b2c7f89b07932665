"""A trained model: fitted kernels, weights, support samples and coefficients. It predicts without the training store.

    f_k(x) = sum_a weights[k, a] scale_a sum_i (coef[i, k] - shift[k] if a is centred) k_a(x_i, x) + intercept[k]

If every kernel has coefficients of its own (MIKL), `coef[i, k s + a]` is the product of weight and coefficient; x_i is
the first argument of the kernel, which need not be symmetric.

Prediction needs no training means for centred kernels: subtracting row means from k_a is the same as subtracting the
mean coefficient `shift` from the coefficients, and the constant that remains is part of the intercept. With a free
intercept the coefficients of a class sum to zero and the shift is zero.

A model file is a zipped Zarr group of plain arrays and JSON. Opening one runs no code from it.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.storage import ZipStore

from dmkl._util.files import check_members, make_folder, writing
from dmkl._util.tiling import Grid
from dmkl._util.types import Array, Block, Float64, Samples, Table
from dmkl.data import Dataset, Labels, View
from dmkl.errors import DataError, OutputError, ResourceError, StoreError, did_you_mean, one_line
from dmkl.kernels import Bank
from dmkl.runtime import Runtime
from dmkl.solvers import Fit, describe
from dmkl.store.format import put_array
from dmkl.store.validate import array_of, get, read_header
from dmkl.store.views import StoredViews, check_classes, describe_dataset, write_dataset
from dmkl.version import __version__


@dataclass(frozen=True)
class ModelOptions:
    """Constants of prediction and of making a model."""

    batch_bytes: float = 64e6  # for the kernel values of one batch of new samples
    largest_batch: int = 4096  # new samples in a batch
    negligible: float = 1e-9  # a sum of coefficients is zero up to rounding below this share of their absolute sum


OPTIONS = ModelOptions()


@dataclass(frozen=True)
class Model:
    """Everything that prediction needs; arrays over kernels are in the order of `bank`, rows of `coef` in that of
    `samples`."""

    bank: Bank
    views: dict[str, View]  # support samples of the feature views
    samples: Samples  # their rows among the training samples
    weights: Float64  # (m, s)
    scales: Float64  # (s,)
    coef: Float64  # (support, m), or (support, m s) with coefficients for every kernel
    shift: Float64  # (m,) or (m s,)
    intercept: Float64  # (m,)
    task: str
    classes: tuple[str, ...]
    about: Table  # formulation, certificate, counters, widths of views
    per_kernel: bool = False  # whether every kernel has coefficients of its own

    def of_kernel(self, a: int) -> Float64:
        """(support, m): the factors of the values of kernel a."""
        coef = self.coef - self.shift if self.bank.kernels[a].centred else self.coef
        if self.per_kernel:
            return np.asarray(coef[:, a :: len(self.bank)] * self.scales[a])
        return np.asarray(coef * (self.weights[:, a] * self.scales[a]))

    def relevance(self, k: int) -> Float64:
        """(support, s): the coefficients of output k by sample and kernel."""
        s = len(self.bank)
        return self.coef[:, k * s : (k + 1) * s] if self.per_kernel else self.coef[:, [k]] * self.weights[k]

    def decision(self, data: Dataset, runtime: Runtime) -> Float64:
        """Scores (n, m) of new samples, in batches of bounded size."""
        return self._batched(_scores, data, runtime)

    def shares(self, data: Dataset, runtime: Runtime) -> Float64:
        """(n, m, s): what every kernel contributes to the scores of new samples; the rest is the intercept."""
        return self._batched(_shares, data, runtime)

    def _batched(self, function: Callable[[Model, Dataset], Float64], data: Dataset, runtime: Runtime) -> Float64:
        self.check_views(data)
        tasks = ((self, data.take(np.arange(data.n)[span])) for span in self.spans(data.n))
        return np.concatenate(list(runtime.map(function, tasks)))

    def spans(self, n: int) -> list[slice]:
        """n new samples in batches of at most `batch_rows`."""
        step = self.batch_rows
        return [slice(start, start + step) for start in range(0, n, step)]

    @property
    def batch_rows(self) -> int:
        """The number of new samples whose kernel values against all support samples fit into a batch."""
        views = max(len(kernel.views) for kernel in self.bank.kernels)  # whose distances are in memory together
        return max(1, min(OPTIONS.largest_batch, int(OPTIONS.batch_bytes / (8 * views * max(1, len(self.samples))))))

    def predict(self, scores: Float64) -> Labels:
        return predicted(scores, self.task, self.classes)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the columns of scores: classes, labels, or the target of a regression."""
        if self.task == "regression":
            return ("target",)
        return self.classes[1:] if self.task == "binary" else self.classes

    def check_views(self, data: Dataset) -> None:
        """Refuse data that lack a view, or have a view of another kind or width (DataError)."""
        check_views(self.bank, self.about["widths"], data)


def check_views(bank: Bank, widths: Mapping[str, int], data: Dataset) -> None:
    """Refuse data that lack a view of these kernels, or have a view of another kind or width (DataError)."""
    for name, kind in bank.view_kinds.items():
        if name not in data.views:
            hint = did_you_mean(name, list(data.views))
            raise DataError(f"the model needs view '{name}', the data lack it", hint)
        view, wanted = data.views[name], widths[name]
        if view.kind != kind or view.values.shape[1] != wanted:
            raise DataError(
                f"view '{name}' is a {view.kind} view with {view.values.shape[1]} columns, the model "
                f"was trained on a {kind} view with {wanted}"
            )


def predicted(scores: Float64, task: str, classes: tuple[str, ...]) -> Labels:
    """The labels of scores (n, m): the score itself for a regression, its sign for two classes, the best of several
    classes, or every label with a positive score."""
    if task == "regression":
        values: Array = scores[:, 0]
    elif task == "binary":
        values = (scores[:, 0] > 0).astype(np.int64)
    elif task == "multiclass":
        values = scores.argmax(axis=1)
    else:
        values = (scores > 0).astype(np.uint8)
    return Labels(task, values, classes)


class CrossPair:
    """Pairs of new samples and support samples, as kernels take them."""

    same = False

    def __init__(self, model: Model, data: Dataset) -> None:
        self._model, self._data = model, data

    def sides(self, view: str) -> tuple[Block, Block]:
        return self._data.views[view].values, self._model.views[view].values

    def matrix(self, view: str) -> Array:
        return self._data.views[view].values[:, self._model.samples]


class TransposedPair(CrossPair):
    """Pairs of support samples and new samples, for kernels that are not symmetric."""

    def sides(self, view: str) -> tuple[Block, Block]:
        new, support = super().sides(view)
        return support, new

    def matrix(self, view: str) -> Array:
        return super().matrix(view).T  # the columns of a kernel matrix are its first arguments


def _scores(model: Model, data: Dataset) -> Float64:
    """(n, m): the scores of one batch."""
    scores = np.tile(model.intercept, (data.n, 1))
    for a, values in kernel_values(model, data):
        scores += values @ model.of_kernel(a)
    return scores


def _shares(model: Model, data: Dataset) -> Float64:
    """(n, m, s): the contributions of the kernels to the scores of one batch."""
    shares = np.zeros((data.n, len(model.weights), len(model.bank)))
    for a, values in kernel_values(model, data):
        shares[:, :, a] = values @ model.of_kernel(a)
    return shares


def kernel_values(model: Model, data: Dataset) -> Iterator[tuple[int, Array]]:
    """The number and the values, new samples by support samples, of every kernel with non-zero weight."""
    active = [int(a) for a in np.flatnonzero(np.abs(model.weights).max(axis=0))]
    skew = [a for a in active if not model.bank.kernels[a].function.symmetric]
    yield from model.bank.values(CrossPair(model, data), [a for a in active if a not in skew])
    for a, values in model.bank.values(TransposedPair(model, data), skew):
        yield a, values.T


def support_per_class(model: Model) -> Iterator[int]:
    """The number of samples with a non-zero coefficient, output by output."""
    for coef in np.split(model.coef, len(model.weights), axis=1):
        yield int(coef.any(axis=1).sum())


class TrainingViews(Protocol):
    """Access to the views of the training samples."""

    @property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        """Kind and shape of every view."""

    def take(self, view: str, chosen: Samples, tile: int) -> View:
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
    """The model of a fit.

    Parameters
    ----------
    source : TrainingKernels
        The store or the samples in memory that the kernels of the fit were computed from.
    fit : Fit
        The result of `dmkl.solve`.
    kernels : list of int, optional
        The kernels of the source that were used in the fit, by default all.

    Returns
    -------
    Model
    """
    n = source.grid.n
    bank = source.bank if kernels is None else source.bank.subset(kernels)
    row_means = source.row_means() if kernels is None else source.row_means()[kernels]
    grand_means = row_means.mean(axis=1)
    scales = np.array([kernel.scale(n, grand_means[a]) for a, kernel in enumerate(bank.kernels)])
    coef = fit.coef_matrix
    own = len(bank) if fit.per_kernel else 1
    weights = np.broadcast_to(fit.weights, (coef.shape[1] // own, len(bank)))
    totals = coef.sum(axis=0)
    totals = np.where(np.abs(totals) > OPTIONS.negligible * np.abs(coef).sum(axis=0), totals, 0.0)
    shift = totals / n if bank.centred else np.zeros_like(totals)
    if fit.per_kernel:
        centred = np.tile([kernel.centred for kernel in bank.kernels], len(weights))
        shift = np.where(centred, shift, 0.0)
        means = np.einsum("ai,ika->ka", row_means, coef.reshape(n, -1, own))
        constant = (means - totals.reshape(-1, own) * grand_means) * scales
    else:
        constant = np.zeros_like(weights)
        if bank.centred:
            constant = ((row_means @ coef).T - np.outer(totals, grand_means)) * weights * scales
    support = np.flatnonzero(coef.any(axis=1)) if not shift.any() else np.arange(n)
    used = bank.view_kinds
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
        about={
            "formulation": describe(fit.formulation),
            "gap": np.atleast_1d(fit.gap).tolist(),
            "objective": np.atleast_1d(fit.objective).tolist(),
            "dual": np.atleast_1d(fit.dual).tolist(),
            "converged": fit.converged,
            "rule": fit.rule,
            "passes": fit.passes,
            "rounds": fit.rounds,
            "svm_calls": fit.svm_calls,
            "widths": {name: entry["shape"][1] for name, entry in views.items()},
        },
        per_kernel=fit.per_kernel,
    )


SCHEMA = 1
KIND = "model"
ROWS = 4096  # support samples in a chunk of the file
ARRAYS = ("samples", "weights", "scales", "coef", "shift", "intercept")


def save_model(path: Path, model: Model) -> None:
    """Write a model to a file; an older file is replaced as a whole."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            store = ZipStore(temporary, mode="w")
            support = Dataset(model.views) if model.views else None
            header = {
                "kind": KIND,
                "schema": SCHEMA,
                "version": __version__,
                "n": model.bank.n,
                "kernels": model.bank.recipes(),
                "dtype": str(model.bank.dtype),
                "task": model.task,
                "per_kernel": model.per_kernel,
                "classes": list(model.classes),
                "about": json.loads(json.dumps(model.about)),
                "dataset": describe_dataset(support) if support else None,
            }
            group = zarr.create_group(store, attributes={"dmkl": header})
            if support:
                write_dataset(group, support, ROWS)
            for name in ARRAYS:
                put_array(group, name, getattr(model, name))
            store.close()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def load_model(path: Path) -> Model:
    """Read a model from a file.

    Raises
    ------
    OutputError
        If there is no such file.
    StoreError
        If the file is damaged or is not a model.
    """
    if not path.is_file():
        raise OutputError(f"no model at {path}", "train one with: dmkl train")
    try:
        with zipfile.ZipFile(path) as archive:
            check_members(archive, path.stat().st_size)
        with ZipStore(path, mode="r") as store:
            model = _read(zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False), str(path))
        check_model(model)
    except StoreError:
        raise
    except MemoryError:
        raise ResourceError(f"{path} needs more memory than there is") from None
    except Exception as error:  # parsers of damaged files fail in every possible way
        kind = type(error).__name__
        raise StoreError(f"{path} is not a readable model ({kind}: {one_line(error)})", "train it again") from error
    return model


def _read(group: zarr.Group, where: str) -> Model:
    header = read_header(group, KIND, SCHEMA, where)
    arrays = {name: get(array_of(group, name)) for name in ARRAYS}
    everything = np.arange(len(arrays["samples"]))
    views: dict[str, View] = {}
    if header["dataset"]:
        stored = StoredViews(group, header["dataset"], len(everything))
        views = {name: stored.take(name, everything, ROWS) for name in stored.entries}
    return Model(
        bank=Bank.from_recipes(header["kernels"], header["n"], header.get("dtype", "float32")),
        views=views,
        task=header["task"],
        classes=tuple(header["classes"]),
        about=header["about"],
        per_kernel=bool(header.get("per_kernel", False)),
        **arrays,
    )


def check_model(model: Model) -> None:
    """Refuse a model from a file whose parts do not fit each other; the ValueError names the first such part."""
    check_classes(model.task, model.classes)
    s, support = len(model.bank), len(model.samples)
    m = 1 if model.task in ("binary", "regression") else len(model.classes)
    columns = m * s if model.per_kernel else m
    shapes = {
        "samples": (support,),
        "weights": (m, s),
        "scales": (s,),
        "coef": (support, columns),
        "shift": (columns,),
        "intercept": (m,),
    }
    for name, shape in shapes.items():
        values = getattr(model, name)
        kind = "i" if name == "samples" else "f"
        if values.shape != shape or values.dtype.kind != kind:
            raise ValueError(f"{name} of shape {values.shape} and type {values.dtype}, not {shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite")
    beyond = len(model.samples) > 0 and int(model.samples[-1]) >= model.bank.n
    if type(model.bank.n) is not int or (np.diff(model.samples, prepend=-1) < 1).any() or beyond:
        raise ValueError(f"samples are not ascending numbers below {model.bank.n}")
    _check_views(model)


def _check_views(model: Model) -> None:
    widths = model.about["widths"]
    kinds = model.bank.view_kinds
    model.bank.check_views(kinds, widths)
    for name, kind in kinds.items():
        if type(widths[name]) is not int or widths[name] < 1:
            raise ValueError(f"view '{name}' has {widths[name]} columns")
        if kind != "features" and widths[name] != model.bank.n:
            raise ValueError(f"view '{name}' relates to {widths[name]} samples, not {model.bank.n}")
        if kind != "features":
            continue
        view = model.views[name]
        if view.kind != kind or view.values.shape != (len(model.samples), widths[name]):
            raise ValueError(f"view '{name}' has shape {view.values.shape}")
        numbers = view.values if isinstance(view.values, np.ndarray) else view.values.data
        if not np.isfinite(numbers).all():
            raise ValueError(f"view '{name}' has values that are not finite")
