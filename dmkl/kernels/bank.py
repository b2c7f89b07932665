"""The bank: a grid of fitted kernels over named views, and the tiles they fill.

Every value is `scale (K_ij / sqrt(K_ii K_jj) - r_i - r_j + g)`: 'unit-diagonal' is the division, 'centre' subtracts the
row means r and adds the grand mean g, 'unit-trace' (trace 1) and 'unit-mean' (mean diagonal 1) choose the scale.
All of it is fitted on training samples. The row means of a matrix that is never whole in memory are sums over its tiles
(`tile_sums`, `row_means`).

K_ij is a function of a distance or similarity (the base) in one view, or the product or weighted mean of such functions
in several views. The base of the latter is a stack of tiles, one for each view.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from dmkl._util.stopping import end_if_late
from dmkl._util.tiling import Grid
from dmkl._util.types import DOUBLE, SINGLE, Array, Block, Float64, FloatArray, FloatType, Samples, Table
from dmkl.config import construct
from dmkl.errors import ConfigError, DataError
from dmkl.kernels.column_sums import column_sum
from dmkl.kernels.distances import BASES, MATRIX, all_finite, mirror_upper
from dmkl.kernels.functions import KERNELS, STRIP, UNITS, ExponentialKernel, Kernel

NORMALISERS = ("unit-diagonal", "centre", "unit-trace", "unit-mean")  # in the order they apply
Span = slice | Samples  # the samples of a block
Sums = dict[int, tuple[Float64, Float64]]  # row and column sums of a tile, by the number of the kernel
Columns: TypeAlias = tuple[int, ...] | None  # ascending numbers of columns of a view, None for all of them
Views: TypeAlias = tuple[str, ...]  # of one kernel: one view, or those that it combines


class Pair(Protocol):
    """Two blocks of samples, of the rows and of the columns of a tile."""

    same: bool  # rows and columns are the same samples: a tile on the diagonal

    def sides(self, view: str) -> tuple[Block, Block]:
        """The two blocks of a feature view."""

    def matrix(self, view: str) -> Array:
        """The rectangle of a distance or kernel view."""


@dataclass(frozen=True)
class Part:
    """A further view of a kernel that combines views, with the function fitted there."""

    view: str
    function: Kernel


@dataclass(frozen=True)
class BankKernel:
    """One fitted kernel: everything needed to compute it for new samples."""

    name: str
    view: str
    group: str
    function: Kernel
    normalise: tuple[str, ...] = ()
    trace: float = 0.0  # sum of the training diagonal, after 'unit-diagonal'
    columns: Columns = None  # of its view that it is computed from
    others: tuple[Part, ...] = ()  # whose functions, of the same class, are multiplied with this view's
    weights: tuple[float, ...] = ()  # or, if there are weights, averaged; one for each view, of sum 1

    @property
    def views(self) -> Views:
        """Its view, or all that it combines."""
        return self.view, *(part.view for part in self.others)

    def recipe(self) -> Table:
        """The kernel as plain values."""
        kernel = next(name for name, cls in KERNELS.items() if cls is type(self.function))
        recipe = {
            "name": self.name,
            "view": self.view,
            "group": self.group,
            "kernel": kernel,
            "params": dict(vars(self.function)),
            "normalise": list(self.normalise),
            "trace": self.trace,
        }
        if self.others:
            recipe["others"] = [{"view": part.view, "params": dict(vars(part.function))} for part in self.others]
            recipe["weights"] = list(self.weights)
        return recipe if self.columns is None else {**recipe, "columns": list(self.columns)}

    @classmethod
    def from_recipe(cls, recipe: Table) -> BankKernel:
        """The kernel that `recipe` describes; ConfigError if it is not one of a fitted kernel."""
        where = f"kernel {recipe['name']}"
        function = construct(KERNELS[recipe["kernel"]], recipe["params"], where)
        others = [
            Part(part["view"], construct(type(function), part["params"], where)) for part in recipe.get("others", ())
        ]
        kernel = cls(
            name=recipe["name"],
            view=recipe["view"],
            group=recipe["group"],
            function=function,
            normalise=tuple(recipe["normalise"]),
            trace=float(recipe["trace"]),
            columns=tuple(recipe["columns"]) if "columns" in recipe else None,
            others=tuple(others),
            weights=tuple(map(float, recipe.get("weights", ()))),
        )
        if not all(isinstance(text, str) for text in (kernel.name, *kernel.views, kernel.group)):
            raise ConfigError("the name, view and group of a kernel should be text")
        if kernel.weights and not (
            kernel.others and len(kernel.weights) == len(kernel.views) and _positive(kernel.weights)
        ):
            raise ConfigError(f"kernel {kernel.name} needs a positive weight for each of its views")
        fitted = all(function.fit(UNITS) == function for function in kernel._functions)
        if not fitted or not np.isfinite(kernel.trace) or not set(kernel.normalise) <= set(NORMALISERS):
            raise ConfigError(f"kernel {kernel.name} is not fitted")
        if kernel.columns is not None:
            kernel.check_columns()
        return kernel

    def check_columns(self) -> None:
        """Refuse columns that are no ascending numbers, or that the function cannot be restricted to."""
        numbers = list(self.columns or ())
        whole = bool(numbers) and all(type(c) is int and c >= 0 for c in numbers)
        if not whole or numbers != sorted(set(numbers)):
            raise ConfigError(f"the columns of kernel {self.name} should be ascending numbers, not {numbers}")
        if not self.of_columns:
            raise ConfigError(f"kernel {self.name} is not computed from a sum over columns", "make views of columns")

    @property
    def centred(self) -> bool:
        return "centre" in self.normalise

    @property
    def of(self) -> tuple[Views, str, Columns]:
        """Views, base and columns: kernels that share them are functions of the same distances or similarities."""
        return self.views, self.function.base, self.columns

    @property
    def _functions(self) -> tuple[Kernel, ...]:
        return self.function, *(part.function for part in self.others)

    @property
    def of_columns(self) -> bool:
        """Whether it is a function of a sum over columns, and so may be computed from some of them."""
        base = self.function.base
        return base != MATRIX and BASES[base].add is not None and not self.others

    def evaluate(self, tile: Float64, *, precise: bool = False) -> Array:
        """Uncentred, unscaled values for a tile (or a diagonal) of the base, or a stack of one for each view."""
        tiles = tile if self.others else [tile]
        try:
            pairs = zip(self._functions, tiles, strict=True)
            values = [function.precise(own) if precise else function.evaluate(own) for function, own in pairs]
        except (OverflowError, ZeroDivisionError):  # of a parameter: arrays overflow without an exception
            raise DataError(f"kernel {self.name} overflows or is not a number", "use other parameters") from None
        if not self.others:
            return values[0]
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused later
            if not self.weights:
                return functools.reduce(np.multiply, values)
            return functools.reduce(np.add, (weight * own for weight, own in zip(self.weights, values, strict=True)))

    def scale(self, n: int, grand_mean: float) -> float:
        """The factor of 'unit-trace' or 'unit-mean'; centring takes n times the grand mean from the trace."""
        total = self.trace - n * grand_mean
        if not total and {"unit-trace", "unit-mean"} & set(self.normalise):
            raise DataError(f"kernel {self.name} has trace 0", "leave it out")
        if "unit-trace" in self.normalise:
            return 1.0 / total
        if "unit-mean" in self.normalise:
            return n / total
        return 1.0


@dataclass(frozen=True)
class Bank:
    """The kernels of one problem, in the order of the stack's first axis."""

    kernels: tuple[BankKernel, ...]
    n: int  # training samples the kernels were fitted on
    dtype: FloatType = SINGLE  # of finished values

    def __len__(self) -> int:
        return len(self.kernels)

    @property
    def groups(self) -> Samples:
        """The group number of each kernel, groups numbered as they first appear."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(kernel.group, len(numbers)) for kernel in self.kernels], dtype=np.int64)

    @property
    def view_kinds(self) -> dict[str, str]:
        """The kind of each view that a kernel is computed from, in the order of the kernels."""
        return {view: kernel.function.view_kind for kernel in self.kernels for view in kernel.views}

    @property
    def symmetric(self) -> bool:
        """Whether all matrices are symmetric, so that half of their tiles determine the others."""
        return all(kernel.function.symmetric for kernel in self.kernels)

    @property
    def indefinite(self) -> list[str]:
        """Names of kernels that are not positive semidefinite."""
        return [kernel.name for kernel in self.kernels if kernel.function.indefinite]

    @property
    def unproven(self) -> list[str]:
        """Names of kernels whose definiteness must be checked numerically."""
        return [kernel.name for kernel in self.kernels if kernel.function.unproven]

    @property
    def centred(self) -> list[int]:
        """Numbers of the kernels that are centred."""
        return [a for a, kernel in enumerate(self.kernels) if kernel.centred]

    @property
    def by_columns(self) -> bool:
        """Whether all kernels are on sets of columns and can be computed together (`column_sums`)."""
        return all(map(summed_up, self.kernels))

    def on_columns(self, widths: Mapping[str, int]) -> Bank:
        """The same kernels, where possible on the set of all columns in place of all columns, which differs in the last
        bits only; `widths` are the numbers of columns of the views."""
        kernels = (
            replace(kernel, columns=tuple(range(widths[kernel.view])))
            if kernel.columns is None and kernel.of_columns
            else kernel
            for kernel in self.kernels
        )
        return replace(self, kernels=tuple(kernels))

    def subset(self, keep: Sequence[int]) -> Bank:
        return replace(self, kernels=tuple(self.kernels[a] for a in keep))

    def recipes(self) -> list[Table]:
        return [kernel.recipe() for kernel in self.kernels]

    def fingerprint(self) -> str:
        """A digest of the recipes: equal for equal kernels of the same samples."""
        return hashlib.blake2b(json.dumps(self.recipes()).encode(), digest_size=16).hexdigest()

    @classmethod
    def from_recipes(cls, recipes: list[Table], n: int, dtype: str = "float32") -> Bank:
        if dtype not in ("float32", "float64"):
            raise ConfigError(f"values are float32 or float64, not {dtype}")
        return cls(tuple(BankKernel.from_recipe(recipe) for recipe in recipes), n, np.dtype(dtype))

    def check_views(self, kinds: Mapping[str, str], widths: Mapping[str, int]) -> None:
        """Refuse a bank without kernels, and kernels whose view is missing, of another kind or too narrow."""
        if not self.kernels:
            raise ConfigError("no kernels")
        for kernel in self.kernels:
            for view in kernel.views:
                if kinds.get(view) != kernel.function.view_kind:
                    raise ConfigError(f"kernel {kernel.name} has no {kernel.function.view_kind} view '{view}'")
            if kernel.columns is not None and kernel.columns[-1] >= widths[kernel.view]:
                raise ConfigError(f"kernel {kernel.name} has no column {kernel.columns[-1]} in view '{kernel.view}'")

    def values(self, pair: Pair, wanted: Sequence[int] | None = None) -> Iterator[tuple[int, Array]]:
        """The number and the uncentred, unscaled tile of each wanted kernel (of all kernels by default)."""
        for a, base in self._with_bases(pair, wanted):
            yield a, self._values(a, base, self._diagonals(a, pair))

    def _with_bases(self, pair: Pair, wanted: Sequence[int] | None = None) -> Iterator[tuple[int, Float64]]:
        """The number of each wanted kernel and the tile of its base, which is computed once for all that share it."""
        kernels = range(len(self)) if wanted is None else wanted
        shared: dict[tuple[Views, str, Columns], list[int]] = {}
        for a in kernels:
            shared.setdefault(self.kernels[a].of, []).append(a)
        for of, members in shared.items():
            tile = base_tile(pair, *of)
            for a in members:
                end_if_late()
                yield a, tile

    def tiles(
        self, pair: Pair, rows: Span, columns: Span, row_means: Float64, wanted: Sequence[int] | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        """The number and the finished training tile of each wanted kernel (of all kernels by default); `row_means` is
        (s, n), zero where nothing is centred."""
        for a, base in self._with_bases(pair, wanted):
            yield a, self.tile(a, base, pair, rows, columns, row_means[a])

    def strips(
        self, pair: Pair, rows: Span, columns: Span, row_means: Float64
    ) -> Iterator[tuple[int, Iterator[FloatArray]]]:
        """The same values as `tiles`, each tile in strips of a few rows, which can be written while in the cache."""
        for a, base in self._with_bases(pair):
            yield a, self._strips(a, base, pair, row_means[a], rows, columns)

    def _strips(
        self, a: int, base: Float64, pair: Pair, means: Float64, rows: Span, columns: Span
    ) -> Iterator[FloatArray]:
        of_rows, of_columns, diagonals = means[rows], means[columns], self._diagonals(a, pair)
        for first in range(0, base.shape[-2], STRIP):
            part = slice(first, first + STRIP)
            values = self._values(a, base[..., part, :], diagonals and (diagonals[0][part], diagonals[1]))
            yield self.finished(a, values, of_rows[part], of_columns, means)

    def tile(self, a: int, base: Float64, pair: Pair, rows: Span, columns: Span, row_means: Float64) -> FloatArray:
        """One kernel's finished training tile from the tile of its base, bit for bit as `tiles` computes it.

        `row_means` is (n,), this kernel's. The caller keeps the base's tile for other kernels that share it.
        """
        values = self._values(a, base, self._diagonals(a, pair))
        return self.finished(a, values, row_means[rows], row_means[columns], row_means)

    def finished(self, a: int, values: Array, of_rows: Float64, of_columns: Float64, row_means: Float64) -> FloatArray:
        """Values centred, scaled and rounded to the precision of a tile.

        `of_rows` and `of_columns` are the row means of the samples of this block, `row_means` (n,) those of all
        training samples.
        """
        kernel = self.kernels[a]
        grand_mean = float(row_means.mean()) if kernel.centred else 0.0
        scale = kernel.scale(self.n, grand_mean)
        if kernel.centred:
            values = values - of_rows[:, None]
            values -= of_columns[None, :]
            values += grand_mean
        if scale != 1.0:
            values = values * scale
        finished = np.ascontiguousarray(values, dtype=self.dtype)
        if not all_finite(finished):
            raise DataError(f"kernel {kernel.name} overflows or is not a number", "rescale the features")
        return finished

    def _diagonals(self, a: int, pair: Pair) -> tuple[Float64, Float64] | None:
        """k(x, x) of the samples of rows and of columns, if kernel a is divided by them."""
        kernel = self.kernels[a]
        if "unit-diagonal" not in kernel.normalise or kernel.function.base == MATRIX:
            return None
        rows, columns = zip(*map(pair.sides, kernel.views), strict=True)
        return self_values(kernel, rows), self_values(kernel, columns)

    def _values(self, a: int, base: Float64, diagonals: tuple[Float64, Float64] | None) -> Array:
        """The uncentred, unscaled values."""
        values = self.kernels[a].evaluate(base, precise=self.dtype == DOUBLE)
        return values if diagonals is None else values / np.sqrt(np.outer(*diagonals))


def _positive(numbers: Sequence[float]) -> bool:
    return all(0 < number < np.inf for number in numbers)


def summed_up(kernel: BankKernel) -> bool:
    """Whether the values are a function of a sum over a set of columns, times a factor that is the same for all."""
    exponential = isinstance(kernel.function, ExponentialKernel)  # with ones on the diagonal
    divided = "unit-diagonal" in kernel.normalise and not exponential
    return kernel.columns is not None and not kernel.centred and not divided


def self_values(kernel: BankKernel, samples: Sequence[Block]) -> Float64:
    """k(x, x) of every sample, before any normalisation; `samples` has a block for each of the kernel's views."""
    blocks = samples if kernel.columns is None else [X[:, list(kernel.columns)] for X in samples]
    diagonals = [BASES[kernel.function.base].diagonal(X) for X in blocks]
    return np.asarray(kernel.evaluate(np.stack(diagonals) if kernel.others else diagonals[0]), dtype=np.float64)


