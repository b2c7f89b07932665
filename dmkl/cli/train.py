"""dmkl train: from a configuration or a store to a model with a certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count, figure, short
from dmkl.cli.signals import terminable
from dmkl.cli.source import budget, read_source
from dmkl.config import Config
from dmkl.errors import ConfigError, DeadlineReached, SolverError

if TYPE_CHECKING:
    from dmkl.experiment import RunDirectory, Trained
    from dmkl.runtime import Runtime


@click.command()
@click.argument("source", required=False, metavar="[CONFIG|STORE]")
@options.fit
@click.option(
    "--dry-run", is_flag=True, help="With --cluster slurm: print the worker jobs' script and do nothing else."
)
@options.experiment
@options.run
@options.output
def train(
    source: str | None,
    output: str | None,
    dry_run: bool,
    example: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    verbose: int,
    quiet: bool,
    **named: Any,
) -> None:
    """Train on CONFIG (its kernels are built first) or on a STORE, and write a run directory.

    The same command again goes on with a run that was cut short.
    """
    from dmkl.experiment import RunDirectory
    from dmkl.experiment import train as train_run

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    given = read_source(source, example, options.overrides(settings, **named))
    out = Path(output or Path("runs", given.name))
    directory = RunDirectory(out)
    if dry_run:
        console.text(_script(given.config, directory.cluster))
        return
    directory.check(given.config)  # before a cluster is started
    with running(given.config, directory, console) as runtime:
        trained = train_run(
            given.config,
            out,
            runtime,
            budget(given.config),
            store=given.store,
            observer=console.observe,
            say=stages(console),
        )
    conclude(trained, given.config, console)


@contextmanager
def running(config: Config, directory: RunDirectory, console: Console) -> Iterator[Runtime]:
    """The runtime of a run that has its directory to itself."""
    from dmkl.runtime import open_runtime

    where: dict[str, Any] = {
        "workers": config.run.workers,
        "settings": config.cluster,
        "folder": directory.cluster,
        "note": console.note,
    }
    with (
        directory.alone(),
        console.progress(),
        terminable(),
        open_runtime(config.run.cluster, **where) as runtime,
    ):
        yield runtime


def stages(console: Console) -> Callable[[str, dict[str, Any]], None]:
    """What says a stage's facts as a line."""
    return lambda stage, facts: console.line(stage, *WORDS[stage](facts), seconds=facts.get("seconds"))


def conclude(trained: Trained, config: Config, console: Console) -> None:
    """The JSON of a run; refuse to call it a success where it is none."""
    console.result({**trained.summary, "run": str(trained.run.path)})
    out, facts = trained.run.path, trained.summary["train"]
    if facts["out_of_time"]:
        raise DeadlineReached(
            f"out of time with a gap of {short(facts['gap'])} after {facts['rounds']} rounds",
            f"the best model is in {out}; the same command with more time goes on",
        )
    if not facts["converged"]:
        raise SolverError(
            f"the gap is {short(facts['gap'])} after {facts['rounds']} rounds, not {config.solve.tol:g}",
            f"the model in {out} is the best found",
        )


def _script(config: Config, folder: Path) -> str:
    from dmkl.runtime import is_slurm, read_profile

    if not is_slurm(config.run.cluster):
        raise ConfigError("--dry-run prints the script of SLURM jobs", "add --cluster slurm")
    profile = read_profile(config.run.cluster, config.cluster)
    from dmkl.runtime.jobs import job_script

    return job_script(profile, folder)


def _kernels(facts: dict[str, Any]) -> list[str]:
    size = "computed on the fly" if facts["computed"] else f"{facts['bytes'] / 1e6:,.0f} MB"
    return [f"{facts['kernels']:,}", count(facts["views"], "view"), f"n = {facts['n']:,}", size]


def _train(facts: dict[str, Any]) -> list[str]:
    proof = "proved" if facts["converged"] else "NOT proved to the tolerance"
    return [
        facts["formulation"],
        count(facts["classes"], NOUNS.get(facts["task"], "class")),
        count(facts["passes"], "pass"),
        *([count(facts["svm_calls"], "SVM call")] if facts["svm_calls"] else []),  # not every loss is an SVM's
        f"gap {short(facts['gap'])} ({proof})",
    ]


def _score(facts: dict[str, Any]) -> list[str]:
    name, value = next(iter(facts["metrics"].items()))
    words = [figure(name, value)]
    if "best_single" in facts:
        best = facts["best_single"]
        words.append(figure("average kernel", facts["average"]["metrics"][name]))
        words.append(f"{figure('best single', best['metrics'][name])} ({best['kernel']})")
    return words


def _tune(facts: dict[str, Any]) -> list[str]:
    chosen, best = facts["table"][facts["chosen"]], facts["table"][facts["best"]]
    folds = count(facts["folds"], "fold") + (f" x {facts['repeats']}" if facts["repeats"] > 1 else "")
    rule = f"{facts['rule']} rule"
    if best is not chosen:
        rule += f"; best {best['mean']:.3f} at {best['point']}"
    words = [
        f"{folds} x {count(facts['points'], 'point')}",
        chosen["point"],
        f"{figure(facts['metric'], chosen['mean'])} +- {chosen['se']:.3f} ({rule})",
        count(facts["passes"], "pass"),
    ]
    return words + ([f"{facts['unproved']} fits NOT proved to the tolerance"] if facts["unproved"] else [])


def _report(facts: dict[str, Any]) -> list[str]:
    return [facts["path"]]


NOUNS = {"multilabel": "label", "regression": "target"}  # what one of the outputs is, when it is no class
WORDS = {"kernels": _kernels, "tune": _tune, "train": _train, "score": _score, "report": _report}
