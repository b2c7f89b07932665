"""A first look at a data file: which views it has, what they hold, and what had better be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.config import DataConfig
from dmkl.data.dataset import Block
from dmkl.data.labels import Labels, make_labels
from dmkl.data.load import PREFIXES, discover, read_source, suggest
from dmkl.data.readers.common import Arrays
from dmkl.errors import DataError

LABELS = ("y", "label", "labels", "class", "target", "targets")  # names taken for the labels, whatever their case
MANY_VALUES = 0.2  # distinct whole numbers, as a share of the samples, that are a target and not classes
EIGEN_SAMPLES = 300  # at most, for the sign of a kernel's eigenvalues
NEGATIVE = -1e-3  # an eigenvalue below this share of the norm is no rounding


@dataclass(frozen=True)
class ViewLook:
    """One view: where it is, what it holds, and the columns of a table that were left out with the reason."""

    name: str
    kind: str
    array: str  # "" for columns of a table
    columns: tuple[str, ...]  # of a table, those that are of use
    shape: tuple[int, ...]
    facts: tuple[str, ...]
    left_out: dict[str, str]
    histograms: bool = False
    unequal: bool = False  # columns of a table differ much in scale
    symmetric: bool = True
    definite: bool = True


@dataclass(frozen=True)
class Look:
    """What there is to learn from, and what."""

    labels: str
    task: str
    answer: Labels
    views: tuple[ViewLook, ...]


def look(paths: Sequence[str], labels: str = "") -> Look:
    """Read the files and say what is in them; data that could not be trained on are refused."""
    arrays = read_source(DataConfig(path=tuple(paths)))
    name = labels or next((other for other in arrays if other.lower() in LABELS), "")
    if name not in arrays:
        what = f"no array or column '{name}'" if name else f"cannot tell what the labels of {paths[0]} are"
        raise DataError(what, f"say which with --labels NAME; {suggest(name, list(arrays))}")
    task = _task(arrays[name])
    answer = make_labels(arrays[name], task)
    found = discover(arrays, {name, ""}, name)
    if list(found) == ["features"] and "X_features" not in arrays:
        views = [_table(arrays, name)]
    else:
        views = [_view(view, kind, raw, arrays) for view, (kind, raw) in found.items()]
    return Look(name, task, answer, tuple(views))


def _task(raw: Block) -> str:
    """'regression' for whole numbers that are measurements; the rest is found out from the labels."""
    values = np.asarray(raw.toarray() if hasattr(raw, "toarray") else raw)
    if values.ndim == 1 and values.dtype.kind in "iuf" and len(np.unique(values)) > max(20, MANY_VALUES * len(values)):
        return "regression"
    return "auto"


def _table(arrays: Arrays, labels: str) -> ViewLook:
    """The numeric columns, without those that say nothing or lack values."""
    left_out: dict[str, str] = {}
    for name, values in arrays.items():
        if name != labels and (reason := _useless(np.asarray(values))):
            left_out[name] = reason
    names = tuple(name for name in arrays if name != labels and name not in left_out)
    if not names:
        reasons = ", ".join(f"{name} {reason}" for name, reason in list(left_out.items())[:5])
        raise DataError(f"no column is of use: {reasons}", "give numbers that differ between samples")
    block = np.column_stack([np.asarray(arrays[name], dtype=np.float64) for name in names])
    spread = block.std(axis=0)
    unequal = bool(len(names) > 1 and spread.max() > 3 * spread.min())
    facts = [f"{len(names)} columns, standard deviations from {spread.min():.3g} to {spread.max():.3g}"]
    return ViewLook(
        "features", "features", "", names, block.shape, tuple(facts), left_out, _sums_to_one(block), unequal
    )


def _useless(values: NDArray[Any]) -> str:
    """Why a column can't be a feature, or ''."""
    if values.dtype.kind not in "biuf":
        return "is text"
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return f"lacks {int((~np.isfinite(values)).sum())} of {len(values)} values"
    if values.min() == values.max():
        return "is constant"
    if (np.diff(values.astype(np.float64)) == 1).all() and len(values) > 2:
        return "counts the rows"
    return ""


def _view(name: str, kind: str, raw: Block, arrays: Arrays) -> ViewLook:
    array = next(key for key in (PREFIXES[kind] + name, name) if key in arrays)
    numbers: Any = np.asarray(raw.data if hasattr(raw, "tocsr") else raw)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        rows = int((~np.isfinite(numbers)).any(axis=1).sum()) if numbers.ndim == 2 else 0
        where = f" in {rows} rows" if rows else ""
        count = int((~np.isfinite(numbers)).sum())
        raise DataError(f"array '{array}' lacks {count} of {numbers.size} values{where}", "fill them or drop the rows")
    shown = f"{' x '.join(f'{side:,}' for side in raw.shape)} {raw.dtype}"
    found = ViewLook(name, kind, array, (), tuple(raw.shape), (shown,), {})
    return _features(found, raw) if kind == "features" else _matrix(found, raw)


def _features(found: ViewLook, raw: Any) -> ViewLook:
    if hasattr(raw, "tocsr"):
        share = raw.nnz / max(1, raw.shape[0] * raw.shape[1])
        return _with(found, f"sparse, {100 * share:.2g} % are not zero")
    values = np.asarray(raw)
    values = values.reshape(len(values), -1)
    if values.dtype.kind not in "biuf" or not values.size:
        return found  # refused, with the reason, when it is read as a view
    constant = int((values.min(axis=0) == values.max(axis=0)).sum())
    facts = [f"from {values.min():.3g} to {values.max():.3g}"]
    facts += [f"{constant} of {values.shape[1]} columns are constant"] if constant else []
    histograms = _sums_to_one(values)
    facts += ["histograms: no value is negative and every row sums to 1"] if histograms else []
    return _with(found, *facts, histograms=histograms)


def _sums_to_one(values: NDArray[Any]) -> bool:
    if values.shape[1] < 2 or values.min() < 0:
        return False
    return bool(np.allclose(values.sum(axis=1, dtype=np.float64), 1.0, atol=1e-3))


def _matrix(found: ViewLook, raw: Block) -> ViewLook:
    values = np.asarray(raw)
    if found.kind == "distance" or values.ndim != 2 or values.shape[0] != values.shape[1]:
        return found
    scale = float(np.abs(values).max())
    if bool((np.abs(values - values.T) > 1e-3 * scale).any()):
        return _with(found, "not symmetric", symmetric=False, definite=False)
    some = np.sort(np.random.default_rng(0).permutation(len(values))[:EIGEN_SAMPLES])
    part = np.asarray(values[np.ix_(some, some)], dtype=np.float64)
    lowest = float(np.linalg.eigvalsh(part)[0])
    if lowest < NEGATIVE * float(np.linalg.norm(part)):
        return _with(found, f"not positive semidefinite: an eigenvalue is {lowest:.2g}", definite=False)
    return found


def _with(found: ViewLook, *facts: str, **changes: Any) -> ViewLook:
    return replace(found, facts=(*found.facts, *facts), **changes)
