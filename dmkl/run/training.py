"""One training run, from configuration to report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dmkl._util.machine import Budget, peak_resident
from dmkl._util.units import parse_seconds
from dmkl.config import Config, SolveConfig
from dmkl.data import Dataset, Labels
from dmkl.errors import ConfigError
from dmkl.events import Event, Note, RoundDone
from dmkl.model import (
    Model,
    calibrate,
    leading_metric,
    make_model,
    measure,
    predictions,
    save_model,
    save_predictions,
)
from dmkl.oracles import ORACLES
from dmkl.report import write_report
from dmkl.run.prepare import build, formulation_of, held_out, on_the_fly, prepare
from dmkl.run.reporting import read_run, score_facts
from dmkl.run.rundir import RunDirectory
from dmkl.runtime import Runtime
from dmkl.solvers import Fit, describe, solve
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore


@dataclass(frozen=True)
class Trained:
    """What a finished run says about itself."""

    summary: dict[str, Any]
    run: RunDirectory


BASELINE = SolveConfig()  # baselines need no more than the usual tolerance
Say = Callable[[str, dict[str, Any]], None]  # a stage that has just ended ('kernels', 'train' ...) and its facts


@dataclass(frozen=True)
class Begun:
    """A run whose kernels are there."""

    run: RunDirectory
    store: KernelStore
    test: Dataset | None
    observer: Callable[[Event], None]
    facts: dict[str, Any]  # of the kernels


def train(
    config: Config,
    out: Path,
    runtime: Runtime,
    budget: Budget,
    *,
    store: KernelStore | None = None,
    observer: Callable[[Event], None],
    say: Say,
) -> Trained:
    """Build (or take) the kernels, solve, save the model, score it, write the report."""
    formulation = formulation_of(config)
    begun = begin(config, out, runtime, budget, store=store, observer=observer, say=say, check=formulation.targets)
    stack = open_stack(begun.store.path, memory=budget.limit, runtime=runtime)
    return complete(begun, stack, formulation, config, say)


def begin(
    config: Config,
    out: Path,
    runtime: Runtime,
    budget: Budget,
    *,
    store: KernelStore | None,
    observer: Callable[[Event], None],
    say: Say,
    check: Callable[[Labels], object],
    fits: int = 1,
) -> Begun:
    """Claim the run directory and have the kernels, for as many fits; `check` refuses labels before there is any."""
    run = RunDirectory(out)
    ORACLES[config.solve.oracle]  # an unknown name is refused before any work

    def observed(event: Event) -> None:
        run.log(event)
        if isinstance(event, RoundDone):
            run.keep_timeline(runtime, seldom=True)
        observer(event)

    run.check(config)
    started = time.perf_counter()
    prepared = prepare(config) if store is None else None
    labels = store.labels if store is not None else prepared.train.labels if prepared else None
    if labels is not None:
        check(labels)
    path = _store_path(config, run)
    computed = prepared is not None and on_the_fly(prepared, config, path, fits)
    if prepared is not None and path.exists():
        KernelStore(path).check_same(prepared.bank, prepared.train, computed)
    if run.claim(config):
        observed(Note(f"going on with the unfinished run in {out}"))
    for text in prepared.notes if prepared else []:
        observed(Note(text))
    if store is None:
        assert prepared is not None
        store = build(prepared, config, path, runtime, observed, computed=computed)
    test = prepared.test if prepared else held_out(config, store)
    run.write_manifest(
        origins=dict(config.origins),
        data=store.data_hash,
        store=str(store.path),
        seed=config.solve.seed,
        threads=runtime.workers,
        memory=budget.limit,
        kernel_hash=store.bank.fingerprint(),
        kernels=store.bank.recipes(),
    )
    kernels = _kernel_facts(store, time.perf_counter() - started)
    say("kernels", kernels)
    if store.labels is None:
        raise ConfigError(f"{store.path} holds no labels to train on")
    return Begun(run, store, test, observed, kernels)


def complete(
    begun: Begun,
    stack: KernelStack,
    formulation: Any,
    config: Config,
    say: Say,
    *,
    facts: dict[str, Any] | None = None,
) -> Trained:
    """Solve on all training samples, save the model, score it, write the report; `facts` are of stages before."""
    run, store, test, runtime = begun.run, begun.store, begun.test, stack.runtime
    started = time.perf_counter()
    stack.observer = begun.observer
    fit = _solve(stack, store, formulation, config, begun.observer, run.checkpoint)
    model = make_model(store, fit)
    save_model(run.model, model)
    run.forget_predictions()
    trained = _train_facts(fit, stack, time.perf_counter() - started)
    say("train", trained)
    summary = {"kernels": begun.facts, **(facts or {}), "train": trained}
    if test is not None and test.labels is not None:
        scores = _score(model, test, runtime, run)
        if config.solve.baselines and len(store.bank) > 1:
            scores |= _baselines(stack, store, test, fit, config, runtime)
        summary["score"] = scores
        say("score", scores)
    for text in stack.news():
        begun.observer(Note(text))
    run.keep_timeline(runtime)
    write_report(run.report, replace(read_run(run), summary=summary, finished=not fit.out_of_time))
    if not fit.out_of_time:  # else the same command, with more time, goes on
        run.finish(summary)
    say("report", {"path": str(run.report)})
    return Trained(summary, run)


def _store_path(config: Config, run: RunDirectory) -> Path:
    return Path(config.run.store) if config.run.store else run.store


def _solve(
    stack: KernelStack,
    store: KernelStore,
    formulation: Any,
    config: Config,
    observer: Callable[[Event], None],
    checkpoint: Path | None,
) -> Fit:
    solving = config.solve
    assert store.labels is not None  # `begin` refuses a store without
    return solve(
        stack,
        store.labels,
        formulation,
        tol=solving.tol,
        oracle=solving.oracle,
        method=solving.method,
        seed=solving.seed,
        max_rounds=solving.max_rounds,
        max_seconds=parse_seconds(solving.max_time) if solving.max_time else np.inf,
        checkpoint=checkpoint,
        observer=observer,
    )


def _kernel_facts(store: KernelStore, seconds: float) -> dict[str, Any]:
    return {
        "kernels": store.s,
        "views": len({kernel.view for kernel in store.bank.kernels}),
        "n": store.n,
        "bytes": store.nbytes,
        "computed": store.computed,
        "store": str(store.path),
        "seconds": seconds,
    }


def _train_facts(fit: Fit, stack: KernelStack, seconds: float) -> dict[str, Any]:
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


def _score(model: Model, test: Dataset, runtime: Runtime, run: RunDirectory) -> dict[str, Any]:
    """Facts about the held-out samples; their scores are kept, and so is what makes probabilities of scores."""
    started = time.perf_counter()
    assert test.labels is not None
    scores = model.decision(test, runtime)
    kept = predictions(model, test, scores, runtime)
    save_predictions(run.predictions, kept)
    if model.task != "regression":
        calibrate(scores, test.labels).save(run.calibration)
    return {**score_facts(model, kept), "seconds": time.perf_counter() - started}


def _baselines(
    stack: KernelStack, store: KernelStore, test: Dataset, fit: Fit, config: Config, runtime: Runtime
) -> dict[str, Any]:
    """What simpler answers score on the test samples: the average kernel and the best kernel alone."""
    assert test.labels is not None
    simple = fit.formulation.baseline(fit.weights)
    results = {}
    for name, kernels in [("", list(range(store.s))), *((k.name, [a]) for a, k in enumerate(store.bank.kernels))]:
        alone = _solve(stack.choose(kernels), store, simple, replace(config, solve=BASELINE), lambda event: None, None)
        model = make_model(store, alone, kernels)
        results[name] = measure(model.decision(test, runtime), test.labels)
    average = {"kernel": "", "metrics": results.pop("")}
    leading = leading_metric(test.labels.task)
    best = max(results, key=lambda name: leading.sign * results[name][leading.name])
    return {"average": average, "best_single": {"kernel": best, "metrics": results[best]}}
