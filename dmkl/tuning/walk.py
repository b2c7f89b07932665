"""One path of one fold: fit after fit, each from where its neighbour ended, and each judged on the held-out samples."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmkl._util.files import make_folder, write_json
from dmkl._util.machine import Budget
from dmkl._util.types import Samples
from dmkl.data import Fold, Labels
from dmkl.model import score_like
from dmkl.runtime import Local
from dmkl.solvers import Fit, solve
from dmkl.stack import KernelStack, Source
from dmkl.stack.held import fits_here, held_here
from dmkl.tuning.choice import Score

_alone = threading.Lock()  # of a worker process: one path at a time has all its threads and memory


@dataclass(frozen=True)
class Walk:
    """A task: which points, in which order, on which fold, and how they are solved."""

    number: int  # of the fold
    fold: Fold
    points: tuple[tuple[int, Any], ...]
    labels: Labels
    options: dict[str, Any]  # of `solve`
    folder: Path | None  # where what is finished is kept
    deadline: float  # on the clock of time.time()

    def identity(self, stack: KernelStack) -> str:
        """What kept scores must agree on to be taken."""
        digest = hashlib.blake2b(self.fold.held.tobytes() + self.labels.values.tobytes(), digest_size=16)
        digest.update(stack.groups.tobytes())
        digest.update(repr((stack.identity, self.points, sorted(self.options.items()))).encode())
        return digest.hexdigest()


def scores_of(stack: KernelStack, walk: Walk) -> Iterator[Score]:
    """The scores of the path's points in order, those that are kept first; it ends early when time is over."""
    kept = _Kept(walk, walk.identity(stack) if walk.folder else "")
    yield from kept.scores
    done = len(kept.scores)
    if done == len(walk.points):
        return
    part, y = stack.restrict(walk.fold.kept), walk.labels.take(walk.fold.kept)
    start = None
    # the last point that was finished is loaded from its checkpoint, to start from
    for place in range(max(done - 1, 0), len(walk.points)):
        number, formulation = walk.points[place]
        left = walk.deadline - time.time()
        if left <= 0:
            return
        started = time.perf_counter()
        file = kept.checkpoint(place)
        start = solve(part, y, formulation, start=start, checkpoint=file, max_seconds=left, **walk.options)
        if start.out_of_time:
            return
        if place >= done:
            score = _judged(part, walk, number, start, started)
            kept.add(score)
            yield score


def scores_on_worker(stack: KernelStack, walk: Walk) -> list[Score]:
    """The same as a task of a cluster."""
    from dmkl.runtime.cluster import threads_here

    with _alone:
        stack.runtime, stack.memory = Local(threads_here()), budget_here()
        return list(scores_of(stack, walk))


def open_on_worker(source: Source, names: tuple[str, ...], groups: Samples) -> KernelStack:
    """The stack of a source, held by a worker if it fits; others get what it holds from there."""
    runtime, memory = Local(1), budget_here()
    if fits_here(source, memory):
        source = held_here(source, runtime)
    return KernelStack(source, names=names, groups=groups, runtime=runtime, memory=memory)


def budget_here() -> Budget:
    from dmkl.runtime.cluster import memory_here

    return Budget(memory_here())


def _judged(part: KernelStack, walk: Walk, number: int, fit: Fit, started: float) -> Score:
    weights = None if fit.per_kernel else fit.weights
    scores = part.reach(walk.fold.held, fit.coef_matrix, weights) + np.atleast_1d(fit.intercept)
    return Score(
        point=number,
        fold=walk.number,
        metrics=score_like(scores, walk.labels.take(walk.fold.held)),
        kernels=float((np.atleast_2d(fit.weights) > 0).sum(axis=1).mean()),
        passes=fit.passes + 1,
        svm_calls=fit.svm_calls,
        rounds=fit.rounds,
        gap=fit.worst_gap,
        converged=fit.converged,
        seconds=time.perf_counter() - started,
    )


class _Kept:
    """What a path has finished, in one small file, and the checkpoints of its last point and the one at hand."""

    def __init__(self, walk: Walk, identity: str) -> None:
        self._folder, self._identity = walk.folder, identity
        self._name = f"fold-{walk.number}-point-{walk.points[0][0]}"
        self.scores: list[Score] = []
        if self._folder is None:
            return
        make_folder(self._folder)
        try:
            found = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return
        if found["identity"] == identity:
            self.scores = [Score(**score) for score in found["scores"]]

    @property
    def _file(self) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._name}.json"

    def checkpoint(self, place: int) -> Path | None:
        return self._folder / f"{self._name}-{self._identity[:8]}-{place}.checkpoint" if self._folder else None

    def add(self, score: Score) -> None:
        self.scores.append(score)
        if self._folder is None:
            return
        kept = [dataclasses.asdict(score) for score in self.scores]
        write_json(self._file, {"identity": self._identity, "scores": kept})
        before = self.checkpoint(len(self.scores) - 2)
        assert before is not None
        for path in (before, before.with_name(f"{before.name}.previous")):
            path.unlink(missing_ok=True)
