"""Sources of kernel values: the one protocol below the stack.

A source says which tiles there are, gives them, and says what else it can answer and at what cost:

    tile(a, i, j)          K_a[block i, block j]
    cross(rows, columns)   K[:, rows, columns] of any samples in any order
    diagonal(samples)      K[:, i, i] of some samples
    as_array()             all of it, where it is one array in memory

The stack and the solvers ask these questions and never for the type of a source. There are seven: an array (in this
module); kernels computed from features in memory (`features`); tiles of a store on disk, tiles of a store on an object
store, tiles computed from a store's samples, tiles held in this process and tiles held by the workers of a cluster
(`tiles`). Some kernels of a source, or some samples, are a source again. A new source is a subclass of `Source` that
has `grid`, `s`, `dtype` and `tile`; the defaults do the rest.

A `TileReader` passes over all tiles of a source: one task for each block row, answers in order.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from dmkl._util.machine import Budget, Scratch, Scratches, threads_of
from dmkl._util.shared_memory import KeptArrays
from dmkl._util.stopping import end_if_late
from dmkl._util.tiling import Grid, UnevenGrid
from dmkl._util.types import Float64, FloatArray, FloatType, Samples
from dmkl.errors import DataError
from dmkl.events import Observer, Progress, ignore
from dmkl.runtime import Local, Runtime
from dmkl.stack.compiled import asymmetry, cut, quadratic_forms_of, rows_of
from dmkl.store import RepairLog

T = TypeVar("T")


@dataclass(frozen=True)
class ReadingOptions:
    """How many samples are asked for at once where any samples cost the same.

    Attributes
    ----------
    rows, columns : of one question to `Source.cross`
    batch : samples that a learner meets at once
    """

    rows: int = 128
    columns: int = 2048
    batch: int = 512


READING = ReadingOptions()


class BlockRow(Protocol):
    """The kept tiles of block row i of all kernels, as a task reads them: tiles (i, j) with j >= i, or all of them
    where the grid is full."""

    @property
    def grid(self) -> Grid: ...

    @property
    def i(self) -> int: ...

    @property
    def s(self) -> int: ...

    def tile(self, a: int, j: int) -> FloatArray:
        """K_a[block i, block j]."""
        ...

    def tiles(self, kernels: Sequence[int], j: int) -> Iterator[FloatArray]:
        """The tiles of some kernels, in this order."""
        ...

    def forms(self, kernels: Samples, coef: Float64) -> Float64 | None:
        """See `Source.forms`."""
        ...

    def combined(self, j: int, weights: Float64) -> Float64 | None:
        """See `Source.combined`."""
        ...


class Source(ABC):
    """Values of s kernels over the n samples of a grid.

    Attributes
    ----------
    grid : how the samples are cut into blocks, and which tiles are kept
    s : the number of kernels
    dtype : the type of the values
    backend : the name of this kind of source in reports
    indefinite : numbers of the kernels that are known not to be positive semidefinite
    unproven : numbers of the kernels whose definiteness must be checked numerically
    repairs : the log of repairs of the store whose tiles are read, None if there is no store
    worth_holding : whether values in memory would be read faster than they come from here
    at_hand : whether tiles come as fast as memory gives them, every time
    on_the_spot : whether `values` gives those of any samples at a cost that is theirs alone
    """

    grid: Grid
    s: int
    dtype: FloatType
    backend: str = "memory"
    indefinite: tuple[int, ...] = ()
    unproven: tuple[int, ...] = ()
    repairs: RepairLog | None = None
    worth_holding: bool = True
    at_hand: bool = False
    on_the_spot: bool = False
    _identity: str = ""

    # --- values

    @abstractmethod
    def tile(self, a: int, i: int, j: int) -> FloatArray:
        """K_a[block i, block j], one of the tiles that the grid keeps."""

    def tiles(self, kernels: Sequence[int], i: int, j: int) -> Iterator[FloatArray]:
        """The tiles of some kernels, in this order: a source that computes them may share work among them."""
        return (self.tile(a, i, j) for a in kernels)

    def forms(self, i: int, kernels: Samples, coef: Float64) -> Float64 | None:
        """Contributions (kernels, m) of block row i to the quadratic forms of coefficients (samples, m), whose samples
        are those from the first of the block row on. None where tiles have to be read for them, one by one."""
        return None

    def combined(self, i: int, j: int, weights: Float64) -> Float64 | None:
        """`sum_a weights[a] K_a[block i, block j]`. None where tiles have to be read for it, one by one."""
        return None

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        """K[:, rows, columns], (s, rows, columns), of samples in any order."""
        values = np.empty((self.s, len(rows), len(columns)), self.dtype)
        for i, here, local in _by_block(rows, self.grid):
            for j, there, other in _by_block(columns, self.grid):
                mirrored = j not in self.grid.kept(i)
                tiles = self.tiles(range(self.s), j, i) if mirrored else self.tiles(range(self.s), i, j)
                for layer, tile in zip(values, tiles, strict=True):
                    layer[here[:, None], there] = (tile.T if mirrored else tile)[local[:, None], other]
        return values

    def values(self, rows: Samples, columns: Samples, kernels: Sequence[int]) -> Iterator[tuple[int, FloatArray]]:
        """(a, K_a[rows, columns]) of some kernels, in any order; symmetric where rows are the columns."""
        whole = self.cross(rows, columns)
        return ((a, whole[a]) for a in kernels)

    def diagonal(self, samples: Samples) -> FloatArray:
        """K[:, i, i] for each of the samples, (s, samples)."""
        values = np.empty((self.s, len(samples)), self.dtype)
        for i, here, local in _by_block(samples, self.grid):
            for layer, tile in zip(values, self.tiles(range(self.s), i, i), strict=True):
                layer[here] = tile.diagonal()[local]
        return values

    def as_array(self) -> FloatArray | None:
        """All values (s, n, n), read-only, if they are one array in memory; None if they are not."""
        return None

    # --- costs

    @property
    def smallest_read(self) -> int:
        """The side of the square of values that has to be read, or computed, for one of them: 1 where any samples cost
        the same, the side of a tile where whole tiles are read."""
        return self.grid.tile

    @property
    def held_bytes(self) -> int:
        """Bytes of values in the memory of this process."""
        return 0

    @property
    def tile_bytes(self) -> int:
        """Bytes that all tiles take in memory."""
        return self.grid.tiles * self.s * self.grid.tile**2 * self.dtype.itemsize

    def pieces(self, rows: Samples) -> list[Samples]:
        """Rows in order, cut into what is worth asking for together."""
        return self._portions(rows, READING.rows)

    def chunks(self, columns: Samples) -> list[Samples]:
        """Columns in order, cut into what is worth asking for together."""
        return self._portions(columns, READING.columns)

    def _portions(self, samples: Samples, size: int) -> list[Samples]:
        if self.smallest_read == 1:
            return _equal_portions(samples, size)
        return np.split(samples, np.flatnonzero(np.diff(samples // self.grid.tile)) + 1)

    def batches(self, rng: np.random.Generator) -> list[Samples]:
        """All samples in a random order, in batches. Where whole tiles are read, blocks are shuffled, and samples
        inside each block: otherwise every batch would read the whole source."""
        if self.smallest_read == 1:
            return _equal_portions(rng.permutation(self.grid.n), READING.batch)
        spans = [self.grid.span(int(i)) for i in rng.permutation(self.grid.blocks)]
        return [rng.permutation(np.arange(span.start, span.stop)) for span in spans]

    # --- properties of the kernels

    @property
    def identity(self) -> str:
        """A text that two sources share only if they have the same values; found when first asked for."""
        if not self._identity:
            self._identity = self._digest()
        return self._identity

    def _digest(self) -> str:
        rows = (SourceRow(self, i) for i in range(self.grid.blocks))
        return digest_of("tiles", *map(digest_block_row, rows))

    def require_symmetric(self, kernels: Sequence[int], threads: int) -> None:
        """Raise DataError if one of these kernels is not symmetric. There is nothing to look at where only half of the
        tiles are kept, or where the kernels' formulas are known."""
        return

    # --- where tasks read the values

    @property
    def rows(self) -> Sequence[object]:
        """The block rows as arguments of tasks: each is a `BlockRow`, or one that a worker holds."""
        return [SourceRow(self, i) for i in range(self.grid.blocks)]

    @property
    def portable(self) -> Source | None:
        """The same kernels from a source that is small enough to be sent along with every task; None if there is none.

        A source that is small itself returns itself."""
        return None

    @property
    def on_demand(self) -> Source:
        """The same kernels from the source that answers `cross` best in a task."""
        return self

    @property
    def nearby(self) -> Source | None:
        """The same kernels from a source whose block rows one task of a cluster may take all of, with the samples
        numbered as in `whole`; None if blocks have to be cut by the coordinator."""
        return self.portable

    # --- some of it

    @property
    def whole(self) -> Source:
        """The source that has all samples."""
        return self

    def places(self, samples: Samples) -> Samples:
        """The numbers in `whole` of some samples of this source."""
        return samples

    def choose(self, kernels: Sequence[int], runtime: Runtime | None = None) -> Source:
        """A source of some of the kernels. With a runtime its block rows are made where that runtime's tasks run."""
        return KernelChoice(self, tuple(int(a) for a in kernels), runtime)

    def restrict(self, samples: Samples, runtime: Runtime | None = None) -> SamplePart:
        """A source of some samples (ascending numbers)."""
        return SamplePart(self, samples, runtime)

    def __getstate__(self) -> dict[str, object]:
        """What is sent: block rows are made again, by whoever needs them."""
        return {name: value for name, value in self.__dict__.items() if name not in ("rows", "runtime")}


