"""Training views and labels inside a store, so that tiles and models are made from the store alone.

Views of a single dense column share arrays, COLUMNS of one type in each: a thousand arrays would take seconds to
create, and half a millisecond each to read again for every tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import zarr
from numpy.typing import NDArray

from dmkl.data import Dataset, Labels, View
from dmkl.store.arrays import get, get_whole, put_array

SPARSE_CHUNK = 1 << 20  # entries of a sparse view in one chunk
COLUMNS = 256  # views of one column in one array: what a task reads at once


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
            put_array(node, "indices", matrix.indices, (SPARSE_CHUNK,))
            put_array(node, "values", matrix.data, (SPARSE_CHUNK,))
        else:
            columns = view.values.shape[1] if view.kind == "features" else tile
            put_array(node, "values", view.values, (tile, columns))
    if data.labels is not None:
        put_array(group, "labels", data.labels.values)


def describe_dataset(data: Dataset) -> dict[str, Any]:
    """What a header needs to read views and labels back."""
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


def _places(data: Dataset) -> dict[str, dict[str, Any]]:
    """The array each view is in, and which column of it the view is; None when it is the whole array."""
    places: dict[str, dict[str, Any]] = {}
    columns: dict[str, int] = {}  # so far, by type
    for number, view in enumerate(data.views.values()):
        places[view.name] = {"node": f"views/{number}", "column": None}
        if view.kind == "features" and isinstance(view.values, np.ndarray) and view.values.shape[1] == 1:
            dtype = view.values.dtype.name
            block, column = divmod(columns.setdefault(dtype, 0), COLUMNS)
            columns[dtype] += 1
            places[view.name] = {"node": f"views/columns-{dtype}-{block}", "column": column}
    return places


def read_labels(group: zarr.Group, header: dict[str, Any]) -> Labels | None:
    if header["labels"] is None:
        return None
    return Labels(header["labels"]["task"], get(group["labels"]), tuple(header["labels"]["classes"]))


class StoredViews:
    """Reads rows or rectangles of stored views."""

    def __init__(self, group: zarr.Group, header: dict[str, Any]) -> None:
        self._group = group
        self.entries: dict[str, dict[str, Any]] = {}
        for number, entry in enumerate(header["views"]):
            self.entries[entry["name"]] = {"node": f"views/{number}", "column": None, **entry}
        self._taken: tuple[Any, Any] = (None, None)  # what views of one column were last taken from

    def block(self, view: str, rows: slice) -> Any:
        """Some rows of the array that a feature view is in (dense or CSR)."""
        entry = self.entries[view]
        node = entry["node"]
        if not entry["sparse"]:
            return get_whole(self._group[f"{node}/values"], rows)
        start, stop, _ = rows.indices(entry["shape"][0])
        indptr = get_whole(self._group[f"{node}/indptr"], slice(start, stop + 1))
        span = slice(int(indptr[0]), int(indptr[-1]))
        parts = (
            get_whole(self._group[f"{node}/values"], span),
            get_whole(self._group[f"{node}/indices"], span),
            indptr - indptr[0],
        )
        return scipy.sparse.csr_array(parts, shape=(stop - start, entry["shape"][1]))

    def inside(self, view: str, block: Any) -> Any:
        """The view's own part of a block of its array."""
        column = self.entries[view]["column"]
        return block if column is None else block[:, column : column + 1]

    def rectangle(self, view: str, rows: slice, columns: slice) -> NDArray[Any]:
        """Some entries of a distance or kernel view."""
        return get_whole(self._group[f"{self.entries[view]['node']}/values"], (rows, columns))

    def take(self, view: str, chosen: NDArray[np.int64], tile: int) -> View:
        """The chosen samples (ascending) of a feature view, read once for views that share an array."""
        entry = self.entries[view]
        if entry["column"] is None:
            return View(view, entry["kind"], self._take(view, chosen, tile))
        asked = (entry["node"], chosen.tobytes(), tile)
        if self._taken[0] != asked:
            self._taken = asked, self._take(view, chosen, tile)
        return View(view, entry["kind"], self.inside(view, self._taken[1]))

    def _take(self, view: str, chosen: NDArray[np.int64], tile: int) -> Any:
        entry = self.entries[view]
        blocks = [self.block(view, slice(0, 0))]  # so that choosing nothing gives no rows, of the right width
        for start in range(0, entry["shape"][0], tile):
            inside = chosen[(chosen >= start) & (chosen < start + tile)]
            if len(inside):
                blocks.append(self.block(view, slice(start, start + tile))[inside - start])
        stack = scipy.sparse.vstack if entry["sparse"] else np.concatenate
        return stack(blocks)
