"""The three stages of OBSCURE as one algorithm over a state.

Stage 1 (online) bounds ||w||, stage 2 (stochastic, proximal, projected) learns inside that bound
(`obscure_subgradient.py`); both are certified after epochs 1, 2, 4, 8 ... only. Stage 3 (`obscure_exact.py`) reaches
any certified gap on the samples that matter, in working sets. Kernel values are asked for as rows of samples against
those with coefficients (`obscure_kernel_values.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from dmkl._util.stopping import Stopped
from dmkl._util.types import Float64, Mask, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ConfigError, SolverError
from dmkl.events import Note
from dmkl.problems.obscure import Obscure
from dmkl.problems.obscure_terms import PNorm
from dmkl.problems.targets import Signs
from dmkl.solvers.obscure_exact import solve_exact
from dmkl.solvers.obscure_kernel_values import KernelBlock, forms_of, open_block, scores_of
from dmkl.solvers.obscure_subgradient import (
    COUNT,
    EXACT,
    FARTHEST,
    ONLINE,
    PROXIMAL,
    STAGES,
    Learner,
    ObscureState,
    learn,
    no_samples,
)
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState, State, no_columns, with_columns
from dmkl.solvers.working_sets import whole

FOREVER = 10**9  # epochs


@dataclass(frozen=True)
class StageOptions:
    """Constants of the default step size and of the working sets."""

    online_step: float = 16.0  # eta of stage 1, in Polyak's steps of a typical sample at scores of zero; for real
    cautious_step: float = 1.0  # targets, and for slopes without a limit, this much, and of the largest sample
    diagonals: int = 256  # samples that L is estimated from
    fewest: int = 1000  # samples that may enter a working set at once, if so many have a loss
    first_share: float = 0.5  # of all samples that may be in the first working set after stages 1 and 2
    close: float = 1.1  # samples with margins below this enter along with those that have a loss
    tol_share: float = 0.5  # of the tolerance, for a working set: the samples outside need the rest
    gap_share: float = 0.1  # of the certified gap so far: the first working sets are solved loosely
    whole_array: int = 4000  # an array of at most so many samples, which has all kernels at hand, is one working set


OPTIONS = StageOptions()


@dataclass(frozen=True)
class Schedule:
    """Which stages a method has; a number of epochs that is None is the formulation's."""

    online: int | None  # epochs of stage 1
    epochs: int | None  # epochs of stage 2
    projected: bool = True  # whether stage 2 is projected and has the adaptive rate
    exact: bool = False  # whether stage 3 follows


SCHEDULES = {
    "exact": Schedule(online=0, epochs=0, exact=True),
    "obscure": Schedule(online=None, epochs=None, exact=True),
    "stochastic": Schedule(online=None, epochs=FOREVER),
    "online": Schedule(online=FOREVER, epochs=0),
    "pegasos": Schedule(online=0, epochs=FOREVER, projected=False),
}


@dataclass(frozen=True)
class EvaluatedPoint:
    """A function w_a = weights_a sum_i B_i phi_a(x_i), multiplied as is best, with its bounds in the units of B."""

    B: Float64  # (n, m)
    weights: Float64  # (s,)
    primal: float
    dual: float  # -inf if B is no dual point
    scores: Float64  # (n, m)


def build(formulation: Obscure, problem: Problem) -> Stages:
    """The stages of the method that the problem names."""
    problem.stack.require_semidefinite("Obscure")
    if formulation.joint and problem.m > 1 and not ((problem.Y.dense() > 0).sum(axis=1) == 1).all():
        name = formulation.loss
        raise ConfigError(f"the loss '{name}' needs one class a sample", 'use loss = "hinge" for several labels')
    return Stages(formulation, problem, SCHEDULES[problem.method])


