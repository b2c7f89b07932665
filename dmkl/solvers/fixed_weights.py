"""All classes at given kernel weights, one against the rest or regression.

    min  1/2 ||w||^2 + C sum_i l(y_i, f(x_i) + b)      with the kernel  sum_a weights_a K_a

With the hinge loss these are SVMs. Where the weighted sum fits in memory as one matrix, one pass makes it and every
class is solved on all samples; where it does not, working-set rounds solve compact blocks of it, or a part of a block
at a time where no block fits. Any other loss is the problem of SpicyMKL with one kernel, no sparsity and a ridge of
1 / C, always in rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Float64, FloatArray, FloatType, Mask, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.oracles import ORACLES, PreparedKernel, SvmResult, svm_bounds
from dmkl.problems.losses import Loss
from dmkl.problems.targets import Targets
from dmkl.problems.uniform import UniformMKL
from dmkl.runtime import Local, Runtime
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels
from dmkl.solvers.loss_blocks import OWN_MATRICES, LossClassMethod, LossMethodName, first_samples
from dmkl.solvers.loss_blocks import solve as solve_loss
from dmkl.solvers.loss_problem import Penalty, Start
from dmkl.solvers.precision import sum_dtype
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import MethodState, NoState, State, column, with_columns
from dmkl.solvers.svm_by_parts import svm_by_parts
from dmkl.solvers.working_sets import (
    BlockOptions,
    BlockProblem,
    BlockSolution,
    ClassMethod,
    OneVsRest,
    settled_set,
    whole,
)
from dmkl.stack import TaskMatrix


@dataclass(frozen=True)
class FixedWeightsOptions:
    """When the weighted sum is one matrix, and tolerances."""

    whole_share: float = 0.6  # of the memory left, that the weighted sum may take
    remote_copies: float = 1.5  # bytes while the matrix is put together on workers, as a multiple of its own
    local_copies: float = 1.25  # the same for threads, which write in place: SVMs copy parts of it as they shrink
    inner: float = 0.25  # a compact problem's tolerance, as a share of the whole one's
    max_rounds: int = 30  # of `FixedWeights.solve`
    outline_tol: float = 0.05  # of `outlined`
    tasks: int = 8  # for the classes of one matrix, a worker


OPTIONS = FixedWeightsOptions()


def build(formulation: UniformMKL, problem: Problem) -> Solver:
    """The SVMs of all classes on the average kernel."""
    return FixedWeights(formulation.C, formulation.intercept).solver(problem, _uniform(problem))


def build_any_loss(formulation: UniformMKL, problem: Problem) -> Solver:
    """Any loss on the average kernel."""
    name: LossMethodName = "proximal" if problem.method == "proximal" else "newton"
    method = LossMethod(formulation.own_loss(), formulation.C, _uniform(problem), name)
    return OneVsRest(method, _dtype(problem))


def _uniform(problem: Problem) -> Float64:
    problem.stack.require_semidefinite("UniformMKL")
    return np.full(problem.stack.s, 1.0 / problem.stack.s)


# SVMs.


@dataclass(frozen=True)
class FixedWeights:
    """The SVM that is solved for every class; `intercept` adds a free bias."""

    C: float
    intercept: bool

    def solver(self, problem: Problem, weights: Float64) -> Solver:
        """The solver with weights (s,) that all classes share."""
        if _whole_fits(problem):
            return _WholeMatrix(self, weights)
        return OneVsRest(SvmMethod(self, weights), _dtype(problem))

    def solve(self, problem: Problem, weights: Float64) -> State:
        """The state once every class's gap is closed, or after the most rounds."""
        return _solved(problem, self.solver(problem, weights))


def _solved(problem: Problem, solver: Solver) -> State:
    state = solver.init(problem)
    for _ in range(OPTIONS.max_rounds):
        if (state.gap <= problem.tol).all() or must_stop():
            break
        state = solver.step(problem, state)
    return state


def outlined(problem: Problem, state: State, weights: Float64, C: float, *, intercept: bool = True) -> State:
    """The first state with every class roughly solved at fixed weights, and the samples that matter there as its set.

    It is left alone where the weighted sum does not fit as one matrix: an outline would take as many passes as the
    problem itself; and where there is no time for it.
    """
    if whole(problem.n) or not _whole_fits(problem):
        return state
    working = state.working.copy()
    solver = _WholeMatrix(FixedWeights(C, intercept), weights, working)
    try:
        rough = _solved(replace(problem, tol=OPTIONS.outline_tol, start=None), solver)
    except Stopped:
        return state
    finally:
        problem.runtime.forget()
    if np.isinf(rough.primal).any():
        return state
    calls = rough.svm_calls
    return replace(state, coef=rough.coef, working=working, svm_calls=calls, oracle_calls=calls)


