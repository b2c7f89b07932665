"""The worst class's objective, min_p max_k H_k(p): classes are sampled, the hard ones found, and the rest only checked.

A first walk by stochastic approximation (`sampling.py`) tells roughly where p is and which classes are hard. A bundle
method over the hard classes alone closes the gap. Then every class is judged once at these weights; one that turns out
to be above the bound becomes a hard class, and the next round goes on. `method = "sa-paper"` is the walk alone, twice
as long each round, its averages certified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmkl._util.registry import Registry
from dmkl._util.types import Float64
from dmkl.solvers import fixed_weights
from dmkl.solvers.blocks import Blocks, block_room
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.columns import column
from dmkl.solvers.problem import Problem
from dmkl.solvers.shared.classes import Answer, Classes
from dmkl.solvers.shared.cuts import Cuts
from dmkl.solvers.shared.formulation import SharedMKL
from dmkl.solvers.shared.sampling import Known, Walk, estimate, smoothed
from dmkl.solvers.shared.sum import (
    ENOUGH,
    FIRST,
    HALF,
    INNER_STEPS,
    LOOSE,
    PROXIMITY,
    STIFFER,
    STIFFEST,
    svm_tolerance,
)
from dmkl.solvers.state import ArraysState, MethodState, State, kept
from dmkl.solvers.working_sets import first_sets, whole

WALK = 4.0  # SVM calls of the first walk, as a multiple of the root of the number of classes
WALK_TOL = 0.01  # of its SVMs
FIRST_CHECKED = 16  # classes checked before a look at whether a harder one is among them; then twice as many
NEARLY = 0.005  # classes this close to the hardest, or within this share of the gap, are solved along with it
NEAR_SHARE = 0.3


@dataclass
class _Course:
    """What changes in the course of a round."""

    classes: Classes
    cuts: Cuts
    walk: Walk
    forms: Float64  # (m, s), of each class's coefficients
    hard: NDArray[np.bool_]  # (m,)
    weights: Float64
    lower: float

    def solve(self, some: NDArray[Any], weights: Float64, tol: float, *, curved: bool = False) -> list[Answer]:
        """These classes' SVMs at these weights, their cuts kept."""
        answers = self.classes.solve([int(k) for k in some], weights, tol, curved=curved)
        forms = np.array([answer.forms for answer in answers])
        self.cuts = self.cuts.plus(np.array([answer.total for answer in answers]), forms, np.asarray(some))
        self.forms[some] = forms
        return answers

    def cut(self, some: NDArray[np.int64]) -> None:
        """Cuts of these classes' coefficients."""
        forms = self.classes.forms(some.tolist())
        total = [np.abs(column(self.classes.coef, int(k))).sum() for k in some]
        self.cuts = self.cuts.plus(np.array(total), forms, some)
        self.forms[some] = forms

    def lowest(self, centre: Float64, curvature: Float64) -> tuple[Float64, float, Float64]:
        """Where the model is least, its value there, and each class's share in holding it up."""
        found = self.cuts.lowest(centre, curvature)
        self.lower = max(self.lower, found.bound)
        shares = np.bincount(self.cuts.owner, found.multipliers, len(self.hard)).astype(np.float64, copy=False)
        self.cuts = self.cuts.pruned(found.holding)
        return found.weights, found.value, shares


def build(formulation: SharedMKL, problem: Problem) -> SharedMax:
    """The rounds with the problem's rule."""
    problem.stack.require_semidefinite("SharedMKL")
    f = formulation
    return SharedMax(f.C, f.intercept, f.delta, f.eta, f.batch, problem.method)


