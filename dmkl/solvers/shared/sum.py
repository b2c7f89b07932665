"""The sum of all classes' objectives: a bundle method with curvature, or mirror descent, over the kernel weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Float64
from dmkl.solvers.blocks import Blocks, block_room
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.problem import Problem
from dmkl.solvers.shared.classes import Classes
from dmkl.solvers.shared.cuts import Cuts
from dmkl.solvers.shared.formulation import SharedMKL
from dmkl.solvers.state import ArraysState, MethodState, State, kept
from dmkl.solvers.working_sets import first_sets, whole

INNER_STEPS = 25  # combinations of kernels tried in one round at most
HALF = 0.5  # the inner gap as a share of the tolerance, so that the samples outside have some left
EARLY = 0.1  # and of the certified gap so far: first rounds are loose
FIRST = 0.05  # the first round's inner gap
SVM_SHARE = 0.1  # of the gap so far, the tolerance of an SVM
ENOUGH = 0.1  # of the fall that the model promised: less is no step
STIFFER, STIFFEST = 4.0, 64.0  # the curvature after steps that fell short: the new cuts have to do the rest
PROXIMITY = 0.1  # of the gap, added to the curvature: cuts alone jump
LOOSE = 0.1  # the gap that the first SVMs go by
ROUNDING = 1e-10  # of the objective: less is no rise, the small program is solved no further
GROW, CUT = 1.15, 0.5  # of mirror descent's eta, after a fall and after a rise


def inner_gap(problem: Problem, state: State) -> float:
    """How far a round's inner problem is solved: no further than the round before was certified."""
    certified = float(state.gap[0])
    loose = EARLY * certified if np.isfinite(certified) else FIRST
    return HALF * problem.tol if whole(problem.n) else max(HALF * problem.tol, loose)


def svm_tolerance(gap: float, wanted: float) -> float:
    """Of an SVM at weights with this gap. Weights that are off by e raise the objective by e^2 and lower the bound by
    e: to see which of two is better takes more digits the smaller the gap is."""
    least = min(max(gap, wanted), 1.0)  # first gaps can be far above 1, where every alpha would do
    return min(SVM_SHARE * least, least * float(np.sqrt(least)))


@dataclass(frozen=True)
class _Tried:
    """One combination with everything that was found there."""

    weights: Float64
    alpha: dict[int, Float64]
    forms: Float64  # (m, s)
    primal: float  # over the blocks
    curvature: Float64

    @property
    def penalty(self) -> float:
        """1/2 (sum_a sqrt(sum_k ||w_ka||^2))^2: what the best weights for these functions would give."""
        return 0.5 * float(self.weights @ np.sqrt(self.forms.sum(axis=0))) ** 2


def build(formulation: SharedMKL, problem: Problem) -> SharedSum:
    """The rounds with the problem's rule."""
    problem.stack.require_semidefinite("SharedMKL")
    return SharedSum(formulation.C, formulation.intercept, problem.method)


