"""Building and repairing a store: one task for each tile, for all kernels of the bank.

A build that was cut short continues with the tiles that are missing on disk. A tile that can no longer be read is
computed again from the samples in the store. Every task that reads a stack reads tiles with `sound_tile`, in whatever
process it runs, so each repair is recorded in the store: a line in `mended.jsonl`, on an object store, where nothing
can be appended, a small object below `mended`. Solvers report new records between rounds.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

from dmkl._util.tiling import Grid
from dmkl._util.types import Array, Block, FloatArray, StrPath, Table
from dmkl.data import Dataset
from dmkl.errors import ConfigError, OutputError, ResourceError, StoreError
from dmkl.events import Observer, Progress, ignore
from dmkl.kernels import Bank, Sums, row_means, tile_sums
from dmkl.runtime import Runtime
from dmkl.runtime.blas import one_blas_thread
from dmkl.store.place import Place, UnreachableStore, place_of
from dmkl.store.store import KernelStore, UnusableTile, opened


def build_store(
    path: StrPath | Place,
    bank: Bank,
    train: Dataset,
    runtime: Runtime,
    *,
    largest_tile: int = 1024,
    config: Table | None = None,
    computed: bool = False,
    full: bool = False,
    observer: Observer = ignore,
) -> KernelStore:
    """Create the store, or continue the one at `path`, until no tile is missing. A computed store has no tiles.

    One process at a time can build a store on disk. Others are refused until it is done, and then use the store as it
    is. Several may build one on an object store: they put the same bits.

    Parameters
    ----------
    path : the folder of the store, or its URL on an object store
    bank : the kernels
    train : the training samples, of which a copy goes into the store
    runtime : where tiles are computed
    largest_tile : the side of a tile, at most
    config : the configuration that the store keeps a record of
    computed : whether tiles are computed whenever they are read, in place of being stored
    full : whether tiles below the diagonal are stored too, for other programs that read the store; those of kernels
        that are not symmetric always are
    observer : called with the progress

    Raises
    ------
    ConfigError
        If a computed store is wanted full, or workers of a cluster could not read the store.
    StoreError
        If there is a store of other kernels or other data at `path`, or one that is not full though `full` is wanted.
    OutputError
        If another process is building the store, or it cannot be written.
    ResourceError
        If the disk has no room for the tiles.
    """
    if computed and full:
        raise ConfigError("a store without tiles cannot be full", "leave out computed or full")
    place = place_of(path)
    place.check_reach(runtime.remote)
    if place.exists():
        store = KernelStore(place)
        store.check_same(bank, train, computed, full=full)
        if store.complete:
            return store
    taken = OutputError(f"another process builds {place}", "wait for it, then run the same command again")
    with place.building(taken):
        if place.exists():
            store = KernelStore(place)
            store.check_same(bank, train, computed, full=full)
            store.remove_partial_files()
        else:
            grid = Grid.cut(train.n, largest_tile, full=full or not bank.symmetric)
            store = KernelStore.create(place, bank, train, grid, config or {}, computed=computed)
        _fit_centres(store, runtime, observer)
        _fill_tiles(store, runtime, observer)
    return store


def _fill_tiles(store: KernelStore, runtime: Runtime, observer: Observer) -> None:
    missing = store.missing()
    total = len(store.pairs)
    done = total - len(missing)
    observer(Progress("tiles", done, total))
    upper = [(i, j) for i, j in missing if i <= j]
    lower = [(i, j) for i, j in missing if i > j]
    for pairs in (upper, lower):  # mirror images are copied from what is there then
        for _ in runtime.map(fill_tile, ((str(store.place), store.id, i, j) for i, j in pairs)):
            done += 1
            observer(Progress("tiles", done, total))


class StoredPair:
    """The samples of tile (i, j), read from the views in the store, each view once."""

    def __init__(self, store: KernelStore, i: int, j: int) -> None:
        self.same = i == j
        self._store = store
        self._rows, self._columns = store.grid.span(i), store.grid.span(j)
        self._sides: dict[str, tuple[Block, Block]] = {}

    def sides(self, view: str) -> tuple[Block, Block]:
        views = self._store.views
        node = views.entries[view]["node"]
        if node not in self._sides:
            X = views.block(view, self._rows)
            Z = X if self.same else views.block(view, self._columns)
            self._sides = {node: (X, Z)}  # kernels come view by view: one array at a time is enough
        X, Z = self._sides[node]
        return views.inside(view, X), views.inside(view, Z)

    def matrix(self, view: str) -> Array:
        return self._store.views.rectangle(view, self._rows, self._columns)


def fill_tile(path: str, identity: str, i: int, j: int) -> None:
    """Compute and write tile (i, j) of all kernels, one kernel after the other. Below the diagonal of symmetric kernels
    it is the mirror image of tile (j, i), bit for bit."""
    store = opened(path, identity)
    if j < i and store.bank.symmetric:
        store.write_tile(i, j, ((a, [sound_tile(store, a, j, i).T]) for a in range(store.s)))
        return
    rows, columns = store.grid.span(i), store.grid.span(j)
    store.write_tile(i, j, store.bank.strips(StoredPair(store, i, j), rows, columns, store.row_means()))


def _fit_centres(store: KernelStore, runtime: Runtime, observer: Observer) -> None:
    """Find the row means of the centred kernels, in one pass that computes all tiles and writes none."""
    if store.centring_done:
        return
    pairs = [(i, j) for i, j in store.grid.pairs() if i <= j]  # what is centred is symmetric
    tasks = ((str(store.place), store.id, i, j) for i, j in pairs)

    def parts() -> Iterator[tuple[tuple[int, int], Sums]]:
        for done, part in enumerate(zip(pairs, runtime.map(sum_tile, tasks), strict=True), 1):
            yield part
            observer(Progress("centring", done, len(pairs)))

    store.write_row_means(row_means(store.s, store.grid, parts()))


def sum_tile(path: str, identity: str, i: int, j: int) -> Sums:
    """Row and column sums of tile (i, j)."""
    store = opened(path, identity)
    return tile_sums(store.bank, StoredPair(store, i, j))


def sound_tile(store: KernelStore, a: int, i: int, j: int) -> FloatArray:
    """K_a[block i, block j]; a tile that is damaged or missing is written anew first, with the bits it had."""
    try:
        return store.read_tile(a, i, j)
    except UnusableTile as damage:
        _repair(store, i, j, damage)
    return store.read_tile(a, i, j)


def _repair(store: KernelStore, i: int, j: int, damage: UnusableTile) -> None:
    try:
        with one_blas_thread():  # as in the task that computed it first
            fill_tile(str(store.place), store.id, i, j)
    except UnreachableStore:
        raise
    except StoreError as error:
        raise StoreError(
            f"{damage.message}; the samples that it was computed from are lost too ({error.message})",
            "remove the store and build it again with: dmkl kernels",
        ) from error
    except (OutputError, ResourceError) as error:  # a full disk, or a store that may not be written to
        raise type(error)(f"{damage.message}; {error.message}", error.hint) from error
    file = store.place.named(store.tile_name(i, j))
    facts = {"time": round(time.time(), 3), "tile": [i, j], "was": damage.what, "file": file}
    store.place.record(json.dumps(facts))


class RepairLog:
    """The repairs of a store's tiles, by any process, since this object was made."""

    def __init__(self, place: Place) -> None:
        self._place: Place | None = place
        self._known = set(place.records())

    def news(self) -> list[str]:
        """One sentence for each tile repaired since the last call. An object store that does not answer is not asked
        again: what is held in memory is used without it."""
        if self._place is None:
            return []
        facts = []
        try:
            for name in self._place.records():
                if name not in self._known:
                    self._known.add(name)
                    with contextlib.suppress(ValueError):  # deleted by now
                        facts.append(json.loads(self._place.read_record(name)))
        except UnreachableStore:
            self._place = None
        sentences = [f"a tile was {fact['was']} and has been computed again: {fact['file']}" for fact in facts]
        return list(dict.fromkeys(sentences))  # two tasks may have met the same damage