def _dtype(problem: Problem) -> FloatType:
    """The type of the weighted sum over all samples."""
    return sum_dtype(problem.stack.dtype, problem.n, problem.tol)


def _whole_fits(problem: Problem) -> bool:
    runtime, memory = problem.runtime, problem.stack.memory
    room = runtime.memory / runtime.workers if runtime.remote else memory.left
    copies = OPTIONS.remote_copies if runtime.remote else OPTIONS.local_copies
    return bool(copies * problem.n**2 * _dtype(problem).itemsize <= OPTIONS.whole_share * room)


class _WholeMatrix:
    """Every class on all samples of the weighted sum, made once and held where the tasks run."""

    own_type: ClassVar[type[MethodState]] = NoState

    def __init__(self, svm: FixedWeights, weights: Float64, settled: SampleSets | None = None) -> None:
        self._svm, self._weights = svm, weights
        self._kernel: PreparedKernel | TaskMatrix | None = None  # or a handle of one on workers
        self._settled = settled  # to be replaced, class by class, by the samples that matter at the last coefficients

    def init(self, problem: Problem) -> State:
        state = State.first(self._weights, SampleSets.whole(problem.n, problem.m))
        return state if problem.start is None else replace(state, coef=problem.start.coef)

    def step(self, problem: Problem, state: State) -> State:
        runtime = problem.runtime if problem.m > 1 else Local(1)  # one class is solved in this process
        if self._kernel is None:
            self._kernel = self._combined(problem, state.weights, runtime)
        classes = np.flatnonzero(state.gap > problem.tol)
        coef, intercept = {}, state.intercept.copy()
        primal, dual = state.primal.copy(), state.dual.copy()
        chunks = np.array_split(classes, min(len(classes), OPTIONS.tasks * runtime.workers))
        results = runtime.map(solve_classes, self._tasks(problem, state, chunks))
        for some, found in zip(chunks, results, strict=True):
            for k, result in zip(some, found, strict=False):  # fewer where the time was up
                y = problem.Y.column(k)
                coef[int(k)] = result.alpha * y
                intercept[k], primal[k], dual[k] = result.intercept, result.primal, result.dual
                if self._settled is not None:
                    margins = y * (result.scores + result.intercept)
                    self._settled.put(k, settled_set(result.alpha != 0, margins))
        calls = state.svm_calls + len(coef)
        state = replace(state, coef=with_columns(state.coef, coef), intercept=intercept, primal=primal, dual=dual)
        return replace(state, svm_calls=calls, oracle_calls=calls)

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _combined(self, problem: Problem, weights: Float64, runtime: Runtime) -> PreparedKernel | TaskMatrix:
        """The matrix for the tasks of this runtime: one that they open, or one prepared where they run."""
        stack, dtype = problem.stack, _dtype(problem)
        if problem.m > 1 and not ORACLES[problem.oracle].copies:
            matrix = stack.combine_in_tasks(weights, dtype=dtype)
            if matrix is not None:
                return matrix
        combine = stack.combine_near if problem.m > 1 else stack.combine
        prepared: PreparedKernel = runtime.share(runtime.hold(_prepare, problem.oracle, combine(weights, dtype=dtype)))
        return prepared

    def _tasks(self, problem: Problem, state: State, chunks: Sequence[Samples]) -> Iterator[tuple[object, ...]]:
        upper = self._svm.C * problem.counts
        for some in chunks:
            signs = problem.Y.among(some.tolist())
            warm = [column(state.coef, k) * y for k, y in zip(some, signs, strict=True)]
            yield self._svm, self._kernel, signs, upper, warm, problem.tol, problem.oracle


def _prepare(oracle: str, K: FloatArray) -> PreparedKernel:
    """The matrix as the oracle wants it, made once for all classes."""
    return ORACLES[oracle].prepare(K)


