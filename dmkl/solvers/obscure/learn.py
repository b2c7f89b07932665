"""Stages 1 and 2 over epochs: where the learner is, so that it can stop in the middle of an epoch and go on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dmkl._util.types import Float64, Samples
from dmkl.events import Progress
from dmkl.solvers.obscure.asking import NOBODY, Answer, answer, asking, fits
from dmkl.solvers.obscure.loss import RowLoss
from dmkl.solvers.obscure.norm import PNorm
from dmkl.solvers.obscure.walk import COUNT, NUMBERS, PULL, SCALE, TIME, WEIGHT, walk
from dmkl.solvers.problem import Problem
from dmkl.stack import Source

ONLINE, PROXIMAL, EXACT = range(3)
STAGES = ("online", "stochastic", "exact")
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
    step: float  # of coefficients in stage 1: the paper's eta / q
    seen: Float64  # see `no_samples`

    @classmethod
    def start(cls, n: int, m: int, s: int, *, stage: int, step: float) -> Learner:
        numbers = np.zeros(NUMBERS)
        numbers[SCALE] = 1.0
        nothing = np.zeros((n, m)), np.zeros((n, m)), np.zeros(s), numbers
        return cls(stage, 0, 0, *nothing, np.inf, step, no_samples())

    @classmethod
    def of(cls, own: dict[str, NDArray[Any]], shape: tuple[int, int]) -> Learner:
        """The learner that a state keeps."""
        coef, ledger = (_dense(own, name, shape) for name in ("theta", "ledger"))
        stage, epoch, batch = (int(value) for value in own["place"])
        radius, step = (float(value) for value in own["constants"])
        kept = own["forms"].copy(), own["numbers"].copy()
        return cls(stage, epoch, batch, coef, ledger, *kept, radius, step, own["seen"].copy())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a state keeps it: coefficients sparsely."""
        return {
            "place": np.array([self.stage, self.epoch, self.batch]),
            "constants": np.array([self.radius, self.step]),
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


def learn(
    problem: Problem, source: Source, loss: RowLoss, norm: PNorm, lam: float, learner: Learner, *, ahead: bool
) -> None:
    """Go on in this epoch for a part of it. At its end `batch` is back at 0."""
    started = time.perf_counter()
    rng = np.random.default_rng([problem.seed, learner.stage, learner.epoch])
    batches = source.batches(rng)
    first = learner.batch
    before = sum(map(len, batches[:first]))
    part = _part(batches[first:])
    seen = 0
    with asking(problem.stack.runtime) as later:

        def ask(samples: Samples, before: Samples) -> Callable[[], Answer]:
            return later(answer, problem.stack, source, learner.coef, samples, before)

        asked = ask(part[0], NOBODY)
        for samples, following in itertools.zip_longest(part, part[1:]):
            told = asked()
            early = ahead and following is not None and fits(problem.stack, following, samples)
            if early:
                asked = ask(following, samples)
            _meet(loss, norm, lam, learner, told)
            if following is not None and not early:
                asked = ask(following, NOBODY)
            learner.batch += 1
            seen += len(samples)
            problem.observer(Progress(STAGES[learner.stage], before + seen, problem.n))
    if learner.batch == len(batches):
        learner.batch, learner.epoch = 0, learner.epoch + 1
        problem.stack.passes += 1
    learner.seen[learner.stage] += seen, time.perf_counter() - started


def _part(batches: list[Samples]) -> list[Samples]:
    """The batches of one step: as few as make a PART."""
    ends = np.cumsum([len(samples) for samples in batches])
    return batches[: int(np.searchsorted(ends, PART)) + 1]


def _meet(loss: RowLoss, norm: PNorm, lam: float, learner: Learner, told: Answer) -> None:
    """The samples of one batch, one by one."""
    samples = told.samples
    coef, ledger = learner.coef[samples], learner.ledger[samples]
    signs, labels = loss.Y[samples], loss.labels[samples]
    fixed = learner.step if learner.stage == ONLINE else 0.0
    constants = norm.q, lam, learner.radius, fixed
    G = told.scores(learner.coef)
    walk(told.K, G, signs, labels, coef, ledger, learner.forms, learner.numbers, *constants)
    learner.coef[samples], learner.ledger[samples] = coef, ledger


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
