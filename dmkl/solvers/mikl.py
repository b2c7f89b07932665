"""MIKL by working sets of coefficients (kernel, sample), all classes sharing the passes.

A round solves a compact problem over the coefficients that may matter, against all samples, by forward-backward
splitting and Newton's method (`mikl_compact.py`). One pass then certifies it over all coefficients and chooses the next
set.

Coefficients leave the problem for good by gap-safe screening (Ndiaye et al. 2017): the dual is 1/2-strongly concave, so
the optimal u is within r = 2 sqrt(P - L) of any feasible u, and each entry of V = K_y' u within r times a row's norm of
its optimal value. A coefficient that is zero for every such V is zero at the optimum, and the lower bound needs it no
more. Of the others those enter the compact problem whose V is close to making them nonzero, at most twice as many
groups as have coefficients already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack

from dmkl._util.machine import in_batches
from dmkl._util.stopping import end_if_late, must_stop
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.problems.mikl import MIKL
from dmkl.problems.norms import TINY, GroupNorm
from dmkl.solvers.mikl_compact import (
    CompactPoint,
    Grams,
    HeldRows,
    KernelRows,
    StreamedRows,
    descend,
    first_step,
    lower_bound,
    polish,
    start_at,
)
from dmkl.solvers.mikl_parts import solve_in_parts
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import block_room

GRAM_COLUMNS = 1024  # of a product of a kernel with itself that are computed together
ZERO, WAITING, COMPACT = 0, 1, 2  # a coefficient is proved zero, may matter, is in the compact problem


@dataclass(frozen=True)
class SelectionOptions:
    """Which coefficients enter the next compact problem."""

    close: float = 0.9  # those whose V reaches this share of the bound, or of the largest in their group,
    fewest: int = 200  # at most so many groups,
    as_many: int = 2  # or this many times the groups that have coefficients


@dataclass(frozen=True)
class CoefficientSetOptions:
    """Constants of the rounds."""

    selection: SelectionOptions = field(default_factory=SelectionOptions)
    whole: int = 4000  # problems of at most so many coefficients are solved at once,
    held: float = 0.5  # and with the interior point method those whose rows take at most this share of the room
    tol_share: float = 0.5  # of the tolerance, for a compact problem: the coefficients outside need the rest
    gap_share: float = 0.02  # of the certified gap so far: more precision is lost when coefficients enter
    first_gap: float = 0.1  # the gap of the first compact problem
    warm_up: int = 50  # forward-backward steps before Newton's method
    most_steps: int = 100_000  # forward-backward steps of a round without Newton's method
    rows_share: float = 0.5  # of the room, for rows that several classes share; their own rows need the rest
    pass_share: float = 0.5  # of the room, for the result of a pass


OPTIONS = CoefficientSetOptions()


@dataclass(frozen=True)
class PerKernelState(MethodState):
    """Where every coefficient is, the best dual point of each class, and how many steps each class took."""

    sets: NDArray[np.int8]  # (m, s, n): ZERO, WAITING or COMPACT
    u: Float64  # (n, m)
    steps: Samples  # (m,): of the methods inside the rounds


@dataclass(frozen=True)
class CompactProblem:
    """The problem of one class over some coefficients and all samples, self-contained but for its rows."""

    members: Mask  # (s, n)
    norm: GroupNorm
    alpha: Float64  # (p,) to start from
    y: Float64
    gap: float  # to be reached
    method: str  # interior, newton, fista or plain
    room: int  # bytes for a part of the rows, or a Newton matrix
    options: CoefficientSetOptions
    step: float = 0.0  # step size of forward-backward splitting, 0 if unknown
    threads: int = 1  # that solving it may use

    def minimise(self, rows: KernelRows) -> CompactPoint:
        """The solution, by the method; Newton's method goes on where the interior point method cannot."""
        point = replace(start_at(rows, self.norm, self.alpha), step=self.step)
        if self.method == "interior" and isinstance(rows, HeldRows):
            point = solve_in_parts(rows, self.norm, point, self.gap)
            if point.gap <= self.gap or must_stop():
                return point
            point = replace(point, handovers=1)
        newton = self.method in ("interior", "newton")
        steps = self.options.warm_up if newton else self.options.most_steps
        point = descend(rows, self.norm, point, self.gap, steps, accelerated=self.method != "plain")
        return polish(rows, self.norm, point, self.gap) if newton and point.gap > self.gap else point


