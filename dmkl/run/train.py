"""Training: from the kernels of a run to its model, scores and report.

`train_run` trains at once. `tune_run` first chooses the formulation and its constants by cross-validation. `recorded`
and `compare` serve the repetition of a finished run with the same configuration and memory limit.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from dmkl._util.files import finite, read_json, write_atomically, write_json
from dmkl._util.machine import peak_resident
from dmkl._util.stopping import Stopped, deadline, stop_requested
from dmkl._util.types import Table
from dmkl.config import Config, Settings, SolveConfig, parse_config
from dmkl.data import Dataset, Labels, check_folds
from dmkl.errors import OutputError
from dmkl.events import Note, Observer, ignore
from dmkl.model import (
    Model,
    calibrate,
    held_out_predictions,
    leading_metric,
    load_model,
    make_model,
    measure,
    save_model,
    save_predictions,
)
from dmkl.model.model import ARRAYS
from dmkl.problems import Formulation
from dmkl.report import write_report
from dmkl.report.parts.tuning import draw_tuning
from dmkl.run.context import RunContext
from dmkl.run.directory import KernelMetrics, Metrics, RunDirectory, ScoreRecord, Summary, TrainRecord, TuneRecord
from dmkl.run.prepare import TrainingInputs, make_formulation, prepare_kernels
from dmkl.run.report import read_run, score_record
from dmkl.runtime import Local
from dmkl.solvers import Fit, describe, solve
from dmkl.solvers.methods import find
from dmkl.stack import KernelStack, open_stack
from dmkl.tuning import named_candidates, refuse_unfit, tune

BASELINE = SolveConfig()  # baselines are solved with the default options
SCORE_KEYS = ("metrics", "average", "best_single")  # of a summary's score; the others are times
TRAIN_KEYS = ("gap", "objective", "rounds", "passes", "svm_calls")


@dataclass(frozen=True)
class RunResult:
    """The records of a run and its directory."""

    summary: Summary
    directory: RunDirectory
    finished: bool  # else the time was up, and the same command continues
    interrupted: bool  # whether it was up because somebody asked


def train_run(run: RunContext) -> RunResult:
    """Build (or take) the kernels, solve, save the model, score it and write the report."""
    formulation, solving = make_formulation(run.config), run.config.solve

    def check(labels: Labels) -> None:
        find(formulation, solving.method, solving.oracle)
        formulation.targets(labels)

    inputs = prepare_kernels(run, check)
    return finish(run, inputs, run.open_stack(), formulation)


def tune_run(run: RunContext) -> RunResult:
    """Choose by cross-validation on the training samples, then train the choice on all of them."""
    config, search, solving = run.config, run.config.tune, run.config.solve
    names = search.formulations or (config.formulation.name,)
    points = named_candidates(names, search.grid, {config.formulation.name: config.formulation.params})

    def check(labels: Labels) -> None:
        leading_metric(labels.task, search.metric)  # an unknown or unsuitable name is refused before any work
        refuse_unfit(points, labels, solving.method, solving.oracle)
        check_folds(labels, search.folds, search.repeats)

    inputs = prepare_kernels(run, check, fits=search.folds * search.repeats * len(points))
    store, runtime = inputs.store, run.runtime
    held = runtime.remote and store.computed  # by workers, but not before the tasks that compute kernels themselves
    if held:
        stack = open_stack(store, memory=run.memory.limit, runtime=Local(), backend="computed")
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
        warn=False,
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
    if held:
        stack = run.open_stack()
    return finish(run, inputs, stack, tuned.formulation, record)


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
    with deadline(run.deadline.left):
        return _finish(run, inputs, stack, formulation, tuned)


def _finish(
    run: RunContext, inputs: TrainingInputs, stack: KernelStack, formulation: Formulation, tuned: TuneRecord | None
) -> RunResult:
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
    finished = not (fit.out_of_time or stop_requested())
    if inputs.test is not None and inputs.test.labels is not None and not stop_requested():
        metric = run.config.tune.metric if tuned is not None else ""  # what a search was decided by leads its scores
        try:
            summary["score"] = _score(run, model, inputs.test, inputs.test.labels, metric)
            if finished and run.config.solve.baselines and len(inputs.store.bank) > 1:
                _add_baselines(summary["score"], run, inputs, stack, fit, metric)
        except Stopped:  # the model is saved; scores can wait
            finished = False
        if "score" in summary:
            run.listener.scored(summary["score"])
    for text in stack.news():
        run.observe(Note(text))
    directory.keep_timeline(run.runtime)
    contents = replace(read_run(directory), summary=dict(summary), finished=finished)
    write_report(directory.report, contents)
    if finished:  # an unfinished run can be continued with more time
        directory.finish(summary)
    run.listener.report_written(str(directory.report))
    return RunResult(summary, directory, finished, interrupted=not finished and stop_requested())


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
        warn=False,
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
        "rule": fit.rule,
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
        if alone.out_of_time:
            raise Stopped
        model = make_model(store, alone, kernels)
        return measure(model.decision(test, run.runtime), truth, metric)

    average: KernelMetrics = {"kernel": "", "metrics": metrics(list(range(store.s)))}
    single: list[KernelMetrics] = [
        {"kernel": kernel.name, "metrics": metrics([a])} for a, kernel in enumerate(store.bank.kernels)
    ]
    leading = leading_metric(truth.task, metric)
    scores["average"] = average
    scores["best_single"] = max(single, key=lambda found: leading.sign * found["metrics"][leading.name])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between the results of two runs, and changes of versions and machine, as sentences."""

    differences: list[str]
    changed: list[str]

    @property
    def same(self) -> bool:
        return not self.differences


