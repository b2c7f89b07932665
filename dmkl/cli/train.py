"""dmkl train: from a configuration or a store to a model with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count, figure, short
from dmkl.cli.signals import terminable
from dmkl.cli.source import budget, read_source
from dmkl.config import Config
from dmkl.errors import ConfigError, DeadlineReached, SolverError


@click.command()
@click.argument("source", required=False, metavar="[CONFIG|STORE]")
@click.option("-o", "--output", metavar="RUN", help="Run directory (default: runs/NAME).")
@click.option("--tol", type=float, help="Certified relative gap to reach.")
@click.option("--max-time", metavar="TIME", help="Stop after '30 m' or '2 h' with the best certified model.")
@click.option("--oracle", metavar="NAME", help="SVM solver: smo or libsvm.")
@click.option(
    "--dry-run", is_flag=True, help="With --cluster slurm: print the worker jobs' script and do nothing else."
)
@click.option("--print-config", is_flag=True, help="Print every value with its origin, as TOML, and do nothing else.")
@options.experiment
@options.run
@options.output
def train(
    source: str | None,
    output: str | None,
    dry_run: bool,
    print_config: bool,
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
    from dmkl.runtime import open_runtime

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    given = read_source(source, example, options.overrides(settings, **named))
    if print_config:
        _print(given.config, console)
        return
    out = Path(output or Path("runs", given.name))
    directory, run = RunDirectory(out), given.config.run
    if dry_run:
        console.text(_script(given.config, directory.cluster))
        return
    directory.check(given.config)  # before a cluster is started
    limit = budget(given.config)
    where: dict[str, Any] = {
        "workers": run.workers,
        "settings": given.config.cluster,
        "folder": directory.cluster,
        "note": console.note,
    }
    with directory.alone(), console.progress(), terminable(), open_runtime(run.cluster, **where) as runtime:
        trained = train_run(
            given.config,
            out,
            runtime,
            limit,
            store=given.store,
            observer=console.observe,
            say=lambda stage, facts: console.line(stage, *WORDS[stage](facts), seconds=facts.get("seconds")),
        )
    console.result({**trained.summary, "run": str(trained.run.path)})
    facts = trained.summary["train"]
    if facts["out_of_time"]:
        raise DeadlineReached(
            f"out of time with a gap of {short(facts['gap'])} after {facts['rounds']} rounds",
            f"the best model is in {out}; the same command with more time goes on",
        )
    if not facts["converged"]:
        raise SolverError(
            f"the gap is {short(facts['gap'])} after {facts['rounds']} rounds, not {given.config.solve.tol:g}",
            f"the model in {out} is the best found",
        )


def _print(config: Config, console: Console) -> None:
    from dmkl.config import to_toml
    from dmkl.experiment import resolved

    if not console.as_json:
        console.text(to_toml(resolved(config), config.origins))
    console.result({"config": resolved(config), "origins": config.origins})


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


def _report(facts: dict[str, Any]) -> list[str]:
    return [facts["path"]]


NOUNS = {"multilabel": "label", "regression": "target"}  # what one of the outputs is, when it is no class
WORDS = {"kernels": _kernels, "train": _train, "score": _score, "report": _report}
