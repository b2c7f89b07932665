"""Which worker was busy when, with which function: counted in bins, so that a run of any length takes a few kilobytes.

Bins are 2^k seconds wide and counted from the epoch. Their width doubles whenever there are too many, so that times of
several machines fall into the same bins. The clocks of machines are not compared.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TypedDict

OTHERS = "all others, summed"

Busy = dict[int, float]  # seconds of work in a bin


@dataclass(frozen=True)
class TimelineOptions:
    """The size of a timeline.

    Attributes
    ----------
    finest
        Seconds of a bin at first.
    bins
        The largest number of bins between the first and the last busy one.
    workers
        Workers with rows of their own; the rest are summed.
    """

    finest: float = 2.0**-6
    bins: int = 480
    workers: int = 64


class TimelineRow(TypedDict):
    """The work of one worker on one function: the bins it was busy in, and the share of each."""

    worker: str
    function: str
    seconds: float
    bins: list[int]
    shares: list[float]


class TimelineTable(TypedDict):
    """A timeline as plain values: seconds since the epoch, seconds of a bin, number of bins, rows."""

    start: float
    width: float
    bins: int
    rows: list[TimelineRow]


class Timeline:
    """Seconds of work in bins of `width` seconds, for every worker and function."""

    def __init__(self, options: TimelineOptions | None = None) -> None:
        self._options = options or TimelineOptions()
        self.width = self._options.finest
        self._busy: dict[tuple[str, str], Busy] = {}
        self._span = (0, 0)  # the first bin, and the one after the last
        self._lock = threading.Lock()

    def add(self, worker: str, function: str, start: float, stop: float) -> None:
        """Count a task that ran from `start` to `stop`, in seconds since the epoch."""
        with self._lock:
            self._extend(start, stop)
            workers = {name for name, _ in self._busy} | {worker}
            if (worker, function) not in self._busy and len(workers) > self._options.workers:
                worker = OTHERS
            busy = self._busy.setdefault((worker, function), {})
            for place in range(math.floor(start / self.width), math.floor(stop / self.width) + 1):
                inside = min(stop, (place + 1) * self.width) - max(start, place * self.width)
                busy[place] = busy.get(place, 0.0) + inside

    def to_dict(self) -> TimelineTable:
        """The timeline as plain values."""
        with self._lock:
            begin, end = self._span
            rows = [self._row(worker, function, begin) for worker, function in sorted(self._busy)]
            return {"start": begin * self.width, "width": self.width, "bins": end - begin, "rows": rows}

    def _row(self, worker: str, function: str, begin: int) -> TimelineRow:
        busy = self._busy[worker, function]
        shares = {place - begin: round(busy[place] / self.width, 3) for place in sorted(busy)}
        visible = {place: share for place, share in shares.items() if share}
        return {
            "worker": worker,
            "function": function,
            "seconds": round(sum(busy.values()), 4),
            "bins": list(visible),
            "shares": list(visible.values()),
        }

    def _extend(self, start: float, stop: float) -> None:
        """Extend the span, with wider bins if there would be too many."""
        known = bool(self._busy)
        while True:
            begin, end = math.floor(start / self.width), math.floor(stop / self.width) + 1
            if known:
                begin, end = min(begin, self._span[0]), max(end, self._span[1])
            self._span = (begin, end)
            if end - begin <= self._options.bins:
                return
            self._widen()

    def _widen(self) -> None:
        self.width *= 2.0
        self._span = (self._span[0] // 2, (self._span[1] - 1) // 2 + 1)
        for key, busy in self._busy.items():
            wider: Busy = {}
            for place, seconds in busy.items():
                wider[place // 2] = wider.get(place // 2, 0.0) + seconds
            self._busy[key] = wider
