"""A summary of data files: their views, the properties of each, and the columns that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import numpy as np

from dmkl._util.types import Array, Block
from dmkl.config import DataConfig
from dmkl.data.labels import Labels, make_labels
from dmkl.data.load import PREFIXES, discover, read_source, suggest
from dmkl.data.readers import Arrays
from dmkl.errors import DataError

LABELS = ("y", "label", "labels", "class", "target", "targets")  # names taken for the labels, whatever their case


@dataclass(frozen=True)
class SummaryOptions:
    """Thresholds of a summary."""

    many_values: float = 0.2  # distinct whole numbers, as a share of the samples, above which labels are targets
    eigen_samples: int = 300  # at most so many samples are used to find the signs of a kernel's eigenvalues
    negative: float = -1e-3  # an eigenvalue below this share of the norm is not explained by rounding
    unequal: float = 3.0  # ratio of the largest to the smallest standard deviation above which scales are unequal


DEFAULT = SummaryOptions()


@dataclass(frozen=True)
class ViewSummary:
    """One view: its place in the files, its properties, and the columns of a table that were left out."""

    name: str
    kind: str
    array: str  # "" for columns of a table
    columns: tuple[str, ...]  # of a table, those that can be used
    shape: tuple[int, ...]
    facts: tuple[str, ...]  # in words
    left_out: dict[str, str]  # the reason by the name of the column
    histograms: bool = False
    unequal: bool = False  # whether the scales of the columns of a table differ much
    symmetric: bool = True
    definite: bool = True


class _Properties(TypedDict, total=False):
    """Fields of a summary that are not as by default."""

    histograms: bool
    symmetric: bool
    definite: bool


@dataclass(frozen=True)
class DataSummary:
    """The labels and the views of data files."""

    labels_name: str  # the array or column with the labels
    task: str
    labels: Labels
    views: tuple[ViewSummary, ...]


def summarise(paths: Sequence[str], labels: str = "", options: SummaryOptions = DEFAULT) -> DataSummary:
    """Read data files and summarise them.

    Parameters
    ----------
    paths : the files.
    labels : name of the array or column with the labels; by default it is guessed.
    options : thresholds.

    Raises
    ------
    DataError
        No model can be trained on the data.
    """
    arrays = read_source(DataConfig(path=tuple(paths)))
    name = labels or next((other for other in arrays if other.lower() in LABELS), "")
    if name not in arrays:
        what = f"no array or column '{name}'" if name else f"cannot tell what the labels of {paths[0]} are"
        raise DataError(what, f"name it with --labels NAME; {suggest(name, list(arrays))}")
    task = _task(arrays[name], options)
    encoded = make_labels(arrays[name], task)
    found = discover(arrays, {name, ""}, name)
    if list(found) == ["features"] and "X_features" not in arrays:
        views = [_table(arrays, name, options)]
    else:
        views = [_view(view, kind, raw, arrays, options) for view, (kind, raw) in found.items()]
    return DataSummary(name, task, encoded, tuple(views))


def _task(raw: Block, options: SummaryOptions) -> str:
    """'regression' for numbers with many distinct values, also whole ones; otherwise 'auto'."""
    values = np.asarray(raw.toarray() if hasattr(raw, "toarray") else raw)
    if values.ndim == 1 and values.dtype.kind in "iuf":
        many = max(20, options.many_values * len(values))
        return "regression" if len(np.unique(values)) > many else "auto"
    return "auto"


def _table(arrays: Arrays, labels: str, options: SummaryOptions) -> ViewSummary:
    """The numeric columns of a table, without those that are constant, lack values or number the rows."""
    left_out: dict[str, str] = {}
    for name, values in arrays.items():
        if name != labels and (reason := _useless(np.asarray(values))):
            left_out[name] = reason
    names = tuple(name for name in arrays if name != labels and name not in left_out)
    if not names:
        reasons = ", ".join(f"{name} {reason}" for name, reason in list(left_out.items())[:5])
        raise DataError(f"no column can be used: {reasons}", "give numbers that differ between samples")
    block = np.column_stack([np.asarray(arrays[name], dtype=np.float64) for name in names])
    spread = block.std(axis=0)
    unequal = bool(len(names) > 1 and spread.max() > options.unequal * spread.min())
    facts = [f"{len(names)} columns, standard deviations from {spread.min():.3g} to {spread.max():.3g}"]
    return ViewSummary(
        "features", "features", "", names, block.shape, tuple(facts), left_out, _sums_to_one(block), unequal
    )


def _useless(values: Array) -> str:
    """The reason why a column cannot be a feature, or ''."""
    if values.dtype.kind not in "biuf":
        return "is text"
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return f"lacks {int((~np.isfinite(values)).sum())} of {len(values)} values"
    if values.min() == values.max():
        return "is constant"
    if (np.diff(values.astype(np.float64)) == 1).all() and len(values) > 2:
        return "numbers the rows"
    return ""


def _view(name: str, kind: str, raw: Block, arrays: Arrays, options: SummaryOptions) -> ViewSummary:
    array = next(key for key in (PREFIXES[kind] + name, name) if key in arrays)
    numbers = np.asarray(raw.data if hasattr(raw, "tocsr") else raw)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        rows = int((~np.isfinite(numbers)).any(axis=1).sum()) if numbers.ndim == 2 else 0
        where = f" in {rows} rows" if rows else ""
        count = int((~np.isfinite(numbers)).sum())
        raise DataError(f"array '{array}' lacks {count} of {numbers.size} values{where}", "fill them or drop the rows")
    shown = f"{' x '.join(f'{side:,}' for side in raw.shape)} {raw.dtype}"
    summary = ViewSummary(name, kind, array, (), tuple(raw.shape), (shown,), {})
    return _features(summary, raw) if kind == "features" else _matrix(summary, raw, options)


def _features(summary: ViewSummary, raw: Block) -> ViewSummary:
    if hasattr(raw, "tocsr"):
        stored: int = raw.tocsr().nnz
        share = stored / max(1, raw.shape[0] * raw.shape[1])
        return _with(summary, f"sparse, {100 * share:.2g} % are not zero")
    values = np.asarray(raw)
    values = values.reshape(len(values), -1)
    if values.dtype.kind not in "biuf" or not values.size:
        return summary  # reading it as a view will refuse it with the reason
    constant = int((values.min(axis=0) == values.max(axis=0)).sum())
    facts = [f"from {values.min():.3g} to {values.max():.3g}"]
    facts += [f"{constant} of {values.shape[1]} columns are constant"] if constant else []
    histograms = _sums_to_one(values)
    facts += ["histograms: no value is negative and every row sums to 1"] if histograms else []
    return _with(summary, *facts, histograms=histograms)


def _sums_to_one(values: Array) -> bool:
    if values.shape[1] < 2 or values.min() < 0:
        return False
    return bool(np.allclose(values.sum(axis=1, dtype=np.float64), 1.0, atol=1e-3))


def _matrix(summary: ViewSummary, raw: Block, options: SummaryOptions) -> ViewSummary:
    values = np.asarray(raw)
    if summary.kind == "distance" or values.ndim != 2 or values.shape[0] != values.shape[1]:
        return summary
    scale = float(np.abs(values).max())
    if bool((np.abs(values - values.T) > 1e-3 * scale).any()):
        return _with(summary, "not symmetric", symmetric=False, definite=False)
    some = np.sort(np.random.default_rng(0).permutation(len(values))[: options.eigen_samples])
    part = np.asarray(values[np.ix_(some, some)], dtype=np.float64)
    lowest = float(np.linalg.eigvalsh(part)[0])
    if lowest < options.negative * float(np.linalg.norm(part)):
        return _with(summary, f"not positive semidefinite: an eigenvalue is {lowest:.2g}", definite=False)
    return summary


def _with(summary: ViewSummary, *facts: str, **changes: Unpack[_Properties]) -> ViewSummary:
    return replace(summary, facts=(*summary.facts, *facts), **changes)
