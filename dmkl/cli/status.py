"""dmkl status: how far a run has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dmkl.cli.console import Console, count, duration, output_options, short

if TYPE_CHECKING:
    from dmkl.run.directory import RunStatus


@click.command()
@click.argument("run", type=click.Path(), metavar="RUN")
@output_options
def status(run: str, console: Console) -> None:
    """Show how far RUN has come. Only its files are read: neither the scheduler nor the running process is asked."""
    from dmkl.run import RunDirectory, run_status

    facts = run_status(RunDirectory(run))
    seen = [f"last activity {duration(facts['seen'])} ago"] if facts["seen"] is not None else []
    job = [f"job {facts['job']}"] if facts["job"] else []
    console.line("run", run, facts["state"], *job, *seen)
    if facts["queue"] is not None and facts["state"] != "finished":
        jobs = [f"{number} {state.lower()}" for state, number in sorted(facts["queue"].items())]
        reasons = [f"because of {', '.join(facts['reasons'])}"] if facts["reasons"] else []
        console.line("queue", count(facts["workers"] or 0, "worker"), ", ".join(jobs) or "no jobs", *reasons)
    if facts["tiles"]:
        console.line("kernels", "{} of {} tiles".format(*facts["tiles"]))
    if facts["tuned"]:
        console.line("tune", "{} of {} fits of the cross-validation".format(*facts["tuned"]))
    if facts["round"] is not None:
        console.line("train", f"round {facts['round']}", *_training(facts))
    console.result(facts)


def _training(facts: RunStatus) -> list[str]:
    gap, left = facts["gap"], facts["eta"]
    return [
        count(facts["passes"] or 0, "pass"),
        f"{facts['finished']} of {count(facts['classes'] or 0, 'class')} proved",
        f"worst gap {short(gap) if gap is not None else 'unknown'} of {facts['tol']:g}",
        *([f"about {duration(left)} left"] if left is not None else []),
    ]
