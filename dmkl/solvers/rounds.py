"""Working-set rounds: solve unfinished classes on compact blocks, certify all of them with one pass, add violators.

One round is a gather (each class's block cut out of the tiles) and a scoring pass over all n samples. The first blocks
hold every kernel, later ones those that matter; the pass then tells the quadratic forms of the others, so that bounds
hold over all kernels too. What is solved on a block, and what the bounds are, is the machine's business; this file is
the same for every one-vs-rest formulation. Classes are taken in batches whose blocks fit in memory, and a batch is
finished before the next one starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64, Samples
from dmkl.runtime.base import run_task
from dmkl.solvers.blocks import block_room, require_room
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.columns import column, with_columns
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import first_sets, next_set, whole

GROWTH_ROOM = 4  # how many times its first size a block of random samples is expected to reach


@dataclass(frozen=True)
class Answer:
    """A compact problem's solution: beta over the block's samples and, if they are learnt, weights of its kernels."""

    beta: Float64
    dual: float  # a lower bound over all samples (beta is zero outside the block) and the block's kernels
    svm_calls: int = 0
    oracle_calls: int = 0  # (alpha, gamma) maximisations: svm_calls / oracle_calls is the paper's BCA count
    weights: Float64 | None = None
    penalty: float = 0.0  # the regulariser of alpha under these weights
    proof: Float64 | None = None  # the beta that `dual` comes from
    proof_forms: Float64 | None = None
    step: float = 0.0  # what the method would go on with
    trace: Float64 | None = None  # a row an iteration of the method: gap on the block, active kernels, Newton steps


@dataclass(frozen=True)
class Warm:
    """Where the round before ended, on the samples and kernels of the block."""

    beta: Float64
    weights: Float64
    intercept: float
    step: float  # of the method, 0 if it has none


@dataclass(frozen=True)
class Question:
    """One class's compact problem, self-contained, to be solved anywhere."""

    block: Any  # array (s, |W|, |W|), or (|W|, |W|) combined, or what a machine that can do without gives
    kernels: NDArray[np.int64]  # which ones its layers are
    y: Float64
    counts: Float64  # how many times each of its samples counts
    warm: Warm
    gap: float  # what the round before was certified to
    tol: float
    oracle: str


@dataclass(frozen=True)
class ProximalState(MethodState):
    """What proximal minimisation goes on with, and a row for each of its iterations."""

    step: Float64  # (m,) the penalty parameter of the kernels that each class ended with
    trace: Float64  # (iterations, 5): round, class, gap on the block, active kernels, Newton steps

    def iterations(self) -> list[dict[str, float]]:
        names = ("round", "class", "gap", "kernels", "steps")
        return [dict(zip(names, row, strict=True)) for row in self.trace.tolist()]


