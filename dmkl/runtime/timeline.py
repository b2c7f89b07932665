"""Which worker was busy when, with what: counted into bins, so that a run of any length stays a few kilobytes.

Bins are 2^k seconds wide and counted from the epoch, and grow twofold when there get to be too many, so that times of
several machines fall into the same bins. Clocks of machines are taken as they are.
"""

from __future__ import annotations

import math
import threading
from typing import Any

FINEST = 2.0**-6  # seconds of a bin at first
BINS = 480  # between the first and the last busy one
WORKERS = 64  # told apart; what more there are is summed
OTHERS = "all others, summed"

Busy = dict[int, float]  # seconds of work in a bin


class Timeline:
    """Seconds of work in bins of `width` seconds, for every worker and function."""

    def __init__(self) -> None:
        self.width = FINEST
        self._busy: dict[tuple[str, str], Busy] = {}
        self._span = (0, 0)  # the first bin, and the one behind the last
        self._lock = threading.Lock()

    def add(self, worker: str, function: str, start: float, stop: float) -> None:
        """A task that ran from `start` to `stop`, in seconds since the epoch."""
        with self._lock:
            self._reach(start, stop)
            if (worker, function) not in self._busy and len({name for name, _ in self._busy} | {worker}) > WORKERS:
                worker = OTHERS
            busy = self._busy.setdefault((worker, function), {})
            for place in range(math.floor(start / self.width), math.floor(stop / self.width) + 1):
                inside = min(stop, (place + 1) * self.width) - max(start, place * self.width)
                busy[place] = busy.get(place, 0.0) + inside

    def to_dict(self) -> dict[str, Any]:
        """Plain values: for each worker and function the bins it was busy in, and what share of them."""
        with self._lock:
            begin, end = self._span
            return {"start": begin * self.width, "width": self.width, "bins": end - begin, "rows": self._rows(begin)}

    def _rows(self, begin: int) -> list[dict[str, Any]]:
        rows = []
        for (worker, function), busy in sorted(self._busy.items()):
            shares = {place - begin: round(busy[place] / self.width, 3) for place in sorted(busy)}
            seen = {place: share for place, share in shares.items() if share}
            row = {"worker": worker, "function": function, "seconds": round(sum(busy.values()), 4)}
            rows.append({**row, "bins": list(seen), "shares": list(seen.values())})
        return rows

    def _reach(self, start: float, stop: float) -> None:
        """Extend the span, in wider bins if there would be too many."""
        known = bool(self._busy)
        while True:
            begin, end = math.floor(start / self.width), math.floor(stop / self.width) + 1
            if known:
                begin, end = min(begin, self._span[0]), max(end, self._span[1])
            self._span = (begin, end)
            if end - begin <= BINS:
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
