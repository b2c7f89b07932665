"""`tune`: cross-validation over formulations and their constants, on one stack.

The points are what a user names, a grid or single formulations, or the usual grid of each formulation.
"""

from __future__ import annotations

import dataclasses
import time
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dmkl._util.in_memory import in_memory
from dmkl._util.stopping import stop_requested
from dmkl.config import construct, refuse_unknown
from dmkl.data import Labels, make_folds, make_labels
from dmkl.errors import ConfigError, DataError, DeadlineReached, SolverError, did_you_mean
from dmkl.events import Observer, PointDone, ignore
from dmkl.model import leading_metric
from dmkl.problems import FORMULATIONS, Formulation
from dmkl.problems.base import Candidates, Constant, Values
from dmkl.runtime import Local, Runtime
from dmkl.solvers import describe, grid
from dmkl.solvers.methods import find
from dmkl.stack import KernelStack
from dmkl.tuning.fold_path import FoldPath, open_on_worker, scores_along, scores_on_worker
from dmkl.tuning.selection import FoldScore, Tuned, check_rule, choose, table_of

if TYPE_CHECKING:
    from distributed import Client

SEARCHED = ("C", "lam", "q", "p")  # constants that a formulation's own grid is about
Tables = tuple[type[Formulation], Candidates]  # a formulation with values of some of its constants
Candidate = Formulation | type[Formulation] | Tables


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
    warn: bool = True,
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
    warn : bool, default True
        Whether to warn of fits that did not reach `tol`.
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

    Warns
    -----
    ConvergenceWarning
        If fits did not reach `tol`: one for all of them, with the largest gap.

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
    y = in_memory(y, "y")
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
        if stop_requested():
            raise KeyboardInterrupt
        hint = "repeat the same call with more time to continue" if folder else "allow more time"
        raise DeadlineReached(f"out of time with {len(scores)} of {total} points of all folds", hint)
    rows = table_of(tried, scores, folds)
    unsolved = [score for score in scores if not score.converged]
    if warn and unsolved:
        _warn(unsolved, total, tol)
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


def _warn(unsolved: Sequence[FoldScore], total: int, tol: float) -> None:
    from sklearn.exceptions import ConvergenceWarning

    largest = max(score.gap for score in unsolved)
    warnings.warn(
        f"{len(unsolved)} of {total} fits did not reach tol = {tol:g}, the largest gap is {largest:.1e}. "
        "Allow more max_rounds, try another method or a larger tol, or leave out extreme constants.",
        ConvergenceWarning,
        stacklevel=3,
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
        there = stack.over(portable, runtime=Local(1), backend=portable.backend)
        shared = runtime.hold(open_on_worker, there)
    elif stack.runtime.remote:
        raise SolverError("kernels that only the workers of a cluster hold cannot be tuned over", "store them first")
    else:
        shared = runtime.share(stack)
    for found in runtime.map(scores_on_worker, ((shared, task) for task in tasks)):
        yield from found


def named_candidates(
    names: Sequence[str], values: Candidates, fixed: Mapping[str, Mapping[str, Constant]]
) -> list[Tables]:
    """Formulations with the values that a user names for their constants, checked before any work.

    Parameters
    ----------
    names : sequence of str
        Names in `FORMULATIONS`.
    values : mapping of str to sequences
        Values by constant; a constant goes to every formulation that has it.
    fixed : mapping of str to mappings
        Constants of single formulations, as they are for training. Of those that are searched (`SEARCHED`) only the
        ones in `values` count.

    Returns
    -------
    list of pairs
        A formulation class and the values of its constants.

    Raises
    ------
    ConfigError
        If no formulation has a constant of that name, or if a value is not allowed.
    """
    classes = [FORMULATIONS[name] for name in names]
    known = sorted({constant for cls in classes for constant in constant_names(cls)})
    for constant, tried in values.items():
        if constant not in known:
            raise ConfigError(f"no formulation here has a constant '{constant}'", did_you_mean(constant, known))
        if isinstance(tried, str) or not isinstance(tried, Sequence) or not tried:
            raise ConfigError(
                f"the values of {constant} should be a list, not {tried!r}",
                f"write {constant} = [1, 10], or -g {constant}=1,10",
            )
    found: list[Tables] = []
    for name, cls in zip(names, classes, strict=True):
        own = fixed.get(name, {})
        refuse_unknown(own, constant_names(cls), "[formulation]")
        chosen: Values = {constant: [value] for constant, value in own.items() if constant not in SEARCHED}
        chosen |= {constant: list(tried) for constant, tried in values.items() if constant in constant_names(cls)}
        found.append((cls, _checked(name, cls, chosen)))
    return found


def refuse_unfit(candidates: Iterable[Tables], labels: Labels, method: str, oracle: str) -> None:
    """Raise an error before any work if one of the formulations is not for these labels or targets, or has no such
    method or oracle."""
    for cls, values in candidates:
        first = grid(cls, **cls.usual_values(labels, values))[0]
        first.targets(labels)
        find(first, method, oracle)


def all_candidates(asked: Iterable[Candidate], stack: KernelStack, labels: Labels) -> list[Formulation]:
    """Formulations without repetition; a class, with or without values, stands for its usual grid on these data."""
    found: list[Formulation] = []
    for one in asked:
        if isinstance(one, Formulation):
            found.append(one)
        else:
            cls, values = one if isinstance(one, tuple) else (one, {})
            for table in cls.usual_grids(stack, labels, values):
                found += grid(cls, **table)
    return list(dict.fromkeys(found))


def paths(candidates: Sequence[Formulation]) -> list[list[int]]:
    """The numbers of the candidates in paths of warm starts.

    Candidates of one path differ only in numbers: the solution for another loss, mode or norm is no useful start.
    """
    kind = [_kind(candidate) for candidate in candidates]
    return [[i for i, other in enumerate(kind) if other == one] for one in dict.fromkeys(kind)]


def constant_names(cls: type[Formulation]) -> list[str]:
    """The constants of a formulation, in the order of its definition."""
    return [field.name for field in dataclasses.fields(cls)]


def _kind(candidate: Formulation) -> tuple[object, ...]:
    values = (getattr(candidate, name) for name in constant_names(type(candidate)))
    return type(candidate), *(None if type(value) in (int, float) else value for value in values)


def _checked(name: str, cls: type[Formulation], values: Candidates) -> Values:
    """The values converted as the formulation expects them (norm = 2 becomes "2"), each checked with the first values
    of the other constants."""
    hints = typing.get_type_hints(cls)
    others = {} if "lam" in values else {constant: tried[0] for constant, tried in cls.usual.items()}
    others |= {constant: tried[0] for constant, tried in values.items()}

    def converted(constant: str, value: Constant) -> Constant:
        table = {**others, constant: value}
        texts = {key: str(one) if hints.get(key) is str else one for key, one in table.items()}
        checked: Constant = getattr(construct(cls, texts, f"the grid of {name}:"), constant)
        return checked

    return {constant: [converted(constant, value) for value in tried] for constant, tried in values.items()}
