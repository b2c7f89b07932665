"""The three stages of OBSCURE as one algorithm over a state: parts of epochs, certificates seldom, exact rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Float64, Mask, Samples
from dmkl.errors import ConfigError
from dmkl.events import Note
from dmkl.runtime.base import one_blas_thread
from dmkl.solvers.columns import no_columns, with_columns
from dmkl.solvers.obscure.block import Block, open_block
from dmkl.solvers.obscure.exact import solve_exact
from dmkl.solvers.obscure.formulation import Obscure
from dmkl.solvers.obscure.judge import Judged, judge, scaled, scores_of
from dmkl.solvers.obscure.learn import (
    EXACT,
    ONLINE,
    PROXIMAL,
    STAGES,
    Learner,
    learn,
    no_samples,
    point_arrays,
    point_of,
)
from dmkl.solvers.obscure.loss import RowLoss
from dmkl.solvers.obscure.norm import PNorm
from dmkl.solvers.obscure.walk import COUNT
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import ArraysState, MethodState, State, kept
from dmkl.solvers.working_sets import whole

ONLINE_STEP = 16.0  # of stage 1, in units of 1 / L^2
DIAGONALS = 256  # samples that the online step is chosen by
FEWEST = 1000  # samples of the first working set, if so many matter, when nothing is known of them
FOREVER = 10**9
LARGEST_SHARE = 0.5  # of all samples, when stages 1 and 2 know something
NEAR = 1.1  # margins below this are taken along with those below 1
HALF, EARLY = 0.5, 0.1  # shares of the tolerance, and of the gap so far, that a working set is solved to
WHOLE_UP_TO = 4000  # samples of an array, which has all kernels at hand, that are one working set


@dataclass(frozen=True)
class Plan:
    """How many epochs of stages 1 and 2, whether stage 2 is projected with the adaptive rate, and whether 3 follows."""

    online: int
    epochs: int
    projected: bool = True
    exact: bool = False


METHODS: Registry[Plan] = Registry("method")
METHODS.register("obscure", Plan(online=-1, epochs=-1, exact=True))
METHODS.register("stochastic", Plan(online=-1, epochs=FOREVER))
METHODS.register("online", Plan(online=FOREVER, epochs=0))
METHODS.register("pegasos", Plan(online=0, epochs=FOREVER, projected=False))
METHODS.register("exact", Plan(online=0, epochs=0, exact=True))


def build(formulation: Obscure, problem: Problem) -> Stages:
    """The stages of the problem's method."""
    problem.stack.require_semidefinite("Obscure")
    plan = METHODS[problem.method]
    multiclass = formulation.loss == "multiclass"
    if multiclass and problem.m > 1 and not ((problem.Y > 0).sum(axis=1) == 1).all():
        raise ConfigError("the multiclass loss needs one class a sample", 'use loss = "hinge" for several labels')
    lam = 1.0 / (formulation.C * problem.n) if formulation.C is not None else formulation.lam
    assert lam is not None  # one of the two is given
    if multiclass and problem.m == 1:
        lam = lam / 2  # w_1 = -w_0: ||w||^2 = 1/2 ||w_1 - w_0||^2, and the column of scores is f_1 - f_0
    plan = replace(
        plan,
        online=formulation.online if plan.online < 0 else plan.online,
        epochs=formulation.epochs if plan.epochs < 0 else plan.epochs,
    )
    return Stages(problem, plan, formulation.p, lam, multiclass, formulation.eta, ahead=formulation.ahead)