def solve_held(rows: FloatArray, union: Mask, compact: CompactProblem, grams: Grams | None) -> CompactPoint:
    """Solve the compact problem of one class, from rows (p, n) that were gathered for several classes."""
    mine = compact.members[union]
    return compact.minimise(
        HeldRows(rows if mine.all() else rows[mine], compact.y, compact.room, grams, compact.threads)
    )


def gram_of(rows: FloatArray, place: int, n: int) -> Float64:
    """K_a' K_a of the kernel with the n rows at this place; the Newton matrices of all classes are sums of these."""
    own = np.asarray(rows[place * n : (place + 1) * n], dtype=np.float64)
    gram = np.empty((n, n))
    for start in range(0, n, GRAM_COLUMNS):  # one product of 10,000 samples would last for half a minute
        end_if_late()
        part, before = slice(start, start + GRAM_COLUMNS), slice(0, start + GRAM_COLUMNS)
        gram[part, before] = own[:, part].T @ own[:, before]
        gram[before, part] = gram[part, before].T
    return gram


def step_of(rows: FloatArray, n: int) -> float:
    """The step size of forward-backward splitting for these rows, which does not depend on the labels."""
    return first_step(HeldRows(rows, np.ones(n)))


def build(formulation: MIKL, problem: Problem) -> CoefficientSets:
    """The rounds by the method that the problem names."""
    return CoefficientSets(formulation, OPTIONS)


