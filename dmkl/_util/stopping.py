"""When work has to stop: at a deadline, or because somebody asks. Looked at inside every loop that can last.

There are two moments. From the first one on `must_stop()` is true. A loop that can last more than a second asks it once
an iteration, leaves with the best it has, and says that it was cut short only through its certificate. The question
costs a microsecond. `PATIENCE` seconds later, or after the first question that came late because a call of BLAS took
long, there is no time for certificates either: `end_if_late()`, which tasks ask when they begin and when they read a
tile, raises `Stopped`, and the state from before is the result.

The first moment comes `GRACE` seconds after a deadline: rounds that are done by then end whole, and so with the same
bits however the time falls. It comes at once when somebody asks, by a signal for example.

Limits belong to a context of Python (`contextvars`): a call has those of its callers and its own. Threads that are
started for a call get them by `Tasks`, processes by `sent` and `received`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Final, TypeVar

R = TypeVar("R")

GRACE: Final = 2.0  # seconds after a deadline in which work that is nearly done may end
PATIENCE: Final = 1.5  # seconds after that in which results may be certified


class Stopped(Exception):
    """Work that ended without a result, because there was no time left for one."""


@dataclass
class Request:
    """A request to stop that may be made at any time, also by a signal handler."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)  # the same in every process
    moment: float = float("inf")  # when it was made, on the clock of time.monotonic

    def make(self) -> None:
        """Ask the work to end."""
        self.moment = min(self.moment, time.monotonic())

    @property
    def made(self) -> bool:
        return self.moment < float("inf")


@dataclass
class _Notice:
    """When the work asked first after it had to stop."""

    moment: float = float("-inf")


@dataclass(frozen=True)
class _Limits:
    deadline: float = float("inf")  # the nearest one, on the clock of time.monotonic
    requests: tuple[Request, ...] = ()
    attended: bool = False  # whether the work looks at its limits
    notice: _Notice = field(default_factory=_Notice)

    @property
    def moment(self) -> float:
        """When loops have to end."""
        return min((self.deadline + GRACE, *(request.moment for request in self.requests)))


_limits: ContextVar[_Limits] = ContextVar("limits", default=_Limits())  # noqa: B039 - frozen


def must_stop(step: float = 0.0) -> bool:
    """Whether the present loop has to end with the best that it has.

    Parameters
    ----------
    step
        Seconds that the next iteration takes, where it cannot be interrupted: it is not begun if it would end too late.
    """
    limits, now = _limits.get(), time.monotonic()
    if now + step < limits.moment:
        return False
    if limits.notice.moment < limits.moment:
        limits.notice.moment = now
    return True


def end_if_late() -> None:
    """Raise `Stopped` if there is no time for certificates either."""
    limits = _limits.get()
    if time.monotonic() >= max(limits.moment, limits.notice.moment) + PATIENCE:
        raise Stopped


def requests_made() -> tuple[str, ...]:
    """The names of the requests to stop that somebody has made."""
    return tuple(request.name for request in _limits.get().requests if request.made)


def stop_requested() -> bool:
    """Whether somebody has asked."""
    return bool(requests_made())


def seconds_left() -> float:
    """Seconds to the nearest deadline, negative after it, infinite if there is none, and 0 after a request."""
    return 0.0 if stop_requested() else _limits.get().deadline - time.monotonic()


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Work that looks at its limits, and has so many seconds; an outer deadline that is nearer stays in force."""
    before = _limits.get()
    nearest = min(before.deadline, time.monotonic() + seconds)
    notice = before.notice if before.attended else _Notice()
    with _limited(replace(before, deadline=nearest, attended=True, notice=notice)):
        yield


@contextlib.contextmanager
def stopped_by(signals: Sequence[signal.Signals], told: Callable[[], None] = lambda: None) -> Iterator[Request]:
    """The first of these signals is a request to stop, if it comes while the work inside looks at its limits.

    A Ctrl-C after that raises KeyboardInterrupt, as does a signal at any other time. Later SIGTERMs are ignored: batch
    systems send several. Outside of the main thread, which alone may handle signals, nothing changes.

    Parameters
    ----------
    signals
        Those to handle.
    told
        Called when the request has been made.

    Yields
    ------
    Request
        Whether it was made.
    """
    before, request = _limits.get(), Request()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.made and number == signal.SIGTERM:
            return
        if request.made or not _limits.get().attended:
            request.make()
            raise KeyboardInterrupt
        request.make()
        with contextlib.suppress(RuntimeError):  # the signal came while a line was being written
            told()

    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                stack.callback(signal.signal, number, signal.signal(number, handle))
        stack.enter_context(_limited(replace(before, requests=(*before.requests, request))))
        yield request


class Tasks:
    """Runs functions in other threads under the limits of this context, and can ask them to stop."""

    def __init__(self) -> None:
        self._request = Request()
        self._context = copy_context()
        before = _limits.get()
        self._context.run(_limits.set, replace(before, requests=(*before.requests, self._request)))

    def run(self, function: Callable[..., R], *arguments: object) -> R:
        """In any thread."""
        return self._context.copy().run(function, *arguments)

    def stop(self) -> None:
        """Nobody waits for the tasks any more: those that run end as soon as they can."""
        self._request.moment = -float("inf")


# Other processes.


@dataclass(frozen=True)
class Sent:
    """The limits of a context, for a task in another process."""

    seconds: float  # to the deadline
    requests: tuple[str, ...]


_known: dict[str, Request] = {}  # requests that were made in other processes, or may be


def sent() -> Sent:
    """The limits of this context."""
    limits = _limits.get()
    return Sent(limits.deadline - time.monotonic(), tuple(request.name for request in limits.requests))


@contextlib.contextmanager
def received(limits: Sent) -> Iterator[None]:
    """Work under the limits of another process."""
    requests = tuple(_known.setdefault(name, Request(name)) for name in limits.requests)
    with _limited(_Limits(time.monotonic() + limits.seconds, requests, attended=True)):
        yield


def request_here(names: tuple[str, ...]) -> None:
    """Make the requests of another process in this one."""
    for name in names:
        _known.setdefault(name, Request(name)).make()


@contextlib.contextmanager
def _limited(limits: _Limits) -> Iterator[None]:
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)
