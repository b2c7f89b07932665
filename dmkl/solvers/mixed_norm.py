"""VSKL, L1MKL and LpMKL on working sets: weights by a block method, then the SVM at these weights.

A compact block is solved whole, by the interior point method or by mirror descent; the SVM at its weights gives the
sparse alpha, and the certificate needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.oracles import ORACLES
from dmkl.problems.norms import MixedNorm
from dmkl.problems.vskl import MixedNormMKL
from dmkl.solvers.certificate import Certificate, CertifiedWeights, best_multiple, relative_gap
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.kernel_operators import combine, quadratic_forms
from dmkl.solvers.low_rank import CertifiedPoint, solve_any_rank
from dmkl.solvers.mirror import MirrorOptions, solve_mirror
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import State
from dmkl.solvers.working_sets import (
    BlockOptions,
    BlockProblem,
    BlockSolution,
    ClassMethod,
    OneVsRest,
    own_layers,
    whole,
)

# K (kernels, n, n), y (n,), bounds of alpha (n,), norm, tolerance, SVM oracle
SolveWeights: TypeAlias = Callable[[FloatArray, Float64, Float64, MixedNorm, float, str], CertifiedWeights]


@dataclass(frozen=True)
class MixedNormOptions:
    """Tolerances of compact problems, and which kernels they hold."""

    block_share: float = 0.5  # of the tolerance, for the block; the rest is for the samples outside
    candidate: float = 0.8  # kernels whose quadratic form reaches this share of their group's largest stay in the block
    # kernels whose weight and norm are below this times the tolerance times the largest get no weight: passes skip them
    negligible: float = 0.01
    tighten: float = 0.02  # a block method's tolerance from one attempt to the next
    svm_share: float = 0.02  # of the tolerance, for the SVM at the weights: slacks count C times in the primal value


OPTIONS = MixedNormOptions()


@dataclass(frozen=True)
class BlockMethod:
    """How a block is solved, to which share of the whole tolerance, and in how many attempts at most."""

    solve: SolveWeights
    share: float
    attempts: int = 1


BLOCK_METHODS: dict[str, BlockMethod] = {
    # only the weights of interior points are used; with kinks in the norm (q = inf) nearly right ones may not be enough
    "interior": BlockMethod(solve_any_rank, share=0.3, attempts=3),
    "mirror": BlockMethod(solve_mirror, share=0.4),
    "mirror-paper": BlockMethod(partial(solve_mirror, options=MirrorOptions(rule="paper")), share=0.4),
}


def build(formulation: MixedNormMKL, problem: Problem) -> Solver:
    """Working-set rounds, blocks solved by the problem's method."""
    problem.stack.require_semidefinite(type(formulation).__name__)
    norm = formulation.norm(problem.stack.groups)
    return OneVsRest(MixedNormMethod(formulation.C, norm, problem.method, OPTIONS), problem.stack.dtype)


@dataclass(frozen=True)
class MixedNormMethod(ClassMethod):
    """Blocks of the kernels that matter; weights for each class."""

    C: float
    norm: MixedNorm
    block_method: str
    options: MixedNormOptions = field(default_factory=MixedNormOptions)

    def first_weights(self, problem: Problem) -> Float64:
        return np.tile(self.norm.uniform(), (problem.m, 1))

    def first_state(self, problem: Problem, state: State) -> State:
        return outlined(problem, state, self.norm.uniform(), self.C)

    def layers(self, problem: Problem, active: Mask) -> int:
        return own_layers(problem, int(active.sum()))

    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        return {"kernels": [A.tolist() for A in kernels]}

    def solve(self, problem: BlockProblem) -> BlockSolution:
        """Weights by the block method, then the SVM at them; tighter while the block's own certificate asks for it."""
        method = BLOCK_METHODS[self.block_method]
        inner, svm_calls, oracle_calls, least = method.share * problem.tol, 0, 0, np.inf
        for _ in range(method.attempts):
            solution, gap = self._attempt(problem, method, inner)
            svm_calls, oracle_calls = svm_calls + solution.svm_calls, oracle_calls + solution.oracle_calls
            if gap <= least:
                best, least = solution, gap
            if least <= self.options.block_share * problem.tol or must_stop():
                break
            inner *= self.options.tighten
        return replace(best, svm_calls=svm_calls, oracle_calls=oracle_calls)

    def _attempt(self, problem: BlockProblem, method: BlockMethod, inner: float) -> tuple[BlockSolution, float]:
        """A solution and its relative gap on the block."""
        K, y, norm = problem.array, problem.y, self.norm.among(problem.kernels)
        upper = self.C * problem.counts
        found = method.solve(K, y, upper, norm, inner, problem.oracle)
        if isinstance(found, CertifiedPoint):
            proof, calls = (found.proof, found.proof_forms), (found.svm_calls, found.oracle_calls)
            solution = BlockSolution(found.beta, found.dual, *calls, found.weights, found.penalty, *proof)
            return solution, relative_gap(found.primal, found.dual)
        least, norms = self.options.negligible * problem.tol, found.weights * np.sqrt(found.proof_forms)
        some = (found.weights > least * found.weights.max()) | (norms > least * norms.max())
        weights = np.where(some, found.weights, 0.0)
        combined = np.empty(K.shape[1:])
        combine(K, weights, combined)
        exact = self.options.svm_share * problem.tol
        svm = ORACLES[problem.oracle](combined, y, upper, alpha=np.abs(found.beta), tol=exact)
        beta, calls = svm.alpha * y, (found.svm_calls + 1, found.oracle_calls + 1)
        forms = quadratic_forms(K, beta, weights > 0)
        penalty = norm.regulariser(weights * np.sqrt(forms))
        solution = BlockSolution(beta, found.dual, *calls, weights, penalty, found.proof, found.proof_forms)
        primal = self.primal(beta, svm.scores, y, problem.counts, solution).primal
        if relative_gap(primal, found.dual) > self.options.block_share * problem.tol:  # beta itself may prove more
            forms = quadratic_forms(K, beta)
            dual = float(svm.alpha.sum()) - norm.conjugate(forms)
            if dual > found.dual:
                solution = replace(solution, dual=dual, proof=beta, proof_forms=forms)
        return solution, relative_gap(primal, solution.dual)

    def primal(
        self, beta: Float64, scores: Float64, y: Float64, counts: Float64, solution: BlockSolution
    ) -> Certificate:
        return best_multiple(solution.penalty, beta, scores, y, self.C * counts)

    def dual(self, solution: BlockSolution, forms: Float64, y: Float64, counts: Float64) -> float:
        assert solution.proof is not None
        return min(solution.dual, float(np.abs(solution.proof).sum()) - self.norm.conjugate(forms))

    def next_kernels(self, weights: Float64, forms: Float64) -> Mask:
        largest = self.norm.radii(forms)[self.norm.groups] ** 2
        return np.asarray((weights > 0) | (forms >= self.options.candidate * largest))

    def first_kernels(self, problem: Problem, active: Mask) -> Mask:
        if whole(problem.n):
            return np.ones_like(active)
        missing = np.array([self.norm.total(row) == 0 for row in active])
        return np.asarray(active | missing[:, self.norm.groups])
