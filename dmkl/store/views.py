"""Training views and labels inside a store, so that tiles and models are made from the store alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import zarr
from numpy.typing import NDArray

from dmkl.data import Dataset, Labels, View
from dmkl.store.arrays import get, put_array

SPARSE_CHUNK = 1 << 20  # entries of a sparse view in one chunk


def write_dataset(group: zarr.Group, data: Dataset, tile: int) -> None:
    """Write all views and labels."""
    for number, view in enumerate(data.views.values()):
        node = group.create_group(f"views/{number}")
        if scipy.sparse.issparse(view.values):
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
    views = [
        {
            "name": view.name,
            "kind": view.kind,
            "sparse": scipy.sparse.issparse(view.values),
            "shape": list(view.values.shape),
        }
        for view in data.views.values()
    ]
    labels = data.labels
    about = None if labels is None else {"task": labels.task, "classes": list(labels.classes)}
    return {"views": views, "labels": about}


def read_labels(group: zarr.Group, header: dict[str, Any]) -> Labels | None:
    if header["labels"] is None:
        return None
    return Labels(header["labels"]["task"], get(group["labels"]), tuple(header["labels"]["classes"]))


class StoredViews:
    """Reads rows or rectangles of stored views; nothing is kept between calls."""

    def __init__(self, group: zarr.Group, header: dict[str, Any]) -> None:
        self._group = group
        self.entries: dict[str, dict[str, Any]] = {}
        for number, entry in enumerate(header["views"]):
            self.entries[entry["name"]] = {**entry, "node": f"views/{number}"}

    def rows(self, view: str, rows: slice) -> Any:
        """Some rows of a feature view (dense or CSR)."""
        entry = self.entries[view]
        node = entry["node"]
        if not entry["sparse"]:
            return get(self._group[f"{node}/values"], rows)
        start, stop, _ = rows.indices(entry["shape"][0])
        indptr = get(self._group[f"{node}/indptr"], slice(start, stop + 1))
        span = slice(int(indptr[0]), int(indptr[-1]))
        parts = (
            get(self._group[f"{node}/values"], span),
            get(self._group[f"{node}/indices"], span),
            indptr - indptr[0],
        )
        return scipy.sparse.csr_array(parts, shape=(stop - start, entry["shape"][1]))

    def rectangle(self, view: str, rows: slice, columns: slice) -> NDArray[Any]:
        """Some entries of a distance or kernel view."""
        return get(self._group[f"{self.entries[view]['node']}/values"], (rows, columns))

    def take(self, view: str, chosen: NDArray[np.int64], tile: int) -> View:
        """The chosen samples (ascending) of a feature view, read block by block."""
        entry = self.entries[view]
        blocks = [self.rows(view, slice(0, 0))]  # so that choosing nothing gives no rows, of the right width
        for start in range(0, entry["shape"][0], tile):
            inside = chosen[(chosen >= start) & (chosen < start + tile)]
            if len(inside):
                blocks.append(self.rows(view, slice(start, start + tile))[inside - start])
        stack = scipy.sparse.vstack if entry["sparse"] else np.concatenate
        return View(view, entry["kind"], stack(blocks))
