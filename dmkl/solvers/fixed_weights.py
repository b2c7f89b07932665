"""SVMs of all classes at given kernel weights, one-vs-rest.

When the weighted sum fits in memory as one matrix, one pass makes it and every class is solved on all samples. When it
does not, working-set rounds solve compact blocks of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.oracles import ORACLES, Prepared, SvmResult, svm_bounds
from dmkl.problems.uniform import UniformMKL
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.columns import column, with_columns
from dmkl.solvers.precision import sum_dtype
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.rounds import Answer, Question, Rounds
from dmkl.solvers.state import MethodState, NoState, State
from dmkl.solvers.working_sets import settled_set, whole

WHOLE_SHARE = 0.6  # of the memory left that the average matrix may take
PIECES = 1.5  # bytes while a matrix is put together from workers' answers, as a multiple of its own
COPIES = 1.25  # the same where threads put their tiles in place: SVMs copy what is left of it as they shrink
INNER = 0.25  # a compact problem's tolerance as a share of the whole one's
MAX_ROUNDS = 30
ROUGH = 0.05  # tolerance of an outline
GROUPS = 8  # tasks a worker for the classes of one matrix


def build(formulation: UniformMKL, problem: Problem) -> Solver:
    """The SVMs of all classes on the average kernel."""
    problem.stack.require_semidefinite("UniformMKL")
    weights = np.full(problem.stack.s, 1.0 / problem.stack.s)
    return FixedWeights(formulation.C, formulation.intercept).solver(problem, weights)


@dataclass(frozen=True)
class FixedWeights:
    """What is the same for every class; `intercept` adds a free bias."""

    C: float
    intercept: bool

    def solver(self, problem: Problem, weights: Float64) -> Solver:
        """For weights (s,) that all classes share."""
        if _whole_fits(problem):
            return _Whole(self, weights)
        return Rounds(_Compact(self, weights), _dtype(problem))

    def solve(self, problem: Problem, weights: Float64) -> State:
        """Until every class's gap is closed, or rounds bring nothing more."""
        return _ended(problem, self.solver(problem, weights))


def _ended(problem: Problem, solver: Solver) -> State:
    state = solver.init(problem)
    for _ in range(MAX_ROUNDS):
        if (state.gap <= problem.tol).all():
            break
        state = solver.step(problem, state)
    return state


def outlined(problem: Problem, state: State, weights: Float64, C: float, *, intercept: bool = True) -> State:
    """The first state with every class roughly solved at fixed weights, and the samples that matter there as its set.

    Left alone where the weighted sum does not fit as one matrix: then this would take as many passes as the real thing.
    """
    if whole(problem.n) or not _whole_fits(problem):
        return state
    solver = _Whole(FixedWeights(C, intercept), weights)
    rough = _ended(replace(problem, tol=ROUGH, start=None), solver)
    working = np.zeros(problem.Y.shape, dtype=bool)
    for k, scores in solver.scores.items():
        margins = problem.Y[:, k] * (scores + rough.intercept[k])
        working[:, k] = settled_set(column(rough.coef, k) != 0, margins)
    return replace(state, coef=rough.coef, working=working, svm_calls=rough.svm_calls, oracle_calls=rough.svm_calls)


def _dtype(problem: Problem) -> np.dtype[Any]:
    """What averages of all samples are kept in."""
    return sum_dtype(problem.stack.dtype, problem.n, problem.tol)


def _whole_fits(problem: Problem) -> bool:
    runtime, memory = problem.runtime, problem.stack.memory
    room = runtime.memory / runtime.workers if runtime.remote else memory.left
    needed = (PIECES if runtime.remote else COPIES) * problem.n**2 * _dtype(problem).itemsize
    return needed <= WHOLE_SHARE * room


