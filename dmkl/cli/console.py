"""What commands share: how they show results, and the options that several of them have, as decorators.

Commands show result lines or one JSON object on stdout, progress and notes on stderr.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

from dmkl._util.files import finite
from dmkl.errors import ConfigError, DeadlineReached, Interrupted, SolverError
from dmkl.events import Event, Note, PointDone, Progress, RoundDone

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from dmkl._util.types import Table
    from dmkl.config import Config
    from dmkl.run import RunResult
    from dmkl.run.directory import KernelRecord, ScoreRecord, TrainRecord, TuneRecord

LINE_SECONDS = 5.0  # between two lines of progress without a terminal
SHOWN_SECONDS = 1.0  # a shorter remaining time is not shown
CLASSES = "classes"  # the progress of all classes together
POINTS = "tuned"  # the progress of a search
OUTPUT_NOUNS = {"multilabel": "label", "regression": "target"}  # one output of a model, when it is no class
F = TypeVar("F", bound=Callable[..., object])
OPTION_SECTIONS = dict.fromkeys(("cluster", "workers", "memory", "full"), "run")
OPTION_SECTIONS |= dict.fromkeys(("seed", "tol", "method", "oracle", "max_time"), "solve")
OPTION_SECTIONS |= dict.fromkeys(("folds", "repeats", "rule", "metric", "formulations"), "tune")


class Console:
    """Result lines, progress and notes, or one JSON object.

    Parameters
    ----------
    as_json : bool
        Print only the JSON object of `result`.
    verbosity : int
        -1 for errors only, 0 for result lines and progress, 1 and more for details.
    """

    def __init__(self, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.as_json = as_json
        self._verbosity = verbosity
        self._display: ProgressDisplay | None = None

    def line(self, label: str, *facts: str, seconds: float | None = None) -> None:
        """Print one aligned result line: a label, facts and the time it took."""
        if self.as_json or self._verbosity < 0:
            return
        if self._display is not None:
            self._display.clear()
        text = f"{label:<9}" + "   ".join(facts)
        self._write(sys.stdout, text if seconds is None else f"{text:<96} {seconds:.1f} s")

    def details(self, lines: Iterable[str]) -> None:
        """Print lines below a result line if details are wanted."""
        for text in lines if self._verbosity > 0 else ():
            self.line("", text)

    def text(self, text: str) -> None:
        """Print a text, such as a script, as it is."""
        self._write(sys.stdout, text)

    def result(self, value: object) -> None:
        """Print the JSON object of a command, with --json."""
        if self.as_json:
            self._write(sys.stdout, json.dumps(finite(value), indent=2))

    def note(self, text: str) -> None:
        if self._verbosity >= 0:
            self._write(sys.stderr, text)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show the progress of the body: as bars on a terminal, otherwise as a line every few seconds."""
        if self._verbosity < 0:
            yield
            return
        self._display = ProgressDisplay(self.note)
        with self._display.bars() if sys.stderr.isatty() else nullcontext():
            try:
                yield
            finally:
                self._display = None

    def observe(self, event: Event) -> None:
        """The observer that a command passes to the library."""
        if isinstance(event, Note):
            self.note(event.text)
        elif self._display is not None:
            self._display.show(event)
        if self._verbosity > 0 and isinstance(event, PointDone):
            self.note(f"tuned    {event.done}/{event.total}   {point_text(event)}")
        elif self._verbosity > 0 and isinstance(event, RoundDone):
            proved = f"{event.finished}/{event.classes} proved"
            calls = count(event.svm_calls, "SVM call")
            self.note("   ".join([f"round    {event.round}", proved, gap_text(event), calls]))

    def _write(self, stream: TextIO, text: str) -> None:
        with self._display.hidden() if self._display is not None else nullcontext():
            stream.write(text + "\n")
            stream.flush()


