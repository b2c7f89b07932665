"""Training: from the kernels of a run to its model, scores and report."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dmkl._util.machine import peak_resident
from dmkl.config import SolveConfig
from dmkl.data import Dataset, Labels
from dmkl.events import Note, Observer, ignore
from dmkl.model import (
    Model,
    calibrate,
    held_out_predictions,
    leading_metric,
    make_model,
    measure,
    save_model,
    save_predictions,
)
from dmkl.problems import Formulation
from dmkl.report import write_report
from dmkl.run.context import RunContext
from dmkl.run.directory import RunDirectory
from dmkl.run.experiment import make_formulation
from dmkl.run.prepare import TrainingInputs, prepare_kernels
from dmkl.run.records import KernelMetrics, Metrics, ScoreRecord, Summary, TrainRecord, TuneRecord
from dmkl.run.report import read_run, score_record
from dmkl.solvers import Fit, describe, solve
from dmkl.stack import KernelStack

BASELINE = SolveConfig()  # baselines are solved with the default options


@dataclass(frozen=True)
class RunResult:
    """The records of a finished run and its directory."""

    summary: Summary
    directory: RunDirectory


def train_run(run: RunContext) -> RunResult:
    """Build (or take) the kernels, solve, save the model, score it and write the report."""
    formulation = make_formulation(run.config)
    inputs = prepare_kernels(run, formulation.targets)
    return finish(run, inputs, run.open_stack(), formulation)


def finish(
    run: RunContext,
    inputs: TrainingInputs,
    stack: KernelStack,
    formulation: Formulation,
    tuned: TuneRecord | None = None,
) -> RunResult:
    """Solve on all training samples, save the model, score it and write the report.

    Parameters
    ----------
    run : RunContext
        The run that is finished.
    inputs : TrainingInputs
        Its kernels, labels and held-out samples.
    stack : KernelStack
        The open kernels.
    formulation : Formulation
        What is solved.
    tuned : TuneRecord, optional
        The record of the search that chose the formulation.
    """
    directory = run.directory
    started = time.perf_counter()
    stack.observer = run.observe
    fit = _solve(
        stack, inputs.labels, formulation, run.config.solve, run.deadline.left, directory.checkpoint, run.observe
    )
    model = make_model(inputs.store, fit)
    save_model(directory.model, model)
    directory.forget_predictions()
    record = _train_record(fit, stack, time.perf_counter() - started)
    run.listener.trained(record)
    summary: Summary = {"kernels": inputs.record, "train": record}
    if tuned is not None:
        summary = {"kernels": inputs.record, "tune": tuned, "train": record}
    if inputs.test is not None and inputs.test.labels is not None:
        metric = run.config.tune.metric if tuned is not None else ""  # what a search was decided by leads its scores
        scores = _score(run, model, inputs.test, inputs.test.labels, metric)
        if run.config.solve.baselines and len(inputs.store.bank) > 1:
            _add_baselines(scores, run, inputs, stack, fit, metric)
        summary["score"] = scores
        run.listener.scored(scores)
    for text in stack.news():
        run.observe(Note(text))
    directory.keep_timeline(run.runtime)
    contents = replace(read_run(directory), summary=dict(summary), finished=not fit.out_of_time)
    write_report(directory.report, contents)
    if not fit.out_of_time:  # an unfinished run can be continued with more time
        directory.finish(summary)
    run.listener.report_written(str(directory.report))
    return RunResult(summary, directory)


def _solve(
    stack: KernelStack,
    labels: Labels,
    formulation: Formulation,
    options: SolveConfig,
    max_seconds: float = np.inf,
    checkpoint: Path | None = None,
    observer: Observer = ignore,
) -> Fit:
    return solve(
        stack,
        labels,
        formulation,
        tol=options.tol,
        oracle=options.oracle,
        method=options.method,
        seed=options.seed,
        max_rounds=options.max_rounds,
        max_seconds=max_seconds,
        checkpoint=checkpoint,
        observer=observer,
    )


def _train_record(fit: Fit, stack: KernelStack, seconds: float) -> TrainRecord:
    return {
        "formulation": describe(fit.formulation),
        "task": fit.task,
        "classes": fit.state.working.shape[1],
        "rounds": fit.rounds,
        "passes": fit.passes,
        "svm_calls": fit.svm_calls,
        "block_steps": fit.block_steps,
        "gap": fit.worst_gap,
        "converged": fit.converged,
        "out_of_time": fit.out_of_time,
        "objective": np.atleast_1d(fit.objective).tolist(),
        "backend": stack.backend,
        "peak_bytes": peak_resident(),
        "seconds": seconds,
    }


def _score(run: RunContext, model: Model, test: Dataset, truth: Labels, metric: str) -> ScoreRecord:
    """Score the held-out samples; keep their predictions, and the calibration of probabilities made from them."""
    started = time.perf_counter()
    scores = model.decision(test, run.runtime)
    kept = held_out_predictions(model, test, scores, run.runtime)
    save_predictions(run.directory.predictions, kept)
    if model.task != "regression":
        calibrate(scores, truth).save(run.directory.calibration)
    found = score_record(model, kept, metric)
    return {
        "n": found["n"],
        "metrics": found["metrics"],
        "per_class": found["per_class"],
        "seconds": time.perf_counter() - started,
    }


def _add_baselines(
    scores: ScoreRecord, run: RunContext, inputs: TrainingInputs, stack: KernelStack, fit: Fit, metric: str
) -> None:
    """Score the average kernel, and the best kernel alone, on the test samples."""
    store, test = inputs.store, inputs.test
    assert test is not None
    assert test.labels is not None
    truth = test.labels
    formulation = fit.formulation.baseline(fit.weights)

    def metrics(kernels: list[int]) -> Metrics:
        alone = _solve(stack.choose(kernels), inputs.labels, formulation, BASELINE)
        model = make_model(store, alone, kernels)
        return measure(model.decision(test, run.runtime), truth, metric)

    scores["average"] = {"kernel": "", "metrics": metrics(list(range(store.s)))}
    single: list[KernelMetrics] = [
        {"kernel": kernel.name, "metrics": metrics([a])} for a, kernel in enumerate(store.bank.kernels)
    ]
    leading = leading_metric(truth.task, metric)
    scores["best_single"] = max(single, key=lambda found: leading.sign * found["metrics"][leading.name])