class Machine(Protocol):
    """A one-vs-rest formulation as rounds see it."""

    @property
    def own_type(self) -> type[MethodState]:
        """What its rounds keep between them: nothing, or where proximal minimisation ended."""

    def first_weights(self, problem: Problem) -> Float64:
        """(s,) if weights are given and shared, (m, s) if every class learns its own."""

    def outlined(self, problem: Problem, state: State) -> State:
        """The first state with a rough idea of coefficients and sets, where one is cheap to have."""

    def layers(self, problem: Problem, active: NDArray[np.bool_]) -> int:
        """How many matrices of its own a block of these kernels holds."""

    def streamed(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> Any:
        """What stands for a block that does not fit, read from the stack as it goes; None if only a block will do."""

    def cut(self, problem: Problem, state: State, kernels: list[Samples]) -> dict[str, Any]:
        """What `KernelStack.block` should cut for each class, beside its samples."""

    @property
    def solve(self) -> Any:
        """A picklable function from a Question to an Answer."""

    def primal(self, beta: Float64, scores: Float64, y: Float64, counts: Float64, answer: Answer) -> Certificate:
        """The primal value of a class's answer, given its scores of all samples."""

    def dual(self, answer: Answer, forms: Float64, y: Float64, counts: Float64) -> float:
        """The lower bound over all kernels, given the forms of all of them at the answer's proof; y and counts of its
        samples."""

    def matter(self, weights: Float64, forms: Float64) -> NDArray[np.bool_]:
        """Which kernels the next block should hold, going by these of all kernels; some of every group."""

    def covered(self, problem: Problem, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The kernels (m, s) to begin with where a neighbouring problem ended with these."""


class Rounds:
    """The solver of every machine: one step is one round of the batch of classes at hand."""

    def __init__(self, machine: Machine, dtype: Any) -> None:
        self._machine = machine
        self._itemsize = np.dtype(dtype).itemsize

    @property
    def own_type(self) -> type[MethodState]:
        return self._machine.own_type

    def init(self, problem: Problem) -> State:
        working = first_sets(problem.Y, problem.seed)
        state = State.first(self._machine.first_weights(problem), working, room=block_room(problem))
        if self.own_type is ProximalState:
            state = replace(state, own=ProximalState(np.zeros(problem.m), np.empty((0, 5))))
        start = problem.start
        if start is None:
            return self._machine.outlined(problem, state)
        working = state.working if whole(problem.n) else start.working
        active = self._machine.covered(problem, start.active)
        weights = start.weights if start.weights.shape == state.weights.shape else state.weights
        ended = {"weights": weights, "intercept": start.intercept, "coef": start.coef}
        return replace(state, working=working, active=active, **ended)

    def step(self, problem: Problem, state: State) -> State:
        classes = self._batch(problem, state)
        sets = [np.flatnonzero(state.working[:, k]) for k in classes]
        kernels = [np.flatnonzero(state.active[k]) for k in classes]
        answers = self._answers(problem, state, classes, sets, kernels)
        coef, proof = np.zeros((2, problem.n, len(classes)))
        own, forms = np.zeros((2, len(classes), problem.stack.s))
        for position, (W, A, answer) in enumerate(zip(sets, kernels, answers, strict=True)):
            coef[W, position] = answer.beta
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
            found = forms[position], sets[position]
            if self._judge(problem, state, k, beta, reached, answer, own[position], *found):
                better[k] = beta
        return replace(
            state,
            own=_own(state, classes, answers),
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
        unfinished = [int(k) for k in np.flatnonzero(state.gap > problem.tol)]
        sizes = state.working.sum(axis=0)
        batch: list[int] = []
        used = 0
        for k in unfinished:
            needed = self._needed(problem, state, k)
            if needed > state.room and self._stream(problem, state, k) is None:
                require_room(k, int(sizes[k]), needed, state.room)
            known = state.primal[k] < np.inf or state.coef.indptr[k] < state.coef.indptr[k + 1]
            grown = needed * (1 if known else GROWTH_ROOM)
            if batch and used + grown > state.room:
                break
            batch.append(k)
            used += grown
        return batch

    def _needed(self, problem: Problem, state: State, k: int) -> int:
        """Bytes of the block of class k."""
        layers = self._machine.layers(problem, state.active[k])
        return int(layers * self._itemsize * int(state.working[:, k].sum()) ** 2)

    def _stream(self, problem: Problem, state: State, k: int) -> Any:
        samples, kernels = np.flatnonzero(state.working[:, k]), np.flatnonzero(state.active[k])
        return self._machine.streamed(problem, samples, kernels, state.room)

    def _answers(
        self, problem: Problem, state: State, classes: list[int], sets: list[Samples], kernels: list[Samples]
    ) -> list[Answer]:
        """Cut the blocks and fan the compact problems out, one task a class; or read as it goes, from here."""
        questions = []
        for position, (k, W) in enumerate(zip(classes, sets, strict=True)):
            y, counts = problem.Y[W, k], problem.counts[W]
            weights = np.atleast_2d(state.weights)[k if state.weights.ndim == 2 else 0, kernels[position]]
            step = float(state.own.step[k]) if isinstance(state.own, ProximalState) else 0.0
            warm = Warm(column(state.coef, k)[W], weights, float(state.intercept[k]), step)
            gap = float(state.gap[k])
            questions.append(Question(None, kernels[position], y, counts, warm, gap, problem.tol, problem.oracle))
        cut, solve = self._machine.cut(problem, state, kernels), self._machine.solve
        if len(classes) > 1:
            tasks = [(solve, question) for question in questions]
            return problem.stack.answers(answer, tasks, sets, runtime=problem.runtime, **cut)
        # nothing to fan out; and where the block is streamed, its passes are tasks themselves
        streams = self._needed(problem, state, classes[0]) > state.room
        block = self._stream(problem, state, classes[0]) if streams else problem.stack.block(sets, **cut)[0]
        return [run_task(answer, block, solve, questions[0])]

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
        samples: Samples,
    ) -> bool:
        """Bounds of class k over all samples and kernels, its next set; whether the answer is a better one."""
        y, counts = problem.Y[:, k], problem.counts
        found = self._machine.primal(beta, scores, y, counts, answer)
        first = np.isinf(state.primal[k])
        better = found.primal < state.primal[k]
        if better:
            state.primal[k], state.intercept[k] = found.primal, found.intercept
            if answer.weights is not None:
                state.weights[k] = found.scale * weights
        state.dual[k] = max(state.dual[k], self._machine.dual(answer, forms, y[samples], counts[samples]))
        state.working[:, k] = next_set(state.working[:, k], beta != 0, found.margins, drop=bool(first))
        matter = self._machine.matter(weights, forms)
        state.active[k] = matter if first and not whole(problem.n) else state.active[k] | matter
        return bool(better)


def answer(block: Any, solve: Callable[[Question], Answer], question: Question) -> Answer:
    """A class's question, once its block is there."""
    return solve(replace(question, block=block))


def _own(state: State, classes: list[int], answers: list[Answer]) -> MethodState:
    """The state's own part, with the steps and traces of these answers."""
    if not isinstance(state.own, ProximalState):
        return state.own
    steps, rows = state.own.step.copy(), [state.own.trace]
    for k, answer in zip(classes, answers, strict=True):
        steps[k] = answer.step
        assert answer.trace is not None
        rows.append(np.column_stack([np.full((len(answer.trace), 2), (state.round + 1, k)), answer.trace]))
    return ProximalState(steps, np.concatenate(rows))


def _copied(state: State) -> State:
    """A state whose per-class entries may be filled in; the one before stays as it was."""
    names = ("weights", "intercept", "primal", "dual", "working", "active")
    return replace(state, **{name: getattr(state, name).copy() for name in names})
