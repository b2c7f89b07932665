"""Passes over all tiles of a source: one task for each block row, answers in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from dmkl._util.machine import Budget, Scratch
from dmkl._util.tiling import Grid
from dmkl._util.types import FloatType
from dmkl.events import Observer, Progress, ignore
from dmkl.runtime import Local, Runtime
from dmkl.stack.sources import Source

T = TypeVar("T")


class TileReader:
    """A source, the runtime that runs tasks over its block rows, and the memory that answers may take.

    Attributes
    ----------
    source : where the kernel values come from
    runtime : where the tasks of a pass run
    memory : the limit on this process's memory
    passes : how often tiles have been read from end to end, for whatever question
    observer : called with the progress of every pass
    """

    def __init__(self, source: Source, runtime: Runtime | None = None, memory: Budget | None = None) -> None:
        self.source = source
        self.runtime: Runtime = runtime or Local()
        self.memory = memory or Budget.default()
        self.passes = 0
        self.observer: Observer = ignore
        self.scratch = Scratch()

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.source.grid.n

    @property
    def s(self) -> int:
        """The number of kernels."""
        return self.source.s

    @property
    def grid(self) -> Grid:
        """The blocks of samples that tiles are cut by."""
        return self.source.grid

    @property
    def dtype(self) -> FloatType:
        """The type of the kernel values."""
        return self.source.dtype

    def each_row(self, function: Callable[..., T], *arguments: object) -> Iterator[T]:
        """`function(block row, *arguments)` of every block row, in order."""
        return self.each_task(function, ((row, *arguments) for row in self.source.rows))

    def each_task(self, function: Callable[..., T], tasks: Iterable[tuple[object, ...]]) -> Iterator[T]:
        """The answers of tasks over block rows, in order."""
        for done, answer in enumerate(self.runtime.map(function, tasks), 1):
            yield answer
            self.observer(Progress("pass", done, self.grid.blocks))
