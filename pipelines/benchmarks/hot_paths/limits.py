"""Rates of the machine when it does nothing else; each measurement returns the amount of its work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import google_crc32c
import numba
import numpy as np
from numpy.typing import NDArray

from dmkl.runtime.blas import one_blas_thread

Measurement = Callable[[], float]  # what was done: bytes, operations, exponentials

UNITS = {
    "read": ("GB/s", 1e9),
    "write": ("GB/s", 1e9),
    "cached": ("GB/s", 1e9),
    "products": ("GFLOP/s", 1e9),
    "exponentials": ("G/s", 1e9),
    "file read": ("GB/s", 1e9),
    "file write": ("GB/s", 1e9),
    "checksums": ("GB/s", 1e9),
}


@numba.njit(nogil=True, fastmath=True)
def _sum(values: NDArray[np.float32]) -> float:
    total = np.float32(0.0)
    for k in range(values.shape[0]):
        total += values[k]
    return float(total)


@numba.njit(nogil=True)
def _fill(values: NDArray[np.float32]) -> None:
    for k in range(values.shape[0]):
        values[k] = 1.0


def compile_all() -> None:
    few = np.ones(16, np.float32)
    _sum(few)
    _fill(few)


class Limits:
    """All measurements, by `threads` threads at once."""

    def __init__(self, threads: int, settings: dict[str, Any], side: int, tiles: Sequence[Path], folder: Path) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._threads, self._side, self._folder, self._tiles = threads, side, folder, tiles
        rng = np.random.default_rng(settings["seed"])
        streamed = settings["streamed"] * 250_000  # float32 values
        self._parts = np.array_split(np.ones(streamed, np.float32), threads)
        self._square = [rng.random((settings["square"], settings["square"])) for _ in range(threads)]
        self._exponents = [-8.0 * rng.random((side, side), dtype=np.float32) for _ in range(threads)]
        self._buffers = [np.empty_like(exponents) for exponents in self._exponents]

    def measurements(self) -> dict[str, Measurement]:
        return {
            "read": lambda: self._each(_sum, self._parts, 1, 4 * sum(map(len, self._parts))),
            "write": lambda: self._each(_fill, self._parts, 1, 4 * sum(map(len, self._parts))),
            "cached": lambda: self._each(_sum, [part.ravel() for part in self._buffers], 20, self._tile_bytes * 20),
            "products": self._products,
            "exponentials": self._exponentials,
            "file read": lambda: sum(self._pool.map(self._read_files, range(self._threads))),
            "file write": lambda: sum(self._pool.map(self._write_files, range(self._threads))),
            "checksums": lambda: self._each(google_crc32c.value, self._exponents, 5, self._tile_bytes * 5),
        }

    @property
    def _tile_bytes(self) -> int:
        """Of one float32 tile of each thread."""
        return 4 * self._side**2 * self._threads

    def _each(self, function: Callable[[Any], Any], parts: Sequence[Any], times: int, done: int) -> float:
        list(self._pool.map(lambda part: [function(part) for _ in range(times)], parts))
        return float(done)

    def _products(self) -> float:
        with one_blas_thread():
            list(self._pool.map(lambda matrix: matrix @ matrix, self._square))
        return 2.0 * sum(len(matrix) ** 3 for matrix in self._square)

    def _exponentials(self) -> float:
        pairs = list(zip(self._exponents, self._buffers, strict=True))
        self._each(lambda pair: np.exp(pair[0], out=pair[1]), pairs, 5, 0)
        return 5.0 * self._threads * self._side**2

    def _read_files(self, which: int) -> float:
        """This thread's share of the store's own files, as many bytes at once as a tile of one kernel has."""
        buffer, done = self._buffers[which], 0
        for path in self._tiles[which :: self._threads]:
            with path.open("rb", buffering=0) as file:
                while found := file.readinto(cast(bytearray, buffer)):
                    done += found
        return float(done)

    def clear(self) -> None:
        """Before every measurement: remove the files of the last one, and wait until everything is on disk."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        os.sync()

    def _write_files(self, which: int) -> float:
        """New files, as large as this thread's share of the store's."""
        values, done = self._exponents[which], 0
        for number, path in list(enumerate(self._tiles))[which :: self._threads]:
            with (self._folder / str(number)).open("wb", buffering=0) as file:
                for _ in range(path.stat().st_size // values.nbytes):
                    done += file.write(values.data)
        return float(done)
