"""Tile files in memory: mapped, so that all processes of a machine share one copy of them, its page cache.

A file is mapped when a layer of it is first asked for, and the checksum of a layer is verified when the process first
asks for that layer. Before every use the file is looked at: another file under the same name is mapped anew, and one
that was cut short is found before it is read, which would kill the process. No file stays open: a large store has more
files than a process may have open.

Pages of mapped files count as memory of the process, by which Dask and batch systems judge it. So files that were used
least recently are let go beyond a limit. Their pages stay in the page cache, and mapping them again costs next to
nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import threading
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import FloatArray, FloatType
from dmkl.store.format import CHECKSUM, LAYOUT, verify

Stamp: TypeAlias = tuple[int, int, int]  # inode, time of the last change, size: what tells a file from another

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value
MOST_FILES = 20_000  # at once: the system allows a process 65,530 maps of any kind


class _Bytes:
    """A file's bytes, mapped until the last array made of this object is gone."""

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self.stamp = stamp_of(os.fstat(file))
            size = self.stamp[2]
            address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
        finally:
            os.close(file)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, True), "version": 3}
        weakref.finalize(self, _libc.munmap, address, size).atexit = False


class _TileFile:
    """A mapped tile file, the places of its layers, and which of them have been verified."""

    def __init__(self, path: Path, depth: int, verified: NDArray[np.bool_] | None = None) -> None:
        mapped = _Bytes(path)
        self.stamp = mapped.stamp
        self._bytes: NDArray[np.uint8] = np.asarray(mapped)
        index = self._bytes[len(self._bytes) - 16 * depth - CHECKSUM :]
        verify(index, path)
        self._index = index[:-CHECKSUM].view("<u8").reshape(depth, 2).astype(np.int64)
        self.verified = np.zeros(depth, dtype=bool) if verified is None else verified

    def layer(self, a: int, side: int, dtype: FloatType, path: Path) -> FloatArray:
        start, length = self._index[a]
        nbytes = dtype.itemsize * side**2
        if length != nbytes + CHECKSUM or not 0 <= start <= len(self._bytes) - length:
            raise ValueError(f"layer {a} of {path} has {length:,} bytes, not {nbytes + CHECKSUM:,}")
        own = self._bytes[start : start + length]
        if not self.verified[a]:
            verify(own, path)
            self.verified[a] = True
        values = own[:nbytes].view(dtype.newbyteorder("<")).reshape(side, side)
        return values if values.flags.aligned else values.copy()  # a store of an earlier version


class TileMaps:
    """The tile files of a store that this process has mapped.

    Attributes
    ----------
    room : bytes that may be mapped at once
    """

    def __init__(self) -> None:
        self.room = LAYOUT.mapped
        self._files: OrderedDict[Path, _TileFile] = OrderedDict()  # the least recently used first
        self._verified: dict[Path, tuple[Stamp, NDArray[np.bool_]]] = {}  # of files that were let go, too
        self._bytes = 0
        self._lock = threading.Lock()

    def layer(self, path: Path, a: int, side: int, depth: int, nbytes: int, dtype: FloatType) -> FloatArray:
        """Layer a of a tile file, (side, side), read-only.

        Parameters
        ----------
        path : the file
        a : the number of the layer, of `depth`
        side : of the tile
        nbytes : the size that the file must have
        dtype : of the values

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError, OSError
            If the file is damaged, or no file.
        """
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes:
            self._forget(path)
            raise ValueError(f"{path} is no file of {nbytes:,} bytes")
        return self._file(path, stamp_of(found), depth).layer(a, side, dtype, path)

    def _file(self, path: Path, stamp: Stamp, depth: int) -> _TileFile:
        with self._lock:
            file = self._files.get(path)
            if file is not None and file.stamp == stamp:
                self._files.move_to_end(path)
                return file
            before, verified = self._verified.get(path, (None, None))
            self._let_go(path)
            file = _TileFile(path, depth, verified if before == stamp else None)
            self._files[path] = file
            self._verified[path] = file.stamp, file.verified
            self._bytes += file.stamp[2]
            while (self._bytes > self.room or len(self._files) > MOST_FILES) and len(self._files) > 1:
                self._let_go(next(iter(self._files)))
            return file

    def _let_go(self, path: Path) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            self._bytes -= file.stamp[2]

    def _forget(self, path: Path) -> None:
        with self._lock:
            self._let_go(path)
            self._verified.pop(path, None)


def stamp_of(found: os.stat_result) -> Stamp:
    """What tells this file from another, or from itself before a change."""
    return found.st_ino, found.st_mtime_ns, found.st_size
