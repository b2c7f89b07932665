"""From the `[data]` and `[views]` tables to a data set, and its division into training and test samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.config import DataConfig, ViewConfig
from dmkl.data.dataset import Block, Dataset, View, make_view
from dmkl.data.examples import EXAMPLES
from dmkl.data.labels import Labels, encode_like, make_labels
from dmkl.data.readers import read_arrays
from dmkl.data.readers.common import Arrays
from dmkl.errors import ConfigError, DataError, did_you_mean

PREFIXES = {"features": "X_", "distance": "D_", "kernel": "K_"}


def read_source(data: DataConfig) -> Arrays:
    """All arrays of the files, or of the bundled example, by name."""
    if not data.path and not data.example:
        raise ConfigError("[data] names neither path nor example")
    if data.example:
        return EXAMPLES[data.example]()
    arrays: Arrays = {}
    origin: dict[str, str] = {}
    for path in data.path:
        for name, values in read_arrays(path).items():
            if name in arrays:
                raise DataError(f"both {origin[name]} and {path} hold an array '{name}'", "rename one of them")
            arrays[name], origin[name] = values, path
    return arrays


def load_dataset(
    data: DataConfig,
    views: Mapping[str, ViewConfig],
    *,
    labels_needed: bool = True,
    like: Labels | None = None,
) -> Dataset:
    """Read the samples of `data` as `views`, or as the views found when none are named.

    Labels are learnt from the file or, with `like`, encoded as in training. Without `labels_needed` they are
    None, except that labels to be encoded `like` others are taken if the file has them.
    """
    return build_dataset(read_source(data), data, views, labels_needed=labels_needed, like=like)


def load_split(data: DataConfig, views: Mapping[str, ViewConfig], seed: int) -> tuple[Dataset, Dataset | None]:
    """The training samples and the samples held out, if any."""
    arrays = read_source(data)
    dataset = build_dataset(arrays, data, views, labels_needed=True, like=None)
    marks = _find(arrays, data.split, "the split") if data.split else None
    return split(dataset, data, seed, marks)


def split(dataset: Dataset, data: DataConfig, seed: int, marks: Block | None = None) -> tuple[Dataset, Dataset | None]:
    """Divide by `marks` (1 = training sample), or at random: `data.test` of each class is held out."""
    dataset.check_symmetric()
    if marks is not None:
        test = ~_as_mask(marks, data.split, dataset.n)
    elif data.test == 0:
        return dataset, None
    else:
        test = _random_test(dataset, data.test, np.random.default_rng(seed))
    _refuse_one_sided(dataset.labels, ~test)
    return dataset.train_test(~test, test)


def build_dataset(
    arrays: Arrays,
    data: DataConfig,
    views: Mapping[str, ViewConfig],
    *,
    labels_needed: bool,
    like: Labels | None,
) -> Dataset:
    """What `load_dataset` makes, from arrays that have been read."""
    labels: Labels | None = None
    if labels_needed or (like is not None and data.labels in arrays):
        raw = _find(arrays, data.labels, "the labels")
        labels = make_labels(raw, data.task) if like is None else encode_like(raw, like)
    apart = {data.labels, data.split}
    if views:
        blocks = {name: (view.kind, _pick(arrays, name, view, apart)) for name, view in views.items()}
        skew = {name for name, view in views.items() if not view.symmetric}
    else:
        blocks, skew = discover(arrays, apart, data.labels), set()
    n = _count(arrays, data, blocks)
    made = {name: make_view(name, kind, raw, n=n, symmetric=name not in skew) for name, (kind, raw) in blocks.items()}
    for name, view in views.items():
        if view.each:
            names = _chosen_columns(arrays, name, view.columns, apart) if view.columns else []
            _add_columns(made, made[name], names)
    return Dataset(made, labels)


def _add_columns(made: dict[str, View], whole: View, names: Sequence[str]) -> None:
    """Every column as a dense view of its own, called by its name or, if it has none, its number: "whole.column"."""
    if whole.kind != "features":
        raise ConfigError(f"[views.{whole.name}] each = true needs features, not a {whole.kind} matrix")
    columns = whole.values.tocsc() if hasattr(whole.values, "tocsc") else whole.values
    for j, column in enumerate(names or range(columns.shape[1])):
        name = f"{whole.name}.{column}"
        if name in made:
            raise ConfigError(f"two views are called '{name}', one of them a column of '{whole.name}'", "rename one")
        values = columns[:, [j]]
        made[name] = View(name, whole.kind, values.toarray() if hasattr(values, "toarray") else values)


def _find(arrays: Arrays, name: str, role: str) -> Block:
    if name not in arrays:
        raise DataError(f"no array '{name}' for {role}", suggest(name, list(arrays)))
    return arrays[name]


def suggest(name: str, known: list[str]) -> str:
    """A hint that sees through upper and lower case."""
    same = [other for other in known if other.lower() == name.lower()]
    if same:
        return f"did you mean '{same[0]}'?"
    return did_you_mean(name, known)


def _count(arrays: Arrays, data: DataConfig, blocks: Mapping[str, tuple[str, Block]]) -> int | None:
    """The number of samples as told by labels, split or a matrix; a triangle alone cannot tell it."""
    told = [arrays[name] for name in (data.labels, data.split) if name in arrays]
    told += [raw for _, raw in blocks.values() if raw.ndim == 2]
    return next((int(raw.shape[0]) for raw in told if raw.ndim), None)


def _pick(arrays: Arrays, name: str, view: ViewConfig, apart: set[str]) -> Block:
    """The array or the columns that a view's configuration names."""
    if view.kind not in PREFIXES:
        raise ConfigError(f"unknown kind '{view.kind}' of view '{name}'", did_you_mean(view.kind, list(PREFIXES)))
    if view.array and view.columns:
        raise ConfigError(f"[views.{name}] names both array and columns", "keep one")
    if view.columns:
        return _stack([(c, arrays[c]) for c in _chosen_columns(arrays, name, view.columns, apart)], name)
    candidates = [view.array] if view.array else [PREFIXES[view.kind] + name, "X_" + name, name]
    found = next((candidate for candidate in candidates if candidate in arrays), None)
    if found is None:
        raise DataError(f"no array '{candidates[0]}' for view '{name}'", suggest(candidates[0], list(arrays)))
    return arrays[found]


