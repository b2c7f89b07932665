"""A run as the command line shows it: for dmkl train, dmkl tune and dmkl rerun."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dmkl.cli.console import Console, count, figure, short
from dmkl.cli.signals import terminable
from dmkl.errors import DeadlineReached, SolverError

if TYPE_CHECKING:
    from dmkl._util.machine import Budget
    from dmkl.config import Config
    from dmkl.run import RunDirectory, Trained
    from dmkl.store import KernelStore


def carry_out(
    work: Callable[..., Trained],
    config: Config,
    directory: RunDirectory,
    limit: Budget,
    console: Console,
    store: KernelStore | None = None,
    *,
    unsaid: tuple[str, ...] = (),
) -> Trained:
    """`train` or `tune_run` in a directory nobody else works on, with the progress and a line for every stage that is
    not `unsaid`."""
    from dmkl.runtime import open_runtime

    def say(stage: str, facts: dict[str, Any]) -> None:
        if stage not in unsaid:
            console.line(stage, *WORDS[stage](facts), seconds=facts.get("seconds"))
            console.details(facts.get("lines", ()))  # the table of a search

    where: dict[str, Any] = {
        "workers": config.run.workers,
        "settings": config.cluster,
        "folder": directory.cluster,
        "note": console.note,
    }
    with directory.alone(), console.progress(), terminable(), open_runtime(config.run.cluster, **where) as runtime:
        return work(config, directory.path, runtime, limit, store=store, observer=console.observe, say=say)


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
