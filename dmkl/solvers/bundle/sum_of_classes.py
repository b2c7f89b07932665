"""SharedMKL with mode "sum": minimise the sum of all classes' objectives over the kernel weights.

    min_p sum_k H_k(p),     p >= 0, sum(p) = 1

A round tries weights on compact blocks until their gap is small, then one pass certifies the best over all samples.
Every weights tried give a cut and a curvature. Two rules choose the next weights: the bundle method goes to the minimum
of the cuts plus the curvature; mirror descent, the reference, takes multiplicative steps along the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Float64, Samples
from dmkl.problems.shared import SharedMKL
from dmkl.solvers.blocks import Blocks, block_room
from dmkl.solvers.bundle.class_svms import ClassSvms
from dmkl.solvers.bundle.cutting_planes import BUNDLE, BundleOptions, CuttingPlanes
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import first_sets, whole


@dataclass(frozen=True)
class MirrorStepOptions:
    """The step size eta of mirror descent."""

    first: float = 1.0
    growth: float = 1.15  # factor after the objective fell
    cut: float = 0.5  # factor after it rose


MIRROR = MirrorStepOptions()


@dataclass(frozen=True)
class SumState(MethodState):
    """The cuts found so far, and the best weights on the blocks."""

    cut_total: Float64
    cut_forms: Float64
    cut_owner: Samples
    centre: Float64  # (s,)

    @classmethod
    def of(cls, cuts: CuttingPlanes, centre: Float64) -> SumState:
        return cls(cuts.total, cuts.forms, cuts.owner, centre)

    @property
    def cuts(self) -> CuttingPlanes:
        return CuttingPlanes(self.cut_total, self.cut_forms, self.cut_owner)


@dataclass(frozen=True)
class Trial:
    """Weights at which all classes were solved, with all that was found there."""

    weights: Float64
    alpha: dict[int, Float64]
    forms: Float64  # (m, s)
    primal: float  # over the blocks
    curvature: Float64  # (s, s)

    @property
    def penalty(self) -> float:
        """1/2 (sum_a sqrt(sum_k ||w_ka||^2))^2: that of the best weights for the functions found here."""
        return 0.5 * float(self.weights @ np.sqrt(self.forms.sum(axis=0))) ** 2


def build(formulation: SharedMKL, problem: Problem) -> SumOfClasses:
    """The rounds with the rule that the problem's method names."""
    problem.stack.require_semidefinite("SharedMKL")
    return SumOfClasses(formulation.C, formulation.intercept, problem.method)


class SumOfClasses:
    """The solver. One step is a round."""

    own_type: ClassVar[type[MethodState]] = SumState

    def __init__(self, C: float, intercept: bool, rule: str, options: BundleOptions = BUNDLE) -> None:
        self._C, self._intercept, self._rule, self._options = C, intercept, rule, options
        self._blocks: Blocks | None = None  # made again after a restart

    def init(self, problem: Problem) -> State:
        s = problem.stack.s
        weights = np.full(s, 1.0 / s)
        state = State.first(weights, first_sets(problem.Y, problem.seed), room=block_room(problem), bounds=1)
        state = outlined(problem, state, weights, self._C, intercept=self._intercept)
        return replace(state, own=SumState.of(CuttingPlanes.none(s), state.weights))

    def step(self, problem: Problem, state: State) -> State:
        blocks = self._blocks = self._blocks or Blocks(problem, state)
        classes = ClassSvms(problem, blocks, state, self._C, self._intercept)
        best, own, lower, trials = self._inner(problem, state, classes)
        classes.keep(best.alpha)
        values = classes.evaluate(range(problem.m), best.weights)
        primal = best.penalty + float(values.loss.sum())
        after = replace(
            state,
            working=classes.working,
            dual=np.array([max(lower, state.dual[0])]),
            svm_calls=state.svm_calls + classes.svm_calls,
            oracle_calls=state.oracle_calls + trials,
            own=own,
        )
        if primal >= state.primal[0]:
            return after
        return replace(
            after,
            weights=best.weights,
            coef=classes.coef,
            intercept=values.intercept,
            primal=np.array([primal]),
        )

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _inner(self, problem: Problem, state: State, classes: ClassSvms) -> tuple[Trial, SumState, float, int]:
        """The best trial on the blocks, the cuts and the centre, a lower bound, and the number of trials."""
        options, own = self._options, state.own_as(SumState)
        wanted = self._inner_gap(problem, state)
        cuts, lower, gap = own.cuts, -np.inf, options.loose_gap
        rule = RULES[self._rule](options)
        best, weights = None, own.centre
        number = 0
        while number < options.inner_steps:
            number += 1
            trial, total = self._try(problem, classes, weights, options.svm_tol(gap, wanted))
            cuts = cuts.plus(np.array([total]), trial.forms.sum(axis=0)[None], np.array([-1]))
            if best is None or trial.primal < best.primal:
                best = trial
            weights, bound, cuts = rule.next(trial, cuts, gap)
            lower = max(lower, bound)
            gap = relative_gap(best.primal, lower)
            if gap <= wanted:
                break
        assert best is not None
        assert rule.centre is not None
        return best, SumState.of(cuts, rule.centre.weights), lower, number

    def _inner_gap(self, problem: Problem, state: State) -> float:
        """The gap a round is solved to on its blocks: not far below the gap that the last round was certified to."""
        options, certified = self._options, float(state.gap[0])
        loose = options.gap_share * certified if np.isfinite(certified) else options.first_gap
        least = options.tol_share * problem.tol
        return least if whole(problem.n) else max(least, loose)

    def _try(self, problem: Problem, classes: ClassSvms, weights: Float64, tol: float) -> tuple[Trial, float]:
        """Solve all SVMs at these weights; the trial, and the sum of all alpha."""
        solutions = classes.solve(range(problem.m), weights, tol, curved=self._rule == "bundle")
        forms = np.array([solution.forms for solution in solutions])
        loss = sum(solution.primal for solution in solutions) - 0.5 * float((forms @ weights).sum())
        curvature = sum((a.curvature for a in solutions if a.curvature is not None), np.zeros((len(weights),) * 2))
        trial = Trial(weights, dict(classes.alpha), forms, 0.0, curvature)
        return replace(trial, primal=trial.penalty + loss), sum(solution.total for solution in solutions)