@dataclass(frozen=True)
class SourceRow:
    """A block row of a source that tasks can read as it is."""

    source: Source
    i: int

    @property
    def grid(self) -> Grid:
        return self.source.grid

    @property
    def s(self) -> int:
        return self.source.s

    def tile(self, a: int, j: int) -> FloatArray:
        end_if_late()
        return self.source.tile(a, self.i, j)

    def tiles(self, kernels: Sequence[int], j: int) -> Iterator[FloatArray]:
        for tile in self.source.tiles(kernels, self.i, j):
            end_if_late()
            yield tile

    def forms(self, kernels: Samples, coef: Float64) -> Float64 | None:
        end_if_late()
        return self.source.forms(self.i, kernels, coef)

    def combined(self, j: int, weights: Float64) -> Float64 | None:
        end_if_late()
        return self.source.combined(self.i, j, weights)


# --- an array


class ArraySource(Source):
    """An array (s, n, n) in memory, kept as it is.

    `symmetric` says that its kernels have been found to be symmetric up to rounding."""

    at_hand = True

    def __init__(self, array: FloatArray, grid: Grid, *, symmetric: bool = False) -> None:
        self.array, self.grid, self.symmetric = array, grid, symmetric
        self.s, self.dtype = len(array), array.dtype
        self.unproven = tuple(range(len(array)))

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return self.array[a, self.grid.span(i), self.grid.span(j)]

    def forms(self, i: int, kernels: Samples, coef: Float64) -> Float64 | None:
        if self.grid.blocks > 1:
            return None  # a large tile is read once for all coefficients
        forms = np.empty((coef.shape[1], len(kernels)))
        for own, form in zip(np.ascontiguousarray(coef.T), forms, strict=True):
            quadratic_forms_of(self.array, kernels, np.flatnonzero(own), own, form)
        return forms.T

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        return self.array[:, rows[:, None], columns]

    def diagonal(self, samples: Samples) -> FloatArray:
        return self.array[:, samples, samples]

    def as_array(self) -> FloatArray | None:
        if not self.array.flags.c_contiguous:
            return None
        view = self.array.view()
        view.flags.writeable = False
        return view

    @property
    def smallest_read(self) -> int:
        return 1

    @property
    def held_bytes(self) -> int:
        return self.array.nbytes

    def _digest(self) -> str:
        found = hashlib.blake2b(f"array {self.dtype.str} {self.array.shape}".encode(), digest_size=16)
        for kernel in self.array:
            found.update(np.ascontiguousarray(kernel).data)
        return found.hexdigest()

    def require_symmetric(self, kernels: Sequence[int], threads: int) -> None:
        if self.symmetric:
            return
        rounding = 1e-5 if self.dtype == np.float32 else 1e-6  # K = X X' may be rounded twice
        spans = [self.grid.span(i) for i in reversed(range(self.grid.blocks))]  # the longest first

        def check(task: tuple[int, slice]) -> None:
            a, rows = task
            largest, difference, i, j = asymmetry(self.array[a], rows.start, rows.stop)
            if difference > rounding * max(largest, 1e-300):
                raise DataError(
                    f"kernel {a} is not symmetric: entries ({j}, {i}) and ({i}, {j}) differ by {difference:.3g}",
                    'symmetrise it, e.g. (K + K.T) / 2, or use formulation.name = "mikl", which takes any kernel',
                )

        with threads_of(threads) as each:
            each(check, [(a, rows) for a in kernels for rows in spans])


