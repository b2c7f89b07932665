"""VSKL, L1MKL and LpMKL: weights learnt per class under a mixed norm (FORMULATIONS section 1; Aflalo et al. 2011).

    min  1/2 [ sum_j ( sum_{a in j} ||w_a|| )^(2q) ]^(1/q) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+     VSKL
    min  1/2 ( sum_a ||w_a||^r )^(2/r) + C sum_i [...]+,   r = 2p / (p + 1)                                       LpMKL

Both are one family (`dmkl.problems.norms`). A compact block is solved whole by an interior point method, then the SVM
at its weights gives the sparse alpha; the certificate needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.registry import Registry
from dmkl._util.types import Float64, Samples
from dmkl.oracles import ORACLES
from dmkl.problems.norms import MixedNorm
from dmkl.problems.vskl import MixedNormMKL
from dmkl.solvers.blocks import own_layers
from dmkl.solvers.certificate import Certificate, best_multiple, relative_gap
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.mirror import solve_mirror
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.rounds import Answer, Question, Rounds
from dmkl.solvers.screening import solve_screened
from dmkl.solvers.state import MethodState, NoState, State
from dmkl.solvers.sweep import combine, quadratic_forms
from dmkl.solvers.working_sets import whole

HALF = 0.5  # what a compact problem may take of the tolerance, so that the samples outside have some left
CANDIDATE = 0.8  # kernels whose quadratic form reaches this share of their group's largest stay in the block
NEGLIGIBLE = 0.01  # weights below this times the tolerance times the largest are zero: passes skip those kernels
TIGHTEN = 0.02  # a method's tolerance from one attempt to the next
EXACT = 0.02  # and that of the SVM at its weights: slacks count C times in the primal value


def build(formulation: MixedNormMKL, problem: Problem) -> Solver:
    """The working-set rounds of one class against the rest, blocks solved by the problem's method."""
    problem.stack.require_semidefinite(type(formulation).__name__)
    norm = formulation.norm(problem.stack.groups)
    return Rounds(_MixedNormMachine(formulation.C, norm, problem.method), problem.stack.dtype)


class Found(Protocol):
    """What a method finds on a block: weights, the beta they came with, a proved lower bound, and what it took."""

    @property
    def weights(self) -> Float64: ...

    @property
    def beta(self) -> Float64: ...

    @property
    def dual(self) -> float: ...

    @property
    def proof(self) -> Float64: ...

    @property
    def proof_forms(self) -> Float64: ...

    @property
    def svm_calls(self) -> int: ...

    @property
    def oracle_calls(self) -> int: ...


@dataclass(frozen=True)
class Method:
    """How a block is solved, to which share of the whole tolerance, and how often it may be asked for more."""

    solve: Callable[[Any, Float64, Float64, MixedNorm, float, str], Found]
    share: float
    attempts: int = 1


def _interior(K: Any, y: Float64, C: Float64, norm: MixedNorm, tol: float, oracle: str) -> Found:
    return solve_screened(K, y, C, norm, tol, oracle)


def _mirror(K: Any, y: Float64, C: Float64, norm: MixedNorm, tol: float, oracle: str) -> Found:
    return solve_mirror(K, y, C, norm, tol, oracle=oracle)


def _mirror_paper(K: Any, y: Float64, C: Float64, norm: MixedNorm, tol: float, oracle: str) -> Found:
    return solve_mirror(K, y, C, norm, tol, oracle=oracle, rule="paper")


METHODS: Registry[Method] = Registry("method")
# its weights count, not its own bounds; where the norm has kinks (q = inf) nearly right weights may not be enough
METHODS.register("interior", Method(_interior, share=0.3, attempts=3))
METHODS.register("mirror", Method(_mirror, share=0.4))
METHODS.register("mirror-paper", Method(_mirror_paper, share=0.4))


@dataclass(frozen=True)
class _MixedNormMachine:
    """The machine of working-set rounds: all kernels of a block, weights per class."""

    own_type: ClassVar[type[MethodState]] = NoState

    C: float
    norm: MixedNorm
    method: str

    def first_weights(self, problem: Problem) -> Float64:
        return np.tile(self.norm.uniform(), (problem.m, 1))

    def outlined(self, problem: Problem, state: State) -> State:
        return outlined(problem, state, self.norm.uniform(), self.C)

    def layers(self, problem: Problem, active: NDArray[np.bool_]) -> int:
        return own_layers(problem, int(active.sum()))

    def streamed(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> None:
        return None

    def cut(self, problem: Problem, state: State, kernels: list[Samples]) -> dict[str, Any]:
        return {"kernels": [A.tolist() for A in kernels]}

    def solve(self, question: Question) -> Answer:
        """Weights by the method, then the SVM at them; more exactly where the block's own certificate asks for it."""
        method = METHODS[self.method]
        inner, svm_calls, oracle_calls = method.share * question.tol, 0, 0
        for _ in range(method.attempts):
            answer, gap = self._attempt(question, method, inner)
            svm_calls, oracle_calls = svm_calls + answer.svm_calls, oracle_calls + answer.oracle_calls
            if gap <= HALF * question.tol:
                break
            inner *= TIGHTEN
        return replace(answer, svm_calls=svm_calls, oracle_calls=oracle_calls)

    def _attempt(self, question: Question, method: Method, inner: float) -> tuple[Answer, float]:
        """An answer and its relative gap on the block."""
        K, y, norm = question.block, question.y, self.norm.among(question.kernels)
        upper = self.C * question.counts
        found = method.solve(K, y, upper, norm, inner, question.oracle)
        least = NEGLIGIBLE * question.tol * found.weights.max()
        weights = np.where(found.weights > least, found.weights, 0.0)
        combined = np.empty(K.shape[1:])
        combine(K, weights, combined)
        svm = ORACLES[question.oracle](combined, y, upper, alpha=np.abs(found.beta), tol=EXACT * question.tol)
        beta, calls = svm.alpha * y, (found.svm_calls + 1, found.oracle_calls + 1)
        forms = quadratic_forms(K, beta, weights > 0)
        penalty = norm.regulariser(weights * np.sqrt(forms))
        answer = Answer(beta, found.dual, *calls, weights, penalty, found.proof, found.proof_forms)
        primal = self.primal(beta, svm.scores, y, question.counts, answer).primal
        if relative_gap(primal, found.dual) > HALF * question.tol:  # then beta itself may prove more
            forms = quadratic_forms(K, beta)
            dual = float(svm.alpha.sum()) - norm.conjugate(forms)
            if dual > found.dual:
                answer = replace(answer, dual=dual, proof=beta, proof_forms=forms)
        return answer, relative_gap(primal, answer.dual)

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certificate:
        return best_multiple(answer.penalty, beta, scores, y, self.C * counts)

    def dual(self, answer: Answer, forms: Float64, y: Float64, counts: Float64) -> float:
        assert answer.proof is not None
        return min(answer.dual, float(np.abs(answer.proof).sum()) - self.norm.conjugate(forms))

    def matter(self, weights: Float64, forms: Float64) -> NDArray[np.bool_]:
        largest = self.norm.radii(forms)[self.norm.groups] ** 2
        return np.asarray((weights > 0) | (forms >= CANDIDATE * largest))

    def covered(self, problem: Problem, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if whole(problem.n):
            return np.ones_like(active)
        missing = np.array([self.norm.total(row) == 0 for row in active])
        return np.asarray(active | missing[:, self.norm.groups])
