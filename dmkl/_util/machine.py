"""The memory a run may use, and what is left of it; the processors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from dmkl.errors import ResourceError

DEFAULT_SHARE = 0.6  # of what is free when a run starts
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt
ALIGNED = 64  # bytes of a cache line
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Budget:
    """A limit on this process's resident memory."""

    limit: int

    @classmethod
    def default(cls) -> Budget:
        return cls(resident() + int(DEFAULT_SHARE * available()))

    @property
    def left(self) -> int:
        """Bytes that can still be allocated."""
        return max(0, self.limit - resident())

    def require(self, needed: int, what: str) -> None:
        """Refuse what cannot fit before it is allocated."""
        if needed > self.left:
            give_back()
        if needed > self.left:
            raise ResourceError(
                f"{what} needs {needed / 1e6:,.0f} MB, {self.left / 1e6:,.0f} MB of the limit of "
                f"{self.limit / 1e6:,.0f} MB are left",
                "raise --memory",
            )


class Scratch:
    """Memory that is used again and again: a new gigabyte can take the system two seconds to hand out."""

    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.used = 0  # bytes of it that are there

    def arrays(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> list[NDArray[Any]]:
        """Room for arrays of these shapes; what was there before is gone."""
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        ends = np.cumsum([-(-size // ALIGNED) * ALIGNED for size in sizes])
        needed = int(ends[-1])
        if needed > len(self._memory):
            self.release()
            self._memory = np.empty(2 * needed, np.uint8)  # the half that nobody touches costs nothing
        self.used = max(self.used, needed)
        starts = [0, *ends[:-1].tolist()]
        parts = [self._memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        return [part.view(dtype).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent along with a stack it is empty."""
        return type(self), ()

    def release(self) -> None:
        """Have no memory until it is asked for again."""
        self._memory, self.used = np.empty(0, np.uint8), 0


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


def require_free(nbytes: int, what: str) -> None:
    """Refuse what a file claims to expand to, before it does."""
    free = available()
    if nbytes > free:
        raise ResourceError(
            f"{what} would take {nbytes / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free", "use a smaller file"
        )


def give_back() -> None:
    """Have the C library return what has been freed: it keeps blocks of up to 32 MB for itself, which count as used."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@functools.cache
def keep_freed() -> None:
    """Have the C library keep some of what is freed, as it does by itself: Dask tells workers to return all at once,
    and fresh memory costs more time than many a task."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(TRIM_THRESHOLD, 256 << 20)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(psutil.Process().memory_info().rss)


def peak_resident() -> int:
    """The most bytes this process ever had in memory."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def available() -> int:
    """Free bytes on this machine or, if less, in this job's control group."""
    free = int(psutil.virtual_memory().available)
    for name in CGROUP_LIMITS:
        try:
            limit = int(Path(name).read_text())
        except (OSError, ValueError):  # no such control group, or 'max'
            continue
        free = min(free, max(0, limit - resident()))
    return free


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def cpu() -> str:
    """The model of the processor: libraries choose their instructions, and so the last bits of sums, by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
