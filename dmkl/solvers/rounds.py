"""Working-set rounds: solve unfinished classes on compact blocks, certify all of them with one pass, add violators.

One round is a gather (each class's block cut out of the tiles) and a scoring pass over all n samples. What is solved on
a block, and what the bounds are, is the machine's business; this file is the same for every one-vs-rest formulation.
Classes are taken in batches whose blocks fit in memory, and a batch is finished before the next one starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl.errors import ResourceError
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import Float64, State
from dmkl.solvers.working_sets import first_sets, next_set

BLOCK_SHARE = 0.4  # of the memory limit, less process and held tiles, that a batch of compact blocks may take
PROCESS_BYTES = 250_000_000  # what Python and its libraries take
GROWTH_ROOM = 4  # how many times its first size a block is expected to reach


@dataclass(frozen=True)
class Answer:
    """A compact problem's solution: alpha over the block's samples, kernel weights if they are learnt, forms D_a."""

    alpha: Float64
    weights: Float64 | None
    forms: Float64 | None
    dual: float  # a lower bound for the whole problem: alpha is zero outside the block
    svm_calls: int
    oracle_calls: int  # (alpha, gamma) maximisations: svm_calls / oracle_calls is the paper's BCA count


@dataclass(frozen=True)
class Certified:
    """A primal value over all samples, the intercept and weights it is reached with, and the answer's own margins."""

    primal: float
    intercept: float
    margins: Float64
    weights: Float64 | None = None


@dataclass(frozen=True)
class Question:
    """One class's compact problem, self-contained, to be solved anywhere."""

    block: Any  # array (s, |W|, |W|), or (|W|, |W|) combined
    y: Float64
    warm: Float64  # alpha of the round before
    tol: float
    oracle: str


class Machine(Protocol):
    """A one-vs-rest formulation as rounds see it."""

    def first_weights(self, problem: Problem) -> Float64:
        """(s,) if weights are given and shared, (m, s) if every class learns its own."""

    def layers(self, problem: Problem) -> int:
        """How many matrices a block holds."""

    def gather(self, problem: Problem, state: State, sets: list[NDArray[np.int64]]) -> list[NDArray[Any]]:
        """The blocks of these sample sets, in one pass."""

    @property
    def solve(self) -> Any:
        """A picklable function from a Question to an Answer."""

    def primal(self, beta: Float64, scores: Float64, y: Float64, answer: Answer) -> Certified:
        """The primal value of a class's answer, given its scores of all samples."""


class Rounds:
    """The solver of every machine: one step is one round of the batch of classes at hand."""

    def __init__(self, machine: Machine, dtype: Any) -> None:
        self._machine = machine
        self._itemsize = np.dtype(dtype).itemsize

    def init(self, problem: Problem) -> State:
        working = first_sets(problem.Y, problem.seed)
        return State.first(self._machine.first_weights(problem), working, room=self._room(problem))

    def _room(self, problem: Problem) -> int:
        """Bytes a batch's blocks may take. From the limit, not from what is free at the moment, and part of the state:
        batches, and so the last bits of every sum, are the same in a run that was killed and in one that was not."""
        memory = problem.stack.memory
        planned = memory.limit - PROCESS_BYTES - problem.stack.held_bytes
        return int(BLOCK_SHARE * (planned if planned > 0 else memory.left))

    def step(self, problem: Problem, state: State) -> State:
        classes = self._batch(problem, state)
        sets = [np.flatnonzero(state.working[:, k]) for k in classes]
        answers = self._answers(problem, state, classes, sets)
        coef = np.zeros((problem.n, len(classes)))
        for position, (W, answer) in enumerate(zip(sets, answers, strict=True)):
            coef[W, position] = answer.alpha * problem.Y[W, classes[position]]
        own = [answer.weights for answer in answers]
        weights = state.weights if own[0] is None else np.array(own)
        scores = problem.stack.apply(coef, weights, forms=False).scores
        state = _copied(state)
        for position, k in enumerate(classes):
            self._judge(problem, state, k, coef[:, position], scores[:, position], answers[position])
        return replace(
            state,
            svm_calls=state.svm_calls + sum(answer.svm_calls for answer in answers),
            oracle_calls=state.oracle_calls + sum(answer.oracle_calls for answer in answers),
        )

    def _batch(self, problem: Problem, state: State) -> list[int]:
        """The first unfinished classes whose blocks fit in memory together, with room to grow."""
        room = state.room
        layers = self._machine.layers(problem)
        unfinished = [int(k) for k in np.flatnonzero(state.gap > problem.tol)]
        sizes = state.working.sum(axis=0)
        batch: list[int] = []
        used = 0
        for k in unfinished:
            needed = layers * self._itemsize * int(sizes[k]) ** 2
            if needed > room:
                raise ResourceError(
                    f"class {k} needs a block of {sizes[k]} samples ({needed / 1e6:,.0f} MB), more than the "
                    f"{room / 1e6:,.0f} MB there are for it",
                    "raise --memory",
                )
            grown = needed * (1 if state.primal[k] < np.inf else GROWTH_ROOM)
            if batch and used + grown > room:
                break
            batch.append(k)
            used += grown
        return batch

    def _answers(
        self, problem: Problem, state: State, classes: list[int], sets: list[NDArray[np.int64]]
    ) -> list[Answer]:
        """Gather the blocks and fan the compact problems out, one task a class."""
        blocks: list[NDArray[Any] | None] = list(self._machine.gather(problem, state, sets))

        def questions() -> Iterator[tuple[Question]]:
            for position, (k, W) in enumerate(zip(classes, sets, strict=True)):
                y = problem.Y[W, k]
                block, blocks[position] = blocks[position], None  # a block lives as long as its task
                yield (Question(block, y, state.coef[W, k] * y, problem.tol, problem.oracle),)

        return list(problem.runtime.map(self._machine.solve, questions()))

    def _judge(self, problem: Problem, state: State, k: int, beta: Float64, scores: Float64, answer: Answer) -> None:
        """Bounds of class k over all samples, the better solution, and its next working set."""
        y = problem.Y[:, k]
        found = self._machine.primal(beta, scores, y, answer)
        first = np.isinf(state.primal[k])
        if found.primal < state.primal[k]:
            state.primal[k], state.intercept[k], state.coef[:, k] = found.primal, found.intercept, beta
            if found.weights is not None:
                state.weights[k] = found.weights
        state.dual[k] = max(state.dual[k], answer.dual)
        state.working[:, k] = next_set(state.working[:, k], beta != 0, found.margins, drop=bool(first))


def _copied(state: State) -> State:
    """A state whose per-class entries may be filled in; the one before stays as it was."""
    names = ("weights", "coef", "intercept", "primal", "dual", "working")
    return replace(state, **{name: getattr(state, name).copy() for name in names})