def recorded(run: RunDirectory, settings: Settings) -> tuple[Config, int]:
    """The configuration of a finished run under the given settings, and its memory limit in bytes.

    The limit is repeated too: the batches of classes depend on it, and on them the last bits of sums.
    """
    if not run.scores.is_file():
        raise OutputError(f"{run.path} holds no finished run", "run the same dmkl train command again to finish it")
    config = parse_config(read_json(run.config), overrides=settings, source=f"run {run.path}")
    return config, int(read_json(run.manifest).get("memory", 0))


def compare(first: RunDirectory, second: RunDirectory) -> Comparison:
    """Compare data, kernels, model arrays (bit for bit), certificate and scores; list changed versions and machines."""
    before, after = read_json(first.manifest), read_json(second.manifest)
    differences = [
        f"the {what} changed since the first run"
        for what, key in (("data", "data"), ("kernels", "kernel_hash"))
        if before.get(key) != after.get(key)
    ]
    differences += _models(first, second) + _summaries(read_json(first.scores), read_json(second.scores))
    versions = {**before.get("versions", {}), "python": before.get("python")}
    now = {**after.get("versions", {}), "python": after.get("python")}
    changed = [f"{name} {versions[name]} -> {now.get(name)}" for name in versions if versions[name] != now.get(name)]
    places = [(key, before.get(key), after.get(key)) for key in ("host", "platform", "cpu", "threads", "memory")]
    changed += [f"{key} {old} -> {new}" for key, old, new in places if old != new]
    return Comparison(differences, changed)


def _models(first: RunDirectory, second: RunDirectory) -> list[str]:
    one, other = load_model(first.model), load_model(second.model)
    found = []
    for name in ARRAYS:
        a, b = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        if a.shape != b.shape:
            found.append(f"model {name}: shape {a.shape} before, {b.shape} now")
        elif a.tobytes() != b.tobytes():
            off = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
            found.append(f"model {name}: {int((a != b).sum())} of {a.size} values differ, by {off:.2g} at most")
    return found


def _summaries(before: Table, after: Table) -> list[str]:
    parts = [("tune", "formulation")] + [("train", key) for key in TRAIN_KEYS] + [("score", key) for key in SCORE_KEYS]
    values = [(key, *(finite(summary.get(part, {}).get(key)) for summary in (before, after))) for part, key in parts]
    return [f"{key}: {old} before, {new} now" for key, old, new in values if old != new]
