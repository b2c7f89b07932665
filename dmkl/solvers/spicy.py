"""SpicyMKL on working sets of kernels (FORMULATIONS section 2; Suzuki and Tomioka 2009).

The sparsity is in the kernels: a compact problem holds the few of thousands that matter, and every pass looks at all of
them. Samples leave it only where the loss has rho = 0 for samples that are fitted well (hinge, epsilon). A compact
problem is solved by proximal minimisation, on a block where that fits in memory, else through passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dmkl._util.types import Float64, Mask, Samples
from dmkl.problems.losses import Loss
from dmkl.problems.spicy import SpicyMKL, null_forms
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.proximal import Penalty, ProximalClassMethod, ProximalStart, first_samples, minimise
from dmkl.solvers.state import State
from dmkl.solvers.working_sets import BlockOptions, BlockProblem, BlockSolution, OneVsRest, own_layers


@dataclass(frozen=True)
class SpicyOptions:
    """Tolerances of compact problems, and which kernels they hold."""

    block_share: float = 0.5  # of the tolerance, for the block; the rest is for the samples and kernels outside
    early: float = 0.02  # of the gap certified so far: the next pass brings in more than that
    first: float = 0.1  # the gap of the first compact problem
    near: float = 0.9  # kernels with ||rho||_a above this share of the bound enter the block
    fewest: int = 48  # at most so many of them enter,
    as_many: int = 2  # or so many times the kernels with weight


OPTIONS = SpicyOptions()


def build(formulation: SpicyMKL, problem: Problem) -> Solver:
    """Working-set rounds over kernels, and over samples where the loss is sparse."""
    problem.stack.require_semidefinite("SpicyMKL")
    penalty = Penalty(formulation.C, formulation.ridge)
    return OneVsRest(SpicyMethod(formulation.own_loss(), penalty, OPTIONS), problem.stack.dtype)


@dataclass(frozen=True)
class SpicyMethod(ProximalClassMethod):
    """Blocks of the kernels near the bound and, where the loss is sparse, of some samples."""

    loss: Loss
    penalty: Penalty
    options: SpicyOptions = field(default_factory=SpicyOptions)

    def first_weights(self, problem: Problem) -> Float64:
        return np.zeros((problem.m, problem.stack.s))

    def first_state(self, problem: Problem, state: State) -> State:
        """All samples, or random ones of either side; the kernels along which the loss falls fastest."""
        forms = null_forms(problem.stack, self.loss.counting(problem.counts), problem.Y)
        largest = np.sqrt(forms.max(axis=1, keepdims=True))
        scaled = forms * np.minimum(1.0, self.penalty.C / np.maximum(largest, 1e-300)) ** 2
        active = np.array([self.next_kernels(np.zeros(len(row)), row) for row in scaled])
        return replace(state, active=active, working=first_samples(problem, self.loss))

    def layers(self, problem: Problem, active: Mask) -> int:
        return own_layers(problem, int(active.sum()))

    def streaming_substitute(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> StreamedKernels:
        each = np.zeros((len(kernels), problem.stack.s))
        each[np.arange(len(kernels)), kernels] = 1.0
        return StreamedKernels(problem.stack, each, samples, room)

    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        return {"kernels": [A.tolist() for A in kernels]}

    def solve(self, problem: BlockProblem) -> BlockSolution:
        streamed = problem.block if isinstance(problem.block, StreamedKernels) else None
        gap = self.options.early * problem.gap if np.isfinite(problem.gap) else self.options.first
        gap = 0.0 if streamed else gap  # a streamed problem costs passes: it is solved once, exactly
        warm = problem.warm
        start = ProximalStart(warm.beta, warm.weights, warm.intercept, warm.step) if warm.weights.any() else None
        found = minimise(
            streamed or BlockKernels(problem.array),
            problem.y,
            self.loss.counting(problem.counts),
            self.penalty,
            max(self.options.block_share * problem.tol, gap),
            start,
        )
        return BlockSolution(
            found.rho,
            found.dual,
            weights=found.weights,
            penalty=found.penalty,
            proof=found.proof,
            proof_forms=found.proof_forms,
            step=found.step,
            trace=found.trace,
        )

    def primal(
        self, beta: Float64, scores: Float64, y: Float64, counts: Float64, solution: BlockSolution
    ) -> Certificate:
        loss = self.loss.counting(counts)
        b = loss.intercept(y, scores)
        return Certificate(loss.total(y, scores + b) + solution.penalty, b, loss.margins(y, scores + b))

    def dual(self, solution: BlockSolution, forms: Float64, y: Float64, counts: Float64) -> float:
        assert solution.proof is not None
        return self.penalty.dual(self.loss.counting(counts), y, solution.proof, forms)[0]

    def as_known(self, beta: Float64, weights: Float64, forms: Float64, y: Float64, counts: Float64) -> BlockSolution:
        penalty, none = self.penalty.primal(weights * np.sqrt(forms)), np.zeros_like(beta)
        return BlockSolution(beta, 0.0, weights=weights, penalty=penalty, proof=none, proof_forms=np.zeros_like(forms))

    def next_kernels(self, weights: Float64, forms: Float64) -> Mask:
        most = max(self.options.fewest, self.options.as_many * int(np.count_nonzero(weights)))
        near = np.flatnonzero(forms >= (self.options.near * self.penalty.C) ** 2)
        nearest = near[np.argsort(-forms[near], kind="stable")[:most]]
        chosen = np.asarray(weights > 0)
        chosen[nearest] = True
        return chosen if chosen.any() else np.asarray(forms >= forms.max())

    def first_kernels(self, problem: Problem, active: Mask) -> Mask:
        return active
