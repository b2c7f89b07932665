"""A data set: named views of the same samples, with or without labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmkl._util.in_memory import in_memory
from dmkl._util.types import Array, Block
from dmkl.config import KINDS
from dmkl.data.labels import Labels, as_index
from dmkl.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class View:
    """One named block of data.

    In a distance or kernel view, values[i, j] relates sample i to training sample j. If such a view is not symmetric,
    values[i, j] is k(x_i, x_j) between training samples, and k(x_j, x) for another sample x in row i, because a score
    sums over the first argument.
    """

    name: str
    kind: str  # features | distance | kernel
    values: Block  # 2-D float32 or float64; a csr_array for sparse features
    symmetric: bool = True

    @property
    def n(self) -> int:
        return int(self.values.shape[0])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Views of the same n samples, and their labels; different numbers of samples are refused."""

    views: dict[str, View]
    labels: Labels | None = None
    rows: NDArray[np.intp] | None = None  # numbers of these samples in the data that they were held out from

    def __post_init__(self) -> None:
        if not self.views:
            raise DataError("a data set needs at least one view")
        first = next(iter(self.views.values()))
        for view in self.views.values():
            if view.n != first.n:
                raise DataError(
                    f"view '{view.name}' has {view.n} rows, view '{first.name}' has {first.n}",
                    "all views describe the same samples; name the right ones in [views]",
                )
        if self.labels is not None and len(self.labels) != first.n:
            raise DataError(
                f"labels of the wrong length: {len(self.labels)} labels for {first.n} samples",
                f"view '{first.name}' and the labels should have one row a sample",
            )

    @property
    def n(self) -> int:
        return next(iter(self.views.values())).n

    def take(self, rows: ArrayLike) -> Dataset:
        """Some samples; the columns of distance and kernel views stay the training samples."""
        index = as_index(rows)
        views = {name: replace(view, values=view.values[index]) for name, view in self.views.items()}
        labels = None if self.labels is None else self.labels.take(index)
        return Dataset(views, labels, None if self.rows is None else self.rows[index])

    def train_test(self, train_rows: ArrayLike, test_rows: ArrayLike) -> tuple[Dataset, Dataset]:
        """Training and test samples, whose distance and kernel views have the training samples as columns."""
        train, test = as_index(train_rows), as_index(test_rows)
        self.check_square()
        return self._related(train, train), self._related(test, train, others=True)

    def among(self, rows: ArrayLike) -> Dataset:
        """Some samples, which are also the columns of the distance and kernel views."""
        self.check_square()
        index = as_index(rows)
        return self._related(index, index)

    def check_square(self) -> None:
        """Refuse distance and kernel views that do not relate every sample to every sample."""
        for view in self.views.values():
            if view.kind != "features" and view.values.shape[0] != view.values.shape[1]:
                raise DataError(
                    f"{view.kind} view '{view.name}' has shape {view.values.shape}, which is not square",
                    "training needs all samples against all samples",
                )

    def check_symmetric(self) -> None:
        """Refuse distance and kernel views whose two halves differ by more than rounding to half precision."""
        self.check_square()
        for view in self.views.values():
            if view.kind != "features" and view.symmetric:
                _refuse_asymmetric(view)

    def fingerprint(self) -> str:
        """A digest of the content; the order of the views and the memory layout do not matter."""
        digest = hashlib.blake2b(digest_size=16)
        for name in sorted(self.views):
            view = self.views[name]
            for part in _parts(view.values):
                oriented = [] if view.symmetric else ["not symmetric"]
                _feed(digest, part, "view", name, view.kind, *oriented, *map(str, view.values.shape))
        if self.labels is not None:
            _feed(digest, self.labels.values, "labels", self.labels.task, *self.labels.classes)
        return digest.hexdigest()

    def _related(self, rows: NDArray[np.intp], train: NDArray[np.intp], *, others: bool = False) -> Dataset:
        """Some samples, with the training samples as columns; `others` says that they are no training samples."""
        views = {}
        for name, view in self.views.items():
            if view.kind == "features":
                values = view.values[rows]
            elif others and not view.symmetric:
                values = np.ascontiguousarray(view.values[np.ix_(train, rows)].T)
            else:
                values = view.values[np.ix_(rows, train)]
            views[name] = replace(view, values=values)
        labels = None if self.labels is None else self.labels.take(rows)
        return Dataset(views, labels, rows if others else None)


