"""Working-set rounds: solve unfinished classes on compact blocks, certify all of them with one pass, add violators.

One round is a gather (each class's block cut out of the tiles) and a scoring pass over all n samples. The first blocks
hold every kernel, later ones those that matter; the pass then tells the quadratic forms of the others, so that bounds
hold over all kernels too. What is solved on a block, and what the bounds are, is the machine's business; this file is
the same for every one-vs-rest formulation. Classes are taken in batches whose blocks fit in memory, and a batch is
finished before the next one starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl.solvers.blocks import block_room, require_room
from dmkl.solvers.columns import column, with_columns
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import Float64, State
from dmkl.solvers.working_sets import first_sets, next_set, whole

Samples = NDArray[np.int64]
GROWTH_ROOM = 4  # how many times its first size a block of random samples is expected to reach


@dataclass(frozen=True)
class Answer:
    """A compact problem's solution: alpha over the block's samples and, if they are learnt, weights of its kernels."""

    alpha: Float64
    dual: float  # a lower bound over all samples (alpha is zero outside the block) and the block's kernels
    svm_calls: int
    oracle_calls: int  # (alpha, gamma) maximisations: svm_calls / oracle_calls is the paper's BCA count
    weights: Float64 | None = None
    penalty: float = 0.0  # the regulariser of alpha under these weights
    proof: Float64 | None = None  # the beta that `dual` comes from
    proof_forms: Float64 | None = None


@dataclass(frozen=True)
class Certified:
    """A primal value over all samples, with what intercept and multiple of w it is reached, and w's own margins."""

    primal: float
    intercept: float
    margins: Float64
    scale: float = 1.0


@dataclass(frozen=True)
class Question:
    """One class's compact problem, self-contained, to be solved anywhere."""

    block: Any  # array (s, |W|, |W|), or (|W|, |W|) combined
    kernels: NDArray[np.int64]  # which ones its layers are
    y: Float64
    warm: Float64  # alpha of the round before
    tol: float
    oracle: str