class SharedMax:
    """One step is a round: walk, bundle over the hard classes, check of all classes."""

    own_type: ClassVar[type[MethodState]] = ArraysState

    def __init__(self, C: float, intercept: bool, delta: float, eta: float, batch: int, method: str) -> None:
        self._C, self._intercept = C, intercept
        self._delta, self._eta, self._batch = delta, eta, batch
        self._plain = METHODS[method]
        self._blocks: Blocks | None = None  # made again after a restart

    def init(self, problem: Problem) -> State:
        s, m = problem.stack.s, problem.m
        working = first_sets(problem.Y, problem.seed)
        state = State.first(np.full(s, 1.0 / s), working, room=block_room(problem), bounds=1)
        own = {"forms": np.zeros((m, s)), "hard": np.zeros(m, dtype=bool), "centre": state.weights}
        return replace(state, own=ArraysState({**own, **Cuts.none(s).arrays(), **Walk.start(s, m).arrays()}))

    def step(self, problem: Problem, state: State) -> State:
        blocks = self._blocks = self._blocks or Blocks(problem, state)
        classes = Classes(problem, blocks, state, self._C, self._intercept)
        own = kept(state)
        course = _Course(
            classes, Cuts.of(own), Walk.of(own), own["forms"].copy(), own["hard"].copy(), own["centre"], state.dual[0]
        )
        if self._plain or state.round == 0:
            self._walk(problem, state, course)
        if not self._plain:
            self._bundle(problem, state, course)
        return self._check(problem, state, course)

    def leave(self, problem: Problem, state: State) -> State:
        """Train roughly whom nobody has trained yet: that no class is harder did not have to be known before."""
        untrained = np.flatnonzero(np.diff(state.coef.indptr) == 0)
        if not len(untrained) or not np.isfinite(state.primal[0]):
            return state
        classes = Classes(problem, Blocks(problem, state), state, self._C, self._intercept)
        classes.settle(untrained.tolist(), state.weights, max(fixed_weights.OPTIONS.outline_tol, problem.tol))
        judged = classes.judge(range(problem.m), state.weights, "keep")
        calls = state.svm_calls + classes.svm_calls
        primal = np.array([judged.primal.max()])
        return replace(state, coef=classes.coef, intercept=judged.intercept, primal=primal, svm_calls=calls)

    def _walk(self, problem: Problem, state: State, course: _Course) -> None:
        """Stochastic approximation for a while; its averages are where the weights are, what it met is hard."""
        m, walk = problem.m, course.walk
        rng = np.random.default_rng([problem.seed, state.round])
        calls = WALK * np.sqrt(m) * 2.0**state.round
        for _ in range(int(np.ceil(calls / self._batch))):
            gamma, weights = walk.gamma, walk.weights
            chances = smoothed(gamma, self._delta)
            known = self._known(course, weights)
            sampled = rng.choice(m, self._batch, p=chances)
            met, which = np.unique(sampled, return_inverse=True)
            answers = course.solve(met, weights, WALK_TOL)
            values = np.array([answer.total - 0.5 * float(weights @ answer.forms) for answer in answers])
            forms = course.forms[met]
            by_weight, by_class = estimate(sampled, values[which], forms[which], gamma, chances, known)
            walk.move(by_weight, by_class, self._eta)
            course.hard[met] = True
        course.weights = walk.average[0]
        if not whole(problem.n) and not state.round:  # sets that know the classes beat random ones
            met = np.flatnonzero(course.hard)
            course.classes.keep(course.classes.alpha)
            course.classes.settle(met.tolist(), course.weights, fixed_weights.OPTIONS.outline_tol)
            course.cut(met)
            course.classes.judge(met.tolist(), course.weights, "anew")
        if self._plain:
            course.lowest(course.weights, np.zeros((problem.stack.s,) * 2))

    def _known(self, course: _Course, weights: Float64) -> Known:
        """Each class's highest cut here; those never met are taken for the mean of the others."""
        m, s = course.forms.shape
        values = course.cuts.at(weights, m)
        met = np.isfinite(values)
        if self._plain or not met.any():
            return Known(np.zeros(m), np.zeros((m, s)))
        forms = np.where(met[:, None], course.forms, course.forms[met].mean(axis=0))
        return Known(np.where(met, values, values[met].mean()), forms)

    def _bundle(self, problem: Problem, state: State, course: _Course) -> None:
        """Close the gap over the hard classes, on their blocks."""
        wanted, m, s = HALF * problem.tol if state.round else max(HALF * problem.tol, FIRST), problem.m, problem.stack.s
        gap, stiffness, reached, promised = LOOSE, 1.0, np.inf, -np.inf
        weights = best = course.weights
        alpha: dict[int, Float64] = {}
        forms: dict[int, Float64] = {}
        curvatures: dict[int, Float64] = {}
        centred = np.zeros((s, s))
        size = max(float(course.cuts.at(weights, m).max()), 1e-300)
        shares = course.lowest(weights, PROXIMITY * gap * size * np.eye(s))[2]
        for _ in range(INNER_STEPS):
            values = np.where(course.hard, course.cuts.at(weights, m), -np.inf)
            near = np.flatnonzero((values >= (1 - max(NEARLY, NEAR_SHARE * gap)) * values.max()) | (shares > 0.01))
            answers = course.solve(near, weights, svm_tolerance(gap, wanted), curved=True)
            primal = max(answer.primal for answer in answers)
            curvatures |= {int(k): a.curvature for k, a in zip(near, answers, strict=True) if a.curvature is not None}
            short = primal > reached - ENOUGH * (reached - promised) if np.isfinite(reached) else False
            stiffness = min(stiffness * STIFFER, STIFFEST) if short else 1.0
            if primal < reached:
                reached, best = primal, weights
                alpha |= {int(k): a.alpha for k, a in zip(near, answers, strict=True)}
                forms |= {int(k): a.forms for k, a in zip(near, answers, strict=True)}
                centred = sum((shares[k] * c for k, c in curvatures.items()), np.zeros((s, s)))
            proximity = PROXIMITY * gap * abs(reached) * np.eye(s)
            weights, promised, shares = course.lowest(best, stiffness * (centred + proximity))
            gap = relative_gap(reached, course.lower)
            if gap <= wanted:
                break
        course.weights = best
        course.classes.alpha |= alpha
        for k, values in forms.items():
            course.forms[k] = values

    def _check(self, problem: Problem, state: State, course: _Course) -> State:
        """Judge every class at the weights found; solve again those that the bound does not cover."""
        weights, tol, m, classes = course.weights, problem.tol, problem.m, course.classes
        classes.keep(classes.alpha)
        before = classes.working.copy()
        primal, intercept = np.empty((2, m))
        for some, sets in ((np.flatnonzero(course.hard), "grow"), (np.flatnonzero(~course.hard), "keep")):
            judged = classes.judge(some.tolist(), weights, sets)
            primal[some], intercept[some] = judged.primal, judged.intercept
        lower = np.maximum(course.cuts.at(weights, m), 0.0)  # no class's objective is negative

        def settle(stale: NDArray[np.int64]) -> None:
            found = classes.settle(stale.tolist(), weights, HALF * tol)
            primal[stale], intercept[stale] = found.primal, found.intercept
            lower[stale] = np.maximum(lower[stale], found.dual)
            course.cut(stale)

        unsure = np.flatnonzero((primal * (1 - tol) > course.lower) & (_gaps(primal, lower) > HALF * tol))
        unsure = unsure[np.argsort(-primal[unsure], kind="stable")]  # who is hard is probably among the first
        harder, size = np.zeros(m, dtype=bool), FIRST_CHECKED
        rising = (primal[course.hard] * (1 - tol) > course.lower).any() and not self._plain
        rising = rising and not np.array_equal(classes.working, before)  # the hard classes' bound, with larger sets
        while len(unsure) and not rising and not harder.any():
            settle(unsure[:size])
            unsure, size = unsure[size:], 2 * size
            harder = ~course.hard & (lower * (1 - tol) > course.lower)
        if not (rising or self._plain or harder.any()):  # a little harder, but nothing else is left to raise the bound
            harder = ~course.hard & (primal * (1 - tol) > course.lower)
        if harder.any():
            classes.judge(np.flatnonzero(harder).tolist(), weights, "anew")
            course.hard |= harder
        elif (primal * (1 - tol) <= course.lower).all() and len(
            untrained := np.flatnonzero(_gaps(primal, lower) > tol)
        ):
            settle(untrained)  # the weights are there: no class shall be worse trained than asked
        own = {**course.cuts.arrays(), **course.walk.arrays(), "hard": course.hard, "centre": weights}
        worst, calls = float(primal.max()), course.classes.svm_calls
        after = replace(
            state,
            working=course.classes.working,
            dual=np.array([course.lower]),
            svm_calls=state.svm_calls + calls,
            oracle_calls=state.oracle_calls + calls,
            own=ArraysState({**own, "forms": kept(state)["forms"]}),
        )
        if worst > state.primal[0]:  # as good is better: the worst may be a class that nobody has trained yet
            return after
        found = {"coef": course.classes.coef, "intercept": intercept, "primal": np.array([worst])}
        return replace(after, weights=weights, own=ArraysState({**own, "forms": course.forms}), **found)


def _gaps(primal: Float64, lower: Float64) -> Float64:
    """Each class's own relative gap."""
    return relative_gap(primal, lower)


METHODS: Registry[bool] = Registry("method")  # whether it is the paper's walk and nothing else
METHODS.register("sa", False)
METHODS.register("sa-paper", True)
