"""UniformMKL: the SVM on the average kernel, one-vs-rest.

    min  1/2 ||w||^2 + C sum_i [1 - y_i (<w, phi(x_i)> + b)]+      with the kernel  1/s sum_a K_a

The baseline every learnt combination has to beat. When the average matrix fits in memory, one pass makes it and every
class is solved on all samples. When it does not, each class is solved on a compact block of samples, and one pass a
round certifies all classes over all n samples and finds the violators to add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.errors import ConfigError, ResourceError
from dmkl.oracles import SvmResult, svm_bounds
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import Float64, State
from dmkl.solvers.svm_task import prepare, solve_class
from dmkl.solvers.working_sets import batches, first_sets, grown

WHOLE_SHARE = 0.6  # of the memory left that the average matrix may take
BLOCK_SHARE = 0.4  # of the memory left that a batch of compact blocks may take
PIECES = 1.5  # bytes in flight while a matrix is put together, as a multiple of its own
FLOAT32_TOL = 1e-4  # below it, averages of float32 kernels are kept in float64
INNER = 0.25  # a compact problem's tolerance as a share of the whole one's


@dataclass(frozen=True)
class UniformMKL:
    """The SVM on the average kernel; C bounds every alpha, `intercept` adds a free bias."""

    C: float = 1.0
    intercept: bool = True

    def __post_init__(self) -> None:
        if not (self.C > 0 and np.isfinite(self.C)):
            raise ConfigError(f"C should be positive and finite, not {self.C}")

    def solver(self, problem: Problem) -> UniformSolver:
        problem.stack.require_semidefinite("UniformMKL")
        return UniformSolver(self)


class UniformSolver:
    """One round solves every unfinished class once."""

    def __init__(self, formulation: UniformMKL) -> None:
        self._formulation = formulation
        self._average: Any = None  # the average matrix near the tasks, once made

    def init(self, problem: Problem) -> State:
        unknown = np.full(problem.m, np.inf)
        working = first_sets(problem.Y, problem.seed)
        if self._whole_fits(problem):
            working[:] = True
        return State(
            weights=np.full(problem.stack.s, 1.0 / problem.stack.s),
            coef=np.zeros(problem.Y.shape),
            intercept=np.zeros(problem.m),
            primal=unknown,
            dual=-unknown,
            working=working,
        )

    def step(self, problem: Problem, state: State) -> State:
        unfinished = np.flatnonzero(state.gap > problem.tol)
        if state.working[:, unfinished].all() and self._whole_fits(problem):
            return self._solve_whole(problem, state, unfinished)
        return self._solve_compact(problem, state, unfinished)

    def _whole_fits(self, problem: Problem) -> bool:
        stack = problem.stack
        room = problem.runtime.memory / problem.runtime.workers if problem.runtime.remote else stack.memory.left
        needed = PIECES * problem.n**2 * _dtype(problem).itemsize
        return self._average is not None or needed <= WHOLE_SHARE * room

    def _solve_whole(self, problem: Problem, state: State, classes: NDArray[np.int64]) -> State:
        if self._average is None:
            average = problem.stack.combine_near(state.weights, dtype=_dtype(problem))
            self._average = problem.runtime.hold(prepare, problem.oracle, average)
        kernels = ((k, self._average, np.arange(problem.n), problem.tol) for k in classes)
        state = _copied(state)
        for k, answer in self._answers(problem, state, kernels):
            state.coef[:, k] = answer.alpha * problem.Y[:, k]
            state.intercept[k], state.primal[k], state.dual[k] = answer.intercept, answer.primal, answer.dual
        return replace(state, svm_calls=state.svm_calls + len(classes))

    def _solve_compact(self, problem: Problem, state: State, classes: NDArray[np.int64]) -> State:
        state = _copied(state)
        for k, answer in self._answers(problem, state, self._compact_kernels(problem, state, classes)):
            samples = np.flatnonzero(state.working[:, k])
            state.coef[:, k] = 0.0
            state.coef[samples, k] = answer.alpha * problem.Y[samples, k]
        scores = problem.stack.apply(state.coef[:, classes], state.weights, forms=False).scores
        for position, k in enumerate(classes):
            self._certify(problem, state, int(k), scores[:, position])
        return replace(state, svm_calls=state.svm_calls + len(classes))

    def _compact_kernels(
        self, problem: Problem, state: State, classes: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[Any], NDArray[np.int64], float]]:
        """Blocks of as many classes as fit in memory, one gathering pass a batch."""
        stack, dtype = problem.stack, _dtype(problem)
        sets = [np.flatnonzero(state.working[:, k]) for k in classes]
        room = int(BLOCK_SHARE * stack.memory.left)
        for batch in batches([len(W) ** 2 * dtype.itemsize for W in sets], room):
            if len(sets[batch[0]]) ** 2 * dtype.itemsize > room:
                raise ResourceError(
                    f"class {classes[batch[0]]} needs a block of {len(sets[batch[0]])} samples, "
                    f"more than the {room / 1e6:,.0f} MB there are for it",
                    "raise --memory",
                )
            chosen = [sets[position] for position in batch]
            blocks = stack.block(chosen, weights=state.weights, dtype=dtype)
            for position, W, block in zip(batch, chosen, blocks, strict=True):
                yield int(classes[position]), block, W, INNER * problem.tol

    def _answers(self, problem: Problem, state: State, kernels: Any) -> Iterator[tuple[int, SvmResult]]:
        """Fan the SVMs out, one task a class, each warm-started from the state."""
        order: list[int] = []

        def tasks() -> Iterator[tuple[Any, ...]]:
            for k, K, samples, tol in kernels:
                order.append(k)
                y = problem.Y[samples, k]
                warm = state.coef[samples, k] * y
                yield problem.oracle, K, y, self._formulation.C, self._formulation.intercept, warm, tol

        for position, answer in enumerate(problem.runtime.map(solve_class, tasks())):
            yield order[position], answer

    def _certify(self, problem: Problem, state: State, k: int, scores: Float64) -> None:
        """Bounds over all n samples, and the next working set."""
        y, C = problem.Y[:, k], self._formulation.C
        beta, free = state.coef[:, k], self._formulation.intercept
        primal, dual, intercept = svm_bounds(beta, scores, y, np.full(problem.n, C), np.ones(problem.n), free)
        state.primal[k], state.dual[k], state.intercept[k] = primal, dual, intercept
        state.working[:, k] = grown(state.working[:, k], y * (scores + intercept))


def _dtype(problem: Problem) -> np.dtype[Any]:
    """What averages are kept in: rounding them once more must stay far below the tolerance."""
    return problem.stack.dtype if problem.tol >= FLOAT32_TOL else np.dtype(np.float64)


def _copied(state: State) -> State:
    """A state whose per-class columns may be filled in; the one before stays as it was."""
    return replace(
        state,
        **{name: getattr(state, name).copy() for name in ("coef", "intercept", "primal", "dual", "working")},
    )
