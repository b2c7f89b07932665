"""Labels of any kind, encoded once: as class codes, an indicator matrix or real targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmkl._util.in_memory import in_memory
from dmkl._util.types import Array, Float64
from dmkl.config import TASKS
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ConfigError, DataError, did_you_mean


@dataclass(frozen=True, eq=False)
class Labels:
    """One label a sample: codes (n,) int64, an indicator (n, L) uint8, or targets (n,) float64."""

    task: str  # binary | multiclass | multilabel | regression
    values: Array
    classes: tuple[str, ...]  # names in the order of the codes or columns; () for regression

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indices: ArrayLike) -> Labels:
        """The labels of some samples, with all classes."""
        return Labels(self.task, self.values[as_index(indices)], self.classes)

    def members(self) -> SampleSets:
        """The samples of each class of one-against-rest; binary has only its second class."""
        if self.task == "regression":
            raise DataError(
                "real-valued labels have no classes to tell apart",
                'use formulation.name = "spicy" with loss = "squared" or "epsilon"',
            )
        if self.task == "multilabel":
            return SampleSets.of_masks(self.values)
        if self.task == "binary":
            return SampleSets.of_masks(self.values[:, None] == 1)
        return SampleSets.of_codes(self.values, len(self.classes))

    def signs(self) -> Float64:
        """(n, m) signs of one-against-rest, dense: +1 in the class, -1 outside."""
        return np.where(self.members().masks(), 1.0, -1.0)


def as_index(rows: ArrayLike) -> NDArray[np.intp]:
    """Row numbers from row numbers or a mask."""
    index = np.asarray(rows)
    if index.dtype.kind == "b":
        return np.flatnonzero(index)
    return index.astype(np.intp, casting="same_kind" if index.size else "unsafe")  # an empty list has no type


def make_labels(raw: object, task: str = "auto") -> Labels:
    """Encode labels and learn their classes, in sorted order.

    Parameters
    ----------
    raw : text, numbers or truth values (n,), or a 0/1 or -1/+1 matrix (n, L) with one column a label.
    task : "binary", "multiclass", "multilabel", "regression", or "auto". With "auto" a matrix is multilabel; text,
        truth values, whole numbers and any two distinct numbers are classes; other numbers are regression targets.

    Raises
    ------
    DataError
        Labels are missing, do not fit the task, or have one class only.
    """
    if task not in TASKS:
        raise ConfigError(f"unknown task '{task}'", did_you_mean(task, list(TASKS)))
    values = _as_array(raw)
    if values.ndim == 2 and values.shape[1] == 1 and task != "multilabel":
        values = values[:, 0]
    if values.ndim == 2:
        return _learn_indicator(values, task)
    if task == "multilabel":
        raise DataError("task multilabel needs a matrix of 0/1, one column a label", "the labels have one column")
    if task == "regression" or (task == "auto" and _is_continuous(values)):
        return Labels("regression", _as_targets(values), ())
    return _learn_classes(values, task)


def encode_like(raw: object, labels: Labels) -> Labels:
    """Encode labels of other samples with the classes of `labels`; not every class has to occur."""
    values = _as_array(raw)
    if labels.task == "multilabel":
        indicator = _as_indicator(values[:, None] if values.ndim == 1 else values)
        if indicator.shape[1] != len(labels.classes):
            raise DataError(
                f"labels have {indicator.shape[1]} columns, the training labels {len(labels.classes)}",
                "give the same label columns as in training",
            )
        return Labels(labels.task, indicator, labels.classes)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2:
        raise DataError(f"expected one label a sample, found a matrix of shape {values.shape}")
    if labels.task == "regression":
        return Labels(labels.task, _as_targets(values), ())
    names, inverse = _named(values)
    codes = {name: code for code, name in enumerate(labels.classes)}
    for name in names:
        if name not in codes:
            raise DataError(
                f"class '{name}' does not occur in the training labels", did_you_mean(name, list(labels.classes)[:50])
            )
    return Labels(labels.task, np.array([codes[name] for name in names], dtype=np.int64)[inverse], labels.classes)


def _learn_classes(values: Array, task: str) -> Labels:
    names, inverse = _named(values)
    if len(names) < 2:
        raise DataError(f"the labels hold one class only ('{names[0]}')", "at least two are needed")
    if task == "binary" and len(names) > 2:
        raise DataError(f"task binary, but the labels hold {len(names)} classes", "set task = 'multiclass'")
    if task == "auto":
        task = "binary" if len(names) == 2 else "multiclass"
    return Labels(task, inverse.astype(np.int64), tuple(names))


def _learn_indicator(values: Array, task: str) -> Labels:
    if task not in ("auto", "multilabel"):
        raise DataError(f"task {task} needs one label a sample, not a matrix of shape {values.shape}")
    indicator = _as_indicator(values)
    positives = indicator.sum(axis=0, dtype=np.int64)
    for column in np.flatnonzero((positives == 0) | (positives == len(indicator))):
        side = "all-negative" if positives[column] == 0 else "all-positive"
        raise DataError(f"label column {column} is {side}: it has one class only", "leave this column out")
    return Labels("multilabel", indicator, tuple(str(column) for column in range(indicator.shape[1])))


def _as_array(raw: Any) -> Array:
    """A non-empty array (n,) or (n, L) of finite numbers, truth values or text."""
    raw = in_memory(raw, "the labels")
    if hasattr(raw, "toarray"):  # scipy.sparse indicator matrices
        raw = raw.toarray()
    try:
        values = np.asarray(raw)
    except ValueError:
        raise DataError("the labels are ragged: rows of different length", "give a 0/1 matrix") from None
    if values.ndim not in (1, 2):
        raise DataError(f"labels should be a vector or a matrix, not of shape {values.shape}")
    if values.size == 0:
        raise DataError("the labels are empty", "at least two samples are needed")
    if values.dtype.kind == "O" and all(isinstance(item, str) for item in values.flat):
        values = values.astype(np.str_)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind == "T":  # numpy's own variable-length text
        values = np.array(values.tolist(), dtype=np.str_)
    if values.dtype.kind not in "biufU":
        raise DataError(
            f"labels of type {values.dtype} are neither numbers nor text",
            "fill missing labels and convert the others to one type",
        )
    missing = values == "" if values.dtype.kind == "U" else ~np.isfinite(values)
    if missing.any():
        first = np.argwhere(missing)[0]
        what = "an empty text" if values.dtype.kind == "U" else str(values[tuple(first)])
        raise DataError(f"the label of row {first[0]} is {what}", "leave out samples without a label")
    return values


def _is_continuous(values: Array) -> bool:
    """Whether numbers are regression targets: some are not whole, and there are not exactly two."""
    if values.dtype.kind != "f" or bool((values == np.rint(values)).all()):
        return False
    return len(np.unique(values)) != 2


def _as_targets(values: Array) -> Float64:
    if values.dtype.kind == "U":
        raise DataError("regression needs numbers, but the labels are text", "set task = 'auto' for classes")
    return values.astype(np.float64)


def _as_indicator(values: Array) -> NDArray[np.uint8]:
    if values.dtype.kind == "U":
        raise DataError("a matrix of labels should hold 0/1 or -1/+1, not text")
    negative = 0 if bool((values >= 0).all()) else -1
    stray = (values != 1) & (values != negative)
    if stray.any():
        row, column = np.argwhere(stray)[0]
        found = f"row {row}, column {column} is {values[row, column]}"
        raise DataError(f"a matrix of labels should hold 0/1 or -1/+1, but {found}")
    return np.asarray(values == 1, dtype=np.uint8)


def _named(values: Array) -> tuple[list[str], NDArray[np.intp]]:
    """The names of the distinct values in sorted order, and the position of each sample's value among them."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return [_name(value) for value in distinct], inverse


def _name(value: object) -> str:
    # 3.0 and 3 are one class: file formats differ in how they write the same labels
    if isinstance(value, np.floating) and value.is_integer():
        return str(int(value))
    return str(value)
