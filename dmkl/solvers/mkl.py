"""VSKL, L1MKL and LpMKL: weights learnt per class under a mixed norm (FORMULATIONS section 1; Aflalo et al. 2011).

    min  1/2 [ sum_j ( sum_{a in j} ||w_a|| )^(2q) ]^(1/q) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+     VSKL
    min  1/2 ( sum_a ||w_a||^r )^(2/r) + C sum_i [...]+,   r = 2p / (p + 1)                                       LpMKL

Both are one family (`dmkl.problems.norms`). A compact block is solved whole by an interior point method, then the SVM
at its weights gives the sparse alpha; the certificate needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.registry import Registry
from dmkl._util.types import Float64, Samples
from dmkl.errors import ConfigError
from dmkl.oracles import ORACLES, least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.blocks import own_layers
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.mirror import solve_mirror
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.rounds import Answer, Certified, Question, Rounds
from dmkl.solvers.screening import solve_screened
from dmkl.solvers.state import State
from dmkl.solvers.sweep import combine, quadratic_forms
from dmkl.solvers.uniform import BoundedByC, check_C
from dmkl.solvers.working_sets import whole

HALF = 0.5  # what a compact problem may take of the tolerance, so that the samples outside have some left
CANDIDATE = 0.8  # kernels whose quadratic form reaches this share of their group's largest stay in the block
NEGLIGIBLE = 0.01  # weights below this times the tolerance times the largest are zero: passes skip those kernels
TIGHTEN = 0.02  # a method's tolerance from one attempt to the next
EXACT = 0.02  # and that of the SVM at its weights: slacks count C times in the primal value


@dataclass(frozen=True)
class VSKL(BoundedByC):
    """Kernels in groups: sparse inside a group (l1), q in [1, inf] across groups (inf: every group is used)."""

    q: float = 2.0
    C: float = 1.0

    weighted: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Sequence[Any]]] = {"q": (1.0, 1.5, 2.0, 3.0, 8.0, np.inf), **BoundedByC.usual}

    def __post_init__(self) -> None:
        check_C(self.C)
        if not self.q >= 1:
            raise ConfigError(f"q should be in [1, inf], not {self.q}")

    def solver(self, problem: Problem) -> Solver:
        rho = 1.0 if np.isinf(self.q) else 2 * self.q / (2 * self.q - 1)
        return _rounds(self, self.C, MixedNorm(problem.stack.groups, rho), problem)


@dataclass(frozen=True)
class L1MKL(BoundedByC):
    """Sparse over all kernels: VSKL with one group."""

    C: float = 1.0

    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_C(self.C)

    def solver(self, problem: Problem) -> Solver:
        return _rounds(self, self.C, MixedNorm(np.zeros(problem.stack.s, dtype=np.int64), 2.0), problem)


@dataclass(frozen=True)
class LpMKL(BoundedByC):
    """Weights d >= 0 with ||d||_p <= 1, p in [1, inf]: p = 1 is L1MKL, p = inf the SVM on the sum."""

    p: float = 2.0
    C: float = 1.0

    weighted: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Sequence[Any]]] = {"p": (1.0, 1.25, 2.0, 4.0, np.inf), **BoundedByC.usual}

    def __post_init__(self) -> None:
        check_C(self.C)
        if not self.p >= 1:
            raise ConfigError(f"p should be in [1, inf], not {self.p}")

    def solver(self, problem: Problem) -> Solver:
        s = problem.stack.s
        if self.p == 1:
            return _rounds(self, self.C, MixedNorm(np.zeros(s, dtype=np.int64), 2.0), problem)
        rho = 2.0 if np.isinf(self.p) else 2 * self.p / (self.p - 1)
        return _rounds(self, self.C, MixedNorm(np.arange(s), rho), problem)


def _rounds(formulation: Any, C: float, norm: MixedNorm, problem: Problem) -> Rounds:
    problem.stack.require_semidefinite(type(formulation).__name__)
    method = problem.method or "interior"
    METHODS[method]  # an unknown name is refused before any work
    return Rounds(_MixedNormMachine(C, norm, method), problem.stack.dtype)


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
        if _gap(primal, found.dual) > HALF * question.tol:  # then beta itself may prove more
            forms = quadratic_forms(K, beta)
            dual = float(svm.alpha.sum()) - norm.conjugate(forms)
            if dual > found.dual:
                answer = replace(answer, dual=dual, proof=beta, proof_forms=forms)
        return answer, _gap(primal, answer.dual)

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certified:
        upper = self.C * counts
        plain = _reached(1.0, answer.penalty, scores, y, upper)
        scaled = _reached(1.0 / (1.0 - _shortfall(beta, scores, y, upper)), answer.penalty, scores, y, upper)
        return replace(scaled, margins=plain.margins) if scaled.primal < plain.primal else plain

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


def _gap(primal: float, dual: float) -> float:
    return (primal - dual) / max(abs(primal), 1e-12)


def _reached(scale: float, penalty: float, scores: Float64, y: Float64, upper: Float64) -> Certified:
    """The primal value of `scale` times w with its best intercept."""
    loss, b = least_hinge(scale * scores, y, upper)
    return Certified(scale**2 * penalty + loss, b, y * (scale * scores + b), scale)


def _shortfall(beta: Float64, scores: Float64, y: Float64, upper: Float64) -> float:
    """How far, at most, a sample that could still move stays from its margin.

    Scaling w by 1 / (1 - shortfall) takes those slacks away, which count C times, for a penalty a little larger.
    """
    slope, alpha = y - scores, beta * y
    rising = slope[np.where(y > 0, alpha < upper, alpha > 0)]
    falling = slope[np.where(y > 0, alpha > 0, alpha < upper)]
    if not (len(rising) and len(falling)):
        return 0.0
    return float(np.clip(0.5 * (rising.max() - falling.min()), 0.0, 0.5))
