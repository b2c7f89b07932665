"""Training views and labels inside a store, so that tiles and models are made from the store alone.

Views of a single dense column share arrays, some hundred of one type in each: a thousand arrays would take seconds to
create, and half a millisecond each to read again for every tile.
"""

from __future__ import annotations

import re

import numpy as np
import scipy.sparse
import zarr

from dmkl._util.types import Array, Block, Samples, Table
from dmkl.config import KINDS, TASKS
from dmkl.data import Dataset, Labels, View
from dmkl.errors import StoreError
from dmkl.store.format import LAYOUT, ZarrArray, put_array
from dmkl.store.validate import array_of, get, require_chunks

NODE = re.compile(r"views/[A-Za-z0-9_-]+")


def write_dataset(group: zarr.Group, data: Dataset, tile: int) -> None:
    """Write all views and labels."""
    places = _places(data)
    nodes: dict[str, list[View]] = {}
    for view in data.views.values():
        nodes.setdefault(places[view.name]["node"], []).append(view)
    for name, views in nodes.items():
        node, view = group.create_group(name), views[0]
        if len(views) > 1:
            values = np.column_stack([column.values for column in views])
            put_array(node, "values", values, (tile, values.shape[1]))
        elif scipy.sparse.issparse(view.values):
            matrix = scipy.sparse.csr_array(view.values)
            put_array(node, "indptr", matrix.indptr)
            put_array(node, "indices", matrix.indices, (LAYOUT.sparse_chunk,))
            put_array(node, "values", matrix.data, (LAYOUT.sparse_chunk,))
        else:
            columns = view.values.shape[1] if view.kind == "features" else tile
            put_array(node, "values", view.values, (tile, columns))
    if data.labels is not None:
        put_array(group, "labels", data.labels.values)


def describe_dataset(data: Dataset) -> Table:
    """The entries of a header from which views and labels are read back."""
    places = _places(data)
    views = [
        {
            "name": view.name,
            "kind": view.kind,
            "sparse": scipy.sparse.issparse(view.values),
            "shape": list(view.values.shape),
            **places[view.name],
        }
        for view in data.views.values()
    ]
    labels = data.labels
    about = None if labels is None else {"task": labels.task, "classes": list(labels.classes)}
    return {"views": views, "labels": about}


def _places(data: Dataset) -> dict[str, Table]:
    """For each view its array, and its column of that array; None for a view that is the whole array."""
    places: dict[str, Table] = {}
    columns: dict[str, int] = {}  # so far, by type
    for number, view in enumerate(data.views.values()):
        places[view.name] = {"node": f"views/{number}", "column": None}
        if view.kind == "features" and isinstance(view.values, np.ndarray) and view.values.shape[1] == 1:
            dtype = view.values.dtype.name
            block, column = divmod(columns.setdefault(dtype, 0), LAYOUT.columns)
            columns[dtype] += 1
            places[view.name] = {"node": f"views/columns-{dtype}-{block}", "column": column}
    return places


def read_labels(group: zarr.Group, header: Table, n: int) -> Labels | None:
    """The labels of n samples; ValueError if they are damaged."""
    if header["labels"] is None:
        return None
    task, classes = header["labels"]["task"], tuple(header["labels"]["classes"])
    check_classes(task, classes)
    values = get(array_of(group, "labels"))
    shape = (n, len(classes)) if task == "multilabel" else (n,)
    if values.shape != shape or values.dtype.kind not in ("f" if task == "regression" else "iu"):
        raise ValueError(f"labels of shape {values.shape} and type {values.dtype} for {n} samples")
    most = 1 if task == "multilabel" else len(classes) - 1
    if not np.isfinite(values).all() or (classes and not 0 <= values.min() <= values.max() <= most):
        raise ValueError("labels of no class")
    return Labels(task, values, classes)


def check_classes(task: str, classes: tuple[object, ...]) -> None:
    """Raise ValueError unless the classes are names, as many as a task of this kind has."""
    few = {"binary": 2, "regression": 0}.get(task, len(classes))
    if task not in TASKS[1:] or len(classes) != few or not (classes or task == "regression"):
        raise ValueError(f"task '{task}' with {len(classes)} classes")
    if not all(isinstance(name, str) for name in classes):
        raise ValueError("a class whose name is no text")


