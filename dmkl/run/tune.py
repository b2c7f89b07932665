"""A search: cross-validation over formulations and their constants, then the model of the one chosen."""

from __future__ import annotations

from typing import cast

from dmkl._util.files import finite, write_atomically, write_json
from dmkl.data import Labels, check_folds
from dmkl.model import leading_metric
from dmkl.report.parts.tuning import draw_tuning
from dmkl.run.context import RunContext
from dmkl.run.prepare import prepare_kernels
from dmkl.run.records import TuneRecord
from dmkl.run.train import RunResult, finish
from dmkl.runtime import Local
from dmkl.solvers import describe
from dmkl.stack import open_stack
from dmkl.tuning import named_candidates, refuse_labels, tune


def tune_run(run: RunContext) -> RunResult:
    """Choose by cross-validation on the training samples, then train the choice on all of them."""
    config, search, solving = run.config, run.config.tune, run.config.solve
    names = search.formulations or (config.formulation.name,)
    points = named_candidates(names, search.grid, {config.formulation.name: config.formulation.params})

    def check(labels: Labels) -> None:
        leading_metric(labels.task, search.metric)  # an unknown or unsuitable name is refused before any work
        refuse_labels(points, labels)
        check_folds(labels, search.folds, search.repeats)

    inputs = prepare_kernels(run, check, fits=search.folds * search.repeats * len(points))
    store, runtime = inputs.store, run.runtime
    if runtime.remote:  # tasks open the store themselves, so the stack here holds nothing
        backend = "computed" if store.computed else "disk"
        stack = open_stack(store, memory=run.memory.limit, runtime=Local(), backend=backend)
    else:
        stack = run.open_stack()
    tuned = tune(
        stack,
        inputs.labels,
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
        max_seconds=run.deadline.left,
        runtime=runtime,
        folder=run.directory.tuning,
        observer=run.observe,
    )
    table = tuned.to_dict()
    record = cast(TuneRecord, {**table, "formulation": describe(tuned.formulation), "lines": tuned.lines()})
    write_json(run.directory.tuned, finite(table))
    write_atomically(run.directory.path / "tuning.csv", tuned.to_csv().encode())
    write_atomically(run.directory.path / "tuning.svg", draw_tuning(tuned).encode())
    run.listener.tuned(record)
    if runtime.remote:  # only now are the kernels held by the workers
        stack = run.open_stack()
    return finish(run, inputs, stack, tuned.formulation, record)
