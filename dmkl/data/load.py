"""From the `[data]` and `[views]` tables to data sets: all samples at once, training and test samples, or batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from dmkl._util.types import Array, Block
from dmkl.config import DataConfig, ViewConfig
from dmkl.data.dataset import Dataset, View, make_view
from dmkl.data.examples import EXAMPLES
from dmkl.data.labels import Labels, encode_like, make_labels
from dmkl.data.readers import Arrays, Length, Shapes, read_arrays, stream_arrays
from dmkl.data.splits import split
from dmkl.errors import ConfigError, DataError, did_you_mean

PREFIXES = {"features": "X_", "distance": "D_", "kernel": "K_"}  # of the names of arrays, by kind of view


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
    """Read the samples of a [data] table.

    Parameters
    ----------
    data : the table that names files or an example, and the array of the labels.
    views : the [views] tables by name; without any, the views that the names of the arrays announce.
    labels_needed : whether data without labels are refused.
    like : the labels of training, whose classes the labels are encoded with; without them classes are learnt.

    Returns
    -------
    Dataset
        Without labels if they are not needed, unless `like` is given and the files have labels.
    """
    return build_dataset(read_source(data), data, views, labels_needed=labels_needed, like=like)


def load_split(data: DataConfig, views: Mapping[str, ViewConfig], seed: int) -> tuple[Dataset, Dataset | None]:
    """The training samples, and the test samples if any are held out."""
    arrays = read_source(data)
    dataset = build_dataset(arrays, data, views, labels_needed=True, like=None)
    marks = _find(arrays, data.split, "the split") if data.split else None
    return split(dataset, data, seed, marks)


def build_dataset(
    arrays: Arrays,
    data: DataConfig,
    views: Mapping[str, ViewConfig],
    *,
    labels_needed: bool,
    like: Labels | None,
) -> Dataset:
    """The data set of `load_dataset`, from arrays that have been read."""
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
    """Add every column as a dense view "whole.column", named by the column's name or, without one, its number."""
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
    """A hint at a known name, whatever its case."""
    same = [other for other in known if other.lower() == name.lower()]
    if same:
        return f"did you mean '{same[0]}'?"
    return did_you_mean(name, known)


def _count(arrays: Arrays, data: DataConfig, blocks: Mapping[str, tuple[str, Block]]) -> int | None:
    """The number of rows of the labels, the split or a matrix; None if there are only triangles of matrices."""
    counted = [arrays[name] for name in (data.labels, data.split) if name in arrays]
    counted += [raw for _, raw in blocks.values() if raw.ndim == 2]
    return next((int(raw.shape[0]) for raw in counted if raw.ndim), None)


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


def _stack(columns: list[tuple[str, Block]], view: str) -> Array:
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
    """The views of arrays without a [views] table: kind and values by name.

    A table is one view of its numeric columns. Other arrays are views if their names announce one (`announced`).
    """
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
    """The kind ("" if there is no prefix) and the view that the name of an array announces."""
    kind = next((kind for kind, prefix in PREFIXES.items() if array.startswith(prefix)), "")
    return kind, array.removeprefix(PREFIXES[kind]) if kind else array


def load_batches(
    data: DataConfig, views: Mapping[str, ViewConfig], needed: Sequence[str], rows: int
) -> Iterator[Dataset]:
    """The samples of one file in batches, for files with more rows than memory can hold.

    Formats that can be read in slices yield the arrays of consecutive rows; others are read whole and then cut. Arrays
    without one row a sample are part of every batch.

    Parameters
    ----------
    data : a [data] table with one path.
    views : the [views] tables by name.
    needed : names of the views whose rows are counted.
    rows : the largest number of samples in a batch.
    """
    (path,) = data.path

    def length(shapes: Shapes) -> int:
        """The number of rows of a needed view, else the common length of the columns, else 0."""
        sizes = [shapes[name][0] for name in _candidates(needed, views) if name in shapes]
        columns = {shape[0] for shape in shapes.values() if len(shape) == 1}
        return sizes[0] if sizes else columns.pop() if len(columns) == 1 else 0

    for arrays in stream_arrays(path, rows, length) or _cut(read_arrays(path), rows, length):
        yield build_dataset(arrays, data, views, labels_needed=False, like=None)


def _candidates(needed: Sequence[str], views: Mapping[str, ViewConfig]) -> Iterator[str]:
    """Names that the array of a view may have, the most specific first; a column of a view is `view.column`."""
    for view in needed:
        name = view if view in views else next((known for known in views if view.startswith(f"{known}.")), view)
        if name in views and views[name].array:
            yield views[name].array
        yield from (f"{prefix}{name}" for prefix in PREFIXES.values())
        yield from (name, "X")


def _cut(arrays: Arrays, rows: int, length: Length) -> Iterator[Arrays]:
    n = length({name: values.shape for name, values in arrays.items() if values.ndim})
    if not n:
        yield arrays
        return
    for start in range(0, n, rows):
        yield {
            name: values[start : start + rows] if values.ndim and values.shape[0] == n else values
            for name, values in arrays.items()
        }
