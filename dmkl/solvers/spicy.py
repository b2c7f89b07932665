"""SpicyMKL: block-l1 with any convex loss, and the elastic net (FORMULATIONS section 2; Suzuki and Tomioka 2009).

    min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2        (a larger C is sparser)

What is sparse here is kernels: a compact problem holds the few that matter, of thousands, and every pass looks at all
of them. Samples leave it only where the loss has rho = 0 for what is fitted well (hinge, epsilon). A compact problem is
solved by proximal minimisation (`proximal/`), from a block where that fits in memory, else through passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.problems.losses import Loss
from dmkl.problems.spicy import SpicyMKL, null_forms
from dmkl.solvers.blocks import own_layers
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.proximal import Held, Penalty, Start, Streamed, minimise
from dmkl.solvers.rounds import Answer, ProximalState, Question, Rounds
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import first_samples

HALF = 0.5  # what a compact problem may take of the tolerance, so that what is outside has some left
EARLY = 0.02  # and of the gap certified so far: what the next pass brings in changes more than that
FIRST = 0.1  # the gap of the first compact problem
NEAR = 0.9  # kernels with ||rho||_a above this share of the bound enter the block,
FEWEST, AS_MANY = 48, 2  # those nearest to it: so many, or so many times those with weight


def build(formulation: SpicyMKL, problem: Problem) -> Solver:
    """Working-set rounds over kernels, and over samples where the loss is sparse."""
    problem.stack.require_semidefinite("SpicyMKL")
    machine = _Machine(formulation.own_loss(), Penalty(formulation.C, formulation.ridge))
    return Rounds(machine, problem.stack.dtype)


@dataclass(frozen=True)
class _Machine:
    """The machine of working-set rounds: the kernels near the bound, and where the loss is sparse some samples."""

    own_type: ClassVar[type[MethodState]] = ProximalState

    loss: Loss
    penalty: Penalty

    def first_weights(self, problem: Problem) -> Float64:
        return np.zeros((problem.m, problem.stack.s))

    def outlined(self, problem: Problem, state: State) -> State:
        """All samples, or random ones of either side; the kernels that the model without kernels misses most."""
        forms = null_forms(problem.stack, self.loss.counting(problem.counts), problem.Y)
        largest = np.sqrt(forms.max(axis=1, keepdims=True))
        scaled = forms * np.minimum(1.0, self.penalty.C / np.maximum(largest, 1e-300)) ** 2
        active = np.array([self.matter(np.zeros(len(row)), row) for row in scaled])
        return replace(state, active=active, working=first_samples(problem, self.loss))

    def layers(self, problem: Problem, active: NDArray[np.bool_]) -> int:
        return own_layers(problem, int(active.sum()))

    def streamed(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> Streamed:
        each = np.zeros((len(kernels), problem.stack.s))
        each[np.arange(len(kernels)), kernels] = 1.0
        return Streamed(problem.stack, each, samples, room)

    def cut(self, problem: Problem, state: State, kernels: list[Samples]) -> dict[str, Any]:
        return {"kernels": [A.tolist() for A in kernels]}

    def solve(self, question: Question) -> Answer:
        streamed = isinstance(question.block, Streamed)
        kernels = question.block if streamed else Held(question.block)
        gap = EARLY * question.gap if np.isfinite(question.gap) else FIRST
        gap = 0.0 if streamed else gap  # passes are what it costs: no beginning again
        warm = question.warm
        start = Start(warm.beta, warm.weights, warm.intercept, warm.step) if warm.weights.any() else None
        loss = self.loss.counting(question.counts)
        found = minimise(kernels, question.y, loss, self.penalty, max(HALF * question.tol, gap), start)
        return Answer(
            found.rho,
            found.dual,
            weights=found.weights,
            penalty=found.penalty,
            proof=found.proof,
            proof_forms=found.proof_forms,
            step=found.step,
            trace=found.trace,
        )

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certificate:
        loss = self.loss.counting(counts)
        b = loss.intercept(y, scores)
        return Certificate(loss.total(y, scores + b) + answer.penalty, b, loss.margins(y, scores + b))

    def dual(self, answer: Answer, forms: Float64, y: Float64, counts: Float64) -> float:
        assert answer.proof is not None
        return self.penalty.dual(self.loss.counting(counts), y, answer.proof, forms)[0]

    def matter(self, weights: Float64, forms: Float64) -> NDArray[np.bool_]:
        most = max(FEWEST, AS_MANY * int(np.count_nonzero(weights)))
        near = np.flatnonzero(forms >= (NEAR * self.penalty.C) ** 2)
        nearest = near[np.argsort(-forms[near], kind="stable")[:most]]
        matter = np.asarray(weights > 0)
        matter[nearest] = True
        return matter if matter.any() else np.asarray(forms >= forms.max())

    def covered(self, problem: Problem, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return active