# --- some kernels, some samples


@dataclass(frozen=True)
class ChosenRow:
    """Some kernels of another block row, renumbered."""

    base: BlockRow
    kernels: tuple[int, ...]

    @property
    def grid(self) -> Grid:
        return self.base.grid

    @property
    def i(self) -> int:
        return self.base.i

    @property
    def s(self) -> int:
        return len(self.kernels)

    def tile(self, a: int, j: int) -> FloatArray:
        return self.base.tile(self.kernels[a], j)

    def tiles(self, kernels: Sequence[int], j: int) -> Iterator[FloatArray]:
        return self.base.tiles([self.kernels[a] for a in kernels], j)

    def forms(self, kernels: Samples, coef: Float64) -> Float64 | None:
        return self.base.forms(np.asarray(self.kernels)[kernels], coef)

    def combined(self, j: int, weights: Float64) -> Float64 | None:
        spread = np.zeros(self.base.s)
        np.add.at(spread, np.asarray(self.kernels), weights)
        return self.base.combined(j, spread)


def choose_block_row(row: BlockRow, kernels: tuple[int, ...]) -> ChosenRow:
    return ChosenRow(row, kernels)


class KernelChoice(Source):
    """Some kernels of another source, renumbered. With a `runtime` its block rows are made where the tasks of that
    runtime read them."""

    runtime: Runtime | None = None  # one that was sent has none

    def __init__(self, base: Source, kernels: tuple[int, ...], runtime: Runtime | None = None) -> None:
        self.base, self.kernels, self.runtime = base, kernels, runtime
        self.grid, self.dtype, self.repairs, self.backend = base.grid, base.dtype, base.repairs, base.backend
        self.s, self.on_the_spot = len(kernels), base.on_the_spot
        self.at_hand, self.worth_holding = base.at_hand, base.worth_holding
        self.indefinite = tuple(k for k, a in enumerate(kernels) if a in base.indefinite)
        self.unproven = tuple(k for k, a in enumerate(kernels) if a in base.unproven)

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return self.base.tile(self.kernels[a], i, j)

    def values(self, rows: Samples, columns: Samples, kernels: Sequence[int]) -> Iterator[tuple[int, FloatArray]]:
        places: dict[int, list[int]] = {}
        for a in kernels:
            places.setdefault(self.kernels[a], []).append(a)
        for own, values in self.base.values(rows, columns, list(places)):
            for a in places[own]:
                yield a, values

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        return self.base.cross(rows, columns)[list(self.kernels)]

    def diagonal(self, samples: Samples) -> FloatArray:
        return self.base.diagonal(samples)[list(self.kernels)]

    @property
    def smallest_read(self) -> int:
        return self.base.smallest_read

    @property
    def held_bytes(self) -> int:
        return self.base.held_bytes

    def _digest(self) -> str:
        return digest_of("kernels", self.base.identity, self.kernels)

    def require_symmetric(self, kernels: Sequence[int], threads: int) -> None:
        self.base.require_symmetric([self.kernels[a] for a in kernels], threads)

    @functools.cached_property
    def rows(self) -> Sequence[object]:
        return [_made(self.runtime, choose_block_row, row, self.kernels) for row in self.base.rows]

    @property
    def portable(self) -> Source | None:
        base = self.base.portable
        return None if base is None else KernelChoice(base, self.kernels)

    @property
    def on_demand(self) -> Source:
        return KernelChoice(self.base.on_demand, self.kernels)

    @property
    def nearby(self) -> Source | None:
        base = self.base.nearby
        return self if base is self.base else None if base is None else KernelChoice(base, self.kernels)


