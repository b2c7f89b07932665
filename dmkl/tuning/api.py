"""`tune`: cross-validation over formulations and their constants, on one stack."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dmkl.data import Labels, make_folds, make_labels
from dmkl.errors import ConfigError, DataError, DeadlineReached, SolverError
from dmkl.events import Observer, PointDone, ignore
from dmkl.runtime import Runtime
from dmkl.runtime.base import itself
from dmkl.solvers import describe
from dmkl.stack import KernelStack
from dmkl.tuning.choice import Score, Tuned, check_rule, choose, table_of
from dmkl.tuning.points import all_points, paths
from dmkl.tuning.walk import Walk, open_on_worker, scores_of, scores_on_worker


def tune(
    stack: KernelStack,
    y: Any,
    points: Iterable[Any],
    *,
    folds: int = 5,
    repeats: int = 1,
    rule: str = "one-se",
    apart: bool = False,
    seed: int = 0,
    tol: float = 1e-3,
    oracle: str = "smo",
    method: str = "",
    max_rounds: int = 100,
    max_seconds: float = np.inf,
    client: Any = None,
    runtime: Runtime | None = None,
    folder: Path | None = None,
    observer: Observer = ignore,
) -> Tuned:
    """Judge every point by its scores on held-out folds, and choose one by the rule 'one-se' or 'best'.

    `points` are formulations (`dmkl.grid` makes them), or formulation classes for what is usually worth trying. Each
    fold is the stack restricted to its samples. Its points of one kind are a path of warm starts, or with `apart` each
    is a path of its own; paths are tasks of a cluster (`client`), or walked one after the other here. With a `folder`
    every finished point is kept there, so that the same call goes on after it was cut short, by `max_seconds` too.
    """
    started = time.perf_counter()
    check_rule(rule)
    asked = list(points)
    if not asked:
        raise ConfigError("no points to tune over", "name some, e.g. dmkl.grid(dmkl.VSKL, q=(1, 2), C=(1, 10))")
    labels = y if isinstance(y, Labels) else make_labels(y, _task(asked, y))
    if len(labels) != stack.n:
        raise DataError(f"{len(labels)} labels for a stack of {stack.n} samples")
    cuts = make_folds(labels, folds, repeats=repeats, seed=seed)
    tried = all_points(asked, stack, labels)
    options = {"tol": tol, "oracle": oracle, "method": method, "seed": seed, "max_rounds": max_rounds}
    walks = [
        Walk(
            number,
            fold,
            tuple((i, tried[i]) for i in path),
            labels,
            options,
            folder.resolve() if folder else None,
            time.time() + max_seconds,
        )
        for path in ([[i] for i in range(len(tried))] if apart else paths(tried))
        for number, fold in enumerate(cuts)
    ]
    scores: list[Score] = []
    total = len(tried) * len(cuts)
    for score in _scores(stack, walks, _runtime(stack, client, runtime)):
        scores.append(score)
        counts = (score.passes, score.svm_calls, len(scores), total)
        observer(PointDone(score.fold, describe(tried[score.point]), score.value, *counts))
    if len(scores) < total:
        kept = "the same command with more time goes on" if folder else "give it more"
        raise DeadlineReached(f"out of time with {len(scores)} of {total} points of all folds", kept)
    rows = table_of(tried, scores, folds)
    best, chosen = choose(rows, rule)
    metric = next(iter(scores[0].metrics))
    return Tuned(rows, metric, folds, repeats, rule, best, chosen, time.perf_counter() - started)


def _task(asked: list[Any], y: Any) -> str:
    first = asked[0]
    return "auto" if isinstance(first, type | tuple) else str(first.task_of(y))


def _runtime(stack: KernelStack, client: Any, runtime: Runtime | None) -> Runtime:
    if client is None:
        return runtime or stack.runtime
    from dmkl.runtime.cluster import Cluster

    return Cluster(client)


def _scores(stack: KernelStack, walks: list[Walk], runtime: Runtime) -> Iterator[Score]:
    if not runtime.remote:
        for walk in walks:
            yield from scores_of(stack, walk)
        return
    portable = stack.source.portable
    if portable is not None:
        shared = runtime.hold(open_on_worker, portable, stack.names, stack.groups)
    elif stack.runtime.remote:
        raise SolverError("kernels that only the workers of a cluster hold cannot be tuned over", "store them first")
    else:
        shared = runtime.hold(itself, stack)
    for found in runtime.map(scores_on_worker, ((shared, walk) for walk in walks)):
        yield from found
