"""What the command line shows: result lines on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dmkl.events import Event, Note, PointDone, Progress, RoundDone

PLAIN_EVERY = 5.0  # seconds between progress lines when there is no terminal


class Console:
    """Result lines, progress, or one JSON object, as the options ask."""

    def __init__(self, *, as_json: bool = False, verbosity: int = 0) -> None:
        self._as_json = as_json
        self._verbosity = verbosity
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}
        self._last_plain = time.monotonic()

    def line(self, label: str, *facts: str, seconds: float | None = None) -> None:
        """One aligned result line: what, facts, time."""
        if self._as_json or self._verbosity < 0:
            return
        self._remove_bars()
        text = f"{label:<9}" + "   ".join(facts)
        self._out(text if seconds is None else f"{text:<96} {seconds:.1f} s")

    def text(self, text: str) -> None:
        """What was asked for as it is, a script say."""
        self._out(text)

    def result(self, value: Any) -> None:
        """The JSON object of a command, under --json."""
        from dmkl.experiment.rundir import finite

        if self._as_json:
            self._out(json.dumps(finite(value), indent=2))

    def note(self, text: str) -> None:
        if self._verbosity >= 0:
            self._err(text)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show progress bars while the body runs, if somebody can see them."""
        if self._verbosity < 0 or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console as Rich
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=Rich(stderr=True), transient=True) as self._bar:
            try:
                yield
            finally:
                self._bar = None

    def observe(self, event: Event) -> None:
        """The observer a command hands to the library."""
        if isinstance(event, Note):
            self.note(event.text)
        elif isinstance(event, Progress):
            self._advance(event.stage, event.done, event.total, "")
        elif isinstance(event, PointDone):
            detail = f"fold {event.fold + 1}, {event.formulation}: {event.score:.4g}"
            self._advance("tuned", event.done, event.total, detail)
            if self._verbosity > 0:
                self._err(f"tuned    {event.done}/{event.total}  {detail}")
        elif isinstance(event, RoundDone):
            detail = f"round {event.round}, worst gap {short(event.gap)}, {event.svm_calls} SVM calls"
            self._advance("solved", event.finished, event.classes, detail)
            if self._verbosity > 0:
                self._err(f"solved   {event.finished}/{event.classes}  {detail}")

    def _advance(self, stage: str, done: int, total: int, detail: str) -> None:
        if self._bar is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bar.add_task(stage, total=total)
            self._bar.update(self._tasks[stage], completed=done)
        elif self._verbosity >= 0 and time.monotonic() - self._last_plain > PLAIN_EVERY:
            self._last_plain = time.monotonic()
            self._err(f"{stage:<9}{done}/{total}  {detail}".rstrip())

    def _remove_bars(self) -> None:
        for task in self._tasks.values():
            if self._bar is not None:
                self._bar.remove_task(task)
        self._tasks.clear()

    def _out(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _err(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def short(value: float) -> str:
    """'9.8e-4': a small number in few characters."""
    mantissa, exponent = f"{value:.1e}".split("e") if math.isfinite(value) else (str(value), "0")
    return mantissa if not int(exponent) else f"{mantissa}e{int(exponent)}"


def figure(name: str, value: float) -> str:
    """'balanced accuracy 0.912': three decimals, or three digits where those would be zeros."""
    return f"{name.replace('_', ' ')} {value:{'.3f' if abs(value) >= 0.01 else '.3g'}}"


def count(number: int, noun: str) -> str:
    """'1 pass', '3 passes'."""
    plural = noun + ("es" if noun.endswith(("s", "ss")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"
