"""Arrays that other processes of this machine fill: what they write need not be sent.

The memory is a file without a name. It is gone with the process that made it, however that ends, and other processes of
the same user open it through /proc. A process elsewhere finds nothing there, or other bytes than the token at the end.
"""

from __future__ import annotations

import mmap
import os
import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmkl._util.kept import kept
from dmkl._util.types import Array

TOKEN = 32  # bytes
LINE = 64  # arrays begin at multiples of a cache line


@dataclass(frozen=True)
class SharedArrays:
    """Where arrays of these shapes and one type are, as it is sent to other processes."""

    path: str
    token: bytes
    shapes: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]

    def opened(self) -> list[Array]:
        """The arrays in another process.

        Raises
        ------
        OSError
            If this process cannot reach them.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = self.nbytes + TOKEN
            if os.fstat(file).st_size != size:
                raise OSError(f"{self.path} is something else")
            memory = mmap.mmap(file, size)
        finally:
            os.close(file)
        if memory[-TOKEN:] != self.token:
            raise OSError(f"{self.path} is something else")
        return self.views(memory)

    @property
    def nbytes(self) -> int:
        return self._starts()[-1]

    def views(self, memory: mmap.mmap) -> list[Array]:
        """The arrays in mapped memory."""
        return [
            np.ndarray(shape, self.dtype, memory, start)
            for shape, start in zip(self.shapes, self._starts()[:-1], strict=True)
        ]

    def _starts(self) -> list[int]:
        sizes = [int(np.prod(shape)) * self.dtype.itemsize for shape in self.shapes]
        return [0, *np.cumsum([-(-size // LINE) * LINE for size in sizes]).tolist()]


class KeptArrays:
    """Shared arrays that are used again as long as they have the same shapes: new memory takes as long to get, and to
    let go, as it takes to fill."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []
        self._address: SharedArrays | None = None
        self._close: Callable[[], object] = lambda: None

    def arrays(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> tuple[list[Array], SharedArrays]:
        """Arrays that overwrite those of the last call, and their address."""
        known = self._address
        if known is None or (known.shapes, known.dtype) != (tuple(shapes), dtype):
            self._close()
            self._arrays, known, file = share_arrays(shapes, dtype)
            self._address, self._close = known, weakref.finalize(self, os.close, file)
        return self._arrays, known

    def __reduce__(self) -> tuple[type[KeptArrays], tuple[()]]:
        """Its copy in another process is empty."""
        return type(self), ()


@dataclass(frozen=True)
class SharedMatrix:
    """A matrix in shared memory, as long as this object lives in the process that made it; its copies elsewhere know
    the address."""

    address: SharedArrays
    owner: KeptArrays

    def opened(self) -> Array:
        """The matrix, in whatever process of this machine."""
        matrix: Array = self.address.opened()[0][0]
        return matrix


def opened_again(address: SharedArrays) -> list[Array]:
    """The arrays in another process, mapped until something else is kept there."""
    return kept(address.token.hex(), address.opened)


def share_arrays(shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> tuple[list[Array], SharedArrays, int]:
    """New arrays of zeros, their address for other processes, and the file that has to be closed once those are done.

    The arrays stay when the file is closed.
    """
    file = os.memfd_create("dmkl", os.MFD_CLOEXEC)
    try:
        shared = SharedArrays(f"/proc/{os.getpid()}/fd/{file}", secrets.token_bytes(TOKEN), tuple(shapes), dtype)
        os.ftruncate(file, shared.nbytes + TOKEN)
        memory = mmap.mmap(file, shared.nbytes + TOKEN)
        memory[-TOKEN:] = shared.token
    except BaseException:
        os.close(file)
        raise
    return shared.views(memory), shared, file
