"""SharedMKL with mode "sum" by the paper's own steps: ML-MKL-Sum of Bucak et al. (2010).

    p_a  <-  p_a exp( eta/2 sum_k D_a(beta_k) ) / Z

with the SVMs of all classes at every step: mirror descent along the gradient of the sum (section 2 and the step of
equation 7). eta is constant, or the steps are scale-free (`SaddleIterates`). The method "mirror" of `shared_sum.py`
goes in the same direction by steps that adapt. A round is some steps on the blocks; the best weights are certified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Array, Float64
from dmkl.problems.shared import SharedMKL
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.problem import Problem
from dmkl.solvers.shared_max import MINIMAX, PAPERS_STOP, SaddleIterates
from dmkl.solvers.shared_sum import CuttingPlanes, SumOfClasses, SumState, Trial
from dmkl.solvers.shared_svms import ClassSvms
from dmkl.solvers.state import MethodState, State


@dataclass(frozen=True)
class FullGradientState(SumState):
    """The iterates of mirror descent; there are no cuts."""

    walk_log_weights: Float64
    walk_weight_sum: Float64
    walk_path: Float64
    walk_last: Float64
    still: Array | None = None  # whether the paper's stop has ended the walk; None where it is not asked for

    @classmethod
    def at(cls, walk: SaddleIterates, centre: Float64, still: Array | None = None) -> FullGradientState:
        none = CuttingPlanes.none(len(centre))
        own = walk.log_weights, walk.weight_sum, walk.path, walk.last
        return cls(none.total, none.forms, none.owner, centre, *own, still)

    @property
    def iterates(self) -> SaddleIterates:
        """With one class in place of all: the classes have no weights here."""
        one = np.zeros(1)
        return SaddleIterates(self.walk_log_weights, one, self.walk_weight_sum, one, self.walk_path, self.walk_last)

    def rule(self, tol: float) -> str:
        return PAPERS_STOP if self.still is not None and self.still.any() else ""


def build(formulation: SharedMKL, problem: Problem) -> FullGradientSum:
    """The rounds of the method "mirror-paper"."""
    problem.stack.require_semidefinite("SharedMKL")
    return FullGradientSum(formulation)


class FullGradientSum(SumOfClasses):
    """The solver. One step is a round."""

    own_type: ClassVar[type[MethodState]] = FullGradientState

    def __init__(self, formulation: SharedMKL) -> None:
        super().__init__(formulation.C, formulation.intercept, "mirror-paper")
        self._eta, self._papers_stop = formulation.eta, formulation.stop == "paper"

    def init(self, problem: Problem) -> State:
        state = super().init(problem)
        return replace(state, own=FullGradientState.at(SaddleIterates.start(problem.stack.s, 1), state.weights))

    def _inner(self, problem: Problem, state: State, classes: ClassSvms) -> tuple[Trial, FullGradientState, float, int]:
        options, walk = self._options, state.own_as(FullGradientState).iterates
        wanted = self._wanted(problem, state)
        best: Trial | None = None
        lower, gap, number, still = -np.inf, options.loose_gap, 0, False
        while number < options.inner_steps and not still:
            try:
                trial, total = self._try(problem, classes, walk.weights, options.svm_tol(gap, wanted))
            except Stopped:
                if best is None:
                    raise
                break
            number += 1
            if best is None or trial.primal < best.primal:
                best = trial
            forms = trial.forms.sum(axis=0)
            walk.move(-0.5 * forms, np.zeros(1), self._eta)
            lower = max(lower, total - 0.5 * float(forms.max()))
            gap = relative_gap(best.primal, lower)
            still = self._papers_stop and walk.change < MINIMAX.still
            if gap <= wanted or must_stop():
                break
        assert best is not None
        own = FullGradientState.at(walk, best.weights, np.array(still) if self._papers_stop else None)
        return best, own, lower, number
