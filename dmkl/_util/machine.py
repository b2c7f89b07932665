"""This machine: its memory (the part that a run may use, work in batches that fit), its cores, its processor."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import psutil
from numpy.typing import NDArray

from dmkl._util.types import Array
from dmkl.errors import ResourceError

DEFAULT_SHARE = 0.6  # of the memory that is free when a run starts
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of mallopt
CACHE_LINE = 64  # bytes
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
T = TypeVar("T")
Each: TypeAlias = Callable[[Callable[[Any], object], Iterable[Any]], None]


@dataclass(frozen=True)
class Budget:
    """A limit in bytes on the resident memory of this process.

    Attributes
    ----------
    limit : the bytes
    mapped : of them, for files that are mapped into memory
    files : the bytes of files, such as libraries, that were in memory before those
    """

    limit: int
    mapped: int = 0
    files: int = 0

    @classmethod
    def default(cls) -> Budget:
        """The memory in use and a share of the memory that is free."""
        return cls(resident() + int(DEFAULT_SHARE * available()))

    def mapping(self, nbytes: int) -> Budget:
        """The same limit, of which files that are mapped from now on may take so many bytes."""
        return replace(self, mapped=nbytes, files=_memory_info().shared)

    @property
    def left(self) -> int:
        """Bytes that can still be allocated: those of mapped files count as used before they are in memory."""
        found = _memory_info()
        mapped = min(max(0, found.shared - self.files), self.mapped)
        return max(0, self.limit - self.mapped - int(found.rss - mapped))

    def require(self, needed: int, what: str) -> None:
        """Raise ResourceError if `needed` bytes are not left; `what` needs them."""
        if needed > self.left:
            give_back()
        if needed > self.left:
            raise ResourceError(
                f"{what} needs {needed / 1e6:,.0f} MB, {self.left / 1e6:,.0f} MB of the limit of "
                f"{self.limit / 1e6:,.0f} MB are left",
                "raise --memory",
            )


def available() -> int:
    """Free bytes on this machine, or in the control group of this job if that has less."""
    free = int(psutil.virtual_memory().available)
    for name in CGROUP_LIMITS:
        try:
            limit = int(Path(name).read_text())
        except (OSError, ValueError):  # no such control group, or 'max'
            continue
        free = min(free, max(0, limit - resident()))
    return free


def resident() -> int:
    """Bytes of this process in memory."""
    return int(_memory_info().rss)


def _memory_info() -> Any:
    return psutil.Process().memory_info()


def peak_resident() -> int:
    """The largest number of bytes that this process ever had in memory."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def require_free(nbytes: int, what: str, remedy: str = "use a smaller file") -> None:
    """Raise ResourceError if so many bytes are not free, before a file or a lazy array expands to them."""
    free = available()
    if nbytes > free:
        raise ResourceError(f"{what} would take {nbytes / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free", remedy)


def in_batches(items: Iterable[T], size: Callable[[list[T]], float], room: float) -> Iterator[list[T]]:
    """The items in their order, in batches whose `size` is at most `room`; an item that is larger is a batch alone.

    `size` is asked about every batch that grows by one item. It is asked in order, so it may remember the last batch
    where its answer is expensive to compute from the beginning.
    """
    batch: list[T] = []
    for item in items:
        if batch and size([*batch, item]) > room:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def give_back() -> None:
    """Make the C library return freed memory to the system; it keeps blocks of up to 32 MB, which count as used."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@functools.cache
def keep_freed() -> None:
    """Make the C library keep some freed memory, as it does by default.

    Dask sets its workers to return all of it at once, and allocating it again takes longer than many tasks.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(TRIM_THRESHOLD, 256 << 20)


class Scratch:
    """Memory that is used again and again, because allocating a new gigabyte can take two seconds."""

    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.used = 0  # bytes that have been written and so take memory

    def arrays(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> list[Array]:
        """Uninitialised arrays of these shapes; they overwrite those of the last call."""
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        ends = np.cumsum([-(-size // CACHE_LINE) * CACHE_LINE for size in sizes])
        needed = int(ends[-1])
        if needed > len(self._memory):
            self.release()
            self._memory = np.empty(2 * needed, np.uint8)  # a half that is never written takes no memory
        self.used = max(self.used, needed)
        starts = [0, *ends[:-1].tolist()]
        parts = [self._memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        return [part.view(dtype).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        """Its copy in another process is empty."""
        return type(self), ()

    def release(self) -> None:
        """Free the memory until arrays are asked for again."""
        self._memory, self.used = np.empty(0, np.uint8), 0


class Scratches:
    """Scratch memory for the tasks of threads that come and go; it stays as long as this object."""

    def __init__(self) -> None:
        self._free: list[Scratch] = []

    @contextlib.contextmanager
    def one(self) -> Iterator[Scratch]:
        """Memory that no other task has."""
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = Scratch()
        try:
            yield scratch
        finally:
            self._free.append(scratch)

    def __reduce__(self) -> tuple[type[Scratches], tuple[()]]:
        """Its copy in another process is empty."""
        return type(self), ()


_thread = threading.local()
_scratches: weakref.WeakSet[Scratch] = weakref.WeakSet()  # of all threads


def thread_scratch() -> Scratch:
    """The scratch memory of this thread, which it keeps from task to task."""
    if not hasattr(_thread, "scratch"):
        _thread.scratch = Scratch()
        _scratches.add(_thread.scratch)
    scratch: Scratch = _thread.scratch
    return scratch


def release_scratch() -> None:
    """Free the scratch memory of all threads; no task may be running."""
    for scratch in _scratches:
        scratch.release()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def threads_of(number: int) -> Iterator[Each]:
    """`each(function, items)`, which calls the function for every item on so many threads and waits for all."""
    with contextlib.ExitStack() as opened:
        calls = opened.enter_context(ThreadPoolExecutor(number)).map if number > 1 else map

        def each(function: Callable[[Any], object], items: Iterable[Any]) -> None:
            for _ in calls(function, items):
                pass

        yield each


def cpu() -> str:
    """The model of the processor, by which libraries choose their instructions, and so the last bits of sums."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