@dataclass(frozen=True)
class PartRow:
    """Some rows and columns of another block row. `blocks` are the blocks of the whole that have samples of the part,
    `inside` the numbers of those samples inside each of them."""

    base: BlockRow
    grid: Grid
    i: int
    blocks: tuple[int, ...]
    inside: tuple[Samples, ...]

    @property
    def s(self) -> int:
        return self.base.s

    def tile(self, a: int, j: int) -> FloatArray:
        return next(self.tiles([a], j))

    def tiles(self, kernels: Sequence[int], j: int) -> Iterator[FloatArray]:
        for tile in self.base.tiles(kernels, self.blocks[j]):
            yield _cut_tile(tile, self.inside[self.i], self.inside[j])

    def forms(self, kernels: Samples, coef: Float64) -> Float64 | None:
        whole = self.base.grid
        start = whole.span(self.base.i).start
        places = [whole.span(b).start + inside for b, inside in zip(self.blocks, self.inside, strict=True)]
        spread = np.zeros((whole.n - start, coef.shape[1]))
        spread[np.concatenate(places[self.i :]) - start] = coef  # other samples have none
        return self.base.forms(kernels, spread)

    def combined(self, j: int, weights: Float64) -> Float64 | None:
        total = self.base.combined(self.blocks[j], weights)
        return None if total is None else total[self.inside[self.i][:, None], self.inside[j]]


