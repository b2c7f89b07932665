"""What the command line shows: result lines on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from dmkl.events import Event, Note, PointDone, RoundDone

if TYPE_CHECKING:
    from dmkl.cli.progress import Watch


class Console:
    """Result lines, progress, or one JSON object, as the options ask."""

    def __init__(self, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.as_json = as_json
        self._verbosity = verbosity
        self._watch: Watch | None = None

    def line(self, label: str, *facts: str, seconds: float | None = None) -> None:
        """One aligned result line: what, facts, time."""
        if self.as_json or self._verbosity < 0:
            return
        if self._watch is not None:
            self._watch.begin_again()
        text = f"{label:<9}" + "   ".join(facts)
        self._out(text if seconds is None else f"{text:<96} {seconds:.1f} s")

    def details(self, lines: Iterable[str]) -> None:
        """Lines below a result line, for those who want more."""
        for text in lines if self._verbosity > 0 else ():
            self.line("", text)

    def text(self, text: str) -> None:
        """What was asked for as it is, a script say."""
        self._out(text)

    def result(self, value: Any) -> None:
        """The JSON object of a command, under --json."""
        from dmkl.run.rundir import finite

        if self.as_json:
            self._out(json.dumps(finite(value), indent=2))

    def note(self, text: str) -> None:
        if self._verbosity >= 0:
            self._err(text)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show how far the body is: bars where somebody can see them, else a line every few seconds."""
        if self._verbosity < 0:
            yield
            return
        from dmkl.cli.progress import Watch

        self._watch = Watch(self._err)
        with self._watch.bars() if sys.stderr.isatty() else nullcontext():
            try:
                yield
            finally:
                self._watch = None

    def observe(self, event: Event) -> None:
        """The observer a command hands to the library."""
        if isinstance(event, Note):
            self.note(event.text)
        elif self._watch is not None:
            self._watch.see(event)
        if self._verbosity > 0 and isinstance(event, PointDone):
            self._err(f"tuned    {event.done}/{event.total}   {judged(event)}")
        elif self._verbosity > 0 and isinstance(event, RoundDone):
            proved = f"{event.finished}/{event.classes} proved"
            self._err("   ".join([f"round    {event.round}", proved, gaps(event), count(event.svm_calls, "SVM call")]))

    def _out(self, text: str) -> None:
        self._write(sys.stdout, text)

    def _err(self, text: str) -> None:
        self._write(sys.stderr, text)

    def _write(self, stream: TextIO, text: str) -> None:
        with self._watch.aside() if self._watch is not None else nullcontext():
            stream.write(text + "\n")
            stream.flush()


def gaps(event: RoundDone) -> str:
    return f"worst gap {short(event.gap)} of {event.tol:g}"


def judged(event: PointDone) -> str:
    return f"fold {event.fold + 1}   {event.formulation}   {event.score:.4g}"


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


def duration(seconds: float) -> str:
    """'45 s', '12 m', '3.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} m" if seconds < 5400 else f"{seconds / 3600:.1f} h"