class StageLines:
    """A stage listener that prints a result line at the end of every stage of a run."""

    def __init__(self, console: Console, *, report: bool = True) -> None:
        self._console = console
        self._report = report

    def kernels_ready(self, record: KernelRecord) -> None:
        size = "computed on the fly" if record["computed"] else f"{record['bytes'] / 1e6:,.0f} MB"
        facts = [f"{record['kernels']:,}", count(record["views"], "view"), f"n = {record['n']:,}", size]
        self._console.line("kernels", *facts, seconds=record["seconds"])

    def tuned(self, record: TuneRecord) -> None:
        chosen, best = record["table"][record["chosen"]], record["table"][record["best"]]
        folds = count(record["folds"], "fold") + (f" x {record['repeats']}" if record["repeats"] > 1 else "")
        rule = f"{record['rule']} rule"
        if best is not chosen:
            rule += f"; best {best['mean']:.3f} at {best['point']}"
        facts = [
            f"{folds} x {count(record['points'], 'point')}",
            chosen["point"],
            f"{metric_text(record['metric'], chosen['mean'])} +- {chosen['se']:.3f} ({rule})",
            count(record["passes"], "pass"),
        ]
        if record["unproved"]:
            facts.append(f"{count(record['unproved'], 'fit')} NOT proved to the tolerance")
        self._console.line("tune", *facts, seconds=record["seconds"])
        self._console.details(record["lines"])

    def trained(self, record: TrainRecord) -> None:
        facts = [
            record["formulation"],
            count(record["classes"], OUTPUT_NOUNS.get(record["task"], "class")),
            count(record["passes"], "pass"),
        ]
        if record["svm_calls"]:  # not every solver calls an SVM
            facts.append(count(record["svm_calls"], "SVM call"))
        ended = f"ended by {record['rule']}" if record.get("rule") else "NOT proved to the tolerance"
        proof = "proved" if record["converged"] else ended
        facts.append(f"gap {short(record['gap'])} ({proof})")
        self._console.line("train", *facts, seconds=record["seconds"])

    def scored(self, record: ScoreRecord) -> None:
        name, value = next(iter(record["metrics"].items()))
        facts = [metric_text(name, value)]
        if "best_single" in record and "average" in record:
            best = record["best_single"]
            facts.append(metric_text("average kernel", record["average"]["metrics"][name]))
            facts.append(f"{metric_text('best single', best['metrics'][name])} ({best['kernel']})")
        self._console.line("score", *facts, seconds=record["seconds"])

    def report_written(self, path: str) -> None:
        if self._report:
            self._console.line("report", path)


def conclude(console: Console, result: RunResult, config: Config) -> None:
    """Print the JSON object of a run, and refuse to call a run without its certificate a success."""
    path, record = result.directory.path, result.summary["train"]
    console.result({**result.summary, "run": str(path)})
    gap, rounds = short(record["gap"]), count(record["rounds"], "round")
    if not result.finished:
        best = f"the best model is in {path}; run the same command"
        if result.interrupted:
            raise Interrupted(f"interrupted with a gap of {gap} after {rounds}", f"{best} again to continue")
        raise DeadlineReached(
            f"out of time with a gap of {gap} after {rounds}", f"{best} with a larger --max-time to continue"
        )
    if not (record["converged"] or record.get("rule")):
        raise SolverError(
            f"the gap is {gap} after {rounds}, above the tolerance of {config.solve.tol:g}",
            f"the best model found is in {path}; raise solve.tol or solve.max_rounds and train again",
        )


class StageProgress:
    """Progress of one stage: tiles, passes, the classes of a batch or all classes.

    A stage begins again whenever its count falls.
    """

    def __init__(self) -> None:
        self.done = self.total = self.starts = 0
        self.detail = ""
        self.seconds_left: float | None = None
        self._first = (0, 0.0)

    def advance(self, done: int, total: int, now: float) -> None:
        if done <= self.done or total != self.total:
            self.starts += 1
            self._first = (done, now)
        self.done, self.total = done, total
        gained, spent = done - self._first[0], now - self._first[1]
        self.seconds_left = (total - done) * spent / gained if gained else None

    @property
    def busy(self) -> bool:
        return self.done < self.total

    @property
    def words(self) -> str:
        """The detail of the stage, such as the gap reached or the number of the pass, and the time left."""
        left = self.seconds_left
        shown = [f"about {duration(left)} left"] if left and left > SHOWN_SECONDS and self.busy else []
        return "   ".join([*([self.detail] if self.detail else []), *shown])