class Stages:
    """The solver. One step is a part of an epoch, or one working set solved and certified."""

    own_type: ClassVar[type[MethodState]] = ObscureState

    def __init__(
        self, formulation: Obscure, problem: Problem, schedule: Schedule, options: StageOptions | None = None
    ) -> None:
        lam, eta = 1.0 / (formulation.C * problem.n) if formulation.C is not None else formulation.lam, formulation.eta
        assert lam is not None  # one of the two is given
        if formulation.joint and problem.m == 1:
            # w_1 = -w_0: ||w||^2 = 1/2 ||w_1 - w_0||^2, and the column of scores is f_1 - f_0, which both move
            lam, eta = lam / 2, 2 * eta
        self._lam, self._eta, self._ahead = lam, eta, formulation.ahead
        self._cautious = not (formulation.bounded and isinstance(problem.Y, Signs))
        self._online = formulation.online if schedule.online is None else schedule.online
        self._epochs = formulation.epochs if schedule.epochs is None else schedule.epochs
        self._projected, self._options = schedule.projected, options or OPTIONS
        Y = problem.Y.dense()  # there are as many dual variables
        self._norm, self._loss = PNorm(formulation.p), formulation.row_loss(Y, 1.0 / (lam * problem.n))
        self._source = problem.stack.source.on_demand
        self._block: tuple[Samples, KernelBlock] | None = None  # asked for again after a restart

    def init(self, problem: Problem) -> State:
        n, m, s = problem.n, problem.m, problem.stack.s
        nothing = SampleSets.alike(np.zeros(n, dtype=bool), m)
        state = State.first(self._norm.weights(np.ones(s)), nothing, bounds=1)
        if problem.start is not None:
            point = self._loss.nearest(problem.start.coef.toarray())
            try:
                return self._into_exact(problem, state, point, no_samples())
            except Stopped:
                return self._into_exact(problem, state, np.zeros((n, m)), no_samples())
        first = ONLINE if self._online else PROXIMAL if self._epochs else EXACT
        if first == EXACT:
            return self._into_exact(problem, state, np.zeros((n, m)), no_samples())
        return replace(state, own=Learner.start(n, m, s, stage=first, step=self._online_step(problem)).state())

    def _online_step(self, problem: Problem) -> float:
        """eta / q, the step of the coefficients in stage 1.

        The default is eta = 16 / L^2, where L is the norm of z for a typical sample: by Theorem 4 there are at most
        q (2 / eta + L^2) ||v||^2 updates, so smaller steps spend epochs on growing ||w|| and larger ones gain nothing.
        Another loss counts in the unit of its value at w = 0. For real targets, of which no multiple will do, and where
        slopes have no limit, a step should not lead past the optimum of its own sample: it is 1 / L^2 in place of 16,
        where L is that of the largest kernel values.
        """
        if self._eta:
            return self._eta / self._norm.q
        if self._cautious:
            every = np.maximum(self._source.diagonal(np.arange(problem.n)).astype(np.float64), 0.0)
            step, square = self._options.cautious_step, max(self._norm.dual(own) ** 2 for own in every.T)
        else:
            some = np.linspace(0, problem.n - 1, min(self._options.diagonals, problem.n)).astype(np.int64)
            own = self._source.cross(some, some).diagonal(axis1=1, axis2=2).mean(axis=1, dtype=np.float64)
            step, square = self._options.online_step, self._norm.dual(own) ** 2
        return step / (self._norm.q * max(square / self._loss.first_step(), 1e-300))

    def step(self, problem: Problem, state: State) -> State:
        own = state.own_as(ObscureState)
        if own.place is None:
            return self._exact(problem, state)
        learner = Learner.of(own)
        ended = learn(problem, self._source, self._loss, self._norm, self._lam, learner, ahead=self._ahead)
        if not (learner.forms < FARTHEST).all():
            raise SolverError(
                f"the {STAGES[learner.stage]} stage has left the range of numbers",
                "use a smaller eta, or leave it out" if self._eta else "use another method",
            )
        if ended:
            with contextlib.suppress(Stopped):  # the last batch is met, the epoch ends another time
                return self._after_epoch(problem, state, Learner.of(learner.state()))
        return replace(state, own=learner.state())

    def leave(self, problem: Problem, state: State) -> State:
        """A run that ends before its first certificate gets one."""
        own = state.own_as(ObscureState)
        if np.isfinite(state.primal[0]) or own.place is None:
            return state
        try:
            return self._certified(problem, state, Learner.of(own))[0]
        except Stopped:
            return state

    # stages 1 and 2

    def _after_epoch(self, problem: Problem, state: State, learner: Learner) -> State:
        learner.end_epoch()
        support = int(np.count_nonzero(learner.coef.any(axis=1)))
        words = f"{STAGES[learner.stage]} epoch {learner.epoch}: {_rate(learner.seen[learner.stage])}"
        problem.observer(Note(f"{words}, {support} of {problem.n} with coefficients"))
        ended = learner.epoch >= (self._online if learner.stage == ONLINE else self._epochs)
        if not ended and learner.epoch & (learner.epoch - 1):  # certificates after epochs 1, 2, 4, 8 ...
            learner.fold()
            return replace(state, own=learner.state())
        state, point = self._certified(problem, state, learner)
        learner.fold()
        # lambda/2 ||w*||^2 is below the objective of any w, so every certificate may tighten the radius
        radius = float(np.sqrt(2 * state.primal[0] / self._lam)) if self._projected else np.inf
        if not ended:
            learner.radius = radius if learner.stage == PROXIMAL else learner.radius
            return replace(state, own=learner.state())
        if learner.stage == ONLINE and self._epochs:
            learner.enter(PROXIMAL, radius)
            return replace(state, own=learner.state())
        return self._into_exact(problem, state, point, learner.seen)

    def _certified(self, problem: Problem, state: State, learner: Learner) -> tuple[State, Float64]:
        """Certify the last and the average coefficients, as they are and projected on the dual sets.

        Returns the state, and the dual point (n, m) with the best bound.
        """
        candidates = []
        for theta in (learner.last, learner.average()) if learner.numbers[COUNT] else (learner.last,):
            point = self._loss.nearest(theta)
            same = bool(np.abs(point - theta).max() <= 1e-12 * self._loss.C)
            candidates += [(point, True)] if same else [(theta, False), (point, True)]
        evaluated = self._evaluate(problem, candidates)
        for one in evaluated:
            state = self._better(state, one)
        best = int(np.argmax([one.dual for one in evaluated]))
        if not self._loss.curved:
            return state, candidates[best][0]
        # the slopes of the loss at the best function are a dual point, too, and as near to the optimum as it is
        tangent = self._loss.tangent(min(evaluated, key=lambda one: one.primal).scores)
        forms = forms_of(problem.stack, self._source, [tangent])[0]
        dual = self._loss.bound(tangent, self._norm.dual(forms) ** 2)
        state = replace(state, dual=np.maximum(state.dual, self._lam * dual))
        return state, tangent if dual > evaluated[best].dual else candidates[best][0]

    # bounds

    def _evaluate(self, problem: Problem, candidates: Sequence[tuple[Float64, bool]]) -> list[EvaluatedPoint]:
        """Bounds over all samples of candidates (B, whether it is dual feasible), with the norm's kernel weights."""
        points = [B for B, _ in candidates]
        forms = forms_of(problem.stack, self._source, points)
        weights = [self._norm.weights(own) for own in forms]
        scores = scores_of(problem.stack, self._source, points, weights)
        evaluated = []
        for (B, feasible), own, u, f in zip(candidates, forms, weights, scores, strict=True):
            square = self._norm.dual(own) ** 2
            dual = self._loss.bound(B, square) if feasible else -np.inf
            evaluated.append(self._scaled(B, u, f, square, dual))
        return evaluated

    def _scaled(self, B: Float64, weights: Float64, scores: Float64, square: float, dual: float) -> EvaluatedPoint:
        """The best multiple of a function with these scores and ||w||^2 = square."""
        t, loss = self._loss.best_scale(square, scores), self._loss
        return EvaluatedPoint(t * B, weights, loss.primal(t * t * square, t * scores), dual, t * scores)

    def _better(self, state: State, point: EvaluatedPoint) -> State:
        """The state with the bounds of a point that are better."""
        primal, dual = self._lam * point.primal, self._lam * point.dual
        state = replace(state, dual=np.maximum(state.dual, dual))
        if primal >= state.primal[0]:
            return state
        coef = with_columns(no_columns(*point.B.shape), {k: point.B[:, k] for k in range(point.B.shape[1])})
        return replace(state, primal=np.array([primal]), coef=coef, weights=point.weights)

    # stage 3

    def _into_exact(self, problem: Problem, state: State, point: Float64, seen: Float64) -> State:
        """Begin stage 3 with the samples that have a loss or nearly have one as its first working set.

        Coefficients of other samples become zero: stages 1 and 2 give one to every sample that ever had a loss, which
        for p near 1 is every sample.
        """
        evaluated = self._evaluate(problem, [(point, True)])[0]
        state, options = self._better(state, evaluated), self._options
        in_place = problem.stack.in_one_array and problem.n <= options.whole_array
        if whole(problem.n) or in_place or not self._loss.sparse:
            working = SampleSets.whole(problem.n, problem.m)
        else:
            chosen = np.zeros(problem.n, dtype=bool)
            most = max(options.fewest, int(options.first_share * problem.n)) if point.any() else options.fewest
            margins = self._loss.margins(evaluated.scores)
            first = self._missed(margins, chosen, most, problem.seed)
            if not len(first):  # a start without any loss: the samples with the smallest margins
                first = np.argsort(margins.min(axis=1), kind="stable")[:most]
            chosen[first] = True
            working = SampleSets.alike(chosen, problem.m)
            point = point * chosen[:, None]
        return replace(state, working=working, own=ObscureState(seen, csr_array(point)))

    def _missed(self, margins: Float64, chosen: Mask, most: int, seed: int) -> Samples:
        """The samples outside a set that have a loss or nearly have one, the worst first, equal ones at random.

        There are none unless one of them has a loss, and at most `most`.
        """
        least = margins.min(axis=1)
        outside = np.flatnonzero(~chosen & (least < self._options.close))
        if not (least[outside] < 1.0).any():
            return outside[:0]
        lot = np.random.default_rng([seed, len(outside)]).permutation(len(outside))
        return np.asarray(outside[lot][np.argsort(least[outside[lot]], kind="stable")[:most]])

    def _exact(self, problem: Problem, state: State) -> State:
        """Solve the working set, certify it over all samples, and add the samples that have a loss."""
        started, chosen = time.perf_counter(), state.working.mask(0)
        W, options, own = np.flatnonzero(chosen), self._options, state.own_as(ObscureState)
        assert own.point is not None
        point = own.point.toarray()
        before = float(state.gap[0])
        least = options.tol_share * problem.tol
        tol = least if len(W) == problem.n else max(least, options.gap_share * before)
        if self._block is None or not np.array_equal(self._block[0], W):
            self._block = W, open_block(problem.stack, self._source, W, problem.tol, self._block)
        rng = np.random.default_rng([problem.seed, EXACT, state.round])
        weights = np.asarray(state.weights)
        threads = 1 if problem.runtime.remote else problem.runtime.workers
        found = solve_exact(self._block[1], self._loss.among(W), self._norm, tol, point[W], weights, rng, threads)
        B = np.zeros_like(point)
        B[W] = found.B
        scores = scores_of(problem.stack, self._source, [B], [found.weights])[0]
        evaluated = self._scaled(B, found.weights, scores, found.square, found.dual)
        state = self._better(state, evaluated)
        point[W] = found.proof
        margins = self._loss.margins(evaluated.scores)
        missed = self._missed(margins, chosen, max(len(W), options.fewest), problem.seed)
        chosen[missed] = True
        seen = own.seen.copy()
        seen[EXACT] += found.sweeps * len(W), time.perf_counter() - started
        words = f"exact: {_rate(seen[EXACT])}, {len(W)} in {found.svms} SVMs and {found.sweeps} sweeps, gap"
        gaps = f"{before:.1e} to {float(state.gap[0]):.1e}"
        problem.observer(Note(f"{words} {gaps}, {len(missed)} samples missed"))
        return replace(
            state,
            working=SampleSets.alike(chosen, problem.m),
            own=ObscureState(seen, csr_array(point)),
            svm_calls=state.svm_calls + found.svms,
            oracle_calls=state.oracle_calls + found.svms,
        )


def _rate(seen: Float64) -> str:
    """The throughput of a stage so far: samples looked at, where a sweep of the exact stage looks at all of its set."""
    samples, seconds = seen
    return f"{samples / max(seconds, 1e-9):,.0f} samples a second"
