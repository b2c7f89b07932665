"""`tune`: cross-validation over formulations and their constants, on one stack."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dmkl.data import Labels, make_folds, make_labels
from dmkl.errors import ConfigError, DataError, DeadlineReached, SolverError
from dmkl.events import Observer, PointDone, ignore
from dmkl.model import leading_metric
from dmkl.runtime import Local, Runtime
from dmkl.runtime.base import itself
from dmkl.solvers import describe
from dmkl.stack import KernelStack
from dmkl.tuning.candidates import Candidate, all_candidates, paths
from dmkl.tuning.fold_path import FoldPath, open_on_worker, scores_along, scores_on_worker
from dmkl.tuning.selection import FoldScore, Tuned, check_rule, choose, table_of

if TYPE_CHECKING:
    from distributed import Client


def tune(
    stack: KernelStack,
    y: Labels | ArrayLike,
    points: Iterable[Candidate],
    *,
    folds: int = 5,
    repeats: int = 1,
    rule: str = "one-se",
    metric: str = "",
    apart: bool = False,
    seed: int = 0,
    tol: float = 1e-3,
    oracle: str = "smo",
    method: str = "",
    max_rounds: int = 100,
    max_seconds: float = np.inf,
    client: Client | None = None,
    runtime: Runtime | None = None,
    folder: str | Path | None = None,
    observer: Observer = ignore,
) -> Tuned:
    """Choose a formulation and its constants by cross-validation.

    Every fold is the stack restricted to its samples, so no kernel value is computed twice. Points that differ only in
    numbers form a path: each fit starts from the solution of its neighbour.

    Parameters
    ----------
    stack : KernelStack
        The kernels, s of them over n samples.
    y : array of shape (n,) or (n, m), or Labels
        Classes, an indicator matrix of m labels, or real targets.
    points : iterable
        What to try: formulations (`dmkl.grid` makes them), formulation classes for their usual constants, or pairs of a
        class and a dict of values for some of its constants.
    folds : int, default 5
        Number of folds.
    repeats : int, default 1
        How often the samples are divided into folds, each time differently.
    rule : {"one-se", "best"}, default "one-se"
        "best" chooses the point with the best mean score, "one-se" the simplest point within one standard error of it:
        the one with the fewest kernels, then with the strongest regularisation.
    metric : str, default ""
        The metric that decides, a name in `dmkl.model.METRICS`; "" stands for accuracy with classes, the mean average
        precision with several labels a sample, and r2 with real targets.
    apart : bool, default False
        Solve every point of every fold as a separate task without a warm start. It costs more passes and occupies
        more workers.
    seed : int, default 0
        Seed of the folds and of randomised solvers.
    tol, oracle, method, max_rounds
        As in `dmkl.solve`.
    max_seconds : float, default inf
        Time limit of the whole search.
    client : distributed.Client, optional
        Where the paths run as tasks; by default they run here one after the other.
    runtime : Runtime, optional
        The same for a runtime that is open already.
    folder : path, optional
        Where finished points are kept. The same call with the same folder continues after an interruption.
    observer : callable, optional
        Receives a `PointDone` event for every point of every fold.

    Returns
    -------
    Tuned
        The table of all points; `formulation` is the one that was chosen.

    Raises
    ------
    ConfigError
        If there is no point, or if the rule or the metric is unknown or the metric does not fit the labels.
    DataError
        If the labels do not fit the stack or are too few for the folds.
    DeadlineReached
        If `max_seconds` passed before every point was scored on every fold.
    SolverError
        If no point has a score on every fold.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> stack = dmkl.KernelStack.from_array(np.stack([np.outer(x, x) for x in X.T]))
    >>> found = dmkl.tune(stack, X[:, 0] > 0, dmkl.grid(dmkl.L1MKL, C=(0.1, 1.0)), metric="roc_auc", folds=3)
    >>> found.metric, len(found.rows)
    ('roc_auc', 2)
    >>> bool(found.rows[found.best].mean > 0.9)
    True
    """
    started = time.perf_counter()
    check_rule(rule)
    asked = list(points)
    if not asked:
        raise ConfigError("there are no points to try", "name some, e.g. dmkl.grid(dmkl.VSKL, q=(1, 2), C=(1, 10))")
    labels = y if isinstance(y, Labels) else make_labels(y, _task(asked[0], y))
    leading = leading_metric(labels.task, metric)
    if len(labels) != stack.n:
        raise DataError(f"{len(labels)} labels for a stack of {stack.n} samples")
    cuts = make_folds(labels, folds, repeats=repeats, seed=seed)
    tried = all_candidates(asked, stack, labels)
    tasks = [
        FoldPath(
            number,
            fold,
            tuple((i, tried[i]) for i in path),
            labels,
            leading.name,
            {"tol": tol, "oracle": oracle, "method": method, "seed": seed, "max_rounds": max_rounds},
            Path(folder).resolve() if folder else None,
            time.time() + max_seconds,
        )
        for path in ([[i] for i in range(len(tried))] if apart else paths(tried))
        for number, fold in enumerate(cuts)
    ]
    scores: list[FoldScore] = []
    total = len(tried) * len(cuts)
    for score in _scores(stack, tasks, _runtime(stack, client, runtime)):
        scores.append(score)
        counts = (score.passes, score.svm_calls, len(scores), total)
        observer(PointDone(score.fold, describe(tried[score.point]), score.value, *counts))
    if len(scores) < total:
        hint = "repeat the same call with more time to continue" if folder else "allow more time"
        raise DeadlineReached(f"out of time with {len(scores)} of {total} points of all folds", hint)
    rows = table_of(tried, scores, folds)
    best, chosen = choose(rows, rule, larger_is_better=leading.larger_is_better)
    return Tuned(
        rows=rows,
        metric=leading.name,
        folds=folds,
        repeats=repeats,
        rule=rule,
        best=best,
        chosen=chosen,
        seconds=time.perf_counter() - started,
        larger_is_better=leading.larger_is_better,
    )


def _task(first: Candidate, y: ArrayLike) -> str:
    return "auto" if isinstance(first, type | tuple) else first.task_of(y)


def _runtime(stack: KernelStack, client: Client | None, runtime: Runtime | None) -> Runtime:
    if client is None:
        return runtime or stack.runtime
    from dmkl.runtime.dask import DaskRuntime

    return DaskRuntime(client)


def _scores(stack: KernelStack, tasks: Sequence[FoldPath], runtime: Runtime) -> Iterator[FoldScore]:
    if not runtime.remote:
        for task in tasks:
            yield from scores_along(stack, task)
        return
    portable = stack.source.portable
    if portable is not None:
        shared = runtime.hold(open_on_worker, stack.over(portable, runtime=Local(1), backend=portable.backend))
    elif stack.runtime.remote:
        raise SolverError("kernels that only the workers of a cluster hold cannot be tuned over", "store them first")
    else:
        shared = runtime.hold(itself, stack)
    for found in runtime.map(scores_on_worker, ((shared, task) for task in tasks)):
        yield from found