class _Whole:
    """Every class on all samples of the average matrix, made once and held where the tasks run."""

    own_type: ClassVar[type[MethodState]] = NoState

    def __init__(self, machine: FixedWeights, weights: Float64) -> None:
        self._machine, self._weights = machine, weights
        self._prepared: Any = None
        self.scores: dict[int, Float64] = {}  # of every class, at its last coefficients: the certificate has them

    def init(self, problem: Problem) -> State:
        state = State.first(self._weights, np.ones(problem.Y.shape, dtype=bool))
        return state if problem.start is None else replace(state, coef=problem.start.coef)

    def step(self, problem: Problem, state: State) -> State:
        if self._prepared is None:
            average = problem.stack.combine_near(state.weights, dtype=_dtype(problem))
            self._prepared = problem.runtime.hold(_prepare, problem.oracle, average)
        classes = np.flatnonzero(state.gap > problem.tol)
        coef, intercept = {}, state.intercept.copy()
        primal, dual = state.primal.copy(), state.dual.copy()
        answers = problem.runtime.map(_solve_whole, self._tasks(problem, state, classes))
        for k, answer in zip(classes, itertools.chain.from_iterable(answers), strict=True):
            coef[int(k)] = answer.alpha * problem.Y[:, k]
            intercept[k], primal[k], dual[k] = answer.intercept, answer.primal, answer.dual
            self.scores[int(k)] = answer.scores
        calls = state.svm_calls + len(classes)
        state = replace(state, coef=with_columns(state.coef, coef), intercept=intercept, primal=primal, dual=dual)
        return replace(state, svm_calls=calls, oracle_calls=calls)

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _tasks(self, problem: Problem, state: State, classes: NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
        upper = self._machine.C * problem.counts
        for some in np.array_split(classes, min(len(classes), GROUPS * problem.runtime.workers)):
            signs = [problem.Y[:, k] for k in some]
            warm = [column(state.coef, k) * y for k, y in zip(some, signs, strict=True)]
            yield self._machine, self._prepared, signs, upper, warm, problem.tol, problem.oracle


def _prepare(oracle: str, K: NDArray[Any]) -> Prepared:
    """The matrix as the oracle wants it, made once for all classes."""
    return ORACLES[oracle].prepare(K)


def _solve_whole(
    machine: FixedWeights,
    kernel: Prepared,
    signs: list[Float64],
    upper: Float64,
    warm: list[Float64],
    tol: float,
    oracle: str,
) -> list[SvmResult]:
    """Some classes: one of them takes a millisecond or two, less than a task does on a cluster."""
    svm, free = ORACLES[oracle], machine.intercept
    return [svm(kernel, y, upper, intercept=free, alpha=alpha, tol=tol) for y, alpha in zip(signs, warm, strict=True)]


@dataclass(frozen=True)
class _Compact:
    """The machine of working-set rounds: one combined matrix a block."""

    own_type: ClassVar[type[MethodState]] = NoState

    machine: FixedWeights
    weights: Float64

    def first_weights(self, problem: Problem) -> Float64:
        return self.weights

    def outlined(self, problem: Problem, state: State) -> State:
        return state

    def layers(self, problem: Problem, active: NDArray[np.bool_]) -> int:
        return 1

    def streamed(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> None:
        return None

    def cut(self, problem: Problem, state: State, kernels: list[Samples]) -> dict[str, Any]:
        return {"weights": state.weights, "dtype": _dtype(problem)}

    def solve(self, question: Question) -> Answer:
        free, warm, tol = self.machine.intercept, np.abs(question.warm.beta), INNER * question.tol
        oracle, upper = ORACLES[question.oracle], self.machine.C * question.counts
        answer = oracle(question.block, question.y, upper, intercept=free, alpha=warm, tol=tol)
        return Answer(answer.alpha * question.y, answer.dual, svm_calls=1, oracle_calls=1)

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certificate:
        upper, free = self.machine.C * counts, self.machine.intercept
        primal, _, intercept = svm_bounds(beta, scores, y, upper, 1.0, free)
        return Certificate(primal, intercept, y * (scores + intercept))

    def dual(self, answer: Answer, forms: Float64, y: Float64, counts: Float64) -> float:
        return answer.dual

    def matter(self, weights: Float64, forms: Float64) -> NDArray[np.bool_]:
        return np.ones(len(weights), dtype=bool)

    def covered(self, problem: Problem, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.ones_like(active)