def base_tile(pair: Pair, views: Views, base: str, columns: Columns = None) -> Float64:
    """The distances or similarities of a pair of blocks, exactly symmetric on the diagonal of the matrix; of several
    views a stack (views, rows, columns)."""
    if len(views) > 1:
        return np.stack([base_tile(pair, (view,), base, columns) for view in views])
    view = views[0]
    if base == MATRIX:
        return np.asarray(pair.matrix(view), dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        X, Z = pair.sides(view)
        tile = BASES[base].tile(X, Z) if columns is None else column_sum(base, columns, X, Z)
    if pair.same and columns is None:
        if BASES[base].symmetric:
            mirror_upper(tile)
        if BASES[base].distance is not None:
            np.fill_diagonal(tile, 0.0)
    if not all_finite(tile):
        raise DataError(f"the {base} values of view '{view}' overflow", "rescale the features")
    return tile


def tile_sums(bank: Bank, pair: Pair) -> Sums:
    """Row and column sums of the centred kernels over one tile."""
    exact = ((a, np.asarray(values, dtype=np.float64)) for a, values in bank.values(pair, bank.centred))
    return {a: (values.sum(axis=1), values.sum(axis=0)) for a, values in exact}


def row_means(s: int, grid: Grid, parts: Iterable[tuple[tuple[int, int], Sums]]) -> Float64:
    """(s, n), zero for kernels that are not centred, from the sums of the tiles (i, j), j >= i."""
    sums = np.zeros((s, grid.n))
    for (i, j), of_tile in parts:
        for a, (by_row, by_column) in of_tile.items():
            sums[a, grid.span(i)] += by_row
            if i != j:
                sums[a, grid.span(j)] += by_column
    return sums / grid.n
