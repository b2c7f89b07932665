"""Kernels on sets of columns of the same features, by the thousand: the sums over columns that they share.

The distance or similarity of such a kernel is a sum over its columns; for a Gaussian

    k_a(x, z) = exp(factor_a sum_{c in columns_a} (x_c - z_c)^2).

The terms of single columns are the same for all kernels. For some pairs of samples they are computed once, in a table;
then a kernel costs a few additions and its function for each pair. Columns are taken in fours, by their numbers: the
sums of up to four terms are shared too, so that a kernel adds up half as many numbers or fewer. The sum of a kernel has
the same bits whatever other kernels there are, because its order depends on the numbers of its columns alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.types import Block, Float32, Float64, Samples
from dmkl.errors import DataError
from dmkl.kernels.distances import BASES, all_finite, dense
from dmkl.kernels.functions import EXPONENTS, ExponentialKernel, exponentiate

if TYPE_CHECKING:
    from dmkl.kernels.bank import BankKernel

TOGETHER = 4  # columns whose sums are shared
STRIP = 256  # pairs worked on together, fixed when compiling: what a strip needs stays in the cache for all kernels
assert STRIP <= EXPONENTS
TABLE_BYTES = 64e6  # of the sums of a table, where the caller can choose the pairs
MOST = 8  # a choice of fewer than one of so many kernels has a table of its own

Rectangle: TypeAlias = Mapping[str, tuple[Float64, Float64]]  # by view: columns by samples, of its rows and its columns


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of numbers, one after the other: list k is members[starts[k] : starts[k + 1]]."""

    starts: Samples
    members: Samples

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, owners: Samples, members: Samples, count: int) -> Lists:
        """The members of each of `count` owners, which ascend."""
        return cls(np.searchsorted(owners, np.arange(count + 1)), np.asarray(members, dtype=np.int64))

    def some(self, lists: Samples) -> tuple[Lists, Samples]:
        """Some of the lists, and the members that they have; these are renumbered in the lists."""
        lengths = np.diff(self.starts)[lists]
        owners = np.repeat(np.arange(len(lists)), lengths)
        places = np.arange(len(owners)) + np.repeat(self.starts[lists] - np.cumsum(lengths) + lengths, lengths)
        used, numbers = np.unique(self.members[places], return_inverse=True)
        return Lists.of(owners, numbers, len(lists)), used


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Kernels as functions of sums over columns.

    Attributes
    ----------
    kernels : in order
    terms : view, base and column of each term
    parts : the terms of each shared sum
    sets : the parts of each distinct set of columns
    set_of : (kernels,) the number of each kernel's set
    factors : (kernels,) of the sums in exponentials, NaN for other functions
    scales : (kernels,) that values are multiplied by
    """

    kernels: tuple[BankKernel, ...]
    terms: tuple[tuple[str, str, int], ...]
    parts: Lists
    sets: Lists
    set_of: Samples
    factors: Float64
    scales: Float64

    @classmethod
    def of(cls, kernels: Sequence[BankKernel], widths: Mapping[str, int], n: int) -> ColumnSums:
        """The sums of kernels that all have columns, of views with so many columns; n is the number of training
        samples."""
        slots: dict[tuple[str, str], int] = {}
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        set_of = np.empty(len(kernels), np.int64)
        for a, kernel in enumerate(kernels):
            slot = slots.setdefault((kernel.view, kernel.function.base), len(slots))
            assert kernel.columns is not None
            set_of[a] = numbers.setdefault((slot, kernel.columns), len(numbers))
        # the columns of a view and base have numbers of their own, the first one a multiple of TOGETHER
        spans = [-(-widths[view] // TOGETHER) * TOGETHER for view, _ in slots]
        first = np.concatenate([[0], np.cumsum(spans)])
        lengths = [len(columns) for _, columns in numbers]
        owners = np.repeat(np.arange(len(numbers)), lengths)
        terms = np.fromiter(itertools.chain.from_iterable(columns for _, columns in numbers), np.int64, len(owners))
        terms += np.repeat(first[[slot for slot, _ in numbers]], lengths)
        # a part is named by its four and, in bits, the members it sums
        heads = np.flatnonzero(np.diff(owners * first[-1] + terms // TOGETHER, prepend=-1))
        members = np.add.reduceat(1 << terms % TOGETHER, heads)
        parts, part_of = np.unique((terms[heads] // TOGETHER << TOGETHER) + members, return_inverse=True)
        of_part, member = np.nonzero(parts[:, None] >> np.arange(TOGETHER) & 1)
        used, term_of = np.unique((parts[of_part] >> TOGETHER) * TOGETHER + member, return_inverse=True)
        names, places = list(slots), np.searchsorted(first, used, "right") - 1
        return cls(
            tuple(kernels),
            tuple((*names[slot], int(term - first[slot])) for term, slot in zip(used, places, strict=True)),
            Lists.of(of_part, term_of, len(parts)),
            Lists.of(owners[heads], part_of, len(numbers)),
            set_of,
            np.array([_factor(kernel) for kernel in kernels]),
            np.array([kernel.scale(n, 0.0) for kernel in kernels]),
        )

    def some(self, numbers: Samples) -> ColumnSums:
        """Some of the kernels; where they are few, only their own terms and parts."""
        if len(numbers) == len(self.kernels):
            return self
        chosen = replace(
            self,
            kernels=tuple(self.kernels[a] for a in numbers),
            set_of=self.set_of[numbers],
            factors=self.factors[numbers],
            scales=self.scales[numbers],
        )
        if MOST * len(numbers) >= len(self.kernels):
            return chosen
        wanted, set_of = np.unique(chosen.set_of, return_inverse=True)
        sets, used = self.sets.some(wanted)
        parts, terms = self.parts.some(used)
        return replace(chosen, terms=tuple(self.terms[t] for t in terms), parts=parts, sets=sets, set_of=set_of)

    @property
    def height(self) -> int:
        """Numbers in memory for a pair of samples while a table is made."""
        return len(self.terms) + len(self.parts)

    def table(self, rectangles: Sequence[Rectangle]) -> Float64:
        """(parts, pairs): the sums of all parts, for the pairs of some rectangles of samples, row after row."""
        ends = np.cumsum([0, *(_pairs(rectangle) for rectangle in rectangles)])
        terms = np.zeros((len(self.terms), ends[-1]))
        for rectangle, start, stop in zip(rectangles, ends, ends[1:], strict=False):
            for row, (view, base, c) in zip(terms, self.terms, strict=True):
                X, Z = rectangle[view]
                add = BASES[base].add
                assert add is not None
                add(X[c : c + 1].T, Z[c : c + 1], row[start:stop].reshape(X.shape[1], Z.shape[1]))
        table = np.empty((len(self.parts), ends[-1]))
        _sums(terms, self.parts.starts, self.parts.members, np.arange(len(self.parts)), table)
        return table

    def values(self, table: Float64) -> Float32:
        """(kernels, pairs)."""
        values = np.empty((len(self.kernels), table.shape[1]), np.float32)
        _fill(table, *self._arrays, self._exponentials, values)
        for a in np.flatnonzero(np.isnan(self.factors)):
            values[a] = self._evaluated(table, int(a))
        return values

    def forms(self, table: Float64, products: Float64) -> Float64:
        """(kernels, m): sums over the pairs of values times products (m, pairs)."""
        forms = np.zeros((len(self.kernels), len(products)))
        _add_forms(table, *self._arrays, self._exponentials, products, forms)
        for a in np.flatnonzero(np.isnan(self.factors)):
            forms[a] = products @ self._evaluated(table, int(a)).astype(np.float64)
        return forms

    def total(self, table: Float64, weights: Float64) -> Float64:
        """(pairs,): the weighted sum of the values; kernels without weight cost nothing."""
        total = np.zeros(table.shape[1])
        _add_total(table, *self._arrays, self._exponentials[weights[self._exponentials] != 0], weights, total)
        for a in np.flatnonzero(np.isnan(self.factors) & (weights != 0)):
            total += weights[a] * self._evaluated(table, int(a))
        return total

    @property
    def _arrays(self) -> tuple[tuple[Samples, Samples, Samples], tuple[Float64, Float64]]:
        return (self.sets.starts, self.sets.members, self.set_of), (self.factors, self.scales)

    @property
    def _exponentials(self) -> Samples:
        return np.flatnonzero(np.isfinite(self.factors))

    def _evaluated(self, table: Float64, a: int) -> Float32:
        """(pairs,): the values of a kernel that is no exponential."""
        sums = np.empty((1, table.shape[1]))
        _sums(table, self.sets.starts, self.sets.members, self.set_of[a : a + 1], sums)
        with np.errstate(over="ignore"):  # refused below
            values = np.asarray(self.kernels[a].evaluate(sums[0]) * float(self.scales[a]), dtype=np.float32)
        if not all_finite(values[None]):
            raise DataError(f"kernel {self.kernels[a].name} overflows or is not a number", "rescale the features")
        return values


def column_sum(base: str, columns: Sequence[int], X: Block, Z: Block) -> Float64:
    """The sums over these columns for all pairs of two blocks, with the bits of `ColumnSums`."""
    chosen, add = np.asarray(columns), BASES[base].add
    assert add is not None
    Xt, Zt = (np.ascontiguousarray(dense(side[:, chosen]).T) for side in (X, Z))
    heads = np.flatnonzero(np.diff(chosen // TOGETHER, prepend=-1))
    starts, everything = np.append(heads, len(chosen)), np.arange(len(chosen))
    result = np.empty((X.shape[0], Z.shape[0]))
    step = max(1, int(TABLE_BYTES / (8 * len(chosen) * max(1, Z.shape[0]))))
    for first in range(0, X.shape[0], step):
        rows = slice(first, min(first + step, X.shape[0]))
        terms = np.zeros((len(chosen), result[rows].size))
        for c, term in enumerate(terms):
            add(Xt[c : c + 1, rows].T, Zt[c : c + 1], term.reshape(result[rows].shape))
        parts = np.empty((len(heads), terms.shape[1]))
        _sums(terms, starts, everything, everything[: len(heads)], parts)
        _sums(parts, np.array([0, len(heads)]), everything, everything[:1], result[rows].reshape(1, -1))
    return result


def _factor(kernel: BankKernel) -> float:
    """Of the sum in an exponential, NaN for other functions."""
    if not isinstance(kernel.function, ExponentialKernel):
        return np.nan
    with contextlib.suppress(OverflowError, ZeroDivisionError):
        factor = kernel.function.factor
        if np.isfinite(factor):
            return factor
    raise DataError(f"kernel {kernel.name} overflows or is not a number", "use other parameters")


def _pairs(rectangle: Rectangle) -> int:
    X, Z = next(iter(rectangle.values()))
    return int(X.shape[1] * Z.shape[1])


@jit()
def _add_up(table: Float64, members: Samples, left: int, right: int, out: Float64) -> None:
    """out = the sum of these rows of the table, between two columns; eight of them at a time."""
    width, count = right - left, members.shape[0]
    for j in range(width):
        out[j] = 0.0
    eights = count - count % 8
    for c in range(0, eights, 8):
        p, q = table[members[c], left:right], table[members[c + 1], left:right]
        r, s = table[members[c + 2], left:right], table[members[c + 3], left:right]
        t, u = table[members[c + 4], left:right], table[members[c + 5], left:right]
        v, w = table[members[c + 6], left:right], table[members[c + 7], left:right]
        for j in range(width):
            out[j] += ((p[j] + q[j]) + (r[j] + s[j])) + ((t[j] + u[j]) + (v[j] + w[j]))
    twos = count - count % 2
    for c in range(eights, twos, 2):
        p, q = table[members[c], left:right], table[members[c + 1], left:right]
        for j in range(width):
            out[j] += p[j] + q[j]
    for c in range(twos, count):
        p = table[members[c], left:right]
        for j in range(width):
            out[j] += p[j]


@jit()
def _sums(table: Float64, starts: Samples, members: Samples, lists: Samples, out: Float64) -> None:
    """out[k] = the sum of the rows of the table that are in list k of these."""
    for left in range(0, table.shape[1], STRIP):
        right = min(left + STRIP, table.shape[1])
        for k in range(lists.shape[0]):
            own = members[starts[lists[k]] : starts[lists[k] + 1]]
            _add_up(table, own, left, right, out[k, left:right])


@jit()
def _values(
    table: Float64,
    sets: tuple[Samples, Samples, Samples],
    functions: tuple[Float64, Float64],
    a: int,
    left: int,
    right: int,
    last: int,
    sums: Float64,
    powers: NDArray[np.int32],
    out: Float32,
) -> int:
    """out = the values of the exponential a, between two columns of the table; `sums` are those of set `last`, and
    become those of the set returned."""
    starts, members, set_of = sets
    factors, scales = functions
    own: int = set_of[a]
    if own != last:
        _add_up(table, members[starts[own] : starts[own + 1]], left, right, sums)
    exponentiate(sums[: right - left], factors[a], out, powers)
    if scales[a] != 1.0:
        scale = np.float32(scales[a])
        for j in range(right - left):
            out[j] *= scale
    return own


@jit()
def _fill(
    table: Float64,
    sets: tuple[Samples, Samples, Samples],
    functions: tuple[Float64, Float64],
    kernels: Samples,
    out: Float32,
) -> None:
    """out[a] = the values of the exponentials a among these kernels."""
    sums, powers = np.empty(STRIP), np.empty(STRIP, np.int32)
    for left in range(0, table.shape[1], STRIP):
        right, last = min(left + STRIP, table.shape[1]), -1
        for a in kernels:
            last = _values(table, sets, functions, a, left, right, last, sums, powers, out[a, left:right])


@jit()
def _add_forms(
    table: Float64,
    sets: tuple[Samples, Samples, Samples],
    functions: tuple[Float64, Float64],
    kernels: Samples,
    products: Float64,
    out: Float64,
) -> None:
    """out[a, k] += the sum of the values of the exponential a times products[k]."""
    sums, powers, values = np.empty(STRIP), np.empty(STRIP, np.int32), np.empty(STRIP, np.float32)
    for left in range(0, table.shape[1], STRIP):
        right, last = min(left + STRIP, table.shape[1]), -1
        here = values[: right - left]
        for a in kernels:
            last = _values(table, sets, functions, a, left, right, last, sums, powers, here)
            for k in range(products.shape[0]):
                out[a, k] += _dot(here, products[k, left:right])


# reassociation lets the sum run in vector registers; the order is fixed when compiling, not at run time
@jit(fastmath={"reassoc", "contract"})
def _dot(values: Float32, products: Float64) -> float:
    total = 0.0
    for j in range(values.shape[0]):
        total += np.float64(values[j]) * products[j]
    return total


@jit()
def _add_total(
    table: Float64,
    sets: tuple[Samples, Samples, Samples],
    functions: tuple[Float64, Float64],
    kernels: Samples,
    weights: Float64,
    out: Float64,
) -> None:
    """out += the weighted sum of the values of these exponentials."""
    sums, powers, values = np.empty(STRIP), np.empty(STRIP, np.int32), np.empty(STRIP, np.float32)
    for left in range(0, table.shape[1], STRIP):
        right, last = min(left + STRIP, table.shape[1]), -1
        here = values[: right - left]
        for a in kernels:
            last = _values(table, sets, functions, a, left, right, last, sums, powers, here)
            for j in range(right - left):
                out[left + j] += weights[a] * np.float64(here[j])
