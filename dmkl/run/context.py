"""What all stages of one run share, made once by the command that starts the run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dmkl._util.machine import Budget, resident
from dmkl._util.stopping import stopped_by
from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.config import Config
from dmkl.errors import ResourceError
from dmkl.events import Event, Note, Observer, RoundDone, ignore
from dmkl.run.directory import KernelRecord, RunDirectory, ScoreRecord, TrainRecord, TuneRecord
from dmkl.runtime import Diagnostics, Runtime, open_runtime
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

STOPPING = "stopping: the best model so far is being saved; Ctrl-C again ends at once"


class StageListener(Protocol):
    """Is called at the end of every stage of a run, with the record of that stage."""

    def kernels_ready(self, record: KernelRecord) -> None:
        """The kernels are stored, or ready to be computed."""

    def tuned(self, record: TuneRecord) -> None:
        """A search has chosen its formulation."""

    def trained(self, record: TrainRecord) -> None:
        """The model is saved."""

    def scored(self, record: ScoreRecord) -> None:
        """The held-out samples are scored."""

    def report_written(self, path: str) -> None:
        """The report is written."""


class IgnoreStages:
    """A listener that does nothing."""

    def kernels_ready(self, record: KernelRecord) -> None: ...

    def tuned(self, record: TuneRecord) -> None: ...

    def trained(self, record: TrainRecord) -> None: ...

    def scored(self, record: ScoreRecord) -> None: ...

    def report_written(self, path: str) -> None: ...


@dataclass
class Deadline:
    """A time limit in seconds that begins to count when `start` is called."""

    seconds: float = np.inf
    _started: float = 0.0

    def start(self) -> None:
        self._started = time.monotonic()

    @property
    def left(self) -> float:
        """Seconds until the limit is reached, 0 when it has been."""
        return max(0.0, self._started + self.seconds - time.monotonic())


@dataclass
class RunContext:
    """What all stages of one run share.

    Attributes
    ----------
    config : Config
        The resolved configuration with the origin of every value.
    directory : RunDirectory
        Where the run is written.
    runtime : Runtime
        Where tasks are run.
    memory : Budget
        The limit on resident memory.
    store : KernelStore or None
        The open kernel store; None until the run has built it.
    observer : callable
        Takes every event after it has been logged, for progress bars and notes.
    listener : StageListener
        Is called at the end of every stage.
    deadline : Deadline
        The limit `solve.max_time`. It counts from the moment the kernels are ready.
    """

    config: Config
    directory: RunDirectory
    runtime: Runtime
    memory: Budget
    store: KernelStore | None = None
    observer: Observer = ignore
    listener: StageListener = field(default_factory=IgnoreStages)
    deadline: Deadline = field(init=False)

    def __post_init__(self) -> None:
        limit = self.config.solve.max_time
        self.deadline = Deadline(parse_seconds(limit) if limit else np.inf)

    def observe(self, event: Event) -> None:
        """Log an event, write the timeline now and then, and hand the event on."""
        self.directory.log(event)
        if isinstance(event, RoundDone):
            self.directory.keep_timeline(self.runtime, seldom=True)
        self.observer(event)

    def open_stack(self) -> KernelStack:
        """The kernels of the store as a stack, under the run's memory limit and on its runtime."""
        assert self.store is not None, "the kernels are prepared first"
        return open_stack(self.store, memory=self.memory.limit, runtime=self.runtime)


@contextmanager
def open_run(
    config: Config,
    directory: RunDirectory,
    *,
    store: KernelStore | None = None,
    default_memory: int = 0,
    observer: Observer = ignore,
    listener: StageListener | None = None,
    diagnostics: Diagnostics | None = None,
) -> Iterator[RunContext]:
    """Lock a run directory, start the workers and yield the context of the run; release everything at the end.

    Parameters
    ----------
    config : Config
        What to run.
    directory : RunDirectory
        A new directory, or that of the same run, unfinished.
    store : KernelStore, optional
        A finished store to train on instead of building one.
    default_memory : int, optional
        Bytes to use as the memory limit when the configuration names none; 0 for a share of the free memory.
    observer : callable, optional
        Takes the events of the run.
    listener : StageListener, optional
        Is called at the end of every stage.
    diagnostics : Diagnostics, optional
        What Dask is to show of the run.

    Raises
    ------
    ConfigError
        There is nothing that Dask could show.
    OutputError
        The directory holds another run, a finished run, or is in use by another process.
    """
    if diagnostics is not None:
        diagnostics.check(config.run.cluster)
    directory.check(config)  # before a cluster is started
    memory = memory_budget(config, default_memory)

    def note(text: str) -> None:
        observer(Note(text))

    with (
        directory.exclusive(),
        interruptible(note),
        open_runtime(
            config.run.cluster,
            workers=config.run.workers,
            settings=config.cluster,
            folder=directory.cluster,
            note=note,
            diagnostics=diagnostics,
        ) as runtime,
    ):
        yield RunContext(config, directory, runtime, memory, store, observer, listener or IgnoreStages())


def memory_budget(config: Config, default: int = 0) -> Budget:
    """The limit that the configuration names, else `default` bytes, else a share of the free memory."""
    if not config.run.memory:
        return Budget(default) if default else Budget.default()
    budget = Budget(parse_bytes(config.run.memory))
    if not budget.left:
        raise ResourceError(
            f"the memory limit '{config.run.memory}' is too small: dmkl itself takes {resident() / 1e6:,.0f} MB "
            "before any work",
            "raise --memory",
        )
    return budget


@contextmanager
def interruptible(note: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Ctrl-C and SIGTERM, which batch systems send, end a solver that runs with its best solution so far.

    At other times they raise KeyboardInterrupt, as a second Ctrl-C does in any case. Later SIGTERMs are ignored: worker
    jobs have to be cancelled before the coordinator exits.
    """
    with stopped_by((signal.SIGINT, signal.SIGTERM), lambda: note(STOPPING)):
        yield