def _chosen_columns(arrays: Arrays, view: str, patterns: tuple[str, ...], apart: set[str]) -> list[str]:
    """The columns of a table that a view names or matches, in the order of the table."""
    known = [name for name, values in arrays.items() if values.ndim == 1 and name not in apart]
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern in apart:
            raise DataError(f"view '{view}' names column '{pattern}', which holds the labels or the split")
        # a pattern gathers the numbers among the columns; text is an error only when it is meant by name
        matches = [n for n in known if n == pattern or (_is_numeric(arrays[n]) and fnmatchcase(n, pattern))]
        if not matches:
            raise DataError(f"'{pattern}' of view '{view}' matches no numeric column", suggest(pattern, known))
        chosen.update(matches)
    return [name for name in known if name in chosen]


def _stack(columns: list[tuple[str, Block]], view: str) -> NDArray[Any]:
    first, length = columns[0][0], len(columns[0][1])
    for name, values in columns:
        if not _is_numeric(values):
            raise DataError(f"column '{name}' of view '{view}' holds {values.dtype} values, not numbers")
        if len(values) != length:
            raise DataError(f"columns '{first}' and '{name}' have {length} and {len(values)} rows")
    return np.column_stack([values for _, values in columns])


def _is_numeric(values: Block) -> bool:
    return values.dtype.kind in "biuf"


def discover(arrays: Arrays, apart: set[str], labels: str) -> dict[str, tuple[str, Block]]:
    """The numeric columns of a table, whatever they are called, or else the views that the arrays' names announce."""
    rest = [(name, values) for name, values in arrays.items() if name not in apart]
    numeric = [(name, values) for name, values in rest if values.ndim == 1 and _is_numeric(values)]
    shapes = {values.shape for _, values in rest} | ({arrays[labels].shape[:1]} if labels in arrays else set())
    if numeric and len(shapes) == 1 and rest[0][1].ndim == 1:
        return {"features": ("features", _stack(numeric, "features"))}
    blocks: dict[str, tuple[str, Block]] = {}
    for name, values in arrays.items():
        kind, view = announced(name)
        if name in apart or not view or not (kind or name == "X"):
            continue
        if view in blocks:
            raise DataError(f"two arrays make a view '{view}', one of them '{name}'", "name the views in [views]")
        blocks[view] = (kind or "features", values)
    if not blocks:
        found = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in list(arrays.items())[:20])
        raise DataError(
            f"no views found among the arrays: {found}",
            "name them X_<view>, D_<view> or K_<view>, or write [views]",
        )
    return blocks


