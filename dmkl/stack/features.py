"""Kernels computed from features in memory whenever they are read: many kernels on sets of columns of few samples.

A hundred thousand kernels of two hundred samples are 16 GB of values from 100 kB of features. They are never held. The
questions of a pass are answered in compiled loops over all kernels of a task (`dmkl.kernels.column_sums`), for those
pairs of samples that have coefficients.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dmkl._util.stopping import end_if_late
from dmkl._util.tiling import Grid
from dmkl._util.types import Block, Float64, FloatArray, Samples
from dmkl.errors import ConfigError, DataError
from dmkl.kernels import Bank
from dmkl.kernels.bank import self_values, summed_up
from dmkl.kernels.column_sums import TABLE_BYTES, ColumnSums, Rectangle
from dmkl.kernels.distances import dense
from dmkl.runtime import Runtime
from dmkl.stack.sources import Source

ROWS = 16  # samples of a rectangle: of those on the diagonal, half is not needed
AT_ONCE = 5e8  # values, which take about a second: then it may be late
LARGEST = 1e150  # of a feature: squared distances are finite


class FeatureSource(Source):
    """Kernels of a bank that are functions of sums over columns, over the training samples.

    Parameters
    ----------
    features : samples by columns, for each view
    bank : the fitted kernels
    grid : the blocks of samples

    Raises
    ------
    ConfigError
        If a kernel is no function of a sum over columns, or is centred or divided by its diagonal.
    DataError
        If features are so large that their squares overflow.
    """

    backend = "computed"
    worth_holding = False

    def __init__(self, features: Mapping[str, Block], bank: Bank, grid: Grid) -> None:
        for kernel in bank.kernels:
            if not summed_up(kernel):
                raise ConfigError(
                    f"kernel {kernel.name} can't be computed from sums over columns",
                    "put it into a store: dmkl kernels",
                )
        self.bank, self.grid, self.s, self.dtype = bank, grid, len(bank), np.dtype(np.float32)
        self._features = {view: np.ascontiguousarray(dense(features[view]).T) for view in bank.view_kinds}
        for view, values in self._features.items():
            if np.abs(values).max() > LARGEST:
                raise DataError(f"the values of view '{view}' overflow", "rescale the features")
        widths = {view: len(values) for view, values in self._features.items()}
        self._sums = ColumnSums.of(bank.kernels, widths, bank.n)
        functions = [kernel.function for kernel in bank.kernels]
        self.indefinite = tuple(a for a, function in enumerate(functions) if function.indefinite)
        self.unproven = tuple(a for a, function in enumerate(functions) if function.unproven)

    # --- values

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return next(self.tiles([a], i, j))

    def tiles(self, kernels: Sequence[int], i: int, j: int) -> Iterator[FloatArray]:
        rows, columns = (np.arange(span.start, span.stop) for span in (self.grid.span(i), self.grid.span(j)))
        step = max(1, int(TABLE_BYTES / (4 * len(rows) * len(columns))))
        for first in range(0, len(kernels), step):
            yield from self._values(np.asarray(kernels[first : first + step], dtype=np.int64), rows, columns)

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        return self._values(np.arange(self.s), rows, columns)

    def diagonal(self, samples: Samples) -> FloatArray:
        features = {view: values[:, samples].T for view, values in self._features.items()}
        scaled = zip(self.bank.kernels, self._sums.scales, strict=True)
        values = [self_values(kernel, [features[kernel.view]]) * scale for kernel, scale in scaled]
        return np.stack(values).astype(self.dtype)

    def _values(self, kernels: Samples, rows: Samples, columns: Samples) -> FloatArray:
        sums = self._sums.some(kernels)
        values: FloatArray = np.empty((len(kernels), len(rows), len(columns)), self.dtype)
        step = max(1, int(TABLE_BYTES / (8 * sums.height * max(1, len(columns)))))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            found = sums.values(sums.table([self._rectangle(some, columns)]))
            values[:, first : first + step] = found.reshape(len(kernels), len(some), len(columns))
        return values

    def _rectangle(self, rows: Samples, columns: Samples) -> Rectangle:
        return {view: (values[:, rows], values[:, columns]) for view, values in self._features.items()}

    # --- answers to whole questions

    def forms(self, i: int, kernels: Samples, coef: Float64) -> Float64:
        """Only pairs of samples with coefficients are looked at, each once."""
        sums, span = self._sums.some(kernels), self.grid.span(i)
        forms = np.zeros((len(kernels), coef.shape[1]))
        used = np.flatnonzero(coef.any(axis=1))
        rectangles: list[Rectangle] = []
        products: list[Float64] = []
        most = min(TABLE_BYTES / (8 * (sums.height + coef.shape[1])), AT_ONCE / len(kernels))
        for first in range(0, int(np.searchsorted(used, span.stop - span.start)), ROWS):
            rows = used[first : first + ROWS]
            rows, columns = rows[rows < span.stop - span.start], used[first:]
            if products and sum(part.shape[1] for part in products) + len(rows) * len(columns) > most:
                end_if_late()
                forms += sums.forms(sums.table(rectangles), np.hstack(products))
                rectangles, products = [], []
            rectangles.append(self._rectangle(span.start + rows, span.start + columns))
            products.append(_pair_products(coef[rows], coef[columns]))
        return forms + sums.forms(sums.table(rectangles), np.hstack(products)) if products else forms

    def combined(self, i: int, j: int, weights: Float64) -> Float64:
        used = np.flatnonzero(weights)
        sums, rows, columns = self._sums.some(used), self.grid.span(i), self.grid.span(j)
        here, there = np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop)
        total = np.zeros((len(here), len(there)))
        most = min(TABLE_BYTES / (8 * max(1, sums.height)), AT_ONCE / max(1, len(used)))
        step = max(1, int(most / len(there)))
        for first in range(0, len(here) if len(used) else 0, step):
            end_if_late()
            some = here[first : first + step]
            found = sums.total(sums.table([self._rectangle(some, there)]), weights[used])
            total[first : first + step] = found.reshape(len(some), len(there))
        return total

    # --- facts

    @property
    def smallest_read(self) -> int:
        return 1

    @property
    def held_bytes(self) -> int:
        return sum(values.nbytes for values in self._features.values())

    def _digest(self) -> str:
        found = hashlib.blake2b(json.dumps(self.bank.recipes()).encode(), digest_size=16)
        for view in sorted(self._features):
            found.update(f"{view} {self._features[view].shape} {self.bank.n}".encode())
            found.update(self._features[view].data)
        return found.hexdigest()

    def choose(self, kernels: Sequence[int], runtime: Runtime | None = None) -> FeatureSource:
        features = {view: values.T for view, values in self._features.items()}
        return FeatureSource(features, self.bank.subset(kernels), self.grid)


def _pair_products(left: Float64, right: Float64) -> Float64:
    """(m, pairs): the factors of kernel values in quadratic forms, for samples against themselves and those after them;
    a pair counts twice, for its mirror image too, and a sample with itself once."""
    h, w = len(left), len(right)
    times = 2.0 * np.tri(w, h, -1).T + np.eye(h, w)
    return np.asarray((left.T[:, :, None] * right.T[:, None, :] * times).reshape(left.shape[1], h * w))
