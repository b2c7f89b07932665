"""How far a command is: bars on a terminal, else one plain line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from dmkl.cli.console import duration, gaps, judged
from dmkl.events import Event, PointDone, Progress, RoundDone

PLAIN_EVERY = 5.0  # seconds between lines
CLASSES = "classes"
POINTS = "tuned"
SHOWN_LEFT = 1.0  # seconds left that are worth a word


class Stage:
    """One kind of work, begun again whenever its count falls: tiles, passes, the classes of a batch, all classes."""

    def __init__(self) -> None:
        self.done = self.total = self.times = 0
        self.detail = ""
        self.left: float | None = None  # seconds
        self._first = (0, 0.0)

    def reach(self, done: int, total: int, now: float) -> None:
        if done <= self.done or total != self.total:
            self.times += 1
            self._first = (done, now)
        self.done, self.total = done, total
        gained, spent = done - self._first[0], now - self._first[1]
        self.left = (total - done) * spent / gained if gained else None

    @property
    def busy(self) -> bool:
        return self.done < self.total

    @property
    def words(self) -> str:
        """The gap reached, or which pass it is, and the time left."""
        left = [f"about {duration(self.left)} left"] if self.left and self.left > SHOWN_LEFT and self.busy else []
        return "   ".join([*([self.detail] if self.detail else []), *left])


class Watch:
    """What has happened so far, shown as bars while inside `bars()`, else as lines."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._stages: dict[str, Stage] = {}
        self._rounds: list[dict[str, Any]] = []
        self._last = clock()
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def begin_again(self) -> None:
        """A result line has been written: what it was about is over."""
        self._stages.clear()
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks.clear()

    def see(self, event: Event) -> None:
        now = self._clock()
        if isinstance(event, Progress):
            stage = self._stages.setdefault(event.stage, Stage())
            stage.reach(event.done, event.total, now)
            stage.detail = f"number {stage.times}" if event.stage == "pass" else ""
            self._show(event.stage)
        elif isinstance(event, PointDone):
            stage = self._stages.setdefault(POINTS, Stage())
            stage.reach(event.done, event.total, now)
            stage.detail = judged(event)
            self._show(POINTS)
        elif isinstance(event, RoundDone):
            stage = self._stages.setdefault(CLASSES, Stage())
            stage.reach(event.finished, event.classes, now)
            stage.left = self._by_gap(event)
            stage.detail = f"proved   {self._running()}{gaps(event)}"
            self._show(CLASSES)

    def _by_gap(self, event: RoundDone) -> float | None:
        """Seconds left by the classes that get finished, or by how fast the gap falls."""
        from dmkl.run.progress import seconds_left

        self._rounds.append(asdict(event))
        return seconds_left(self._rounds, event.tol)

    def _running(self) -> str:
        batch = self._stages.get("solving")
        return f"{batch.total} running   " if batch and batch.total > 1 else ""

    def _show(self, name: str) -> None:
        stage = self._stages[name]
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=stage.total, words="")
            self._bars.update(self._tasks[name], completed=stage.done, total=stage.total, words=stage.words)
        elif self._clock() - self._last >= PLAIN_EVERY and (stage.busy or CLASSES in self._stages):
            self._last = self._clock()
            self._write("   ".join(_line(name, stage) for name, stage in self._worth_a_word(name)))

    def _worth_a_word(self, name: str) -> Iterator[tuple[str, Stage]]:
        """How many classes are proved, then what goes on just now."""
        if CLASSES in self._stages:
            yield CLASSES, self._stages[CLASSES]
        if name != CLASSES:
            yield name, self._stages[name]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bars away while the body writes."""
        if self._bars is None:
            yield
            return
        self._bars.stop()
        try:
            yield
        finally:
            self._bars.start()

    @contextmanager
    def bars(self) -> Iterator[None]:
        """Bars that go when the body ends. Rich leaves colours out where NO_COLOR is set.

        It would redirect stdout to where the bars are, and wrap result lines there; `aside` is for those.
        """
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
        )
        ours: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False, "transient": True}
        with Bars(*columns, console=Console(stderr=True), **ours) as self._bars:
            try:
                yield
            finally:
                self._bars = None
                self._tasks.clear()


def _line(name: str, stage: Stage) -> str:
    return f"{name:<9}{stage.done}/{stage.total} {stage.words}".rstrip()