def announced(array: str) -> tuple[str, str]:
    """The kind ("" if none is said) and the view that an array's name announces."""
    kind = next((kind for kind, prefix in PREFIXES.items() if array.startswith(prefix)), "")
    return kind, array.removeprefix(PREFIXES[kind]) if kind else array


def _as_mask(marks: Block, name: str, n: int) -> NDArray[np.bool_]:
    """True for training samples."""
    values = np.asarray(marks.toarray() if hasattr(marks, "toarray") else marks)
    values = values.reshape(-1) if values.ndim == 2 and 1 in values.shape else values
    if values.shape != (n,):
        raise DataError(f"split '{name}' has shape {values.shape} for {n} samples", "give one 0/1 value a sample")
    if not _is_numeric(values) or not np.isin(values, (0, 1)).all():
        raise DataError(f"split '{name}' holds values other than 0 and 1", "1 marks a training sample, 0 a test one")
    mask: NDArray[np.bool_] = values != 0
    if mask.all() or not mask.any():
        raise DataError(f"split '{name}' marks {mask.sum()} of {n} samples for training", "mark some, but not all")
    return mask


def _random_test(dataset: Dataset, fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    if not 0 < fraction < 1:
        raise ConfigError(f"[data] test should be a fraction in [0, 1), not {fraction:g}")
    labels, n = dataset.labels, dataset.n
    if labels is not None and labels.task in ("binary", "multiclass"):
        test = _stratified(labels, fraction, rng)
    else:
        test = np.zeros(n, dtype=np.bool_)
        test[rng.permutation(n)[: min(round(fraction * n), n - 1)]] = True
        if labels is not None and labels.task == "multilabel":
            _bring_back(labels.values, test, rng)
    if not test.any():
        raise DataError(
            f"a test fraction of {fraction:g} leaves none of {n} samples to test", "raise it or set it to 0"
        )
    return test


def _stratified(labels: Labels, fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Hold out the same share of each class, by largest remainders, but never all of a class."""
    counts = np.bincount(labels.values, minlength=len(labels.classes))
    quota = fraction * counts
    take = np.floor(quota + 1e-9).astype(np.int64)
    extra = max(round(fraction * len(labels)) - int(take.sum()), 0)
    by_remainder = np.lexsort((rng.random(len(counts)), take - quota))
    take[by_remainder[:extra]] += 1
    take = np.minimum(take, np.maximum(counts - 1, 0))
    test = np.zeros(len(labels), dtype=np.bool_)
    for code, share in enumerate(take):
        test[rng.permutation(np.flatnonzero(labels.values == code))[:share]] = True
    return test


def _bring_back(indicator: NDArray[Any], test: NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Return to training a sample of every label, and of its absence, that would have none left there."""
    for column in indicator.T:
        for side in (column == 1, column == 0):
            if not (side & ~test).any():
                test[rng.choice(np.flatnonzero(side))] = False


def _refuse_one_sided(labels: Labels | None, train: NDArray[np.bool_]) -> None:
    """Refuse a training part in which a class or label, or its absence, does not occur."""
    if labels is None or labels.task == "regression":
        return
    values = labels.values[train]
    if labels.task == "multilabel":
        inside = values.sum(axis=0, dtype=np.int64)
    else:
        inside = np.bincount(values, minlength=len(labels.classes))
    for counts, what in (
        (inside, "no training sample"),
        (len(values) - inside, "no negative training sample"),
    ):
        for code in np.flatnonzero(counts == 0):
            name = labels.classes[code]
            raise DataError(f"class '{name}' has {what} in the split", "use another split or leave the class out")
