"""The memory a run may use, and what is left of it; the processors."""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from dmkl.errors import ResourceError

DEFAULT_SHARE = 0.6  # of what is free when a run starts
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


def give_back() -> None:
    """Have the C library return what has been freed: it keeps blocks of up to 32 MB for itself, which count as used."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


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