class ProgressDisplay:
    """The progress of a command: bars inside the context `bars`, otherwise a line every few seconds."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._stages: dict[str, StageProgress] = {}
        self._rounds: list[Table] = []
        self._last_line = clock()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def clear(self) -> None:
        """Forget all stages: the result line of what they belong to has been written."""
        self._stages.clear()
        if self._bars is not None:
            for task in self._tasks.values():
                self._bars.remove_task(task)
        self._tasks.clear()

    def show(self, event: Event) -> None:
        """Take up an event and show the new progress."""
        now = self._clock()
        if isinstance(event, Progress):
            stage = self._stages.setdefault(event.stage, StageProgress())
            stage.advance(event.done, event.total, now)
            stage.detail = f"number {stage.starts}" if event.stage == "pass" else ""
            self._draw(event.stage)
        elif isinstance(event, PointDone):
            stage = self._stages.setdefault(POINTS, StageProgress())
            stage.advance(event.done, event.total, now)
            stage.detail = point_text(event)
            self._draw(POINTS)
        elif isinstance(event, RoundDone):
            from dmkl.run.status import seconds_left

            stage = self._stages.setdefault(CLASSES, StageProgress())
            stage.advance(event.finished, event.classes, now)
            self._rounds.append(asdict(event))
            stage.seconds_left = seconds_left(self._rounds, event.tol)
            batch = self._stages.get("solving")
            running = f"{batch.total} running   " if batch and batch.total > 1 else ""
            stage.detail = f"proved   {running}{gap_text(event)}"
            self._draw(CLASSES)

    def _draw(self, name: str) -> None:
        stage = self._stages[name]
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=stage.total, words="")
            self._bars.update(self._tasks[name], completed=stage.done, total=stage.total, words=stage.words)
        elif self._clock() - self._last_line >= LINE_SECONDS and (stage.busy or CLASSES in self._stages):
            self._last_line = self._clock()
            names = [CLASSES] if CLASSES in self._stages else []
            names += [name] if name != CLASSES else []
            shown = [(label, self._stages[label]) for label in names]
            texts = [f"{label:<9}{one.done}/{one.total} {one.words}".rstrip() for label, one in shown]
            self._write("   ".join(texts))

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the bars while the body writes."""
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
        """Show bars that disappear when the body ends. Rich leaves out colours where NO_COLOR is set.

        Rich would redirect stdout to the stream of the bars and wrap result lines there; `hidden` replaces that.
        """
        from rich.console import Console as Terminal
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
        )
        terminal = Terminal(stderr=True)
        with Bars(
            *columns, console=terminal, redirect_stdout=False, redirect_stderr=False, transient=True
        ) as self._bars:
            try:
                yield
            finally:
                self._bars = None
                self._tasks.clear()


def gap_text(event: RoundDone) -> str:
    """'worst gap 2.0e-2 of 0.001'."""
    return f"worst gap {short(event.gap)} of {event.tol:g}"


def point_text(event: PointDone) -> str:
    """'fold 2   VSKL q=2 C=10   0.9123'."""
    return f"fold {event.fold + 1}   {event.formulation}   {event.score:.4g}"


def metric_text(name: str, value: float) -> str:
    """'balanced accuracy 0.912': three decimals, or three digits where those would be zeros."""
    return f"{name.replace('_', ' ')} {value:{'.3f' if abs(value) >= 0.01 else '.3g'}}"


def short(value: float) -> str:
    """'9.8e-4': a small number in few characters."""
    mantissa, exponent = f"{value:.1e}".split("e") if math.isfinite(value) else (str(value), "0")
    return mantissa if not int(exponent) else f"{mantissa}e{int(exponent)}"


