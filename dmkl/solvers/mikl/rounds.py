"""Working-set rounds over coefficients (kernel, sample), all classes sharing the passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack

from dmkl._util.types import Float64, Mask
from dmkl.problems.proxes import GroupNorm, groups_of
from dmkl.runtime.base import itself
from dmkl.solvers.blocks import block_room
from dmkl.solvers.mikl.descent import Point, descend, first_step, lower_bound, start_at
from dmkl.solvers.mikl.newton import polish
from dmkl.solvers.mikl.rows import Grams, Held, Rows, Streamed
from dmkl.solvers.mikl.sets import entering, screened
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import ArraysState, MethodState, State, kept

WHOLE = 4000  # coefficients that are solved at once: nothing is won by leaving some out
EARLY, FIRST, HALF = 0.02, 0.1, 0.5  # gaps of compact problems: of the one so far, of the first, of the tolerance
WARM_UP = 50  # forward-backward steps before the exact end
LIMIT = 100_000  # steps a round of a method that has no exact end
PASS_SHARE = 0.5  # of the room that a pass's answers may take

GONE, THERE, IN = 0, 1, 2  # a coefficient is zero for sure, may matter, is in the compact problem


@dataclass(frozen=True)
class Shape:
    """(P, Q, r) of the norm."""

    inner: int
    outer: int
    r: int

    def norm(self, members: Mask, lam: float) -> GroupNorm:
        """The penalty of the coefficients in a mask (s, n), read row after row."""
        groups, count = groups_of(members, self.r)
        return GroupNorm(self.inner, self.outer, lam, groups, count)


@dataclass(frozen=True)
class Compact:
    """The problem of one class over some coefficients and all samples."""

    members: Mask  # (s, n)
    norm: GroupNorm
    alpha: Float64  # to start from
    y: Float64
    gap: float  # that is asked for
    method: str  # newton (with the exact end), fista or plain
    room: int  # bytes for what a Newton step makes
    step: float = 0.0  # of forward-backward, if known

    def minimise(self, rows: Rows) -> Point:
        point = replace(start_at(rows, self.norm, self.alpha), step=self.step)
        exact = self.method == "newton"
        steps = WARM_UP if exact else LIMIT
        point = descend(rows, self.norm, point, self.gap, steps, accelerated=self.method != "plain")
        return point if not exact or point.gap <= self.gap else polish(rows, self.norm, point, self.gap)


def solve_held(rows: NDArray[Any], union: Mask, compact: Compact, grams: Grams | None) -> Point:
    """The compact problem of one class, from rows gathered for several."""
    mine = compact.members[union]
    return compact.minimise(Held(rows if mine.all() else rows[mine], compact.y, compact.room, grams))


def gram_of(rows: NDArray[Any], place: int, n: int) -> Float64:
    """K_a' K_a of the kernel whose n rows are at this place: the classes' Newton steps are made of it."""
    own = np.asarray(rows[place * n : (place + 1) * n], dtype=np.float64)
    return np.asarray(own.T @ own)


def step_of(rows: NDArray[Any], n: int) -> float:
    """The step of forward-backward for these rows, whatever the labels."""
    return first_step(Held(rows, np.ones(n)))


@dataclass(frozen=True)
class SparseRounds:
    """The solver. Of its own the state keeps which coefficients of a class are where, 'sets' (m, s, n), the best u of
    each class (n, m), and how many steps it took."""

    own_type: ClassVar[type[MethodState]] = ArraysState

    shape: Shape
    lam: float

    def init(self, problem: Problem) -> State:
        """Everything at once where it is little; else what V at u = 2, or where a neighbour ended, says."""
        n, m, s = problem.n, problem.m, problem.stack.s
        state = State.first(np.zeros((m, s)), np.ones((n, m), dtype=bool), room=block_room(problem))
        sets = np.full((m, s, n), THERE, dtype=np.int8)
        own = ArraysState({"sets": sets, "u": np.full((n, m), 2.0), "iterations": np.zeros(m, dtype=np.int64)})
        # without coefficients the loss is n
        state = replace(state, coef=csc_array((n, m * s), dtype=np.float64), primal=np.full(m, float(n)), own=own)
        if problem.start is not None:
            before = problem.start.own
            u = before.get("u", own["u"]) if isinstance(before, ArraysState) else own["u"]
            known = {"coef": problem.start.coef, "weights": problem.start.weights, "primal": np.full(m, np.inf)}
            state = replace(state, **known, own=ArraysState(own | {"u": u}))
        if s * n <= WHOLE or (self.shape.inner, self.shape.outer) == (2, 2):
            sets[:] = IN
            return state
        return self._certified(problem, state, np.arange(m))

    def step(self, problem: Problem, state: State) -> State:
        """A compact problem for every class that is not done, then one pass over all their coefficients."""
        unfinished = np.flatnonzero(state.gap > problem.tol)
        u, iterations = kept(state)["u"].copy(), kept(state)["iterations"].copy()
        primal, found = state.primal.copy(), {}
        for batch in self._batches(problem, state, unfinished):
            for k, point in zip(batch, self._solved(problem, state, batch), strict=True):
                alpha = np.zeros((problem.stack.s, problem.n))
                alpha[kept(state)["sets"][k] == IN] = point.alpha
                found[k] = csc_array(alpha.T)
                primal[k], u[:, k] = point.primal, point.u
                iterations[k] += point.iterations
        coef, weights = _with(state, found)
        own = ArraysState(kept(state) | {"u": u, "iterations": iterations})
        state = replace(state, coef=coef, weights=weights, primal=primal, own=own)
        return self._certified(problem, state, unfinished)

    def leave(self, problem: Problem, state: State) -> State:
        return state

    def _batches(self, problem: Problem, state: State, classes: NDArray[np.int64]) -> Iterator[list[int]]:
        """The classes in order, as many at a time as have room for their rows."""
        batch: list[int] = []
        union = np.zeros((problem.stack.s, problem.n), dtype=bool)
        for k in classes:
            wider = union | (kept(state)["sets"][k] == IN)
            if batch and _bytes(problem, wider) > state.room / 2:  # the other half is for each class's own rows
                yield batch
                batch, wider = [], kept(state)["sets"][k] == IN
            batch.append(int(k))
            union = wider
        if batch:
            yield batch

    def _solved(self, problem: Problem, state: State, batch: list[int]) -> Iterator[Point]:
        """The compact problems of a batch, their rows gathered together, or one after the other through passes."""
        union = np.any(kept(state)["sets"][batch] == IN, axis=0)
        compacts = (self._compact(problem, state, k) for k in batch)
        if _bytes(problem, union) > state.room and not (union.all() and problem.stack.in_one_array):
            for compact in compacts:
                yield compact.minimise(Streamed(problem.stack, compact.members, compact.y))
            return
        rows = problem.stack.pick(union)
        if 2 * _bytes(problem, union) <= state.room / 2:  # else float32 rows become float64 piece by piece, every time
            rows = rows.astype(np.float64, copy=False)
        near = problem.runtime.hold(itself, rows)
        # the norm of K_y is the same for all labels: classes that have all of the rows have one step
        alike = len(batch) > 1 and all((kept(state)["sets"][k][union] == IN).all() for k in batch)
        step = next(iter(problem.runtime.map(step_of, [(near, problem.n)]))) if alike else 0.0
        grams = None
        if len(batch) > 1 and self.shape == Shape(2, 1, 2) and 8 * problem.n * int(union.sum()) <= state.room / 2:
            kernels = np.flatnonzero(union.any(axis=1)).tolist()
            made = problem.runtime.map(gram_of, ((near, place, problem.n) for place in range(len(kernels))))
            grams = problem.runtime.hold(itself, dict(zip(kernels, made, strict=True)))
        yield from problem.runtime.map(solve_held, ((near, union, replace(c, step=step), grams) for c in compacts))

    def _compact(self, problem: Problem, state: State, k: int) -> Compact:
        members = kept(state)["sets"][k] == IN
        gap = HALF * problem.tol
        if (kept(state)["sets"][k] == THERE).any():  # what the next pass brings in changes more than the tolerance
            gap = max(gap, EARLY * state.gap[k] if np.isfinite(state.gap[k]) else FIRST)
        alpha = coefficients(state, k)[members]
        norm = self.shape.norm(members, self.lam)
        return Compact(members, norm, alpha, problem.Y[:, k], gap, problem.method, state.room)

    def _certified(self, problem: Problem, state: State, classes: NDArray[np.int64]) -> State:
        """Bounds over all coefficients, and who stays, enters or leaves; one pass for as many classes as fit."""
        size = 8 * problem.n * problem.stack.s
        step = max(1, int(PASS_SHARE * state.room / size))
        dual, sets = state.dual.copy(), kept(state)["sets"].copy()
        for start in range(0, len(classes), step):
            some = classes[start : start + step]
            # a kernel that is gone for all of them need not be read: the bound without it is as true
            kernels = np.flatnonzero((sets[some] != GONE).any(axis=(0, 2)))
            V = np.zeros((problem.stack.s, problem.n, len(some)))
            V[kernels] = problem.stack.correlate(
                problem.Y[:, some] * kept(state)["u"][:, some], kernels=kernels.tolist()
            )
            for column, k in enumerate(some):
                dual[k], sets[k] = self._judged(problem, state, int(k), V[:, :, column])
        active = (sets == IN).any(axis=2)
        return replace(state, dual=dual, active=active, own=ArraysState(kept(state) | {"sets": sets}))

    def _judged(self, problem: Problem, state: State, k: int, V: Float64) -> tuple[float, NDArray[np.int8]]:
        """The better of the bounds so far and the sets for the next round."""
        before, u = kept(state)["sets"][k], kept(state)["u"][:, k]
        left = before != GONE
        norm = self.shape.norm(left, self.lam)
        bound, scale = lower_bound(norm, u, V[left])
        dual, primal = max(bound, float(state.dual[k])), float(state.primal[k])
        alpha = coefficients(state, k)[left]
        wanted = entering(norm, V[left], alpha)
        stays = np.ones(len(alpha), dtype=bool)
        if np.isfinite(primal) and (before != IN).any() and (primal - dual) > problem.tol * primal:
            radius = 2.0 * np.sqrt(max(primal - bound, 0.0))
            stays = screened(norm, scale * V[left], radius, problem.stack.row_norms()[left])
        sets = np.full(before.shape, GONE, dtype=np.int8)
        sets[left] = np.where(stays | (alpha != 0), np.where(wanted, IN, THERE), GONE)
        if (before == IN).all():
            return dual, before
        return dual, sets


def coefficients(state: State, k: int) -> Float64:
    """(s, n): those of class k, dense."""
    s = state.weights.shape[-1]
    return np.asarray(state.coef[:, k * s : (k + 1) * s].toarray().T)


def _with(state: State, found: dict[int, Any]) -> tuple[Any, Float64]:
    """The coefficients with some classes' new ones, and each kernel's share of the norms of a class."""
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
