"""New samples in batches: what a prediction reads when the file has more rows than memory.

Formats that are read in slices yield the arrays of consecutive rows; the others are read whole and cut. Arrays that do
not have one row a sample are handed over whole with every batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dmkl.config import DataConfig, ViewConfig
from dmkl.data.dataset import Dataset
from dmkl.data.load import PREFIXES, build_dataset
from dmkl.data.readers import read_arrays, stream_arrays
from dmkl.data.readers.common import Arrays


def load_batches(
    data: DataConfig, views: Mapping[str, ViewConfig], needed: Sequence[str], rows: int
) -> Iterator[Dataset]:
    """The samples of the one file of `data`, at most `rows` at a time; `needed` are the views that matter."""
    (path,) = data.path

    def length(shapes: Mapping[str, tuple[int, ...]]) -> int:
        """How many samples arrays of these shapes describe: as many as a view that is needed has rows."""
        sizes = [shapes[name][0] for name in _candidates(needed, views) if name in shapes]
        columns = {shape[0] for shape in shapes.values() if len(shape) == 1}
        return sizes[0] if sizes else columns.pop() if len(columns) == 1 else 0

    for arrays in stream_arrays(path, rows, length) or _cut(read_arrays(path), rows, length):
        yield build_dataset(arrays, data, views, labels_needed=False, like=None)


def _candidates(needed: Sequence[str], views: Mapping[str, ViewConfig]) -> Iterable[str]:
    """Names that the array of a view may have, best first; a column of a view is `view.column`."""
    for view in needed:
        name = view if view in views else next((known for known in views if view.startswith(f"{known}.")), view)
        if name in views and views[name].array:
            yield views[name].array
        yield from (f"{prefix}{name}" for prefix in PREFIXES.values())
        yield from (name, "X")


def _cut(arrays: Arrays, rows: int, length: Any) -> Iterator[Arrays]:
    n = length({name: values.shape for name, values in arrays.items() if values.ndim})
    if not n:
        yield arrays
        return
    for start in range(0, n, rows):
        yield {
            name: values[start : start + rows] if values.ndim and values.shape[0] == n else values
            for name, values in arrays.items()
        }
