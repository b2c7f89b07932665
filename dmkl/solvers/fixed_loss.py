"""Any convex loss at given kernel weights, one-vs-rest or regression:  min 1/2 ||w||^2 + C sum_i l(y_i, f(x_i) + b).

It is the proximal method with one kernel, no sparsity and a ridge of 1 / C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.problems.losses import Loss
from dmkl.problems.uniform import UniformMKL
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.proximal import Held, Penalty, Start, Streamed, minimise
from dmkl.solvers.rounds import Answer, ProximalState, Question, Rounds
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import first_samples

INNER = 0.25  # a compact problem's tolerance as a share of the whole one's


def build(formulation: UniformMKL, problem: Problem) -> Solver:
    """Any loss on the average kernel."""
    problem.stack.require_semidefinite("UniformMKL")
    weights = np.full(problem.stack.s, 1.0 / problem.stack.s)
    return Rounds(FixedLoss(formulation.own_loss(), formulation.C, weights), problem.stack.dtype)


@dataclass(frozen=True)
class FixedLoss:
    """The machine of working-set rounds: one combined matrix a block."""

    own_type: ClassVar[type[MethodState]] = ProximalState

    loss: Loss
    C: float
    weights: Float64

    def first_weights(self, problem: Problem) -> Float64:
        return self.weights

    def outlined(self, problem: Problem, state: State) -> State:
        return replace(state, working=first_samples(problem, self.loss))

    def layers(self, problem: Problem, active: NDArray[np.bool_]) -> int:
        return 1

    def streamed(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> Streamed:
        return Streamed(problem.stack, self.weights[None], samples, room)

    def cut(self, problem: Problem, state: State, kernels: list[Samples]) -> dict[str, Any]:
        return {"weights": state.weights}

    def solve(self, question: Question) -> Answer:
        kernel = question.block if isinstance(question.block, Streamed) else Held(question.block[None])
        warm = question.warm
        start = Start(warm.beta / self.C, np.array([self.C]), warm.intercept, warm.step) if warm.beta.any() else None
        loss = self.loss.counting(question.counts)
        found = minimise(kernel, question.y, loss, Penalty(0.0, 1.0 / self.C), INNER * question.tol, start)
        return Answer(found.weights[0] * found.rho, self.C * found.dual, step=found.step, trace=found.trace)

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certificate:
        loss = self.loss.counting(counts)
        b = loss.intercept(y, scores)
        value = 0.5 * float(beta @ scores) + self.C * loss.total(y, scores + b)
        return Certificate(value, b, loss.margins(y, scores + b))

    def dual(self, answer: Answer, forms: Float64, y: Float64, counts: Float64) -> float:
        return answer.dual

    def matter(self, weights: Float64, forms: Float64) -> NDArray[np.bool_]:
        return np.ones(len(weights), dtype=bool)

    def covered(self, problem: Problem, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.ones_like(active)