class Rule(Protocol):
    """How the next weights are chosen."""

    centre: Trial | None  # the best trial of this round

    def __init__(self, options: BundleOptions) -> None: ...

    def next(self, trial: Trial, cuts: CuttingPlanes, gap: float) -> tuple[Float64, float, CuttingPlanes]:
        """The next weights, a lower bound of the objective, and the cuts that are kept."""


class BundleRule:
    """Go to the minimum of all cuts plus the curvature at the centre, with a stiffer curvature after a rejected step.

    Steps are judged by the cuts alone, as the model's promises are: the primal value belongs to the best weights for
    the functions found, which can be far lower. The cut of a loosely solved SVM is low; later cuts nearby repair that.
    """

    def __init__(self, options: BundleOptions) -> None:
        self.centre: Trial | None = None
        self._options, self._stiffness, self._promised = options, 1.0, np.inf

    def next(self, trial: Trial, cuts: CuttingPlanes, gap: float) -> tuple[Float64, float, CuttingPlanes]:
        options, centre = self._options, self.centre or trial
        reached, least = cuts.highest(trial.weights), cuts.highest(centre.weights)
        least += options.rounding * abs(least)
        rejected = reached > least - options.least_fall * (least - self._promised)
        self._stiffness = min(self._stiffness * options.stiffer, options.stiffest) if rejected else 1.0
        self.centre = centre = trial if reached < least else centre
        curvature = centre.curvature + options.proximity * gap * abs(centre.primal) * np.eye(len(centre.weights))
        found = cuts.minimum(centre.weights, self._stiffness * curvature, options)
        self._promised = found.value
        return found.weights, found.bound, cuts.pruned(found.active, options)


class MirrorRule:
    """p_a moves by exp(eta (D_a / max D - 1)); eta grows while the objective falls."""

    def __init__(self, options: BundleOptions) -> None:
        self.centre: Trial | None = None
        self._eta, self._last = MIRROR.first, np.inf

    def next(self, trial: Trial, cuts: CuttingPlanes, gap: float) -> tuple[Float64, float, CuttingPlanes]:
        self._eta *= MIRROR.cut if trial.primal > self._last else MIRROR.growth
        self._last = trial.primal
        if self.centre is None or trial.primal < self.centre.primal:
            self.centre = trial
        forms = trial.forms.sum(axis=0)
        weights = trial.weights * np.exp(self._eta * (forms / max(forms.max(), 1e-300) - 1.0))
        newest = np.arange(len(cuts.total)) == len(cuts.total) - 1
        return weights / weights.sum(), cuts.bound(newest.astype(np.float64)), cuts


RULES: Registry[type[Rule]] = Registry("method")
RULES.register("bundle", BundleRule)
RULES.register("mirror", MirrorRule)