class Machine(Protocol):
    """A one-vs-rest formulation as rounds see it."""

    def first_weights(self, problem: Problem) -> Float64:
        """(s,) if weights are given and shared, (m, s) if every class learns its own."""

    def outlined(self, problem: Problem, state: State) -> State:
        """The first state with a rough idea of coefficients and sets, where one is cheap to have."""

    def layers(self, problem: Problem, active: NDArray[np.bool_]) -> int:
        """How many matrices of its own a block of these kernels holds."""

    def gather(self, problem: Problem, state: State, sets: list[Samples], kernels: list[Samples]) -> list[NDArray[Any]]:
        """The blocks of these sets of samples and kernels, in one pass."""

    @property
    def solve(self) -> Any:
        """A picklable function from a Question to an Answer."""

    def primal(self, beta: Float64, scores: Float64, y: Float64, answer: Answer) -> Certified:
        """The primal value of a class's answer, given its scores of all samples."""

    def dual(self, answer: Answer, forms: Float64) -> float:
        """The lower bound over all kernels, given the forms of all of them at the answer's proof."""

    def matter(self, weights: Float64, forms: Float64) -> NDArray[np.bool_]:
        """Which kernels the next block should hold, going by these of all kernels; some of every group."""

    def covered(self, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """`active` (m, s), where it leaves a group without kernels all of that group's added."""


class Rounds:
    """The solver of every machine: one step is one round of the batch of classes at hand."""

    def __init__(self, machine: Machine, dtype: Any) -> None:
        self._machine = machine
        self._itemsize = np.dtype(dtype).itemsize

    def init(self, problem: Problem) -> State:
        working = first_sets(problem.Y, problem.seed)
        state = State.first(self._machine.first_weights(problem), working, room=block_room(problem))
        start = problem.start
        if start is None:
            return self._machine.outlined(problem, state)
        if whole(problem.n):
            return replace(state, coef=start.coef)
        return replace(state, working=start.working, active=self._machine.covered(start.active), coef=start.coef)

    def step(self, problem: Problem, state: State) -> State:
        classes = self._batch(problem, state)
        sets = [np.flatnonzero(state.working[:, k]) for k in classes]
        kernels = [np.flatnonzero(state.active[k]) for k in classes]
        answers = self._answers(problem, state, classes, sets, kernels)
        coef, proof = np.zeros((2, problem.n, len(classes)))
        own, forms = np.zeros((2, len(classes), problem.stack.s))
        for position, (W, A, answer) in enumerate(zip(sets, kernels, answers, strict=True)):
            coef[W, position] = answer.alpha * problem.Y[W, classes[position]]
            if answer.weights is not None:
                own[position, A], forms[position, A] = answer.weights, answer.proof_forms
                proof[W, position] = answer.proof
        if answers[0].weights is None:
            scores = problem.stack.apply(coef, state.weights, forms=False).scores
        else:
            scores, others = self._pass(problem, coef, own, proof, ~state.active[classes])
            forms += others
        state = _copied(state)
        better: dict[int, Float64] = {}
        for position, (k, answer) in enumerate(zip(classes, answers, strict=True)):
            beta, reached = coef[:, position], scores[:, position]
            if self._judge(problem, state, k, beta, reached, answer, own[position], forms[position]):
                better[k] = beta
        return replace(
            state,
            coef=with_columns(state.coef, better),
            svm_calls=state.svm_calls + sum(answer.svm_calls for answer in answers),
            oracle_calls=state.oracle_calls + sum(answer.oracle_calls for answer in answers),
        )

    def _pass(
        self, problem: Problem, coef: Float64, weights: Float64, proof: Float64, outside: NDArray[np.bool_]
    ) -> tuple[Float64, Float64]:
        """Scores of the coefficients, and the proofs' forms of the kernels outside the blocks, in one pass."""
        if not outside.any():
            return problem.stack.apply(coef, weights, forms=False).scores, np.zeros(outside.shape)
        applied = problem.stack.apply(
            np.hstack([coef, proof]),
            np.vstack([weights, np.zeros_like(weights)]),
            forms=np.vstack([np.zeros_like(outside), outside]),
        )
        assert applied.forms is not None
        return applied.scores[:, : len(weights)], applied.forms[len(weights) :]

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _batch(self, problem: Problem, state: State) -> list[int]:
        """The first unfinished classes whose blocks fit in memory together, with room to grow."""
        room = state.room
        unfinished = [int(k) for k in np.flatnonzero(state.gap > problem.tol)]
        sizes = state.working.sum(axis=0)
        batch: list[int] = []
        used = 0
        for k in unfinished:
            needed = self._machine.layers(problem, state.active[k]) * self._itemsize * int(sizes[k]) ** 2
            require_room(k, int(sizes[k]), needed, room)
            known = state.primal[k] < np.inf or state.coef.indptr[k] < state.coef.indptr[k + 1]
            grown = needed * (1 if known else GROWTH_ROOM)
            if batch and used + grown > room:
                break
            batch.append(k)
            used += grown
        return batch

    def _answers(
        self, problem: Problem, state: State, classes: list[int], sets: list[Samples], kernels: list[Samples]
    ) -> list[Answer]:
        """Gather the blocks and fan the compact problems out, one task a class."""
        blocks: list[NDArray[Any] | None] = list(self._machine.gather(problem, state, sets, kernels))

        def questions() -> Iterator[tuple[Question]]:
            for position, (k, W) in enumerate(zip(classes, sets, strict=True)):
                y = problem.Y[W, k]
                block, blocks[position] = blocks[position], None  # a block lives as long as its task
                warm = column(state.coef, k)[W] * y
                yield (Question(block, kernels[position], y, warm, problem.tol, problem.oracle),)

        return list(problem.runtime.map(self._machine.solve, questions()))

    def _judge(
        self,
        problem: Problem,
        state: State,
        k: int,
        beta: Float64,
        scores: Float64,
        answer: Answer,
        weights: Float64,
        forms: Float64,
    ) -> bool:
        """Bounds of class k over all samples and kernels, its next set; whether the answer is a better one."""
        y = problem.Y[:, k]
        found = self._machine.primal(beta, scores, y, answer)
        first = np.isinf(state.primal[k])
        better = found.primal < state.primal[k]
        if better:
            state.primal[k], state.intercept[k] = found.primal, found.intercept
            if answer.weights is not None:
                state.weights[k] = found.scale * weights
        state.dual[k] = max(state.dual[k], self._machine.dual(answer, forms))
        state.working[:, k] = next_set(state.working[:, k], beta != 0, found.margins, drop=bool(first))
        matter = self._machine.matter(weights, forms)
        state.active[k] = matter if first and not whole(problem.n) else state.active[k] | matter
        return bool(better)


def _copied(state: State) -> State:
    """A state whose per-class entries may be filled in; the one before stays as it was."""
    names = ("weights", "intercept", "primal", "dual", "working", "active")
    return replace(state, **{name: getattr(state, name).copy() for name in names})
