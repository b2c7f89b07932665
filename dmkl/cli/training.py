"""A training run as the command line shows it: for dmkl train and dmkl rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmkl.cli.console import Console, count, figure, short
from dmkl.cli.signals import terminable

if TYPE_CHECKING:
    from dmkl.config import Config
    from dmkl.experiment import RunDirectory, Trained
    from dmkl.memory import Budget
    from dmkl.store import KernelStore


def carry_out(
    config: Config,
    directory: RunDirectory,
    limit: Budget,
    console: Console,
    store: KernelStore | None = None,
    *,
    unsaid: tuple[str, ...] = (),
) -> Trained:
    """Train in a directory nobody else works on, with the progress and a line for every stage that is not `unsaid`."""
    from dmkl.experiment import train
    from dmkl.runtime import open_runtime

    def say(stage: str, facts: dict[str, Any]) -> None:
        if stage not in unsaid:
            console.line(stage, *WORDS[stage](facts), seconds=facts.get("seconds"))

    where: dict[str, Any] = {
        "workers": config.run.workers,
        "settings": config.cluster,
        "folder": directory.cluster,
        "note": console.note,
    }
    with directory.alone(), console.progress(), terminable(), open_runtime(config.run.cluster, **where) as runtime:
        return train(
            config,
            directory.path,
            runtime,
            limit,
            store=store,
            observer=console.observe,
            say=say,
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


def _report(facts: dict[str, Any]) -> list[str]:
    return [facts["path"]]


NOUNS = {"multilabel": "label", "regression": "target"}  # what one of the outputs is, when it is no class
WORDS = {"kernels": _kernels, "train": _train, "score": _score, "report": _report}
