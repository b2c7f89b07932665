"""Working-set rounds: the solver of every formulation whose classes are problems of their own.

A round solves the unfinished classes on compact blocks, certifies them with one pass over all samples, and adds the
violators to their sets. That is one gather (each class's block is cut out of the tiles) and one scoring pass. The first
blocks hold every kernel, later ones those that matter; the pass then computes the quadratic forms of the other kernels,
so that bounds hold over all kernels too. How a block is solved, and what the bounds are, is the business of a
`ClassMethod`; this module is the same for all of them. Classes are taken in batches whose blocks fit in memory, and a
batch is finished before the next one starts.

A sample outside its class's set has alpha = 0, which is optimal for it when its margin is at least 1. Sets lose samples
only after the first round, so the compact problem ends up right: at the latest when it holds every sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypedDict

import numpy as np

from dmkl._util.machine import cores, in_batches
from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Float64, FloatArray, FloatType, Mask, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ResourceError
from dmkl.events import Note
from dmkl.runtime import Runtime
from dmkl.solvers.certificate import Certificate
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState, NoState, State, column, dense, with_columns


@dataclass(frozen=True)
class WorkingSetOptions:
    """Sizes of the sets, and which margins let samples in and out."""

    whole_up_to: int = 800  # samples: with no more, the set is all of them from the start
    start: int = 300  # random samples of each side to begin with
    growth: float = 1.0  # samples that may be added in a round, as a share of the set
    least_growth: int = 500  # samples that may be added in any case
    enter: float = 1.05  # margins below this enter while there is room
    leave: float = 1.5  # margins above this leave again


OPTIONS = WorkingSetOptions()


def whole(n: int) -> bool:
    """Whether compact problems of n samples hold all of them, and all kernels, from the start."""
    return n <= OPTIONS.whole_up_to


def first_sets(positive: SampleSets, seed: int) -> SampleSets:
    """The first samples of each class and outside it, in a seeded random order that is the same for every class."""
    n, m = positive.shape
    if whole(n):
        return SampleSets.whole(n, m)
    order = np.random.default_rng(seed).permutation(n)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    return SampleSets.of(n, (_first_of_either_side(positive.members(k), order, place) for k in range(m)))


def _first_of_either_side(members: Samples, order: Samples, place: Samples) -> Samples:
    """The first samples inside and outside a set, ascending; order[place] = 0, 1, ..."""
    inside = np.sort(place[members])
    outside = np.ones(min(len(order), OPTIONS.start + len(inside)), dtype=bool)  # enough places
    outside[inside[inside < len(outside)]] = False
    return np.sort(order[np.concatenate([inside[: OPTIONS.start], np.flatnonzero(outside)[: OPTIONS.start]])])


def settled_set(support: Mask, margins: Float64) -> Mask:
    """(n,): the set of a class whose margins are known to be nearly right."""
    return np.asarray(support | (margins < OPTIONS.enter)) if not whole(len(margins)) else np.ones(len(margins), bool)


def next_set(working: Mask, support: Mask, margins: Float64, *, drop: bool) -> Mask:
    """(n,): a class's set with the worst violators added; with `drop`, without samples far from the margin."""
    room = max(OPTIONS.least_growth, int(OPTIONS.growth * working.sum()))
    outside = np.flatnonzero(~working & (margins < OPTIONS.enter))
    worst = outside[np.argsort(margins[outside], kind="stable")[:room]]
    result = working.copy()
    if drop and not whole(len(working)):
        result &= support | (margins < OPTIONS.leave)
    result[worst] = True
    return result


@dataclass(frozen=True)
class KernelSetOptions:
    """Where kernels are so many that a block holds few of them."""

    many: int = 2000  # kernels, from which on the first block holds random ones
    fewest: int = 100  # that a block begins with, and that may be added in a round,
    as_many: int = 2  # or so many times the kernels with weight


KERNEL_SETS = KernelSetOptions()


def many_kernels(s: int) -> bool:
    """Whether blocks begin with a few random ones of s kernels. Their solution ranks all of them well enough to find
    those that matter in two or three passes, and choosing them takes no pass."""
    return s >= KERNEL_SETS.many


