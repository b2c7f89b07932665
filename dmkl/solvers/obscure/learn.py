"""Stages 1 and 2 over epochs: where the learner is, so that it can stop in the middle of an epoch and go on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dmkl.events import Progress
from dmkl.solvers.obscure.loss import RowLoss
from dmkl.solvers.obscure.norm import PNorm
from dmkl.solvers.obscure.walk import COUNT, NUMBERS, PULL, SCALE, TIME, WEIGHT, walk
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import Float64
from dmkl.stack.rowsource import RowSource, Samples

ONLINE, PROXIMAL, EXACT = range(3)
STAGES = ("online", "stochastic", "exact")
SMALL = 1 << 20  # kernel values of a batch that threads are not worth starting for
PART = 8192  # samples in one step at most: what is lost when a run is killed
PARTS = ("data", "indices", "indptr")


def no_samples() -> Float64:
    """How many samples each stage has looked at, and in how many seconds."""
    return np.zeros((len(STAGES), 2))


@dataclass
class Learner:
    """theta / q = scale * coef, and everything that the next sample's step depends on."""

    stage: int
    epoch: int  # of this stage, from 0
    batch: int  # of this epoch
    coef: Float64  # (n, m), rows of zeros but for samples that ever erred
    ledger: Float64
    forms: Float64  # of coef
    numbers: Float64  # see `walk.py`
    radius: float
    eta: float
    seen: Float64  # see `no_samples`

    @classmethod
    def start(cls, n: int, m: int, s: int, *, stage: int, eta: float) -> Learner:
        numbers = np.zeros(NUMBERS)
        numbers[SCALE] = 1.0
        nothing = np.zeros((n, m)), np.zeros((n, m)), np.zeros(s), numbers
        return cls(stage, 0, 0, *nothing, np.inf, eta, no_samples())

    @classmethod
    def of(cls, own: dict[str, NDArray[Any]], shape: tuple[int, int]) -> Learner:
        """The learner that a state keeps."""
        coef, ledger = (_dense(own, name, shape) for name in ("theta", "ledger"))
        stage, epoch, batch = (int(value) for value in own["place"])
        radius, eta = (float(value) for value in own["constants"])
        kept = own["forms"].copy(), own["numbers"].copy()
        return cls(stage, epoch, batch, coef, ledger, *kept, radius, eta, own["seen"].copy())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a state keeps it: coefficients sparsely."""
        return {
            "place": np.array([self.stage, self.epoch, self.batch]),
            "constants": np.array([self.radius, self.eta]),
            "forms": self.forms,
            "numbers": self.numbers,
            "seen": self.seen,
            **_sparse("theta", self.coef),
            **_sparse("ledger", self.ledger),
        }

    def enter(self, stage: int, radius: float = np.inf) -> None:
        """Begin a stage where the one before ended."""
        self.stage, self.epoch, self.batch, self.radius = stage, 0, 0, radius
        self.numbers[[TIME, PULL]] = 0.0

    def average(self) -> Float64:
        """The mean of theta / q over the samples of this epoch."""
        return np.asarray((self.numbers[WEIGHT] * self.coef - self.ledger) / max(self.numbers[COUNT], 1.0))

    def fold(self) -> None:
        """Put the scale into the coefficients and begin a new average: the end of an epoch."""
        scale = float(self.numbers[SCALE])
        self.coef *= scale
        self.forms *= scale * scale
        self.ledger[:] = 0.0
        self.numbers[[SCALE, WEIGHT, COUNT]] = 1.0, 0.0, 0.0

    @property
    def last(self) -> Float64:
        return np.asarray(self.numbers[SCALE] * self.coef)


def learn(problem: Problem, source: RowSource, loss: RowLoss, norm: PNorm, lam: float, learner: Learner) -> None:
    """Go on in this epoch for a part of it. At its end `batch` is back at 0."""
    started = time.perf_counter()
    rng = np.random.default_rng([problem.seed, learner.stage, learner.epoch])
    batches = source.batches(problem.n, rng)
    seen, first = 0, learner.batch
    total = sum(map(len, batches[:first]))
    for samples in batches[first:]:
        _meet(problem, source, loss, norm, lam, learner, samples)
        learner.batch += 1
        seen += len(samples)
        problem.observer(Progress(STAGES[learner.stage], total + seen, problem.n))
        if seen >= PART:
            break
    if learner.batch == len(batches):
        learner.batch, learner.epoch = 0, learner.epoch + 1
        problem.stack.passes += 1
    learner.seen[learner.stage] += seen, time.perf_counter() - started


def _meet(
    problem: Problem, source: RowSource, loss: RowLoss, norm: PNorm, lam: float, learner: Learner, samples: Samples
) -> None:
    """One batch: its scores under the coefficients so far by all workers, then its samples one by one."""
    support = np.flatnonzero(learner.coef.any(axis=1))
    pieces, chunks = source.pieces(samples), source.chunks(support) if len(support) else []

    def tasks() -> Iterator[tuple[Any, ...]]:
        for rows in pieces:
            yield source, rows, samples, None
            yield from ((source, rows, columns, learner.coef[columns]) for columns in chunks)

    small = len(samples) * (len(support) + len(samples)) * problem.stack.s <= SMALL
    answers = iter(itertools.starmap(_task, tasks()) if small else problem.stack.runtime.map(_task, tasks()))
    K = np.empty((problem.stack.s, len(samples), len(samples)), problem.stack.dtype)
    G = np.zeros((problem.stack.s, len(samples), loss.Y.shape[1]))
    start = 0
    for rows in pieces:
        here = slice(start, start + len(rows))
        K[:, here] = next(answers)
        for _ in chunks:
            G[:, here] += next(answers)
        start += len(rows)
    for _ in answers:  # lets the runtime finish
        pass
    coef, ledger = learner.coef[samples], learner.ledger[samples]
    signs, labels = loss.Y[samples], loss.labels[samples]
    eta = learner.eta if learner.stage == ONLINE else 0.0
    constants = norm.q, lam, learner.radius, eta
    walk(K, G, signs, labels, coef, ledger, learner.forms, learner.numbers, *constants)
    learner.coef[samples], learner.ledger[samples] = coef, ledger


def _task(source: RowSource, rows: Samples, columns: Samples, coef: Float64 | None) -> NDArray[Any]:
    """Kernel values, or the scores that coefficients of some columns give."""
    values = source.cross(rows, columns)
    return values if coef is None else np.matmul(values, coef.astype(values.dtype))


def _sparse(name: str, values: Float64) -> dict[str, NDArray[Any]]:
    kept = csr_array(values)
    return {f"{name}.{part}": getattr(kept, part) for part in PARTS}


def _dense(own: dict[str, NDArray[Any]], name: str, shape: tuple[int, int]) -> Float64:
    parts = tuple(own[f"{name}.{part}"] for part in PARTS)
    return np.asarray(csr_array(parts, shape=shape).toarray())


def point_arrays(B: Float64) -> dict[str, NDArray[Any]]:
    """A dual point as a state keeps it."""
    return _sparse("point", B)


def point_of(own: dict[str, NDArray[Any]], shape: tuple[int, int]) -> Float64:
    return _dense(own, "point", shape)
