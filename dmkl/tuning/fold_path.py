"""One path of candidates on one fold: every fit starts from its neighbour's solution and is scored on the held-out
samples."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmkl._util.files import make_folder, write_json
from dmkl._util.machine import Budget
from dmkl._util.stopping import Stopped, deadline, must_stop
from dmkl._util.types import Table
from dmkl.data import Fold, Labels
from dmkl.model import measure
from dmkl.problems import Formulation
from dmkl.runtime import Local
from dmkl.solvers import Fit, solve
from dmkl.stack import KernelStack
from dmkl.stack.tiles import fits_here, held_here
from dmkl.tuning.selection import FoldScore

_alone = threading.Lock()  # in a worker process one path at a time uses all threads and memory


@dataclass(frozen=True)
class FoldPath:
    """A task: the candidates of one path in their order, the fold, and the options of `solve`."""

    number: int  # of the fold
    fold: Fold
    points: tuple[tuple[int, Formulation], ...]  # with their numbers in the table
    labels: Labels
    metric: str
    options: Table  # of `solve`
    folder: Path | None  # where finished scores are kept
    deadline: float  # on the clock of time.time()

    def identity(self, stack: KernelStack) -> str:
        """A digest of everything that the scores depend on: kept scores with another digest are not used."""
        digest = hashlib.blake2b(self.fold.held.tobytes() + self.labels.values.tobytes(), digest_size=16)
        if stack.own_groups:
            digest.update(stack.groups.tobytes())
        digest.update(repr((stack.identity, self.points, sorted(self.options.items()), self.metric)).encode())
        return digest.hexdigest()


def scores_along(stack: KernelStack, path: FoldPath) -> Iterator[FoldScore]:
    """The scores of the path's points in order, kept ones first; fewer than all if the time is up."""
    kept = _KeptScores(path, path.identity(stack) if path.folder else "")
    yield from kept.scores
    done = len(kept.scores)
    if done == len(path.points):
        return
    part, y = stack.restrict(path.fold.kept), path.labels.take(path.fold.kept)
    start = None
    # the last finished point is loaded from its checkpoint, as the start of the next one
    for place in range(max(done - 1, 0), len(path.points)):
        number, formulation = path.points[place]
        left = path.deadline - time.time()
        if left <= 0 or must_stop():
            return
        started = time.perf_counter()
        file = kept.checkpoint(place)
        start = solve(part, y, formulation, start=start, checkpoint=file, max_seconds=left, warn=False, **path.options)
        if start.out_of_time:
            return
        if place >= done:
            try:
                with deadline(path.deadline - time.time()):
                    score = _score(part, path, number, start, started)
            except Stopped:
                return
            kept.add(score)
            yield score


def scores_on_worker(stack: KernelStack, path: FoldPath) -> list[FoldScore]:
    """`scores_along` as a task of a cluster."""
    from dmkl.runtime.dask import threads_here

    with _alone:
        stack.runtime, stack.memory = Local(threads_here()), budget_here()
        return list(scores_along(stack, path))


def open_on_worker(stack: KernelStack) -> KernelStack:
    """A stack over a portable source, its tiles held by this worker if they fit into its memory."""
    source, memory = stack.source, budget_here()
    if fits_here(source, memory):
        source = held_here(source, stack.runtime)
    return stack.over(source, memory=memory, backend=source.backend)


def budget_here() -> Budget:
    from dmkl.runtime.dask import memory_here

    return Budget(memory_here())


def _score(part: KernelStack, path: FoldPath, number: int, fit: Fit, started: float) -> FoldScore:
    weights = None if fit.per_kernel else fit.weights
    scores = part.reach(path.fold.held, fit.coef_matrix, weights) + np.atleast_1d(fit.intercept)
    return FoldScore(
        point=number,
        fold=path.number,
        metrics=measure(scores, path.labels.take(path.fold.held), path.metric),
        kernels=float((np.atleast_2d(fit.weights) > 0).sum(axis=1).mean()),
        passes=fit.passes + 1,
        svm_calls=fit.svm_calls,
        rounds=fit.rounds,
        gap=fit.worst_gap,
        converged=fit.converged or bool(fit.rule),
        seconds=time.perf_counter() - started,
    )


class _KeptScores:
    """The finished scores of a path in one small file, and the checkpoints of its last point and the current one."""

    def __init__(self, path: FoldPath, identity: str) -> None:
        self._folder, self._identity = path.folder, identity
        self._name = f"fold-{path.number}-point-{path.points[0][0]}"
        self.scores: list[FoldScore] = []
        if self._folder is None:
            return
        make_folder(self._folder)
        try:
            found = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return
        if found["identity"] == identity:
            self.scores = [FoldScore(**score) for score in found["scores"]]

    @property
    def _file(self) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._name}.json"

    def checkpoint(self, place: int) -> Path | None:
        return self._folder / f"{self._name}-{self._identity[:8]}-{place}.checkpoint" if self._folder else None

    def add(self, score: FoldScore) -> None:
        self.scores.append(score)
        if self._folder is None:
            return
        kept = [dataclasses.asdict(score) for score in self.scores]
        write_json(self._file, {"identity": self._identity, "scores": kept})
        before = self.checkpoint(len(self.scores) - 2)
        assert before is not None
        for path in (before, before.with_name(f"{before.name}.previous")):
            path.unlink(missing_ok=True)