def restrict_block_row(
    row: BlockRow, grid: Grid, i: int, blocks: tuple[int, ...], inside: tuple[Samples, ...]
) -> PartRow:
    return PartRow(row, grid, i, blocks, inside)


class SamplePart(Source):
    """Some samples of another source: its tiles, cut when they are read. Nothing is copied or computed again, and
    blocks without any of the samples are never read. With a `runtime` its block rows are made where the tasks of that
    runtime read them."""

    runtime: Runtime | None = None  # one that was sent has none

    def __init__(self, base: Source, samples: Samples, runtime: Runtime | None = None) -> None:
        self.base, self.samples, self.runtime = base, samples, runtime
        self.s, self.dtype, self.repairs, self.backend = base.s, base.dtype, base.repairs, base.backend
        self.at_hand, self.worth_holding = base.at_hand, base.worth_holding
        self.indefinite, self.unproven = base.indefinite, base.unproven
        spans = [base.grid.span(block) for block in range(base.grid.blocks)]
        shares = [np.searchsorted(samples, (span.start, span.stop)) for span in spans]
        self._blocks = tuple(block for block, (start, stop) in enumerate(shares) if start < stop)
        self._inside = tuple(samples[slice(*shares[block])] - spans[block].start for block in self._blocks)
        edges = (0, *np.cumsum([len(share) for share in self._inside]).tolist())
        self.grid = UnevenGrid(len(samples), max(map(len, self._inside)), base.grid.full, edges)

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return _cut_tile(self.base.tile(a, self._blocks[i], self._blocks[j]), self._inside[i], self._inside[j])

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        return self.base.cross(self.samples[rows], self.samples[columns])

    def diagonal(self, samples: Samples) -> FloatArray:
        return self.base.diagonal(self.samples[samples])

    @property
    def smallest_read(self) -> int:
        return self.base.smallest_read

    @property
    def held_bytes(self) -> int:
        return self.base.held_bytes

    def pieces(self, rows: Samples) -> list[Samples]:
        return _cut_alike(rows, self.base.pieces(self.samples[rows]))

    def chunks(self, columns: Samples) -> list[Samples]:
        return _cut_alike(columns, self.base.chunks(self.samples[columns]))

    def batches(self, rng: np.random.Generator) -> list[Samples]:
        inside = (batch[np.isin(batch, self.samples)] for batch in self.base.batches(rng))
        return [np.searchsorted(self.samples, batch) for batch in inside if len(batch)]

    def _digest(self) -> str:
        return digest_of("samples", self.base.identity, self.samples.tolist())

    def require_symmetric(self, kernels: Sequence[int], threads: int) -> None:
        self.base.require_symmetric(kernels, threads)

    @functools.cached_property
    def rows(self) -> Sequence[object]:
        return [
            _made(self.runtime, restrict_block_row, self.base.rows[block], self.grid, i, self._blocks, self._inside)
            for i, block in enumerate(self._blocks)
        ]

    @property
    def portable(self) -> Source | None:
        base = self.base.portable
        return None if base is None else SamplePart(base, self.samples)

    @property
    def on_demand(self) -> Source:
        return SamplePart(self.base.on_demand, self.samples)

    @property
    def nearby(self) -> Source | None:
        return self.base.nearby  # parts of tiles that workers hold would travel as copies

    @property
    def whole(self) -> Source:
        return self.base

    def places(self, samples: Samples) -> Samples:
        return self.samples[samples]

    def restrict(self, samples: Samples, runtime: Runtime | None = None) -> SamplePart:
        return SamplePart(self.base, self.samples[samples], runtime)


