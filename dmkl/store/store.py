"""A kernel store: one Zarr v3 group, in a folder or below a prefix of an object store.

    zarr.json   attributes 'dmkl': schema, recipes of the kernels, data hash, configuration, views
    gram        (s, n, n) float32; one file a square tile with all kernels in it, only tiles (i, j) with j >= i,
                or all of them ('full') where a kernel is not symmetric, or on request; each kernel's values begin at a
                page of the file ('paged'), since files are mapped into memory
    row_means   (s, n) float64, the means that centred kernels subtract (only if a kernel is centred)
    views, labels   the training samples the kernels were computed from

A store that is 'computed' has all of this but the gram array: its tiles are computed whenever they are read
(`dmkl.stack.tiles`).

A tile exists when its file or its object exists: files are written under another name and renamed, objects are put as
a whole. NaN is the fill value, and no kernel value is ever NaN, so a tile that is not there can't be mistaken for one
that is. Files are mapped into memory (`mapped`), objects are fetched (`fetched`).
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dmkl._util.files import writing
from dmkl._util.tiling import Grid
from dmkl._util.types import SINGLE, Float64, FloatArray, FloatType, StrPath, Table
from dmkl.data import Dataset
from dmkl.errors import ConfigError, StoreError, one_line
from dmkl.kernels import Bank
from dmkl.store.fetched import FetchedTiles
from dmkl.store.format import CHECKSUM, aligned, create_tiled, put_array
from dmkl.store.mapped import TileMaps
from dmkl.store.place import Folder, Objects, Place, UnreachableStore, place_of
from dmkl.store.validate import array_of, get, open_group, read_header
from dmkl.store.views import StoredViews, describe_dataset, read_labels, write_dataset
from dmkl.version import __version__

SCHEMA = 1
KIND = "kernel store"
GRAM = "gram/c/0"  # where the tiles are
HALF = (  # for those who open the array with other programs
    "only tiles on and above the diagonal are stored, all others read as NaN; both triangles: "
    "dmkl.KernelStack.open(path).to_dask(), or a store built with dmkl kernels --full"
)


class UnusableTile(StoreError):
    """A tile that cannot be read: 'damaged' or 'missing'."""

    def __init__(self, message: str, hint: str, what: str) -> None:
        super().__init__(message, hint)
        self.args = message, hint, what  # so that it can be sent
        self.what = what


class KernelStore:
    """An open store: its kernels and samples, the tiles that are there, and methods to read and write one tile.

    `place` is where it is; `computed` says that there are no tiles, and never will be.
    """

    def __init__(self, path: StrPath | Place) -> None:
        given = place_of(path)
        self.place = given.absolute()  # tasks elsewhere have another working directory
        self._group = open_group(given, KIND)
        header = read_header(self._group, KIND, SCHEMA, str(given))
        try:
            self.id: str = header["id"]
            self.data_hash: str = header["data"]
            self.config: Table = header["config"]
            if not isinstance(self.config, dict):
                raise ValueError("its configuration is no table")
            self.grid = Grid(header["n"], header["tile"], bool(header.get("full", False)))
            if type(self.grid.n) is not int or type(self.grid.tile) is not int or not 0 < self.grid.tile <= self.grid.n:
                raise ValueError(f"tiles of {self.grid.tile} of {self.grid.n} samples")
            self.bank = Bank.from_recipes(header["kernels"], self.grid.n, header.get("dtype", "float32"))
            self.labels = read_labels(self._group, header["dataset"], self.grid.n)
            self.views = StoredViews(self._group, header["dataset"], self.grid.n)
            self.views.require_samples()
            entries = self.views.entries.items()
            widths = {name: entry["shape"][1] for name, entry in entries}
            self.bank.check_views({name: entry["kind"] for name, entry in entries}, widths)
            self.computed = bool(header.get("computed", False))
            self._tile_bytes = tile_bytes(self.grid, self.s, self.bank.dtype, paged=bool(header.get("paged", False)))
            self.maps, self._fetched = TileMaps(), None
            if isinstance(self.place, Objects):
                layers = self.grid.tile, self.s, self._tile_bytes, self.bank.dtype
                self._fetched = FetchedTiles(self.place, *layers)
            if not self.computed:
                self._check_layout()
        except StoreError:
            raise
        except ConfigError as error:
            raise StoreError(f"{given} is damaged ({error.message})", "build it again") from error
        except KeyError as error:
            raise StoreError(f"{given} lacks {error}", "build it again") from error
        except Exception as error:  # a header may hold anything
            raise StoreError(f"{given} is damaged ({one_line(error)})", "build it again") from error

    def _check_layout(self) -> None:
        """Raise ValueError unless the array of the tiles is as `create_tiled` makes it."""
        gram = array_of(self._group, "gram", kinds="f")
        n, s, side = self.n, self.s, self.grid.tile
        layout = (gram.shape, gram.shards, gram.chunks, gram.dtype, gram.metadata.encode_chunk_key((0, 1, 2)))
        expected = ((s, n, n), (s, side, side), (1, side, side), self.bank.dtype, "c/0/1/2")
        if layout != expected or not np.isnan(gram.fill_value):
            raise ValueError(f"tiles of shape {gram.shape} for {s} kernels of {n} samples")

    @classmethod
    def create(
        cls, place: Place, bank: Bank, train: Dataset, grid: Grid, config: Table, *, computed: bool = False
    ) -> KernelStore:
        """Write everything but the tiles: a store that exists has all of it."""
        if not computed:
            check_space(place, projected_bytes(grid, len(bank), bank.dtype))
        n, s = grid.n, len(bank)
        header: Table = {
            "kind": KIND,
            "schema": SCHEMA,
            "version": __version__,
            "id": uuid.uuid4().hex,
            "n": n,
            "tile": grid.tile,
            "full": grid.full,
            "paged": True,
            "data": train.fingerprint(),
            "kernels": bank.recipes(),
            "dtype": str(bank.dtype),
            "dataset": describe_dataset(train),
            "config": config,
            "computed": computed,
        }
        if not place.claim(header):
            store = cls(place)
            store.check_same(bank, train, computed, full=grid.full)
            return store
        import zarr

        with place.creating() as target:
            group = zarr.create_group(target)
            if not computed:
                gram = create_tiled(group, "gram", s, n, grid.tile, bank.dtype)
                if not grid.full:
                    group.attrs["note"] = gram.attrs["note"] = HALF
            if bank.centred:
                put_array(group, "row_means", np.full((s, n), np.nan))
            write_dataset(group, train, grid.tile)
            group.attrs["dmkl"] = header
        return cls(place)

    @property
    def path(self) -> Path:
        """The folder of a store on disk."""
        if not isinstance(self.place, Folder):
            raise StoreError(f"{self.place} is not in a folder of this machine", "copy it to a folder first")
        return self.place.path

    @property
    def fetched(self) -> FetchedTiles:
        """The tiles of a store on an object store."""
        assert self._fetched is not None, f"the tiles of {self.place} are mapped"
        return self._fetched

    @property
    def n(self) -> int:
        return self.grid.n

    @property
    def s(self) -> int:
        return len(self.bank)

    @property
    def nbytes(self) -> int:
        """Bytes that all tiles take on disk once they are there; 0 for a computed store."""
        return 0 if self.computed else self.projected_bytes

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the tiles on disk that passes need."""
        return 0 if self.computed else projected_bytes(self.needed, self.s, self.bank.dtype)

    @property
    def projected_bytes(self) -> int:
        """Bytes that all tiles take on disk, or would take if a computed store had them."""
        return projected_bytes(self.grid, self.s, self.bank.dtype)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The tiles that are on disk once the store is complete."""
        return [] if self.computed else self.grid.pairs()

    @property
    def needed(self) -> Grid:
        """The tiles that passes need: where all kernels are symmetric those with j >= i, even if the store is full."""
        return dataclasses.replace(self.grid, full=not self.bank.symmetric)

    def check_same(self, bank: Bank, train: Dataset, computed: bool, *, full: bool = False) -> None:
        """Refuse a store of other data, of other kernels, or of the other kind (stored or computed tiles); and one
        that is not full where a full one is wanted."""
        if self.data_hash != train.fingerprint():
            raise StoreError(f"{self.place} was built from other data", "choose another place or remove it")
        if self.bank.recipes() != bank.recipes():
            raise StoreError(f"{self.place} holds other kernels", "choose another place or remove it")
        if self.computed and not computed:
            raise StoreError(f"{self.place} has no tiles, it computes them", "choose another place or remove it")
        if computed and not self.computed:
            raise StoreError(f"{self.place} has tiles, it does not compute them", "choose another place or remove it")
        if full and not self.grid.full:
            raise StoreError(
                f"{self.place} has only the tiles on and above the diagonal", "choose another place or remove it"
            )

    def tile_path(self, i: int, j: int) -> Path:
        """The file of tile (i, j) of all kernels, of a store on disk."""
        return self.path / GRAM / str(i) / str(j)

    def tile_name(self, i: int, j: int) -> str:
        """The name below the store of tile (i, j) of all kernels."""
        return f"{GRAM}/{i}/{j}"

    def missing(self) -> list[tuple[int, int]]:
        """Tiles that are not there yet."""
        present = self._present()
        return [pair for pair in self.pairs if pair not in present]

    @property
    def tiles(self) -> tuple[int, int]:
        """The number of tiles that are there, and how many a complete store has."""
        return len(self._present()), len(self.pairs)

    def _present(self) -> set[tuple[int, int]]:
        names = set() if self.computed else self.place.names(GRAM)
        return {(i, j) for i, j in self.pairs if f"{i}/{j}" in names}

    @property
    def complete(self) -> bool:
        """Whether nothing is left to build."""
        return not self.missing() and self.centring_done

    def require_complete(self) -> None:
        there, total = self.tiles
        if there < total:
            raise StoreError(f"{self.place} lacks {total - there} of {total} tiles", "finish it with: dmkl kernels")
        if not self.centring_done:
            raise StoreError(f"{self.place} lacks the row means of its centred kernels", "run the same command again")

    @property
    def centring_done(self) -> bool:
        """Whether the centring pass has run, or nothing needs it."""
        return not self.bank.centred or not np.isnan(self.row_means()).any()

    def remove_partial_files(self) -> None:
        """Delete the unfinished files of a builder that was killed."""
        for name in self.place.names(GRAM):
            if name.endswith(".partial"):
                self.place.delete(f"{GRAM}/{name}")

    def read_tile(self, a: int, i: int, j: int) -> FloatArray:
        """K_a[block i, block j] of a tile that is kept, read-only: from its mapped file, whose checksums are verified
        once a process, or fetched."""
        if self.computed:
            raise StoreError(f"{self.place} has no tiles, it computes them")
        try:
            if self._fetched is not None:
                tile = self._fetched.layer(self.tile_name(i, j), a)
            else:
                path, dtype = self.tile_path(i, j), self.bank.dtype
                tile = self.maps.layer(path, a, self.grid.tile, self.s, self._tile_bytes, dtype)
        except FileNotFoundError:
            raise self._unusable(a, i, j, "missing", "run dmkl kernels again") from None
        except UnreachableStore:
            raise
        except Exception as error:
            raise self._unusable(a, i, j, "damaged", "delete that file and run dmkl kernels again") from error
        if np.isnan(tile[0, 0]):
            raise self._unusable(a, i, j, "missing", "run dmkl kernels again")
        rows, columns = self.grid.span(i), self.grid.span(j)  # a chunk at the edge has its full size on disk
        return tile[: rows.stop - rows.start, : columns.stop - columns.start]

    def _unusable(self, a: int, i: int, j: int, what: str, hint: str) -> UnusableTile:
        where = self.place.named(self.tile_name(i, j))
        return UnusableTile(
            f"tile ({i}, {j}) of kernel {a} '{self.bank.kernels[a].name}' is {what}: {where}",
            f"{hint}: it builds only what is missing",
            what,
        )

    def write_tile(self, i: int, j: int, kernels: Iterable[tuple[int, Iterable[FloatArray]]]) -> None:
        """Write a tile from strips of the values of every kernel, kernels in any order."""
        name = self.tile_name(i, j)
        self.place.write_tile(name, self.grid.tile, self.s, kernels, self.bank.dtype)
        if self._fetched is not None:
            self._fetched.forget(name)

    def row_means(self) -> Float64:
        """The row means (s, n): zero for kernels that are not centred, NaN until the centring pass has run."""
        if not self.bank.centred:
            return np.broadcast_to(0.0, (self.s, self.n))
        means = get(array_of(self._group, "row_means", kinds="f"))
        if means.shape != (self.s, self.n):
            raise StoreError(f"{self.place} has row means of shape {means.shape}", "build it again")
        return means

    def write_row_means(self, values: Float64) -> None:
        with writing(self.place):
            array_of(self._group, "row_means")[...] = values


@functools.lru_cache(maxsize=4)
def opened(path: str, identity: str) -> KernelStore:
    """A store for tasks: opened once in each process, and refused if it is not the one with this id any more."""
    store = KernelStore(path)
    if store.id != identity:
        raise StoreError(f"the store at {path} was replaced during the run")
    return store


def projected_bytes(grid: Grid, s: int, dtype: FloatType = SINGLE) -> int:
    """Bytes that all tiles take on disk, with their checksums."""
    return grid.tiles * tile_bytes(grid, s, dtype)


def tile_bytes(grid: Grid, s: int, dtype: FloatType = SINGLE, *, paged: bool = True) -> int:
    """Bytes of the file of one tile: s layers with their checksums, and the index with its own.

    Layers begin at pages, unless an earlier version wrote them (`paged`)."""
    layer = dtype.itemsize * grid.tile**2 + CHECKSUM
    return (s - 1) * (aligned(layer) if paged else layer) + layer + 16 * s + CHECKSUM


def check_space(path: StrPath | Place, needed: int) -> None:
    """Refuse before anything is computed when the disk can't hold the tiles."""
    place_of(path).check_space(needed)
