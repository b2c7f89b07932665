"""Tiles of object stores, which can't be mapped: layers are fetched, verified and kept while there is room.

Only the layers that are wanted are fetched, neighbours with one request. What will be wanted soon can be asked for
before: threads fetch it, so that the latency of one request is not paid after that of another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import cores
from dmkl._util.types import FloatArray, FloatType, Samples
from dmkl.store.format import CHECKSUM, verify
from dmkl.store.place import CONNECTIONS, Objects


@dataclass(frozen=True)
class FetchOptions:
    """How much is fetched.

    Attributes
    ----------
    piece : bytes of layers that are asked for together
    ahead : how many such pieces are fetched before they are used
    room : bytes of layers that a process keeps, where nothing else is said
    """

    piece: int = 16 << 20
    ahead: int = 3
    room: int = 256 << 20


FETCHING = FetchOptions()


class FetchedTiles:
    """The layers of the tiles of a store that this process has fetched, of those used least recently as many as fit.

    Parameters
    ----------
    place : where the store is
    side, depth : of a tile
    nbytes : the size of the object of a tile
    dtype : of the values

    Attributes
    ----------
    room : bytes that are kept
    """

    def __init__(self, place: Objects, side: int, depth: int, nbytes: int, dtype: FloatType) -> None:
        self.room = FETCHING.room
        self._place, self._side, self._depth, self._nbytes = place, side, depth, nbytes
        self._dtype = dtype.newbyteorder("<")
        self._layer_bytes = dtype.itemsize * side**2
        self._kept: OrderedDict[tuple[str, int], FloatArray] = OrderedDict()  # the least recently used first
        self._coming: dict[tuple[str, int], Future[dict[int, FloatArray]]] = {}
        self._indexes: dict[str, Samples] = {}  # where the layers are
        self._reading: dict[str, threading.Lock] = {}  # one reader for the index of a tile
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def together(self) -> int:
        """How many layers are worth asking for at once."""
        room = self.room // ((1 + FETCHING.ahead) * cores())  # what is fetched ahead must not push out what is in use
        return max(1, min(FETCHING.piece, room) // self._layer_bytes)

    def ask(self, name: str, layers: Sequence[int]) -> None:
        """Begin to fetch some layers of a tile."""
        with self._lock:
            wanted = [a for a in layers if (name, a) not in self._kept and (name, a) not in self._coming]
            if not wanted:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(CONNECTIONS.threads, thread_name_prefix="dmkl-fetch")
            coming = self._pool.submit(self._fetch_ahead, name, wanted)
            self._coming.update({(name, a): coming for a in wanted})

    def layer(self, name: str, a: int) -> FloatArray:
        """Layer a of a tile, (side, side), read-only.

        Raises
        ------
        FileNotFoundError
            If there is no such object.
        ValueError
            If the object is damaged.
        UnreachableStore
            If the object store does not answer.
        """
        with self._lock:
            kept = self._kept.get((name, a))
            if kept is not None:
                self._kept.move_to_end((name, a))
                return kept
            coming = self._coming.get((name, a))
        if coming is not None and a in (found := coming.result()):
            return found[a]
        values = self._verified(name, a, self._fetch(name, [a])[0])
        self._keep(name, {a: values})
        return values

    def forget(self, name: str) -> None:
        """Fetch a tile again that has been written anew."""
        with self._lock:
            reading = self._reading.setdefault(name, threading.Lock())
        with reading:
            self._indexes.pop(name, None)
        with self._lock:
            for key in [key for key in self._kept if key[0] == name]:
                del self._kept[key]

    def _fetch_ahead(self, name: str, layers: list[int]) -> dict[int, FloatArray]:
        """Those layers that can be used. Who asks for another one fetches it alone, and learns what is wrong."""
        found: dict[int, FloatArray] = {}
        try:
            for a, part in zip(layers, self._fetch(name, layers), strict=True):
                try:
                    found[a] = self._verified(name, a, part)
                except ValueError:
                    continue
        except (ValueError, FileNotFoundError):
            pass
        finally:
            self._keep(name, found)
            with self._lock:
                for a in layers:
                    del self._coming[name, a]
        return found

    def _fetch(self, name: str, layers: list[int]) -> list[NDArray[np.uint8]]:
        """The bytes of some layers, with their checksums."""
        index = self._index(name)
        for a in layers:
            start, length = index[a]
            if length != self._layer_bytes + CHECKSUM or not 0 <= start <= self._nbytes - length:
                raise ValueError(f"layer {a} of {self._place.named(name)} has {length:,} bytes")
        parts = [(int(start), int(start + length)) for start, length in index[layers]]
        return [np.frombuffer(part, np.uint8) for part in self._place.read_parts(name, parts)]

    def _index(self, name: str) -> Samples:
        with self._lock:
            reading = self._reading.setdefault(name, threading.Lock())
        with reading:
            if name not in self._indexes:
                start = self._nbytes - 16 * self._depth - CHECKSUM
                raw = np.frombuffer(self._place.read_from(name, start, self._nbytes), np.uint8)
                verify(raw, self._place.named(name))
                self._indexes[name] = raw[:-CHECKSUM].view("<u8").reshape(self._depth, 2).astype(np.int64)
            return self._indexes[name]

    def _verified(self, name: str, a: int, part: NDArray[np.uint8]) -> FloatArray:
        """The values of a layer, in memory of their own: its neighbours came in the same piece of memory."""
        verify(part, self._place.named(name))
        values: FloatArray = part[:-CHECKSUM].copy().view(self._dtype).reshape(self._side, self._side)
        values.flags.writeable = False
        return values

    def _keep(self, name: str, found: dict[int, FloatArray]) -> None:
        with self._lock:
            self._kept.update({(name, a): values for a, values in found.items()})
            while len(self._kept) > max(1, self.room // self._layer_bytes):
                self._kept.popitem(last=False)
