"""SharedMKL with mode "sum": minimise the sum of all classes' objectives over the kernel weights, by cutting planes.

    min_p sum_k H_k(p),     p >= 0, sum(p) = 1

A round tries weights on compact blocks until their gap is small, then one pass certifies the best over all samples.
The alpha of any SVM solved on the way gives a linear function of p that never exceeds that class's objective,

    H_k(p) >= total - 1/2 p . forms        total = sum(alpha), forms = D_a(beta)

so a convex combination of cuts of the whole objective proves a lower bound: its minimum over the simplex. Two rules
choose the next weights. Mirror descent, the reference, takes multiplicative steps along the gradient, which adapt
(`shared_full.py` has the paper's own). The bundle method goes where the largest cut plus a quadratic around the best
point so far (`centre`) is least:

    min_{p, t}  t + 1/2 (p - centre)' Q (p - centre)    s.t.  heights_i + slopes_i . p <= t,  p >= 0,  sum(p) = 1

which `simplex_qp.py` solves. The method for the worst class (`shared_max.py`) uses the same cutting planes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Float64, Mask, Samples
from dmkl.problems.shared import SharedMKL
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.problem import Problem
from dmkl.solvers.shared_svms import Blocks, ClassSvms
from dmkl.solvers.simplex_qp import simplex_qp
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import block_room, first_sets, whole


@dataclass(frozen=True)
class BundleOptions:
    """Constants of the bundle methods, for the sum of the classes and for the worst class."""

    inner_steps: int = 25  # weights tried in one round at most
    tol_share: float = 0.5  # of the tolerance, for the inner problem: the samples outside the blocks need the rest
    gap_share: float = 0.1  # of the certified gap so far: the first rounds are solved loosely
    first_gap: float = 0.05  # the inner gap of the first round
    svm_share: float = 0.1  # the tolerance of an SVM as a share of the inner gap so far
    loose_gap: float = 0.1  # the gap that the first SVMs are solved for
    least_fall: float = 0.1  # a step that falls by less than this share of what the model promised is rejected
    stiffer: float = 4.0  # factor of the curvature after a rejected step
    stiffest: float = 64.0  # the largest such factor; from there the new cuts have to do the rest
    proximity: float = 0.1  # of gap times objective, added to the curvature: a model of cuts alone jumps
    rounding: float = 1e-10  # of the objective: a smaller rise is rounding, the QP is solved no further
    kept_cuts: int = 12  # newest cuts of a class that are kept; older ones are kept while their multiplier is positive
    least_multiplier: float = 1e-6  # smaller multipliers count as zero

    def svm_tol(self, gap: float, wanted: float) -> float:
        """The tolerance of an SVM at weights with this gap, when the gap `wanted` is to be reached.

        Weights that are off by e raise the objective by e^2 and lower the bound by e, so the smaller the gap is, the
        more digits it takes to see which of two weights is better.
        """
        least = min(max(gap, wanted), 1.0)  # first gaps can be far above 1, where any alpha would do
        return min(self.svm_share * least, least * float(np.sqrt(least)))


@dataclass(frozen=True)
class MirrorStepOptions:
    """The step size eta of mirror descent."""

    first: float = 1.0
    growth: float = 1.15  # factor after the objective fell
    cut: float = 0.5  # factor after it rose


BUNDLE = BundleOptions()
MIRROR = MirrorStepOptions()


@dataclass(frozen=True)
class ModelMinimum:
    """The point where a model of cuts is least."""

    weights: Float64  # (s,)
    multipliers: Float64  # (cuts,)
    active: Mask  # (cuts,): whose multiplier is positive
    value: float  # of the model
    bound: float  # lower bound of the objective that the cuts prove


@dataclass(frozen=True)
class CuttingPlanes:
    """Cuts; `owner` says whose objective a cut bounds: the number of a class, or -1 for the sum of all classes."""

    total: Float64  # (cuts,)
    forms: Float64  # (cuts, s)
    owner: Samples  # (cuts,)

    @classmethod
    def none(cls, s: int) -> CuttingPlanes:
        """No cuts yet, of s kernels."""
        return cls(np.zeros(0), np.zeros((0, s)), np.zeros(0, dtype=np.int64))

    def plus(self, total: Float64, forms: Float64, owner: Samples) -> CuttingPlanes:
        """With more cuts, the newest last."""
        return CuttingPlanes(
            np.concatenate([self.total, total]), np.vstack([self.forms, forms]), np.concatenate([self.owner, owner])
        )

    def pruned(self, active: Mask, options: BundleOptions = BUNDLE) -> CuttingPlanes:
        """Without the old cuts that are not active."""
        newest = np.zeros(len(self.total), dtype=bool)
        seen: dict[int, int] = {}
        for number in range(len(self.owner) - 1, -1, -1):
            k = int(self.owner[number])
            seen[k] = seen.get(k, 0) + 1
            newest[number] = seen[k] <= options.kept_cuts
        keep = newest | active
        return CuttingPlanes(self.total[keep], self.forms[keep], self.owner[keep])

    def values(self, weights: Float64) -> Float64:
        """(cuts,): every cut at these weights."""
        return self.total - 0.5 * self.forms @ weights

    def highest(self, weights: Float64) -> float:
        """The largest cut at these weights: a lower bound of the objective there."""
        return float(self.values(weights).max())

    def highest_of_each(self, weights: Float64, m: int) -> Float64:
        """(m,): every class's largest cut at these weights; -inf for a class without cuts."""
        highest = np.full(m, -np.inf)
        np.maximum.at(highest, self.owner, self.values(weights))
        return highest

    def bound(self, multipliers: Float64) -> float:
        """The lower bound that this convex combination of cuts proves."""
        return float(multipliers @ self.total) - 0.5 * float((multipliers @ self.forms).max())

    def minimum(self, centre: Float64, curvature: Float64, options: BundleOptions = BUNDLE) -> ModelMinimum:
        """The minimum of the largest cut plus the curvature (s, s) around `centre` (s,)."""
        weights, multipliers = simplex_qp(self.total, -0.5 * self.forms, curvature, centre)
        newest = np.zeros(len(self.total))
        newest[-1] = 1.0
        plain = simplex_qp(self.total, -0.5 * self.forms, np.zeros_like(curvature), centre)[1]  # the tightest bound
        step = weights - centre
        value = self.highest(weights) + 0.5 * float(step @ curvature @ step)
        active = np.maximum(multipliers, plain) > options.least_multiplier
        return ModelMinimum(weights, multipliers, active, value, max(self.bound(plain), self.bound(newest)))


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
        state = State.first(weights, first_sets(problem.Y.sides(), problem.seed), room=block_room(problem), bounds=1)
        state = outlined(problem, state, weights, self._C, intercept=self._intercept)
        return replace(state, own=SumState.of(CuttingPlanes.none(s), state.weights))

    def step(self, problem: Problem, state: State) -> State:
        blocks = self._blocks = self._blocks or Blocks(problem, state)
        classes = ClassSvms(problem, blocks, state, self._C, self._intercept)
        try:
            best, own, lower, trials = self._inner(problem, state, classes)
        except Stopped:
            if np.isfinite(state.primal[0]):
                raise
            classes.keep(classes.alpha)  # nothing is certified yet: at least the next call goes on from here
            return replace(state, coef=classes.coef, svm_calls=state.svm_calls + classes.svm_calls)
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
        """A run that ends before its first certificate gets one, if there is time for the passes."""
        if np.isfinite(state.primal[0]) or not state.coef.nnz:
            return state
        classes = ClassSvms(problem, Blocks(problem, state), state, self._C, self._intercept)
        everyone = range(problem.m)
        try:
            values, forms = classes.evaluate(everyone, state.weights, "keep"), classes.forms(everyone)
        except Stopped:
            return state
        primal, total = float(values.primal.sum()), float(np.abs(state.coef.data).sum())
        cut = CuttingPlanes.none(problem.stack.s).plus(np.array([total]), forms.sum(axis=0)[None], np.array([-1]))
        dual = np.array([cut.bound(np.ones(1))])
        return replace(state, primal=np.array([primal]), dual=dual, intercept=values.intercept)

    def _inner(self, problem: Problem, state: State, classes: ClassSvms) -> tuple[Trial, SumState, float, int]:
        """The best trial on the blocks, the cuts and the centre, a lower bound, and the number of trials."""
        options, own = self._options, state.own_as(SumState)
        wanted = self._wanted(problem, state)
        cuts, lower, gap = own.cuts, -np.inf, options.loose_gap
        rule = RULES[self._rule](options)
        best, weights = None, own.centre
        number = 0
        while number < options.inner_steps:
            try:
                trial, total = self._try(problem, classes, weights, options.svm_tol(gap, wanted))
            except Stopped:
                if best is None:
                    raise
                break
            number += 1
            cuts = cuts.plus(np.array([total]), trial.forms.sum(axis=0)[None], np.array([-1]))
            if best is None or trial.primal < best.primal:
                best = trial
            weights, bound, cuts = rule.next(trial, cuts, gap)
            lower = max(lower, bound)
            gap = relative_gap(best.primal, lower)
            if gap <= wanted or must_stop():
                break
        assert best is not None
        assert rule.centre is not None
        return best, SumState.of(cuts, rule.centre.weights), lower, number

    def _wanted(self, problem: Problem, state: State) -> float:
        """The gap wanted on the blocks: not far below the gap that the last round was certified to."""
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