def _made(runtime: Runtime | None, function: Callable[..., BlockRow], *arguments: object) -> object:
    """A block row made by a function where tasks read it, or here."""
    return function(*arguments) if runtime is None else runtime.hold(function, *arguments)


def _cut_tile(tile: FloatArray, rows: Samples, columns: Samples) -> FloatArray:
    part: FloatArray = np.empty((len(rows), len(columns)), tile.dtype)
    cut(rows_of(tile), rows, columns, part, 0, 0)
    return part


# --- helpers


def digest_block_row(row: BlockRow) -> str:
    """A digest of the values of all tiles of a block row."""
    found = hashlib.blake2b(digest_size=16)
    for j in row.grid.kept(row.i):
        for a in range(row.s):
            tile = row.tile(a, j)
            found.update(f"{tile.dtype.str} {tile.shape}".encode())
            found.update(np.ascontiguousarray(tile).data)
    return found.hexdigest()


def digest_of(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _equal_portions(samples: Samples, size: int) -> list[Samples]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _cut_alike(samples: Samples, pieces: list[Samples]) -> list[Samples]:
    """Samples cut into pieces of these lengths."""
    return np.split(samples, np.cumsum([len(piece) for piece in pieces])[:-1])


def _by_block(samples: Samples, grid: Grid) -> Iterator[tuple[int, Samples, Samples]]:
    """For every block that has some of the samples: their positions among the samples, and their numbers inside the
    block."""
    blocks = samples // grid.tile
    for i in np.unique(blocks):
        here = np.flatnonzero(blocks == i)
        yield int(i), here, samples[here] - int(i) * grid.tile


class TileReader:
    """A source, the runtime that runs tasks over its block rows, and the memory that answers may take.

    Attributes
    ----------
    source : where the kernel values come from
    runtime : where the tasks of a pass run
    memory : the limit on this process's memory
    passes : how often tiles have been read from end to end, for whatever question
    pass_seconds : how long the last pass over all tiles took, 0 before the first
    observer : called with the progress of every pass
    """

    def __init__(self, source: Source, runtime: Runtime | None = None, memory: Budget | None = None) -> None:
        self.source = source
        self.runtime: Runtime = runtime or Local()
        self.memory = memory or Budget.default()
        self.passes, self.pass_seconds = 0, 0.0
        self.observer: Observer = ignore
        self.scratch, self.scratches, self.kept = Scratch(), Scratches(), KeptArrays()

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.source.grid.n

    @property
    def s(self) -> int:
        """The number of kernels."""
        return self.source.s

    @property
    def grid(self) -> Grid:
        """The blocks of samples that tiles are cut by."""
        return self.source.grid

    @property
    def dtype(self) -> FloatType:
        """The type of the kernel values."""
        return self.source.dtype

    def each_row(self, function: Callable[..., T], *arguments: object) -> Iterator[T]:
        """`function(block row, *arguments)` of every block row, in order."""
        return self.each_task(function, ((row, *arguments) for row in self.source.rows), self.grid.blocks)

    def each_task(self, function: Callable[..., T], tasks: Iterable[tuple[object, ...]], count: int) -> Iterator[T]:
        """The answers of so many tasks over block rows, in order."""
        with self._watched(count) as done:
            for answer in self.runtime.map(function, tasks):
                yield answer
                done()

    def total(
        self, combine: Callable[[T, T], T], function: Callable[..., T], tasks: Iterable[tuple[object, ...]], count: int
    ) -> T:
        """The answers of so many tasks over block rows, combined where the tasks run."""
        with self._watched(count) as done:
            return self.runtime.reduce(combine, function, tasks, done)

    @contextlib.contextmanager
    def _watched(self, count: int) -> Iterator[Callable[[], None]]:
        """The time of a pass, and its progress: what is yielded is called after each of so many tasks."""
        started, numbers = time.perf_counter(), itertools.count(1)
        yield lambda: self.observer(Progress("pass", next(numbers), count))
        self.pass_seconds = time.perf_counter() - started