@dataclass(frozen=True)
class CoefficientSets:
    """The solver. One step is a compact problem for each unfinished class and one pass."""

    own_type: ClassVar[type[MethodState]] = PerKernelState

    formulation: MIKL
    options: CoefficientSetOptions

    def init(self, problem: Problem) -> State:
        """Start from no coefficients, or from a neighbouring problem; small problems have one set of everything."""
        n, m, s = problem.n, problem.m, problem.stack.s
        state = State.first(np.zeros((m, s)), SampleSets.whole(n, m), room=block_room(problem))
        sets = np.full((m, s, n), WAITING, dtype=np.int8)
        own = PerKernelState(sets, np.full((n, m), 2.0), np.zeros(m, dtype=np.int64))
        # without coefficients the loss is n
        state = replace(state, coef=csc_array((n, m * s), dtype=np.float64), primal=np.full(m, float(n)), own=own)
        if problem.start is not None:
            before = problem.start.own
            own = replace(own, u=before.u) if isinstance(before, PerKernelState) else own
            unknown = np.full(m, np.inf)
            state = replace(state, coef=problem.start.coef, weights=problem.start.weights, primal=unknown, own=own)
        if self._at_once(problem, state.room):
            sets[:] = COMPACT
            return state
        return self._certified(problem, state, np.arange(m))

    def _at_once(self, problem: Problem, room: int) -> bool:
        """Whether all coefficients are in the compact problem from the start."""
        coefficients = problem.stack.s * problem.n
        if coefficients <= self.options.whole or self.formulation.norm == "2":
            return True
        copied = 0 if problem.stack.in_one_array else coefficients * problem.n * problem.stack.dtype.itemsize
        return problem.method == "interior" and copied < self.options.held * room

    def step(self, problem: Problem, state: State) -> State:
        unfinished = np.flatnonzero(state.gap > problem.tol)
        own = state.own_as(PerKernelState)
        u, steps = own.u.copy(), own.steps.copy()
        primal, handovers = state.primal.copy(), state.handovers
        found: dict[int, csc_array] = {}
        size, room = _UnionSize(problem, own.sets), self.options.rows_share * state.room
        for batch in in_batches(unfinished.tolist(), size, room):
            for k, point in zip(batch, self._solve(problem, state, batch), strict=True):
                alpha = np.zeros((problem.stack.s, problem.n))
                alpha[own.sets[k] == COMPACT] = point.alpha
                found[k] = csc_array(alpha.T)
                primal[k], u[:, k] = point.primal, point.u
                steps[k] += point.iterations
                handovers += point.handovers
        coef, weights = _with_classes(state, found)
        own = replace(own, u=u, steps=steps)
        state = replace(state, coef=coef, weights=weights, primal=primal, handovers=handovers, own=own)
        return self._certified(problem, state, unfinished)

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _solve(self, problem: Problem, state: State, batch: list[int]) -> Iterator[CompactPoint]:
        """Solve the compact problems of a batch, from rows gathered together or one after the other through passes."""
        own, stack, n = state.own_as(PerKernelState), problem.stack, problem.n
        shared_room = self.options.rows_share * state.room
        union = np.any(own.sets[batch] == COMPACT, axis=0)
        size = _bytes(problem, union)
        compacts = (self._compact(problem, state, k) for k in batch)
        if size > state.room and not (union.all() and stack.in_one_array):
            for compact in compacts:
                yield compact.minimise(StreamedRows(stack, compact.members, compact.y))
            return
        rows = stack.pick(union)
        if 2 * size <= shared_room:  # else float32 rows are converted piece by piece in every product
            rows = rows.astype(np.float64, copy=False)
        held = problem.runtime.share(rows)
        # the norm of K_y does not depend on the labels: classes with the same rows have the same step size
        alike = len(batch) > 1 and all((own.sets[k][union] == COMPACT).all() for k in batch)
        step = next(iter(problem.runtime.map(step_of, [(held, n)]))) if alike else 0.0
        grams = None
        if problem.method == "interior" or len(batch) > 1:
            grams = self._grams(problem, held, np.flatnonzero(union.any(axis=1)), shared_room)
        threads = 1 if problem.runtime.remote else max(1, problem.runtime.workers // len(batch))
        compacts = (replace(compact, step=step, threads=threads) for compact in compacts)
        yield from problem.runtime.map(solve_held, ((held, union, compact, grams) for compact in compacts))

    def _grams(self, problem: Problem, rows: FloatArray, kernels: Samples, room: float) -> Grams | None:
        """The products of whole kernels, where the norm needs no others and they fit; `rows` may be a reference."""
        norm, n = self.formulation.norm, problem.n
        if norm not in ("2", "21;2"):
            return None
        apart = norm == "21;2"
        if 8 * n * n * (len(kernels) if apart else 1) > room:
            return None
        made = problem.runtime.map(gram_of, ((rows, place, n) for place in range(len(kernels))))
        values = np.zeros((len(kernels) if apart else 1, n, n))
        for place, gram in enumerate(made):
            values[place if apart else 0] += gram
        layers = np.full(problem.stack.s if apart else 1, -1)
        layers[kernels if apart else slice(1)] = np.arange(len(values))
        grams: Grams = problem.runtime.share(Grams(layers, values))
        return grams

    def _compact(self, problem: Problem, state: State, k: int) -> CompactProblem:
        own, options = state.own_as(PerKernelState), self.options
        members = own.sets[k] == COMPACT
        gap = options.tol_share * problem.tol
        if (own.sets[k] == WAITING).any():
            certified = float(state.gap[k])
            gap = max(gap, options.gap_share * certified if np.isfinite(certified) else options.first_gap)
        alpha, norm = coefficients(state, k)[members], self.formulation.penalty(members)
        return CompactProblem(members, norm, alpha, problem.Y.column(k), gap, problem.method, state.room, options)

    def _certified(self, problem: Problem, state: State, classes: Samples) -> State:
        """With bounds over all coefficients and the next sets; a pass for as many classes as fit."""
        own, stack = state.own_as(PerKernelState), problem.stack
        dual, sets = state.dual.copy(), own.sets.copy()
        size, room = 8 * problem.n * stack.s, self.options.pass_share * state.room
        for some in in_batches(classes.tolist(), lambda batch: size * len(batch), room):
            # a kernel whose coefficients are all zero need not be read: the bound holds without it
            kernels = np.flatnonzero((sets[some] != ZERO).any(axis=(0, 2)))
            V = np.zeros((stack.s, problem.n, len(some)))
            V[kernels] = stack.correlate(problem.Y.columns(some) * own.u[:, some], kernels=kernels.tolist())
            for column, k in enumerate(some):
                dual[k], sets[k] = self._bound_and_set(problem, state, k, V[:, :, column])
        active = (sets == COMPACT).any(axis=2)
        return replace(state, dual=dual, active=active, own=replace(own, sets=sets))

    def _bound_and_set(self, problem: Problem, state: State, k: int, V: Float64) -> tuple[float, NDArray[np.int8]]:
        """The best lower bound of class k so far, and its set for the next round; V (s, n) belongs to its u."""
        own = state.own_as(PerKernelState)
        before, u = own.sets[k], own.u[:, k]
        left = before != ZERO
        norm = self.formulation.penalty(left)
        bound, scale = lower_bound(norm, u, V[left])
        dual, primal = max(bound, float(state.dual[k])), float(state.primal[k])
        if (before == COMPACT).all():
            return dual, before
        alpha = coefficients(state, k)[left]
        enters = entering(norm, V[left], alpha, self.options.selection)
        stays = np.ones(len(alpha), dtype=bool)
        if np.isfinite(primal) and (primal - dual) > problem.tol * primal:
            radius = 2.0 * np.sqrt(max(primal - bound, 0.0))
            stays = may_be_nonzero(norm, scale * V[left], radius, problem.stack.row_norms()[left])
        sets = np.full(before.shape, ZERO, dtype=np.int8)
        sets[left] = np.where(stays | (alpha != 0), np.where(enters, COMPACT, WAITING), ZERO)
        return dual, sets


def may_be_nonzero(norm: GroupNorm, V: Float64, radius: float, row_norms: Float64) -> Mask:
    """Gap-safe screening: which coefficients may be nonzero at the optimum.

    Parameters
    ----------
    norm : GroupNorm
        The regulariser of the p coefficients.
    V : array (p,)
        K_y' u of a feasible u.
    radius : float
        A bound of the distance from u to the optimal u.
    row_norms : array (p,)
        Norms of the coefficients' rows of kernel values.

    Returns
    -------
    mask (p,)
    """
    reach = radius * row_norms
    if norm.outer == 1:
        wide = replace(norm, inner=2)
        most = norm.dual_norms(V) + (wide.dual_norms(reach) if norm.inner == 2 else 0.0)
        if norm.inner == 1:
            return np.asarray(np.abs(V) + reach >= norm.lam)
        return np.asarray(most[norm.groups] >= norm.lam)
    if norm.inner == 2:
        return np.ones(len(V), dtype=bool)
    surely = np.zeros(norm.count)
    np.maximum.at(surely, norm.groups, np.abs(V) - reach)
    return np.asarray(np.abs(V) + reach >= surely[norm.groups])


def entering(norm: GroupNorm, V: Float64, alpha: Float64, options: SelectionOptions) -> Mask:
    """Which coefficients enter the next compact problem: the nonzero ones, and those closest to becoming nonzero."""
    if (norm.inner, norm.outer) == (2, 2):
        return np.ones(len(V), dtype=bool)
    sizes = norm.dual_norms(V)
    if norm.outer == 2:  # a group is never zero as a whole; its members compete with the largest
        return np.asarray((alpha != 0) | ((np.abs(V) >= options.close * sizes[norm.groups]) & (np.abs(V) > 0)))
    if norm.inner == 1:
        return _closest(np.abs(V) / norm.lam, alpha != 0, options)
    used = np.bincount(norm.groups, alpha != 0, norm.count) > 0
    return _closest(sizes / norm.lam, used, options)[norm.groups]


def _closest(scores: Float64, used: Mask, options: SelectionOptions) -> Mask:
    """The used ones and, in the order of their scores, as many of those close to the bound as may enter."""
    most = max(options.fewest, options.as_many * int(used.sum()))
    largest = max(float(scores.max(initial=0.0)), TINY)
    close = np.flatnonzero((scores >= min(options.close, options.close * largest)) & ~used)
    chosen = used.copy()
    chosen[close[np.argsort(-scores[close], kind="stable")[:most]]] = True
    return chosen


def coefficients(state: State, k: int) -> Float64:
    """(s, n): the coefficients of class k, dense."""
    s = state.weights.shape[-1]
    return np.asarray(state.coef[:, k * s : (k + 1) * s].toarray().T)


def _with_classes(state: State, found: dict[int, csc_array]) -> tuple[csc_array, Float64]:
    """The coefficients with the new ones of some classes, and each kernel's share of the norms of every class."""
    m, s = state.weights.shape
    weights = state.weights.copy()
    columns = []
    for k in range(m):
        columns.append(found[k] if k in found else state.coef[:, k * s : (k + 1) * s])
        if k in found:
            norms = np.sqrt(np.asarray(found[k].power(2).sum(axis=0)).ravel())
            weights[k] = norms / max(float(norms.sum()), 1e-300)
    return hstack(columns, format="csc"), weights


def _bytes(problem: Problem, members: Mask) -> int:
    return int(members.sum()) * problem.n * problem.stack.dtype.itemsize


class _UnionSize:
    """Bytes of the rows of several classes together; remembers the last union, for lists that grow by one class."""

    def __init__(self, problem: Problem, sets: NDArray[np.int8]) -> None:
        self._problem, self._sets = problem, sets
        self._classes: list[int] = []
        self._union: Mask = np.zeros(sets.shape[1:], dtype=bool)

    def __call__(self, classes: Sequence[int]) -> int:
        if list(classes[:-1]) == self._classes:
            self._union = self._union | (self._sets[classes[-1]] == COMPACT)
        else:
            self._union = np.any(self._sets[list(classes)] == COMPACT, axis=0)
        self._classes = list(classes)
        return _bytes(self._problem, self._union)
