"""dmkl status: how far is a run?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count, duration, short


@click.command()
@click.argument("run", type=click.Path(), metavar="RUN")
@options.output
def status(run: str, as_json: bool, verbose: int, quiet: bool) -> None:
    """Show the progress of a run, from its files alone: neither the scheduler nor the coordinator is asked."""
    from dmkl.run import RunDirectory
    from dmkl.run.progress import progress

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    facts = progress(RunDirectory(Path(run)))
    seen = [f"last sign of life {duration(facts['seen'])} ago"] if facts["seen"] is not None else []
    job = [f"job {facts['job']}"] if facts["job"] else []
    console.line("run", run, facts["state"], *job, *seen)
    if facts["queue"] is not None and facts["state"] != "finished":
        console.line("queue", *_queue(facts))
    if facts["tiles"]:
        console.line("kernels", "{} of {} tiles".format(*facts["tiles"]))
    if facts["tuned"]:
        console.line("tune", "{} of {} points of all folds".format(*facts["tuned"]))
    if facts["round"] is not None:
        console.line("train", *_train(facts))
    console.result(facts)


def _queue(facts: dict[str, Any]) -> list[str]:
    jobs = [f"{number} {state.lower()}" for state, number in sorted(facts["queue"].items())]
    reasons = [f"because of {', '.join(facts['reasons'])}"] if facts["reasons"] else []
    return [count(facts["workers"], "worker"), ", ".join(jobs) or "no jobs", *reasons]


def _train(facts: dict[str, Any]) -> list[str]:
    left = facts["eta"]
    return [
        f"round {facts['round']}",
        count(facts["passes"], "pass"),
        f"{facts['finished']} of {count(facts['classes'], 'class')} proved",
        f"worst gap {short(facts['gap']) if facts['gap'] is not None else 'unknown'} of {facts['tol']:g}",
        *([f"about {duration(left)} left"] if left is not None else []),
    ]