class Stages:
    """One step is a part of an epoch, or one working set solved and certified."""

    own_type: ClassVar[type[MethodState]] = ArraysState

    def __init__(
        self, problem: Problem, plan: Plan, p: float, lam: float, multiclass: bool, eta: float, *, ahead: bool
    ) -> None:
        self._plan, self._lam, self._eta, self._ahead = plan, lam, eta, ahead
        self._norm, self._loss = PNorm(p), RowLoss.of(problem.Y, multiclass, 1.0 / (lam * problem.n))
        self._source = problem.stack.source.on_demand
        self._block: tuple[Samples, Block] | None = None  # asked for again after a restart

    def init(self, problem: Problem) -> State:
        n, m, s = problem.n, problem.m, problem.stack.s
        state = State.first(self._norm.weights(np.ones(s)), np.zeros((n, m), dtype=bool), bounds=1)
        if problem.start is not None:
            return self._into_exact(problem, state, self._loss.nearest(problem.start.coef.toarray()), no_samples())
        first = ONLINE if self._plan.online else PROXIMAL if self._plan.epochs else EXACT
        if first == EXACT:
            return self._into_exact(problem, state, np.zeros((n, m)), no_samples())
        learner = Learner.start(n, m, s, stage=first, step=self._online_step(problem))
        return replace(state, own=ArraysState(learner.arrays()))

    def _online_step(self, problem: Problem) -> float:
        """eta / q: coefficients are theta / q. The default is eta = 16 / L^2, L the norm of a typical z: by Theorem 4
        there are at most q (2 / eta + L^2) ||v||^2 updates, so smaller steps spend epochs on growing ||w||, and larger
        ones end no sooner."""
        if self._eta:
            return self._eta / self._norm.q
        some = np.linspace(0, problem.n - 1, min(DIAGONALS, problem.n)).astype(np.int64)
        own = self._source.cross(some, some).diagonal(axis1=1, axis2=2).mean(axis=1, dtype=np.float64)
        largest = (2.0 if self._loss.multiclass else 1.0) * self._norm.dual(own) ** 2
        return ONLINE_STEP / (self._norm.q * max(largest, 1e-300))

    def step(self, problem: Problem, state: State) -> State:
        with one_blas_thread():  # once for all the small questions of a step
            return self._exact(problem, state) if "place" not in kept(state) else self._learn(problem, state)

    def _learn(self, problem: Problem, state: State) -> State:
        learner = Learner.of(kept(state), state.working.shape)
        learn(problem, self._source, self._loss, self._norm, self._lam, learner, ahead=self._ahead)
        if learner.batch == 0:
            return self._after_epoch(problem, state, learner)
        return replace(state, own=ArraysState(learner.arrays()))

    def leave(self, problem: Problem, state: State) -> State:
        """A run that ends before its first certificate gets one."""
        if np.isfinite(state.primal[0]) or "place" not in kept(state):
            return state
        return self._certified(problem, state, Learner.of(kept(state), state.working.shape))[0]

    # stages 1 and 2

    def _after_epoch(self, problem: Problem, state: State, learner: Learner) -> State:
        self._tell(problem, learner)
        length = self._plan.online if learner.stage == ONLINE else self._plan.epochs
        ended = learner.epoch >= length
        if not ended and learner.epoch & (learner.epoch - 1):  # certificates after epochs 1, 2, 4, 8 ...
            learner.fold()
            return replace(state, own=ArraysState(learner.arrays()))
        state, point = self._certified(problem, state, learner)
        learner.fold()
        # lambda/2 ||w*||^2 is below the objective of any w, so every certificate may tighten the radius
        radius = float(np.sqrt(2 * state.primal[0] / self._lam)) if self._plan.projected else np.inf
        if not ended:
            learner.radius = radius if learner.stage == PROXIMAL else learner.radius
            return replace(state, own=ArraysState(learner.arrays()))
        if learner.stage == ONLINE and self._plan.epochs:
            learner.enter(PROXIMAL, radius)
            return replace(state, own=ArraysState(learner.arrays()))
        return self._into_exact(problem, state, point, learner.seen)

    def _certified(self, problem: Problem, state: State, learner: Learner) -> tuple[State, Float64]:
        """Bounds from the last and the average coefficients, as they are and put into the dual's sets; the best dual
        point of these."""
        candidates = []
        for theta in (learner.last, learner.average()) if learner.numbers[COUNT] else (learner.last,):
            point = self._loss.nearest(theta)
            same = bool(np.abs(point - theta).max() <= 1e-12 * self._loss.C)
            candidates += [(point, True)] if same else [(theta, False), (point, True)]
        judged = judge(problem.stack, self._source, self._loss, self._norm, candidates)
        for one in judged:
            state = self._better(state, one)
        best = int(np.argmax([one.dual for one in judged]))
        return state, candidates[best][0]

    def _better(self, state: State, judged: Judged) -> State:
        """The state with whatever is better in what was judged."""
        primal, dual = self._lam * judged.primal, self._lam * judged.dual
        state = replace(state, dual=np.maximum(state.dual, dual))
        if primal >= state.primal[0]:
            return state
        coef = with_columns(no_columns(*judged.B.shape), {k: judged.B[:, k] for k in range(judged.B.shape[1])})
        return replace(state, primal=np.array([primal]), coef=coef, weights=judged.weights)

    def _tell(self, problem: Problem, learner: Learner) -> None:
        support = int(np.count_nonzero(learner.coef.any(axis=1)))
        words = f"{STAGES[learner.stage]} epoch {learner.epoch}: {rate(learner.seen[learner.stage])}"
        problem.observer(Note(f"{words}, {support} of {problem.n} with coefficients"))

    # stage 3

    def _into_exact(self, problem: Problem, state: State, point: Float64, seen: Float64) -> State:
        """The first working set: what has a loss or nearly so. Coefficients elsewhere are let go: stages 1 and 2 give
        one to every sample that ever erred, for p near 1 to all."""
        judged = judge(problem.stack, self._source, self._loss, self._norm, [(point, True)])[0]
        state = self._better(state, judged)
        if whole(problem.n) or (problem.stack.in_one_array and problem.n <= WHOLE_UP_TO):
            working = np.ones_like(state.working)
        else:
            chosen = np.zeros(problem.n, dtype=bool)
            most = max(FEWEST, int(LARGEST_SHARE * problem.n)) if point.any() else FEWEST
            first = self._missed(judged.margins, chosen, most, problem.seed)
            if not len(first):  # a start that errs nowhere: the nearest to the margin all the same
                first = np.argsort(judged.margins.min(axis=1), kind="stable")[:most]
            chosen[first] = True
            working = np.repeat(chosen[:, None], state.working.shape[1], axis=1)
            point = point * chosen[:, None]
        return replace(state, working=working, own=ArraysState({**point_arrays(point), "seen": seen}))

    def _missed(self, margins: Float64, chosen: Mask, most: int, seed: int) -> Samples:
        """Samples outside a set that have a loss, and those near to it; the worst first, equal ones by lot."""
        least = margins.min(axis=1)
        outside = np.flatnonzero(~chosen & (least < NEAR))
        if not (least[outside] < 1.0).any():
            return outside[:0]
        lot = np.random.default_rng([seed, len(outside)]).permutation(len(outside))
        return np.asarray(outside[lot][np.argsort(least[outside[lot]], kind="stable")[:most]])

    def _exact(self, problem: Problem, state: State) -> State:
        started, chosen = time.perf_counter(), state.working[:, 0]
        W = np.flatnonzero(chosen)
        point = point_of(kept(state), state.working.shape)
        tol = HALF * problem.tol if len(W) == problem.n else max(HALF * problem.tol, EARLY * float(state.gap[0]))
        if self._block is None or not np.array_equal(self._block[0], W):
            self._block = W, open_block(problem.stack, self._source, W, problem.tol, self._block)
        rng = np.random.default_rng([problem.seed, EXACT, state.round])
        weights = np.asarray(state.weights)
        found = solve_exact(self._block[1], self._loss.among(W), self._norm, tol, point[W], weights, rng)
        B = np.zeros_like(point)
        B[W] = found.B
        scores = scores_of(problem.stack, self._source, [B], [found.weights])[0]
        judged = scaled(self._loss, B, found.weights, scores, found.square, found.dual)
        before = float(state.gap[0])
        state = self._better(state, judged)
        point[W] = found.proof
        missed = self._missed(judged.margins, chosen, max(len(W), FEWEST), problem.seed)
        working = state.working.copy()
        working[missed] = True
        seen = kept(state)["seen"].copy()
        seen[EXACT] += found.sweeps * len(W), time.perf_counter() - started
        words = (
            f"exact: {rate(seen[EXACT])}, {len(W)} in {found.svms} SVMs and {found.sweeps} sweeps, gap {before:.1e} to"
        )
        problem.observer(Note(f"{words} {float(state.gap[0]):.1e}, {len(missed)} samples missed"))
        state = replace(state, working=working, own=ArraysState({**point_arrays(point), "seen": seen}))
        svms = found.svms
        return replace(state, svm_calls=state.svm_calls + svms, oracle_calls=state.oracle_calls + svms)


def rate(seen: Float64) -> str:
    """The throughput of a stage so far: samples looked at, an epoch of the exact stage being a sweep."""
    samples, seconds = seen
    return f"{samples / max(seconds, 1e-9):,.0f} samples a second"