def random_kernels(s: int, seed: int) -> Mask:
    """(s,): the first in a seeded random order."""
    chosen = np.zeros(s, dtype=bool)
    chosen[np.random.default_rng(seed).permutation(s)[: _few(s)]] = True
    return chosen


def entering(near: Samples, forms: Float64, used: int) -> Samples:
    """Of the kernels that may enter a block, those with the largest forms; `used` kernels have weight."""
    return near[np.argsort(-forms[near], kind="stable")[: max(_few(len(forms)), KERNEL_SETS.as_many * used)]]


def _few(s: int) -> int:
    """How many of s kernels a block begins with: its work grows with their square, that of a pass with s."""
    return max(KERNEL_SETS.fewest, int(np.sqrt(s)))


@dataclass(frozen=True)
class BlockMemoryOptions:
    """How much memory compact blocks may take."""

    share: float = 0.4  # of the memory limit, less the process and held tiles
    process_bytes: int = 320_000_000  # of Python, its libraries and compiled code
    vectors: int = 16  # of all samples, that a class of a round takes beside its block
    batch_bytes: float = 1e11  # of all blocks of a round: some minutes of work, after which there is a checkpoint
    smallest_part: int = 256  # samples of a matrix that is made in any case
    in_flight: float = 2.0  # memory while a matrix is put together from the tasks' results, as a multiple of its size


BLOCK_MEMORY = BlockMemoryOptions()


def block_room(problem: Problem) -> int:
    """Bytes that compact blocks may take.

    They are reckoned from the limit, not from the memory that is free at the moment: batches, and so the last bits of
    every sum, are the same in a run that was killed and continued as in one that was not.
    """
    memory = problem.stack.memory
    planned = memory.limit - BLOCK_MEMORY.process_bytes - problem.stack.held_bytes
    return int(BLOCK_MEMORY.share * (planned if planned > 0 else memory.left))


def own_layers(problem: Problem, kernels: int) -> int:
    """How many matrices a block of so many kernels takes memory for: none where the block is the stack's own array."""
    stack = problem.stack
    return 0 if whole(problem.n) and kernels == stack.s and stack.in_one_array else kernels


def require_room(k: int, samples: int, needed: int, room: int) -> None:
    """Refuse a block that is larger than the room (ResourceError)."""
    if needed > room:
        raise ResourceError(
            f"class {k} needs a block of {samples} samples ({needed / 1e6:,.0f} MB), more than the "
            f"{room / 1e6:,.0f} MB there are for it",
            "raise --memory",
        )


class BlockOptions(TypedDict, total=False):
    """Arguments of `KernelStack.block` beside the samples of each class."""

    kernels: Sequence[Sequence[int]]
    weights: Float64
    dtype: FloatType


@dataclass(frozen=True)
class WarmStart:
    """The last solution of a class, on the samples and kernels of the block."""

    beta: Float64
    weights: Float64
    intercept: float
    step: float  # from the method's own state, 0 if there is none
    resume: object = None  # what a streamed problem goes on with, from the method's own state


@dataclass(frozen=True)
class BlockProblem:
    """One class's compact problem, self-contained, to be solved anywhere."""

    block: object  # (kernels, |W|, |W|), or (|W|, |W|) combined, or the substitute of a block too large for memory
    kernels: Samples  # their numbers in the stack
    y: Float64
    counts: Float64  # how many times each of its samples counts
    warm: WarmStart
    gap: float  # certified in the round before, infinite in the first
    tol: float  # of the whole problem
    oracle: str
    threads: int = 1  # that solving it may use
    complete: bool = False  # whether it holds all samples and kernels

    @property
    def array(self) -> FloatArray:
        """The block, where it is one."""
        assert isinstance(self.block, np.ndarray)
        return self.block


