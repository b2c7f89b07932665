"""SpicyMKL on working sets of kernels (FORMULATIONS section 2; Suzuki and Tomioka 2009).

The sparsity is in the kernels: a compact problem holds the few of thousands that matter, and every pass looks at all of
them. Samples leave it only where the loss has rho = 0 for samples that are fitted well (hinge, epsilon), and only where
a block is a copy. A compact problem is solved by Newton's method in the kernel weights, or by the authors' proximal
minimisation, on a block where that fits in memory, else through passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dmkl._util.types import Float64, Mask, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.problems.losses import Loss
from dmkl.problems.spicy import SpicyMKL, null_forms
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels
from dmkl.solvers.loss_blocks import OWN_MATRICES, LossClassMethod, LossMethodName, first_samples, solve
from dmkl.solvers.loss_problem import Penalty, Start
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import State
from dmkl.solvers.working_sets import (
    BlockOptions,
    BlockProblem,
    BlockSolution,
    OneVsRest,
    block_room,
    entering,
    many_kernels,
    own_layers,
    random_kernels,
)


@dataclass(frozen=True)
class SpicyOptions:
    """Tolerances of compact problems, and which kernels they hold."""

    block_share: float = 0.5  # of the tolerance, for the block; the rest is for the samples and kernels outside
    early: float = 0.02  # of the gap certified so far: the next pass brings in more than that
    first: float = 0.1  # the gap of the first compact problem
    whole_share: float = 0.9  # of the tolerance, for a block of everything
    near: float = 0.9  # kernels with ||rho||_a above this share of the bound enter the block
    fewest: int = 48  # at most so many of them enter,
    as_many: int = 2  # or so many times the kernels with weight


OPTIONS = SpicyOptions()


def build(formulation: SpicyMKL, problem: Problem) -> Solver:
    """Working-set rounds over kernels, and over samples where the loss is sparse."""
    problem.stack.require_semidefinite("SpicyMKL")
    penalty = Penalty(formulation.C, formulation.ridge)
    name: LossMethodName = "proximal" if problem.method == "proximal" else "newton"
    return OneVsRest(SpicyMethod(formulation.own_loss(), penalty, name, OPTIONS), problem.stack.dtype)


@dataclass(frozen=True)
class SpicyMethod(LossClassMethod):
    """Blocks of the kernels near the bound and, where the loss is sparse, of some samples."""

    loss: Loss
    penalty: Penalty
    name: LossMethodName = "newton"
    options: SpicyOptions = field(default_factory=SpicyOptions)

    def first_weights(self, problem: Problem) -> Float64:
        return np.zeros((problem.m, problem.stack.s))

    def first_state(self, problem: Problem, state: State) -> State:
        """All samples, or random ones of either side; all kernels, or those along which the loss falls fastest.

        Of very many kernels random ones: a look at all of them costs as much as a round.
        """
        everything = self.holds_all(problem)
        working = SampleSets.whole(problem.n, problem.m) if everything else first_samples(problem, self.loss)
        if many_kernels(problem.stack.s):
            active = np.tile(random_kernels(problem.stack.s, problem.seed), (problem.m, 1))
            return replace(state, active=active, working=working)
        n, s = problem.n, problem.stack.s
        few = s <= self.options.fewest and (self._in_place(problem) or s * n**2 * 8 <= block_room(problem))
        if few and self.name == "newton":
            return replace(state, working=working)
        forms = null_forms(problem.stack, self.loss.counting(problem.counts), problem.Y)
        largest = np.sqrt(forms.max(axis=1, keepdims=True))
        scaled = forms * np.minimum(1.0, self.penalty.C / np.maximum(largest, 1e-300)) ** 2
        active = np.array([self.next_kernels(np.zeros(len(row)), row) for row in scaled])
        return replace(state, active=active, working=working)

    def holds_all(self, problem: Problem) -> bool:
        return self.name == "newton" and self._in_place(problem)

    def _in_place(self, problem: Problem) -> bool:
        """Whether a block of all samples is the stack's own array, of which nothing is copied."""
        return problem.stack.in_one_array and not problem.runtime.remote

    def layers(self, problem: Problem, active: Mask) -> int:
        if self.name == "proximal":
            return own_layers(problem, int(active.sum()))
        return OWN_MATRICES + (0 if self._in_place(problem) else int(active.sum()))

    def streaming_substitute(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> StreamedKernels:
        each = np.zeros((len(kernels), problem.stack.s))
        each[np.arange(len(kernels)), kernels] = 1.0
        return StreamedKernels(problem.stack, each, samples, room)

    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        return {} if self.holds_all(problem) else {"kernels": [A.tolist() for A in kernels]}

    def solve(self, problem: BlockProblem) -> BlockSolution:
        streamed = problem.block if isinstance(problem.block, StreamedKernels) else None
        gap = self.options.early * problem.gap if np.isfinite(problem.gap) else self.options.first
        gap = 0.0 if streamed or problem.complete else gap  # there is nothing else to look at, or passes to save
        share = self.options.whole_share if problem.complete else self.options.block_share
        warm = problem.warm
        start = Start(warm.beta, warm.weights, warm.intercept, warm.step) if warm.weights.any() else None
        kernels = streamed or self._kernels(problem)
        loss = self.loss.counting(problem.counts)
        found = solve(self.name, problem, kernels, loss, self.penalty, max(share * problem.tol, gap), start)
        return BlockSolution(
            found.rho,
            found.dual,
            svm_calls=found.svm_calls,
            oracle_calls=found.evaluations,
            weights=np.maximum(found.weights, 0.0),  # rounding may leave -1e-16
            penalty=found.penalty,
            proof=found.proof,
            proof_forms=found.proof_forms,
            step=found.step,
            trace=found.trace,
            handovers=found.handovers,
        )

    def _kernels(self, problem: BlockProblem) -> BlockKernels:
        """The block, or of the stack's whole array the kernels of this problem."""
        chosen = problem.kernels if len(problem.array) > len(problem.kernels) else None
        return BlockKernels(problem.array, chosen, problem.threads)

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
        near, used = np.flatnonzero(forms >= (self.options.near * self.penalty.C) ** 2), int(np.count_nonzero(weights))
        if many_kernels(len(forms)):
            nearest = entering(near, forms, used)
        else:
            most = max(self.options.fewest, self.options.as_many * used)
            nearest = near[np.argsort(-forms[near], kind="stable")[:most]]
        chosen = np.asarray(weights > 0)
        chosen[nearest] = True
        return chosen if chosen.any() else np.asarray(forms >= forms.max())

    def first_kernels(self, problem: Problem, active: Mask) -> Mask:
        return active
