"""SpicyMKL: block-l1 with any convex loss, and the elastic net (FORMULATIONS section 2; Suzuki and Tomioka 2009).

    min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2        (a larger C is sparser)

What is sparse here is kernels: a compact problem holds the few that matter, of thousands, and every pass looks at all
of them. Samples leave it only where the loss has rho = 0 for what is fitted well (hinge, epsilon). A compact problem is
solved by proximal minimisation (`proximal/`), from a block where that fits in memory, else through passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.data import Labels
from dmkl.errors import ConfigError
from dmkl.problems.losses import Loss, LossLike
from dmkl.solvers.blocks import own_layers
from dmkl.solvers.problem import MINOR, Problem, Solver, shares_of_largest
from dmkl.solvers.proximal import Held, Penalty, Start, Streamed, minimise
from dmkl.solvers.rounds import Answer, Certified, Question, Rounds
from dmkl.solvers.state import State
from dmkl.solvers.targets import WithLoss, first_samples
from dmkl.solvers.uniform import UniformMKL
from dmkl.stack import KernelStack

HALF = 0.5  # what a compact problem may take of the tolerance, so that what is outside has some left
EARLY = 0.02  # and of the gap certified so far: what the next pass brings in changes more than that
FIRST = 0.1  # the gap of the first compact problem
NEAR = 0.9  # kernels with ||rho||_a above this share of the bound enter the block,
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)  # of the largest C, that are worth trying
FEWEST, AS_MANY = 48, 2  # those nearest to it: so many, or so many times those with weight


@dataclass(frozen=True)
class SpicyMKL(WithLoss):
    """Few of many kernels, for classification (hinge, logistic, squared) or regression (squared, epsilon)."""

    C: float = 1.0
    loss: LossLike = "hinge"
    epsilon: float = field(default=0.1, metadata=MINOR)
    ridge: float = field(default=0.0, metadata=MINOR)

    def __post_init__(self) -> None:
        if not (self.ridge >= 0 and np.isfinite(self.ridge)):
            raise ConfigError(f"ridge should be at least 0 and finite, not {self.ridge}")
        if not (np.isfinite(self.C) and (self.C > 0 or (self.C == 0 and self.ridge > 0))):
            raise ConfigError(f"C should be positive and finite (or 0 with a ridge), not {self.C}")
        super().__post_init__()

    usual: ClassVar[Mapping[str, Sequence[Any]]] = {"loss": ("hinge",)}

    @property
    def strength(self) -> float:
        return self.C

    @classmethod
    def usual_grids(
        cls, stack: KernelStack, labels: Labels, given: Mapping[str, Sequence[Any]]
    ) -> list[dict[str, Sequence[Any]]]:
        """Unless C is given, from half of what leaves no kernel down, which takes a pass a loss."""
        values = cls.usual_values(labels, given)
        return shares_of_largest(values, "C", "loss", lambda loss: cls(loss=loss).largest(stack, labels), SHARES)

    def largest(self, stack: KernelStack, labels: Labels) -> float:
        """The smallest C at which no class uses a kernel: where a path over C begins. One pass."""
        return float(np.sqrt(null_forms(stack, self.own_loss(), self.targets(labels)).max()))

    def stretch(self, start: Any) -> float:
        return 1.0  # rho is a slope of the loss, whatever C is

    def baseline(self, weights: Float64) -> UniformMKL:
        """With the average of the kernels weighed in all as these are, which is the same C (FORMULATIONS section 2)."""
        total = float(np.mean(np.sum(np.atleast_2d(weights), axis=1)))
        return UniformMKL(C=max(total, 1e-6), loss=self.loss, epsilon=self.epsilon)

    def solver(self, problem: Problem) -> Solver:
        problem.stack.require_semidefinite("SpicyMKL")
        if problem.method:
            raise ConfigError(f"SpicyMKL knows one method, not '{problem.method}'")
        return Rounds(_Machine(self.own_loss(), Penalty(self.C, self.ridge)), problem.stack.dtype)


def null_forms(stack: KernelStack, loss: Loss, Y: Float64) -> Float64:
    """(m, s): the squared slope of the model without kernels along every kernel; one pass."""
    null = np.stack([loss.null(y) for y in Y.T], axis=1)
    forms = stack.apply(null, np.zeros(stack.s), forms=True).forms
    assert forms is not None
    return np.maximum(forms, 0.0)


@dataclass(frozen=True)
class _Machine:
    """The machine of working-set rounds: the kernels near the bound, and where the loss is sparse some samples."""

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

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certified:
        loss = self.loss.counting(counts)
        b = loss.intercept(y, scores)
        return Certified(loss.total(y, scores + b) + answer.penalty, b, loss.margins(y, scores + b))

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