class StoredViews:
    """Reads rows or rectangles of stored views of n samples."""

    def __init__(self, group: zarr.Group, header: Table, n: int) -> None:
        self._group = group
        self.entries: dict[str, Table] = {}
        for number, entry in enumerate(header["views"]):
            self.entries[entry["name"]] = _checked({"node": f"views/{number}", "column": None, **entry}, n)
        self._arrays: dict[str, ZarrArray] = {}  # open ones: opening takes as long as reading a block
        self._taken: tuple[object, Block] | None = None  # the last block that views of one column were taken from

    def require_samples(self) -> None:
        """Refuse a claimed number of samples that the file is too small for."""
        view, entry = next(iter(self.entries.items()))
        if entry["sparse"]:
            self.block(view, slice(0, 0))
            get(array_of(self._group, f"{entry['node']}/indptr"))
        else:
            require_chunks(self._values(view), (slice(None), slice(0, 1)))

    def _values(self, view: str) -> ZarrArray:
        """The array of a dense view, checked for the shape that the header claims."""
        entry = self.entries[view]
        array = self._opened(f"{entry['node']}/values", "f")
        rows, columns = entry["shape"]
        shape = (rows, columns) if entry["column"] is None else (rows, max(entry["column"] + 1, *array.shape[1:2], 1))
        if array.shape != shape:
            raise StoreError(f"array '{array.name}' of {array.store} has shape {array.shape}, not {shape}")
        return array

    def _opened(self, name: str, kinds: str) -> ZarrArray:
        if name not in self._arrays:
            self._arrays[name] = array_of(self._group, name, kinds=kinds)
        return self._arrays[name]

    def block(self, view: str, rows: slice) -> Block:
        """Some rows of the array of a feature view (dense or CSR)."""
        entry = self.entries[view]
        if not entry["sparse"]:
            return get(self._values(view), (rows,))
        start, stop, _ = rows.indices(entry["shape"][0])
        indptr = self._opened(f"{entry['node']}/indptr", "i")
        values = self._opened(f"{entry['node']}/values", "f")
        indices = self._opened(f"{entry['node']}/indices", "i")
        if indptr.shape != (entry["shape"][0] + 1,) or values.shape != indices.shape or values.ndim != 1:
            raise StoreError(f"the parts of the sparse view '{view}' of {self._group.store} do not fit each other")
        ends = get(indptr, (slice(start, stop + 1),))
        span = (slice(max(0, int(ends[0])), max(0, int(ends[-1]))),)
        parts = (get(values, span), get(indices, span), ends - ends[0])
        try:  # indices that point outside would be followed
            block = scipy.sparse.csr_array(parts, shape=(stop - start, entry["shape"][1]))
            block.check_format(full_check=True)
        except ValueError as error:
            raise StoreError(f"the sparse view '{view}' of {self._group.store} is damaged ({error})") from error
        return block

    def inside(self, view: str, block: Block) -> Block:
        """The view's own part of a block of its array."""
        column = self.entries[view]["column"]
        return block if column is None else block[:, column : column + 1]

    def rectangle(self, view: str, rows: slice, columns: slice) -> Array:
        """Some entries of a distance or kernel view."""
        return get(self._values(view), (rows, columns))

    def take(self, view: str, chosen: Samples, tile: int) -> View:
        """The chosen samples (ascending) of a feature view, read once for views that share an array."""
        entry = self.entries[view]
        if entry["column"] is None:
            return View(view, entry["kind"], self._take(view, chosen, tile))
        asked = (entry["node"], chosen.tobytes(), tile)
        if self._taken is None or self._taken[0] != asked:
            self._taken = asked, self._take(view, chosen, tile)
        return View(view, entry["kind"], self.inside(view, self._taken[1]))

    def _take(self, view: str, chosen: Samples, tile: int) -> Block:
        entry = self.entries[view]
        blocks = [self.block(view, slice(0, 0))]  # so that choosing nothing gives no rows, of the right width
        for start in range(0, entry["shape"][0], tile):
            inside = chosen[(chosen >= start) & (chosen < start + tile)]
            if len(inside):
                blocks.append(self.block(view, slice(start, start + tile))[inside - start])
        stack = scipy.sparse.vstack if entry["sparse"] else np.concatenate
        return stack(blocks)


def _checked(entry: Table, n: int) -> Table:
    """A header's entry of a view; ValueError if it describes no valid view."""
    rows, columns = entry["shape"]
    column = entry["column"]
    if not isinstance(entry["name"], str) or entry["kind"] not in KINDS or NODE.fullmatch(entry["node"]) is None:
        raise ValueError(f"view '{entry['name']}' of kind '{entry['kind']}' in '{entry['node']}'")
    if type(rows) is not int or type(columns) is not int or rows != n or columns < 1:
        raise ValueError(f"view '{entry['name']}' has shape {entry['shape']} for {n} samples")
    if column is not None and (type(column) is not int or column < 0 or columns != 1):
        raise ValueError(f"view '{entry['name']}' is column {column}")
    if entry["sparse"] and (entry["kind"] != "features" or column is not None):
        raise ValueError(f"view '{entry['name']}' is sparse")
    return entry