def make_view(name: str, kind: str, raw: object, *, n: int | None = None, symmetric: bool = True) -> View:
    """Check and convert one block of data.

    Parameters
    ----------
    name : of the view.
    kind : "features", "distance" or "kernel".
    raw : a matrix with one row a sample, a column (n,) of features, or the upper triangle of a distance or kernel
        matrix, row by row. Features may be sparse. A dask array is computed, an xarray.DataArray taken by its values.
    n : the number of samples. A triangle of s values fits two sizes, n(n-1)/2 = s and n(n+1)/2 = s. Without n,
        distances are taken to lack their zero diagonal, and kernels to have theirs.
    symmetric : False for a kernel matrix that is not.

    Returns
    -------
    View
        Its values have single precision if `raw` had (or float16 or uint8), else double precision.

    Raises
    ------
    DataError
        The values are not real and finite, or have the wrong shape.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}' of view '{name}'", did_you_mean(kind, list(KINDS)))
    if not symmetric and kind != "kernel":
        raise ConfigError(f"view '{name}' is a {kind} view", "only kernel views may have symmetric = false")
    raw = in_memory(raw, f"view '{name}'")
    values = _sparse(name, kind, raw) if hasattr(raw, "tocsr") else _dense(name, kind, raw, n)
    if 0 in values.shape:
        raise DataError(f"view '{name}' is empty: shape {values.shape}")
    _refuse_infinite(name, values)
    return View(name, kind, values, symmetric)


def _dense(name: str, kind: str, raw: object, n: int | None) -> Array:
    try:
        array = np.asarray(raw)
    except ValueError:
        raise DataError(f"view '{name}' is ragged: rows of different length") from None
    array = _as_float(name, array)
    if array.ndim == 1:
        return array[:, None] if kind == "features" else _square(name, kind, array, n)
    if array.ndim != 2:
        raise DataError(f"view '{name}' has shape {array.shape}", "expected one row a sample; reshape to (n, -1)")
    return array


def _sparse(name: str, kind: str, raw: csr_array) -> csr_array:
    from scipy.sparse import csr_array

    if kind != "features":
        raise DataError(f"{kind} view '{name}' is sparse", "give it as a dense matrix")
    if len(raw.shape) != 2:
        raise DataError(f"view '{name}' has shape {raw.shape}", "expected one row a sample")
    raw = raw.tocsr()
    data = _as_float(name, raw.data)
    values = csr_array((data, raw.indices, raw.indptr), shape=raw.shape, copy=True)
    values.sum_duplicates()  # equal content gets equal arrays, on which the fingerprint relies
    values.eliminate_zeros()
    return values


def _as_float(name: str, array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        raise DataError(f"view '{name}' holds {array.dtype} values", "expected real numbers")
    small = array.dtype.kind in "uf" and array.dtype.itemsize <= (1 if array.dtype.kind == "u" else 4)
    with np.errstate(over="ignore"):  # overflowing values are refused as infinite
        return np.ascontiguousarray(array, dtype=np.float32 if small else np.float64)


def _refuse_infinite(name: str, values: Block) -> None:
    numbers = values if isinstance(values, np.ndarray) else values.data
    finite = np.isfinite(numbers)
    if finite.all():
        return
    if isinstance(values, np.ndarray):
        row, column = np.argwhere(~finite)[0]
    else:
        place = int(np.flatnonzero(~finite)[0])
        row = int(np.searchsorted(values.indptr, place, side="right")) - 1
        column = values.indices[place]
    value = numbers[row, column] if numbers.ndim == 2 else numbers[place]
    raise DataError(f"view '{name}' holds {value} in row {row}, column {column}", "fill or drop missing values before")


def _refuse_asymmetric(view: View) -> None:
    values, step = view.values, 1024
    scale = max(abs(float(values.max())), abs(float(values.min())))
    for start in range(0, view.n, step):  # in strips, because the whole difference would be as large as the view
        strip = values[start : start + step]
        off = np.argwhere(np.abs(strip - values[:, start : start + step].T) > 1e-3 * scale)
        if len(off):
            row, column = int(off[0][0]) + start, int(off[0][1])
            raise DataError(
                f"{view.kind} view '{view.name}' is not symmetric: {values[row, column]:g} in row {row}, "
                f"column {column}, but {values[column, row]:g} the other way round",
                "symmetrise it, e.g. (K + K.T) / 2",
            )


def _square(name: str, kind: str, triangle: Array, n: int | None) -> Array:
    """The symmetric matrix of an upper triangle in row order, with or without its diagonal."""
    root = isqrt(8 * triangle.size + 1)
    if triangle.size == 0 or root * root != 8 * triangle.size + 1:
        raise DataError(f"{kind} view '{name}' is neither square nor a triangle: {triangle.size} values")
    full = (root - 1) // 2
    if n is None:
        n = full + 1 if kind == "distance" else full
    if n not in (full, full + 1):
        raise DataError(
            f"{kind} view '{name}' has {triangle.size} values in its triangle",
            f"{n} samples need {n * (n - 1) // 2} without the diagonal or {n * (n + 1) // 2} with it",
        )
    above = n - full  # 1 when the diagonal is left out
    if above and kind == "kernel":  # the diagonal of distances is zero, that of a kernel is unknown
        raise DataError(f"kernel view '{name}' lacks its diagonal", f"give the {n * (n + 1) // 2} values with it")
    square = np.zeros((n, n), dtype=triangle.dtype)
    start = 0
    for row in range(n - above):  # row by row, because index arrays of a triangle are larger than the matrix
        stop = start + n - above - row
        square[row, row + above :] = square[row + above :, row] = triangle[start:stop]
        start = stop
    return square


def _parts(values: Block) -> Iterator[Array]:
    if isinstance(values, np.ndarray):
        yield values
    else:
        yield values.data
        yield values.indices.astype(np.int64)  # scipy may choose either width for indices
        yield values.indptr.astype(np.int64)


def _feed(digest: hashlib.blake2b, values: Array, *words: str) -> None:
    digest.update(json.dumps([*words, values.dtype.str, *values.shape]).encode())
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