class SharedSum:
    """One step is a round: combinations tried on compact blocks until their gap is small, then one pass."""

    own_type: ClassVar[type[MethodState]] = ArraysState

    def __init__(self, C: float, intercept: bool, rule: str) -> None:
        self._C, self._intercept, self._rule = C, intercept, rule
        self._blocks: Blocks | None = None  # made again after a restart

    def init(self, problem: Problem) -> State:
        s = problem.stack.s
        weights = np.full(s, 1.0 / s)
        state = State.first(weights, first_sets(problem.Y, problem.seed), room=block_room(problem), bounds=1)
        state = outlined(problem, state, weights, self._C, intercept=self._intercept)
        return replace(state, own=ArraysState({**Cuts.none(s).arrays(), "centre": state.weights}))

    def step(self, problem: Problem, state: State) -> State:
        blocks = self._blocks = self._blocks or Blocks(problem, state)
        classes = Classes(problem, blocks, state, self._C, self._intercept)
        best, centre, cuts, lower, tried = self._inner(problem, state, classes)
        classes.keep(best.alpha)
        judged = classes.judge(range(problem.m), best.weights)
        primal = best.penalty + float(judged.loss.sum())
        after = replace(
            state,
            working=classes.working,
            dual=np.array([max(lower, state.dual[0])]),
            svm_calls=state.svm_calls + classes.svm_calls,
            oracle_calls=state.oracle_calls + tried,
            own=ArraysState({**cuts.arrays(), "centre": centre}),
        )
        if primal >= state.primal[0]:
            return after
        found = {"coef": classes.coef, "intercept": judged.intercept, "primal": np.array([primal])}
        return replace(after, weights=best.weights, **found)

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _inner(self, problem: Problem, state: State, classes: Classes) -> tuple[_Tried, Float64, Cuts, float, int]:
        """The best combination on the blocks, the centre, the cuts, a lower bound, how many combinations were tried."""
        wanted = inner_gap(problem, state)
        cuts, lower, gap = Cuts.of(kept(state)), -np.inf, LOOSE
        rule = RULES[self._rule]()
        best, weights = None, kept(state)["centre"]
        number = 0
        while number < INNER_STEPS:
            number += 1
            tol = svm_tolerance(gap, wanted)
            tried, cut = self._try(problem, classes, weights, tol)
            cuts = cuts.plus(*cut)
            if best is None or tried.primal < best.primal:
                best = tried
            weights, bound, cuts = rule.next(tried, cuts, gap)
            lower = max(lower, bound)
            gap = relative_gap(best.primal, lower)
            if gap <= wanted:
                break
        assert best is not None
        return best, rule.centre.weights, cuts, lower, number

    def _try(self, problem: Problem, classes: Classes, weights: Float64, tol: float) -> tuple[_Tried, Any]:
        """All SVMs at these weights, and the cut they give."""
        answers = classes.solve(range(problem.m), weights, tol, curved=self._rule == "bundle")
        forms = np.array([answer.forms for answer in answers])
        loss = sum(answer.primal for answer in answers) - 0.5 * float((forms @ weights).sum())
        curvature = sum((a.curvature for a in answers if a.curvature is not None), np.zeros((len(weights),) * 2))
        tried = _Tried(weights, dict(classes.alpha), forms, 0.0, curvature)
        tried = replace(tried, primal=tried.penalty + loss)
        total = np.array([sum(answer.total for answer in answers)])
        return tried, (total, forms.sum(axis=0)[None], np.array([-1]))


class _Bundle:
    """The least point of all cuts plus the curvature at the centre; stiffer after a step that fell short.

    Steps are judged by the cuts alone, as promises are: the primal value is that of the best weights for the functions,
    which can be far less. A loose SVM's cut is low; those of tighter ones nearby put that right.
    """

    def __init__(self) -> None:
        self.centre: _Tried | None = None
        self._stiffness, self._promised = 1.0, np.inf

    def next(self, tried: _Tried, cuts: Cuts, gap: float) -> tuple[Float64, float, Cuts]:
        centre = self.centre or tried
        reached, least = cuts.highest(tried.weights), cuts.highest(centre.weights)
        least += ROUNDING * abs(least)
        short = reached > least - ENOUGH * (least - self._promised)
        self._stiffness = min(self._stiffness * STIFFER, STIFFEST) if short else 1.0
        self.centre = centre = tried if reached < least else centre
        curvature = centre.curvature + PROXIMITY * gap * abs(centre.primal) * np.eye(len(centre.weights))
        found = cuts.lowest(centre.weights, self._stiffness * curvature)
        self._promised = found.value
        return found.weights, found.bound, cuts.pruned(found.holding)


class _Mirror:
    """p_a moves by exp(eta (D_a / max D - 1)); eta grows while the objective falls. The reference."""

    def __init__(self) -> None:
        self.centre: _Tried | None = None
        self._eta, self._last = 1.0, np.inf

    def next(self, tried: _Tried, cuts: Cuts, gap: float) -> tuple[Float64, float, Cuts]:
        self._eta *= CUT if tried.primal > self._last else GROW
        self._last = tried.primal
        if self.centre is None or tried.primal < self.centre.primal:
            self.centre = tried
        forms = tried.forms.sum(axis=0)
        weights = tried.weights * np.exp(self._eta * (forms / max(forms.max(), 1e-300) - 1.0))
        newest = np.arange(len(cuts.total)) == len(cuts.total) - 1
        return weights / weights.sum(), cuts.bound(newest.astype(np.float64)), cuts


RULES: Registry[Any] = Registry("method")
RULES.register("bundle", _Bundle)
RULES.register("mirror", _Mirror)