def count(number: int, noun: str) -> str:
    """'1 pass', '3 passes'."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def duration(seconds: float) -> str:
    """'45 s', '12 m', '3.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} m" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_output = _stacked(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines."),
    click.option("-v", "--verbose", count=True, help="Print more details while running."),
    click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
)


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about output; the command receives the `console` that they describe."""

    @functools.wraps(command)
    def with_console(*, as_json: bool, verbose: int, quiet: bool, **others: object) -> None:
        command(console=Console(as_json=as_json, verbosity=-1 if quiet else verbose), **others)

    return _output(with_console)


def setting_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The settings that -s accepts, such as 'solve.tol='."""
    from dmkl.config import SECTIONS

    names = [(section, f) for section, cls in SECTIONS.items() for f in fields(cls) if f.name != "params"]
    items = [(f"{section}.{f.name}=", f.metadata.get("means", "")) for section, f in names]
    return [CompletionItem(name, help=means) for name, means in items if name.startswith(incomplete)]


_cluster = _stacked(
    click.option(
        "--cluster",
        metavar="WHERE",
        help="Where tasks run: none, local[:N[xT]], SCHEDULER[:PROFILE] (a batch scheduler: slurm, moab, pbs, sge, "
        "lsf, htcondor, oar), or tcp://HOST:PORT (tls://) of a Dask scheduler.",
    ),
    click.option(
        "--workers", type=click.IntRange(1), metavar="N", help="Number of threads, when tasks run in this process."
    ),
    click.option("--memory", metavar="SIZE", help="Limit on resident memory, e.g. '4 GB'."),
    click.option(
        "--dashboard", is_flag=True, help="Show the link of Dask's dashboard, which is open while the command runs."
    ),
    click.option(
        "--performance-report",
        type=click.Path(),
        metavar="FILE.html",
        help="Write Dask's performance report of the command: tasks, workers, transfers, profiles.",
    ),
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about where tasks run; the command receives the `diagnostics` that two of them describe."""

    @functools.wraps(command)
    def with_diagnostics(*, dashboard: bool, performance_report: str | None, **others: object) -> None:
        from dmkl.runtime import Diagnostics

        report = Path(performance_report) if performance_report else None
        command(diagnostics=Diagnostics(dashboard, report), **others)

    return _cluster(with_diagnostics)


run_options = _stacked(
    cluster_options, click.option("--seed", type=int, help="Random seed of splits and starting points.")
)

experiment_options = _stacked(
    click.option("--example", metavar="NAME", help="Use a bundled example instead of a configuration file."),
    click.option(
        "-s",
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=setting_names,
        help="Replace a value of the configuration, e.g. formulation.C=10; repeatable.",
    ),
)

fit_options = _stacked(
    click.option("-o", "--output", type=click.Path(), metavar="RUN", help="Run directory (default: runs/NAME)."),
    click.option("--tol", type=float, help="Relative duality gap to certify."),
    click.option(
        "--max-time",
        metavar="TIME",
        help="Stop after e.g. '30 m' or '2 h' with the best model so far; the same command continues the run.",
    ),
    click.option(
        "--method",
        metavar="NAME",
        help="Algorithm of the formulation, e.g. mirror-paper: README lists them (default: its first one).",
    ),
    click.option("--oracle", metavar="NAME", help="SVM solver: smo or libsvm."),
)


def read_overrides(settings: tuple[str, ...], **named: object) -> dict[str, str]:
    """'section.key' to its value, from --set and from the options that stand for one key."""
    result: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set '{setting}' lacks '='", "write SECTION.KEY=VALUE, e.g. formulation.C=10")
        result[key.strip()] = value.strip()
    for name, option in named.items():
        if option is not None:
            result[f"{OPTION_SECTIONS[name]}.{name}"] = json.dumps(option)  # text stays text: memory may be all digits
    return result
