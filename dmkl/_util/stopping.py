"""When work has to stop: a deadline or a request, looked at inside every loop that can last.

A loop that can last asks `must_stop()` once an iteration, leaves with the best it has, and says that it was cut short
only through its certificate. The question costs a microsecond. Work that is done within `GRACE` seconds after its
deadline is finished: short rounds always end whole, and so end with the same bits however the time falls.

The state belongs to a process. A runtime whose tasks run in other processes sends `seconds_left()` along.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

GRACE: Final = 2.0  # seconds after a deadline in which work that is nearly done may end


@dataclass
class _Limits:
    """The deadlines in force, on the clock of `time.monotonic`, and whether somebody asked to stop."""

    deadlines: list[float] = field(default_factory=list)
    requested: bool = False
    lock: Lock = field(default_factory=Lock)


_limits = _Limits()


def must_stop() -> bool:
    """Whether the present loop has to end with the best that it has."""
    return _limits.requested or (bool(_limits.deadlines) and time.monotonic() > min(_limits.deadlines) + GRACE)


def request_stop() -> None:
    """Ask all loops to end; a signal handler may call it."""
    _limits.requested = True


def stop_requested() -> bool:
    """Whether `request_stop` was called."""
    return _limits.requested


def forget_request() -> None:
    """Work may go on: a new command or call begins."""
    _limits.requested = False


def seconds_left() -> float:
    """Seconds to the nearest deadline, infinite if there is none, and 0 after a request to stop."""
    if _limits.requested:
        return 0.0
    return min(_limits.deadlines, default=float("inf")) - time.monotonic()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Loops inside end so many seconds from now; an outer deadline that is nearer stays in force."""
    when = time.monotonic() + seconds
    with _limits.lock:
        _limits.deadlines = [*_limits.deadlines, when]
    try:
        yield
    finally:
        with _limits.lock:
            rest = list(_limits.deadlines)
            rest.remove(when)
            _limits.deadlines = rest
