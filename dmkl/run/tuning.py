"""A search, from configuration to the report of the model it chose."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dmkl._util.files import write_atomically, write_json
from dmkl._util.machine import Budget
from dmkl._util.units import parse_seconds
from dmkl.config import Config
from dmkl.data import Labels, check_folds
from dmkl.events import Event
from dmkl.model import leading_metric
from dmkl.report.tuning_chart import draw_tuning
from dmkl.run.rundir import RunDirectory, finite
from dmkl.run.training import Say, Trained, begin, complete
from dmkl.runtime import Local, Runtime
from dmkl.solvers import describe
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore
from dmkl.tuning import Tuned, named_candidates, refuse_labels, tune


def tune_run(
    config: Config,
    out: Path,
    runtime: Runtime,
    budget: Budget,
    *,
    store: KernelStore | None = None,
    observer: Callable[[Event], None],
    say: Say,
) -> Trained:
    """Choose by cross-validation on the training samples, then train the choice on all of them."""
    search, solving = config.tune, config.solve
    names = search.formulations or (config.formulation.name,)
    points = named_candidates(names, search.grid, {config.formulation.name: config.formulation.params})
    fits = search.folds * search.repeats * len(points)

    def check(labels: Labels) -> None:
        leading_metric(labels.task, search.metric)  # unknown or unsuitable names are refused before any work
        refuse_labels(points, labels)
        check_folds(labels, search.folds, search.repeats)

    begun = begin(config, out, runtime, budget, store=store, observer=observer, say=say, check=check, fits=fits)
    ends = time.monotonic() + (parse_seconds(solving.max_time) if solving.max_time else np.inf)
    stack = _stack(begun.store, budget, runtime)
    assert begun.store.labels is not None  # `begin` refuses stores without labels
    tuned = tune(
        stack,
        begun.store.labels,
        points,
        folds=search.folds,
        repeats=search.repeats,
        rule=search.rule,
        metric=search.metric,
        apart=search.apart,
        seed=solving.seed,
        tol=solving.tol,
        oracle=solving.oracle,
        method=solving.method,
        max_rounds=solving.max_rounds,
        max_seconds=ends - time.monotonic(),
        runtime=runtime,
        folder=begun.run.tuning,
        observer=begun.observer,
    )
    facts = _write(begun.run, tuned)
    say("tune", facts)
    if runtime.remote:  # before, paths held what they needed themselves
        stack = open_stack(begun.store.path, memory=budget.limit, runtime=runtime)
    left = f"{max(ends - time.monotonic(), 1e-3):.3f} s" if solving.max_time else ""
    rest = dataclasses.replace(config, solve=dataclasses.replace(solving, max_time=left))
    return complete(begun, stack, tuned.formulation, rest, say, facts={"tune": facts})


def _stack(store: KernelStore, budget: Budget, runtime: Runtime) -> KernelStack:
    """The stack that folds are parts of; for a cluster, whose tasks open the store themselves, one that holds
    nothing."""
    if not runtime.remote:
        return open_stack(store.path, memory=budget.limit, runtime=runtime)
    return open_stack(
        store.path, memory=budget.limit, runtime=Local(), backend="computed" if store.computed else "disk"
    )


def _write(run: RunDirectory, tuned: Tuned) -> dict[str, Any]:
    """The table as JSON, CSV and a drawing; what there is to say of it."""
    facts = {**tuned.to_dict(), "formulation": describe(tuned.formulation), "lines": tuned.lines()}
    write_json(run.tuned, finite(tuned.to_dict()))
    write_atomically(run.path / "tuning.csv", tuned.to_csv().encode())
    write_atomically(run.path / "tuning.svg", draw_tuning(tuned).encode())
    return facts