@dataclass(frozen=True)
class BlockSolution:
    """A solution over the block's samples, and over its kernels if weights are learnt."""

    beta: Float64
    dual: float  # a lower bound over all samples (beta is zero outside the block) and the block's kernels
    svm_calls: int = 0
    oracle_calls: int = 0  # maximisations over (alpha, gamma)
    weights: Float64 | None = None
    penalty: float = 0.0  # the regulariser of beta with these weights
    proof: Float64 | None = None  # the beta that `dual` comes from
    proof_forms: Float64 | None = None  # (kernels,) proof' K_a proof
    step: float = 0.0  # for the method's own state
    trace: Float64 | None = None  # (iterations, 3): gap on the block, active kernels, steps
    scores: Float64 | None = None  # (|W|,) of beta at the weights, where the method has them
    handovers: int = 0  # methods that did not reach the tolerance before this one
    resume: object = None  # what a streamed problem goes on with


class Streamed(Protocol):
    """What takes the place of a block that does not fit in memory, and reads the stack instead."""

    @property
    def plan(self) -> str:
        """What that will take, in words."""


class ClassMethod(ABC):
    """How the classes of a formulation are solved on blocks, and what their bounds are. Picklable."""

    own_type: ClassVar[type[MethodState]] = NoState

    @abstractmethod
    def first_weights(self, problem: Problem) -> Float64:
        """(s,) if weights are fixed and shared, (m, s) if every class learns its own."""

    def first_state(self, problem: Problem, state: State) -> State:
        """The first state with rough coefficients and sets, where they are cheap to have."""
        return state

    def first_own(self, problem: Problem) -> MethodState:
        """The method's own state before the first round."""
        return NoState()

    def next_own(
        self, own: MethodState, number: int, classes: Sequence[int], solutions: Sequence[BlockSolution]
    ) -> MethodState:
        """The method's own state after round `number` with these solutions."""
        return own

    def warm_step(self, own: MethodState, k: int) -> float:
        """The step that class k starts with in the next round, 0 if there is none."""
        return 0.0

    def holds_all(self, problem: Problem) -> bool:
        """Whether every block is of all samples, whatever their margins."""
        return False

    def resume(self, own: MethodState, k: int) -> object:
        """What class k goes on with if its problem is streamed; None if it begins."""
        return None

    def layers(self, problem: Problem, active: Mask) -> int:
        """How many matrices a block of these kernels takes memory for."""
        return 1

    def streamed_sets(self, working: Mask, active: Mask) -> tuple[Mask, Mask]:
        """The samples and kernels of a class whose block does not fit in memory."""
        return working, active

    def streaming_substitute(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> Streamed | None:
        """A substitute for a block too large for memory, which reads the stack; None if unsupported."""
        return None

    @abstractmethod
    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        """Which matrices to cut out of the stack for classes with these kernels."""

    @abstractmethod
    def solve(self, problem: BlockProblem) -> BlockSolution:
        """Solve one class's compact problem."""

    @abstractmethod
    def primal(
        self, beta: Float64, scores: Float64, y: Float64, counts: Float64, solution: BlockSolution
    ) -> Certificate:
        """The primal value of a solution, given the scores of all samples."""

    def dual(self, solution: BlockSolution, forms: Float64, y: Float64, counts: Float64) -> float:
        """The lower bound over all kernels; `forms` (s,) are the proof's, y and counts the block's."""
        return solution.dual

    def as_known(self, beta: Float64, weights: Float64, forms: Float64, y: Float64, counts: Float64) -> BlockSolution:
        """Coefficients of all samples that no block was solved for, with the weights and forms of all kernels."""
        return BlockSolution(beta, -np.inf)

    def next_kernels(self, weights: Float64, forms: Float64) -> Mask:
        """(s,): the kernels for the next block, at least one of every group."""
        return np.ones(len(weights), dtype=bool)

    def first_kernels(self, problem: Problem, active: Mask) -> Mask:
        """(m, s): the kernels to begin with where a neighbouring problem ended with these."""
        return np.ones_like(active)


class OneVsRest:
    """The solver: one step is one round of the batch of classes at hand."""

    def __init__(self, method: ClassMethod, dtype: FloatType) -> None:
        self._method = method
        self._itemsize = dtype.itemsize
        self._announced: set[int] = set()  # classes that are known to be read in passes

    @property
    def own_type(self) -> type[MethodState]:
        return self._method.own_type

    def init(self, problem: Problem) -> State:
        working = first_sets(problem.Y.sides(), problem.seed)
        state = State.first(self._method.first_weights(problem), working, room=block_room(problem))
        state = replace(state, own=self._method.first_own(problem))
        start = problem.start
        if start is None:
            try:
                return self._method.first_state(problem, state)
            except Stopped:
                return state
        working = state.working if whole(problem.n) else start.working
        if self._method.holds_all(problem):
            working = SampleSets.whole(problem.n, problem.m)
        return replace(
            state,
            working=working,
            active=self._method.first_kernels(problem, start.active),
            weights=start.weights if start.weights.shape == state.weights.shape else state.weights,
            intercept=start.intercept,
            coef=start.coef,
        )

    def step(self, problem: Problem, state: State) -> State:
        classes = self._batch(problem, state)
        if self._streams(problem, state, classes):
            self._announce(problem, state, classes[0])
            state = _with_own_arrays(state)
            samples, state.active[classes[0]] = self._method.streamed_sets(
                state.working.mask(classes[0]), state.active[classes[0]]
            )
            state.working.put(classes[0], samples)
        groups = list(self._together(problem, state, classes))
        classes = [k for some in groups for k in some]
        sets = [state.working.members(k) for k in classes]
        kernels = [np.flatnonzero(state.active[k]) for k in classes]
        answers: list[BlockSolution | None] = []
        for some in groups:
            part = slice(len(answers), len(answers) + len(some))
            try:
                answers += self._solutions(problem, state, some, sets[part], kernels[part])
            except Stopped:  # what is solved is certified
                answers += [None] * len(some)
        solved = [position for position, solution in enumerate(answers) if solution is not None]
        if not solved:
            raise Stopped
        classes, sets = [classes[p] for p in solved], [sets[p] for p in solved]
        kernels, solutions = [kernels[p] for p in solved], [solution for solution in answers if solution is not None]
        coef, proof = np.zeros((2, problem.n, len(classes)))
        weights, forms = np.zeros((2, len(classes), problem.stack.s))
        for position, (W, A, solution) in enumerate(zip(sets, kernels, solutions, strict=True)):
            coef[W, position] = solution.beta
            if solution.weights is not None:
                weights[position, A], forms[position, A] = solution.weights, solution.proof_forms
                proof[W, position] = solution.proof
        if solutions[0].weights is None:
            scores = problem.stack.apply(coef, state.weights, forms=False).scores
        elif all(one.scores is not None and len(one.scores) == problem.n for one in solutions) and (
            state.active[classes].all()
        ):  # the blocks are all samples and kernels: their certificates are those of the problem
            scores = np.column_stack([one.scores for one in solutions if one.scores is not None])
        else:
            scores, others = _scores_and_forms(problem, coef, weights, proof, ~state.active[classes])
            forms += others
        state = _with_own_arrays(state)
        better: dict[int, Float64] = {}
        for position, (k, solution) in enumerate(zip(classes, solutions, strict=True)):
            beta, reached = coef[:, position], scores[:, position]
            found = weights[position], forms[position], sets[position]
            if self._certify(problem, state, k, solution, beta, reached, *found):
                better[k] = beta
        return replace(
            state,
            own=self._method.next_own(state.own, state.round + 1, classes, solutions),
            coef=with_columns(state.coef, better),
            svm_calls=state.svm_calls + sum(solution.svm_calls for solution in solutions),
            oracle_calls=state.oracle_calls + sum(solution.oracle_calls for solution in solutions),
            handovers=state.handovers + sum(solution.handovers for solution in solutions),
        )

    def _batch(self, problem: Problem, state: State) -> list[int]:
        """The unfinished classes of the next round, which share a pass: as many as their vectors fit, and no more than
        some minutes of work. A class whose block does not fit is alone."""
        unfinished = list(self._unfinished(problem, state))
        sizes = np.array([self._bytes(problem, state, k) for k in unfinished])
        fitting = (sizes <= state.room) & (np.cumsum(sizes, dtype=np.float64) <= BLOCK_MEMORY.batch_bytes)
        most = state.room // (BLOCK_MEMORY.vectors * 8 * problem.n)
        return unfinished[: max(1, min(most, len(sizes) if fitting.all() else int(np.argmin(fitting))))]

    def _together(self, problem: Problem, state: State, classes: list[int]) -> Iterator[list[int]]:
        """These classes in groups whose blocks are in memory at the same time. Those whose block is the stack's own
        array, uncopied, are not mixed with others: blocks that are gathered together are all copies."""
        sizes = {k: self._bytes(problem, state, k) for k in classes}
        uncopied, copied = [k for k in classes if sizes[k] == 0], [k for k in classes if sizes[k]]
        if uncopied:
            yield uncopied
        in_tasks = bool(copied) and problem.stack.cut_in_tasks([sizes[k] for k in copied], state.room)
        yield from in_batches(copied, lambda some: sum(sizes[k] for k in some), np.inf if in_tasks else state.room)

    def leave(self, problem: Problem, state: State) -> State:
        """Certify the coefficients of classes that no block has been solved for, if there is time for a pass."""
        classes = np.flatnonzero(np.isinf(state.primal) & (np.diff(state.coef.indptr) > 0))
        if not len(classes):
            return state
        coef, state = dense(state.coef, classes.tolist()), _with_own_arrays(state)
        weights = np.broadcast_to(state.weights, (problem.m, problem.stack.s))[classes]
        try:
            applied = problem.stack.apply(coef, weights)
        except Stopped:
            return state
        assert applied.forms is not None
        for position, k in enumerate(classes.tolist()):
            beta, forms, y = coef[:, position], np.maximum(applied.forms[position], 0.0), problem.Y.column(k)
            known = self._method.as_known(beta, weights[position], forms, y, problem.counts)
            certificate = self._method.primal(beta, applied.scores[:, position], y, problem.counts, known)
            state.primal[k], state.intercept[k] = certificate.primal, certificate.intercept
            if known.weights is not None and known.proof_forms is not None:
                state.weights[k] = certificate.scale * known.weights
                state.dual[k] = self._method.dual(known, known.proof_forms, y, problem.counts)
        return state

    def _unfinished(self, problem: Problem, state: State) -> Iterator[int]:
        """Classes above the tolerance; a class whose block cannot fit, and that cannot be streamed, is refused."""
        for k in np.flatnonzero(state.gap > problem.tol).tolist():
            needed = self._bytes(problem, state, k)
            if needed > state.room and self._substitute(problem, state, k) is None:
                require_room(k, int(state.working.sizes[k]), needed, state.room)
            yield k

    def _bytes(self, problem: Problem, state: State, k: int) -> int:
        """Bytes of the block of class k; none where it is the stack's own array."""
        layers, samples = self._method.layers(problem, state.active[k]), int(state.working.sizes[k])
        everything = samples == problem.n and state.active[k].all() and layers == problem.stack.s
        if problem.stack.in_one_array and everything:
            return 0
        return int(layers * self._itemsize * samples**2)

    def _streams(self, problem: Problem, state: State, classes: list[int]) -> bool:
        """Whether the block of the only class at hand does not fit; such a class is a batch of its own."""
        return len(classes) == 1 and self._bytes(problem, state, classes[0]) > state.room

    def _announce(self, problem: Problem, state: State, k: int) -> None:
        """Say what will be done, before the first round that reads kernels in passes."""
        substitute = self._substitute(problem, state, k)
        if substitute is not None and k not in self._announced:
            self._announced.add(k)
            samples, needed = int(state.working.sizes[k]), self._bytes(problem, state, k)
            text = f"{samples:,} samples of class {k} take {needed / 1e6:,.0f} MB, {state.room / 1e6:,.0f} MB are there"
            problem.observer(Note(f"{text}: {substitute.plan}"))

    def _substitute(self, problem: Problem, state: State, k: int) -> Streamed | None:
        samples, kernels = state.working.members(k), np.flatnonzero(state.active[k])
        return self._method.streaming_substitute(problem, samples, kernels, state.room)

    def _solutions(
        self, problem: Problem, state: State, classes: list[int], sets: list[Samples], kernels: list[Samples]
    ) -> list[BlockSolution | None]:
        """Cut the blocks and solve the compact problems, one task a class; a streamed class is solved from here.

        None for the classes that there was no time for.
        """
        problems = []
        threads = threads_for(problem.runtime, len(classes))
        for position, (k, W) in enumerate(zip(classes, sets, strict=True)):
            y, counts = problem.Y.at(W, k), problem.counts[W]
            weights = np.atleast_2d(state.weights)[k if state.weights.ndim == 2 else 0, kernels[position]]
            step = self._method.warm_step(state.own, k)
            resume = self._method.resume(state.own, k)
            warm = WarmStart(column(state.coef, k)[W], weights, float(state.intercept[k]), step, resume)
            known = y, counts, warm, float(state.gap[k]), problem.tol, problem.oracle
            complete = len(W) == problem.n and len(kernels[position]) == problem.stack.s
            problems.append(BlockProblem(None, kernels[position], *known, threads, complete))
        options = self._method.block_options(problem, state, kernels)
        if len(classes) > 1:
            tasks = [(self._method, one) for one in problems]
            return problem.stack.answers(solve_block, tasks, sets, runtime=problem.runtime, room=state.room, **options)
        # nothing to fan out; and where the block is streamed, its passes are tasks themselves
        streams = self._streams(problem, state, classes)
        block: object = (
            self._substitute(problem, state, classes[0]) if streams else problem.stack.block(sets, **options)[0]
        )
        return [self._method.solve(replace(problems[0], block=block))]

    def _certify(
        self,
        problem: Problem,
        state: State,
        k: int,
        solution: BlockSolution,
        beta: Float64,
        scores: Float64,
        weights: Float64,
        forms: Float64,
        samples: Samples,
    ) -> bool:
        """Enter the bounds of class k over all samples and kernels and its next sets; whether its primal value fell."""
        y, counts = problem.Y.column(k), problem.counts
        certificate = self._method.primal(beta, scores, y, counts, solution)
        first = np.isinf(state.primal[k])
        better = certificate.primal < state.primal[k]
        if better:
            state.primal[k], state.intercept[k] = certificate.primal, certificate.intercept
            if solution.weights is not None:
                state.weights[k] = certificate.scale * weights
        state.dual[k] = max(state.dual[k], self._method.dual(solution, forms, y[samples], counts[samples]))
        if not self._method.holds_all(problem):
            before = state.working.mask(k)
            state.working.put(k, next_set(before, beta != 0, certificate.margins, drop=bool(first)))
        kernels = self._method.next_kernels(weights, forms)
        state.active[k] = kernels if first and not whole(problem.n) else state.active[k] | kernels
        return bool(better)


def threads_for(runtime: Runtime, classes: int) -> int:
    """Threads for each of so many problems that are solved at once; on a cluster one alone is solved in this process,
    while the workers wait for it."""
    if runtime.remote:
        return cores() if classes == 1 else 1
    return max(1, runtime.workers // classes)


def solve_block(block: object, method: ClassMethod, problem: BlockProblem) -> BlockSolution | None:
    """The compact problem of one of several classes, once its block is there; None where there is no time for it."""
    return None if must_stop() else method.solve(replace(problem, block=block))


def _scores_and_forms(
    problem: Problem, coef: Float64, weights: Float64, proof: Float64, outside: Mask
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


def _with_own_arrays(state: State) -> State:
    """A state whose entries may be overwritten, class by class; the one before stays as it was."""
    return replace(
        state,
        weights=state.weights.copy(),
        intercept=state.intercept.copy(),
        primal=state.primal.copy(),
        dual=state.dual.copy(),
        working=state.working.copy(),
        active=state.active.copy(),
    )
