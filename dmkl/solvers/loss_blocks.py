"""Classes with any loss in working-set rounds: which method solves their blocks, and what the rounds keep of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from dmkl._util.types import Float64
from dmkl.data.sample_sets import SampleSets
from dmkl.problems.losses import Loss
from dmkl.solvers import proximal, weight_newton
from dmkl.solvers.kernel_operators import KernelOperator
from dmkl.solvers.loss_problem import Penalty, Solution, Start
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState
from dmkl.solvers.working_sets import BlockProblem, BlockSolution, ClassMethod, first_sets, whole

LossMethodName: TypeAlias = Literal["newton", "proximal"]
OWN_MATRICES = 3  # of the size of a sum of kernels: the sum itself, its factor, and pieces of it


@dataclass(frozen=True)
class LossState(MethodState):
    """What the proximal method goes on with, and a row for each iteration of either method."""

    step: Float64  # (m,) the penalty parameter of the kernels that each class ended with
    trace: Float64  # (iterations, 5): round, class, gap on the block, active kernels, steps

    def iterations(self) -> list[dict[str, float]]:
        names = ("round", "class", "gap", "kernels", "steps")
        return [dict(zip(names, row, strict=True)) for row in self.trace.tolist()]


def first_samples(problem: Problem, loss: Loss) -> SampleSets:
    """All samples, or random ones of either side where the loss is sparse in samples."""
    if whole(problem.n) or not loss.sparse:
        return SampleSets.whole(problem.n, problem.m)
    above = problem.Y.sides().copy()
    for k in np.flatnonzero(2 * above.sizes > problem.n):  # most signs are positive: none is above their median
        above.put(int(k), np.zeros(problem.n, dtype=bool))
    return first_sets(above, problem.seed)


class LossClassMethod(ClassMethod):
    """A class method whose blocks are problems with a loss."""

    own_type: ClassVar[type[MethodState]] = LossState

    def first_own(self, problem: Problem) -> MethodState:
        return LossState(np.zeros(problem.m), np.empty((0, 5)))

    def next_own(
        self, own: MethodState, number: int, classes: Sequence[int], solutions: Sequence[BlockSolution]
    ) -> MethodState:
        assert isinstance(own, LossState)
        steps, rows = own.step.copy(), [own.trace]
        for k, solution in zip(classes, solutions, strict=True):
            steps[k] = solution.step
            assert solution.trace is not None
            rows.append(np.column_stack([np.full((len(solution.trace), 2), (number, k)), solution.trace]))
        return LossState(steps, np.concatenate(rows))

    def warm_step(self, own: MethodState, k: int) -> float:
        assert isinstance(own, LossState)
        return float(own.step[k])


def solve(
    method: LossMethodName,
    problem: BlockProblem,
    kernels: KernelOperator,
    loss: Loss,
    penalty: Penalty,
    tol: float,
    start: Start | None,
) -> Solution:
    """Solve a block by the method of this name."""
    if method == "proximal":
        return proximal.minimise(kernels, problem.y, loss, penalty, tol, start)
    return weight_newton.minimise(kernels, problem.y, loss, penalty, tol, start, problem.threads)