def solve_classes(
    svm: FixedWeights,
    kernel: PreparedKernel | TaskMatrix,
    signs: Targets,
    upper: Float64,
    warm: list[Float64],
    tol: float,
    oracle: str,
) -> list[SvmResult]:
    """Several classes in one task: one of them takes a millisecond or two, less than a task costs on a cluster.

    Those that there is no time for are left out.
    """
    solve = ORACLES[oracle]
    prepared = solve.prepare(kernel if isinstance(kernel, PreparedKernel) else kernel.opened())
    found: list[SvmResult] = []
    for y, alpha in zip(signs, warm, strict=True):
        if found and must_stop():
            break
        found.append(solve(prepared, y, upper, intercept=svm.intercept, alpha=alpha, tol=tol))
    return found


@dataclass(frozen=True)
class SvmMethod(ClassMethod):
    """Blocks of the weighted sum, solved by the SVM oracle; by parts, through passes, where a block does not fit."""

    svm: FixedWeights
    weights: Float64

    def first_weights(self, problem: Problem) -> Float64:
        return self.weights

    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        return {"weights": state.weights, "dtype": _dtype(problem)}

    def streaming_substitute(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> StreamedKernels:
        return StreamedKernels(problem.stack, self.weights[None], samples, room)

    def solve(self, problem: BlockProblem) -> BlockSolution:
        free, warm, tol = self.svm.intercept, np.abs(problem.warm.beta), OPTIONS.inner * problem.tol
        oracle, upper = ORACLES[problem.oracle], self.svm.C * problem.counts
        if isinstance(problem.block, StreamedKernels):
            beta, [scores] = svm_by_parts(problem.block, np.ones(1), problem.y, upper, warm, tol, intercept=free)
            dual = svm_bounds(beta, scores, problem.y, upper, 1.0, free)[1]
            return BlockSolution(beta, dual, svm_calls=1, oracle_calls=1)
        result = oracle(problem.array, problem.y, upper, intercept=free, alpha=warm, tol=tol)
        return BlockSolution(result.alpha * problem.y, result.dual, svm_calls=1, oracle_calls=1)

    def primal(
        self, beta: Float64, scores: Float64, y: Float64, counts: Float64, solution: BlockSolution
    ) -> Certificate:
        upper, free = self.svm.C * counts, self.svm.intercept
        primal, _, intercept = svm_bounds(beta, scores, y, upper, 1.0, free)
        return Certificate(primal, intercept, y * (scores + intercept))


# Any other loss.


@dataclass(frozen=True)
class LossMethod(LossClassMethod):
    """Blocks of the weighted sum: of all samples where it fits; through passes where no block fits."""

    loss: Loss
    C: float
    weights: Float64
    name: LossMethodName = "newton"

    def first_weights(self, problem: Problem) -> Float64:
        return self.weights

    def first_state(self, problem: Problem, state: State) -> State:
        everything = self.holds_all(problem)
        working = SampleSets.whole(problem.n, problem.m) if everything else first_samples(problem, self.loss)
        return replace(state, working=working)

    def holds_all(self, problem: Problem) -> bool:
        return self.name == "newton" and _whole_fits(problem)

    def layers(self, problem: Problem, active: Mask) -> int:
        return 1 + OWN_MATRICES if self.name == "newton" else 1

    def streaming_substitute(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> StreamedKernels:
        return StreamedKernels(problem.stack, self.weights[None], samples, room)

    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        return {"weights": state.weights, "dtype": _dtype(problem)}

    def solve(self, problem: BlockProblem) -> BlockSolution:
        streamed = problem.block if isinstance(problem.block, StreamedKernels) else None
        warm, start = problem.warm, None
        if warm.beta.any():
            start = Start(warm.beta / self.C, np.array([self.C]), warm.intercept, warm.step)
        kernels = streamed or BlockKernels(problem.array[None], threads=problem.threads)
        loss, penalty = self.loss.counting(problem.counts), Penalty(0.0, 1.0 / self.C)
        found = solve_loss(self.name, problem, kernels, loss, penalty, OPTIONS.inner * problem.tol, start)
        return BlockSolution(
            found.weights[0] * found.rho,
            self.C * found.dual,
            svm_calls=found.svm_calls,
            oracle_calls=found.evaluations,
            step=found.step,
            trace=found.trace,
            handovers=found.handovers,
        )

    def primal(
        self, beta: Float64, scores: Float64, y: Float64, counts: Float64, solution: BlockSolution
    ) -> Certificate:
        loss = self.loss.counting(counts)
        b = loss.intercept(y, scores)
        value = 0.5 * float(beta @ scores) + self.C * loss.total(y, scores + b)
        return Certificate(value, b, loss.margins(y, scores + b))
