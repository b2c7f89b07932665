"""The oracle `smo`: sequential minimal optimisation with warm start, linear term, bounds and optional intercept.

    maximise  p'beta - 1/2 beta' K beta    over lo <= beta <= hi, and sum(beta) = 0 if intercept,

with beta = alpha * y, p = y * linear, and (lo, hi) = (0, upper) for y = +1, (-upper, 0) for y = -1: labels disappear.
The state is v = p - K beta, the slope of the dual. A step moves a pair: i has the largest v among the samples that
can rise, j gains most to second order among those that can fall (WSS 2 of Fan, Chen and Lin 2005, "Working set
selection using second order information for training SVM", JMLR 6). It is fast for four reasons:

* A step is two sweeps and nothing else: one applies it and finds the next i, one finds j.
* Shrinking (Joachims 1999) copies the samples that can still move into a small matrix, a row when it is first needed,
  so that the late steps, which are most of them, run in the cache.
* When the steps on one set of free samples have cost more than solving for all of them at once, a Newton step on the
  free samples is taken instead, cut where it meets the box.
* The gap itself stops the solver. K beta is then computed afresh for all samples; where the gap does not hold there,
  the samples that were left aside join again.

Vector units decide the shape of the sweeps. A maximum is taken over integers, whose order the compiler may change
freely, by the bits of a float: positive floats and their bits sort alike, and the lowest bits are replaced by the
sample's number, so that the maximum names its sample. Only the choice between near-equal samples feels those bits;
the state stays exact float64. No sum's order depends on the machine or the thread: same input, same bits.

Compiled code cannot hear of a deadline or a signal. So it pauses after a tenth of a second of work, with all of its
state in arrays, and goes on from there with the same bits.

The module has four parts: the problem restricted to some samples and the sweeps over it, the Newton step, the steps
and when to stop, and the oracle.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.stopping import must_stop
from dmkl._util.types import Float32, Float64, FloatArray
from dmkl.oracles.base import (
    LEAST_OBJECTIVE,
    MAX_STEPS,
    Feature,
    PreparedKernel,
    SvmResult,
    certified,
    checked_kernel,
    checked_task,
    feasible_start,
)

Members: TypeAlias = NDArray[np.uint32]
Slots: TypeAlias = NDArray[np.int64]
Index: TypeAlias = int | np.integer

_ALL_BUT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)
OPEN, SHUT = np.float32(0.0), np.float32(-np.inf)  # added to a slope, SHUT takes the sample out of a maximum
_RIDGE = 1e-8  # share of the diagonal added to K_FF: float32 kernels are singular to within their rounding
_GO, _DONE, _STALLED, _SHRINK, _NEWTON, _PAUSE = 0, 1, 2, 3, 4, 5
PORTION = 200_000_000  # kernel entries that are read between two pauses, at least
# Places in `rest`, the numbers that steps go on from. Where it ends are (dual value, p'beta).
_TAKEN, _BOUND, _DOUBT, _ROOM, _SHRINKING, _STEPS, _WHY, _TARGET, _LAST, _PORTION, _TOTALS = range(11)
_ROUNDING = 1e-15  # a few units in the last place of a float64
_WORTH_A_COPY = 0.6  # of the members: with fewer left, copying their rows pays


# The problem restricted to some samples, and the sweeps over it.

# numpy's division, which does not stop to check for zero
compiled = jit(error_model="numpy")
# for functions that are called in every step: a real call would count references to each of its arrays
inlined = jit(error_model="numpy", inline="always")


class Part(NamedTuple):
    """The problem restricted to some samples, the others staying where they are; all arrays by member."""

    members: Members
    v: Float64  # p - K beta, the slope of the dual
    p: Float64
    beta: Float64
    lo: Float64
    hi: Float64
    diagonal: Float32
    rise: Float32  # OPEN where beta < hi, else SHUT
    fall: Float32  # OPEN where beta > lo, else SHUT
    scratch: Float64


class Own(NamedTuple):
    """The part's own kernel matrix, filled row by row as it is needed."""

    rows: FloatArray  # K itself where every sample is a member, else `store`
    store: FloatArray  # rows of K on the members, in the order of their first use
    slot: Slots  # a member's row in `rows`, -1 for none yet; the last entry counts those stored


@inlined
def set_beta(part: Part, t: Index, value: float) -> None:
    part.beta[t] = value
    part.rise[t] = OPEN if value < part.hi[t] else SHUT
    part.fall[t] = OPEN if value > part.lo[t] else SHUT


@compiled
def restrict(members: Members, v: Float64, whole: tuple[Float64, ...]) -> Part:
    """whole = (p, beta, lo, hi, diagonal of K) by sample."""
    a = members.shape[0]
    wide, narrow = np.empty((6, a)), np.empty((3, a), np.float32)
    part = Part(members, wide[0], wide[1], wide[2], wide[3], wide[4], narrow[0], narrow[1], narrow[2], wide[5])
    p, beta, lo, hi, diagonal = whole
    for t in range(a):
        m = members[t]
        part.v[t], part.p[t], part.lo[t], part.hi[t], part.diagonal[t] = v[m], p[m], lo[m], hi[m], diagonal[m]
        set_beta(part, t, beta[m])
    return part


@compiled
def own_rows(K: FloatArray, members: Members) -> Own:
    a, n = members.shape[0], K.shape[0]
    store = np.empty((a, a) if a < n else (0, 0), K.dtype)
    slot = np.full(a + 1, -1) if a < n else np.arange(a + 1)
    slot[a] = 0
    return kept_rows(K, store, slot)


@compiled
def kept_rows(K: FloatArray, store: FloatArray, slot: Slots) -> Own:
    return Own(store if slot.shape[0] <= K.shape[0] else K, store, slot)


@inlined
def row(K: FloatArray, part: Part, own: Own, t: Index) -> int:
    """The position of member t's row, copied there if it was not yet."""
    if own.slot[t] < 0:
        own.slot[t] = own.slot[-1]
        own.slot[-1] += 1
        source, target = K[part.members[t]], own.store[own.slot[t]]
        for k in range(target.shape[0]):
            target[k] = source[part.members[k]]
    return int(own.slot[t])


@compiled
def index_mask(n: int) -> int:
    """The least 2^k - 1 >= n - 1: the low bits that hold a sample's number."""
    mask = 1
    while mask < n - 1:
        mask = 2 * mask + 1
    return mask


@inlined
def move(part: Part, own: Own, ri: int, rj: int, up: float, down: float, mask: np.int64) -> np.int64:
    """v -= up K_i - down K_j; the sample of largest v among those that can rise."""
    v, rise, rows = part.v, part.rise, own.rows
    best = -_ALL_BUT_SIGN
    for t in range(v.shape[0]):
        x = v[t] - (up * np.float64(rows[ri, t]) - down * np.float64(rows[rj, t]))
        v[t] = x
        bits = np.float64(x + np.float64(rise[t])).view(np.int64)
        bits ^= (bits >> 63) & _ALL_BUT_SIGN  # the bits of negative floats sort backwards: turn them round
        best = max(best, (bits & ~mask) | t)
    return best & mask


@inlined
def partner(
    part: Part, own: Own, ri: int, top: float, kii: np.float32, two: np.float32, tau: np.float32, mask: np.int32
) -> tuple[np.int32, np.float32]:
    """The j that can fall and gains most to second order, (top - v_j)^2 / curvature; the largest top - v_j."""
    v, fall, diagonal, rows = part.v, part.fall, part.diagonal, own.rows
    best, widest, zero = np.int32(-1), np.int32(0), np.float32(0.0)
    for t in range(v.shape[0]):
        x = np.float32(top - v[t]) + fall[t]
        x = x if x > zero else zero
        widest = max(widest, np.float32(x).view(np.int32))
        curvature = (kii + diagonal[t]) - two * np.float32(rows[ri, t])
        curvature = curvature if curvature > tau else tau
        best = max(best, (np.float32(x * x / curvature).view(np.int32) & ~mask) | np.int32(t))
    return best & mask, np.int32(widest).view(np.float32)


@compiled
def ordered_sum(x: Float64) -> float:
    """Eight running sums: as quick as memory, and the same order everywhere."""
    n = x.shape[0]
    a = b = c = d = e = f = g = h = 0.0
    for t in range(0, n - 7, 8):
        a, b, c, d = a + x[t], b + x[t + 1], c + x[t + 2], d + x[t + 3]
        e, f, g, h = e + x[t + 4], f + x[t + 5], g + x[t + 6], h + x[t + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for t in range(n - n % 8, n):
        total += x[t]
    return float(total)


@compiled
def row_scores(K: FloatArray, beta: Float64) -> Float64:
    """K beta in float64, four rows at a time."""
    n = beta.shape[0]
    scores = np.zeros(n)
    support = np.nonzero(beta)[0]
    whole = support.shape[0] - support.shape[0] % 4
    for k in range(0, whole, 4):
        a, b, c, d = support[k], support[k + 1], support[k + 2], support[k + 3]
        Ka, Kb, Kc, Kd = K[a], K[b], K[c], K[d]
        for t in range(n):
            scores[t] += (beta[a] * Ka[t] + beta[b] * Kb[t]) + (beta[c] * Kc[t] + beta[d] * Kd[t])
    for k in range(whole, support.shape[0]):
        for t in range(n):
            scores[t] += beta[support[k]] * K[support[k], t]
    return scores


@compiled
def gap_sum(part: Part, centre: float, scale: float) -> float:
    """primal - dual of scale * beta with intercept scale * centre: a sum of non-negative terms, so no cancellation."""
    v, p, beta, lo, hi, term = part.v, part.p, part.beta, part.lo, part.hi, part.scratch
    for t in range(v.shape[0]):
        pull = (1.0 - scale) * p[t] + scale * (v[t] - centre)
        up, down = (hi[t] - scale * beta[t]) * pull, (lo[t] - scale * beta[t]) * pull
        term[t] = up if up > down else down
    return ordered_sum(term)


@compiled
def relative_gap(part: Part, centre: float, radius: float, totals: Float64, inflate: bool) -> tuple[float, float]:
    """The relative gap of scale * beta, and the scale: 1, or where it stays in the box and helps, base.inflation.

    totals = (dual value, p'beta) of the whole problem.
    """
    dual, linear = totals
    gap = gap_sum(part, centre, 1.0)
    relative = gap / max(abs(dual + gap), LEAST_OBJECTIVE)
    if inflate and 0.0 < radius < 0.5:
        scale = 1.0 / (1.0 - radius)
        for t in range(part.beta.shape[0]):
            if scale * part.beta[t] > part.hi[t] or scale * part.beta[t] < part.lo[t]:
                return relative, 1.0
        gap = gap_sum(part, centre, scale)
        dual = scale * linear - scale * scale * (linear - dual)
        inflated = gap / max(abs(dual + gap), LEAST_OBJECTIVE)
        if inflated < relative:
            return inflated, scale
    return relative, 1.0


@compiled
def optimality(part: Part, intercept: bool) -> tuple[float, float]:
    """(centre, radius): every v that can rise is <= centre + radius, every v that can fall >= centre - radius."""
    top, bottom = -np.inf, np.inf
    for t in range(part.v.shape[0]):
        if part.rise[t] == OPEN:
            top = max(top, part.v[t])
        if part.fall[t] == OPEN:
            bottom = min(bottom, part.v[t])
    if not intercept:
        return 0.0, max(top, -bottom, 0.0)
    if bottom == np.inf:  # nothing can fall (labels of one sign, or every upper bound 0): nothing can move
        return (top if top > -np.inf else 0.0), 0.0
    if top == -np.inf:
        return bottom, 0.0
    return 0.5 * (top + bottom), max(0.5 * (top - bottom), 0.0)


@compiled
def can_move(part: Part, centre: float, radius: float) -> Members:
    """Numbers, within the part, of members that are free or could still take part in a step."""
    high, low = centre + radius, centre - radius
    chosen = np.empty(part.v.shape[0], np.uint32)
    count = 0
    for t in range(part.v.shape[0]):
        up, down = part.rise[t] == OPEN, part.fall[t] == OPEN
        chosen[count] = t
        count += (up & (down | (part.v[t] > low))) | (down & (part.v[t] < high))
    return chosen[:count]


# A Newton step on the free samples of a part: the end of the long tails SMO has on smooth kernels with a large C.
#
# With F the samples strictly inside the box, d solves K_FF d = v_F - b with b such that sum(d) = 0 (b = 0 without
# intercept); the step goes to the best point of the box along d. Where no bound is in the way that is the optimum over
# F. The Cholesky factorisation is written out here, because LAPACK's bits depend on its threads.


@compiled
def factor(A: Float64, first: int, last: int) -> bool:
    """A = U'U in the upper triangle of A, rows `first` to `last` of it; False where A is not positive definite."""
    n = A.shape[0]
    for k in range(first, last):
        if not A[k, k] > 0.0:
            return False
        pivot = np.sqrt(A[k, k])
        for t in range(k, n):
            A[k, t] /= pivot
        for i in range(k + 1, n):
            share = A[k, i]
            for t in range(i, n):
                A[i, t] -= share * A[k, t]
    return True


@compiled
def solve_factored(U: Float64, x: Float64) -> None:
    """x becomes the solution z of U'U z = x."""
    n = x.shape[0]
    for k in range(n):
        x[k] /= U[k, k]
        for t in range(k + 1, n):
            x[t] -= U[k, t] * x[k]
    for k in range(n - 1, -1, -1):
        for t in range(k + 1, n):
            x[k] -= U[k, t] * x[t]
        x[k] /= U[k, k]


@compiled
def free_members(part: Part) -> Members:
    return np.nonzero((part.rise == OPEN) & (part.fall == OPEN))[0].astype(np.uint32)


@compiled
def newton_matrix(K: FloatArray, part: Part, free: Members) -> Float64:
    """The upper triangle of K_FF with a small ridge."""
    n = free.shape[0]
    A = np.empty((n, n))
    for r in range(n):
        source = K[part.members[free[r]]]
        for c in range(r, n):
            A[r, c] = source[part.members[free[c]]]
        A[r, r] *= 1.0 + _RIDGE
    return A


@compiled
def newton_direction(part: Part, free: Members, U: Float64, intercept: bool) -> Float64:
    """d, from the factor of K_FF."""
    n = free.shape[0]
    d, ones = np.empty(n), np.ones(n)
    for k in range(n):
        d[k] = part.v[free[k]]
    solve_factored(U, d)
    if intercept:
        solve_factored(U, ones)
        b = ordered_sum(d) / ordered_sum(ones)
        d -= b * ones
        d -= ordered_sum(d) / n  # the remainder of cancellation, which would add up in sum(beta)
    return d


@compiled
def newton_step(
    K: FloatArray, part: Part, own: Own, totals: Float64, free: Members, U: Float64, intercept: bool
) -> float:
    """Take the step; the share of the way to the optimum over F that the box allowed."""
    d = newton_direction(part, free, U, intercept)
    change = np.zeros(part.v.shape[0])
    slope = curvature = linear = 0.0
    room = np.inf
    for k in range(d.shape[0]):
        f = free[k]
        Kf = own.rows[row(K, part, own, f)]
        for t in range(change.shape[0]):
            change[t] += d[k] * Kf[t]
        if d[k] != 0.0:
            room = min(room, ((part.hi[f] if d[k] > 0.0 else part.lo[f]) - part.beta[f]) / d[k])
        slope += part.v[f] * d[k]
        linear += part.p[f] * d[k]
    for k in range(d.shape[0]):
        curvature += change[free[k]] * d[k]
    if not (slope > 0.0 and room < np.inf):
        return 0.0
    wanted = slope / curvature if curvature > 0.0 else np.inf
    step = min(wanted, room)
    for k in range(d.shape[0]):
        f = free[k]
        set_beta(part, f, min(max(part.beta[f] + step * d[k], part.lo[f]), part.hi[f]))
    for t in range(change.shape[0]):
        part.v[t] -= step * change[t]
    totals[0] += step * (slope - 0.5 * step * curvature)
    totals[1] += step * linear
    return step / wanted


# Steps, and when to stop.


class _Stop(NamedTuple):
    """When to leave the steps on one part."""

    target: float  # relative gap
    p_scale: float  # the largest |p|
    K_scale: float  # the largest kernel entry
    inflate: bool  # whether the inflated point may meet the target (see base.inflation)
    shrink: bool  # whether to leave for fewer members
    room: int  # steps left
    doubt: int  # how many times its cost in steps to wait before a Newton step
    pause: int  # the number of steps after which to pause


@compiled
def _newton_is_due(part: Part, steps: int, quiet: int, doubt: int) -> bool:
    """Whether the steps since the last Newton step cost as much as one, and the set of free samples seems settled."""
    a = part.v.shape[0]
    if steps < 500 + a:
        return False
    f = float(free_members(part).shape[0])
    cost = 8.0 * f + f**3 / (3.5 * a + 800.0)  # in steps on a members; fitted, AVX-512, f from 50 to 500
    return quiet > 2 * f and steps >= doubt * cost


@compiled
def _verdict(
    part: Part, centre: float, radius: float, totals: Float64, steps: int, quiet: int, stop: _Stop
) -> tuple[int, int]:
    """Whether to leave, and when to ask again: asking costs about two steps, so not before an eighth more are done."""
    again = min(steps + min(max(16, steps >> 3), 1000), stop.room)
    if relative_gap(part, centre, radius, totals, stop.inflate)[0] <= stop.target:
        return _DONE, again
    # |f| <= ||w|| sqrt(K_ii): violations below a few roundings of the largest slope are noise.
    norm = np.sqrt(2.0 * max(totals[1] - totals[0], 0.0) * stop.K_scale)
    if not radius > _ROUNDING * (stop.p_scale + norm) or steps >= stop.room:
        return _STALLED, again
    if steps and stop.shrink and can_move(part, centre, radius).shape[0] < _WORTH_A_COPY * part.v.shape[0]:
        return _SHRINK, again
    if _newton_is_due(part, steps, quiet, stop.doubt):
        return _NEWTON, again
    return (_PAUSE if steps >= stop.pause else _GO), again


@compiled
def _steps(
    K: FloatArray, part: Part, own: Own, totals: Float64, intercept: bool, stop: _Stop, steps: int, bound: int
) -> tuple[int, int, int]:
    """Steps on pairs until `_verdict` says to leave; (steps, bound, verdict), with the steps before a pause.

    `bound` is the number of the last step that met a bound.

    Without intercept sum(beta) is free, and one more sample with a kernel row of zeros, a slope of 0 and no bounds
    makes it so: `real_i` and `real_j` tell a sample from that one.
    """
    v, p, beta, lo, hi, rows = part.v, part.p, part.beta, part.lo, part.hi, own.rows
    mask, tau = index_mask(v.shape[0]), 1e-12 * stop.K_scale
    wide, narrow, tau32, two, none = (
        np.int64(mask),
        np.int32(mask),
        np.float32(max(tau, 1e-37)),
        np.float32(2.0),
        np.float32(0.0),
    )
    ri = rj = row(K, part, own, 0)
    check, up, down = 0, 0.0, 0.0  # the first sweep moves nothing
    while True:
        i = move(part, own, ri, rj, up, down, wide)
        ri = row(K, part, own, i)
        real_i = intercept or v[i] + part.rise[i] > 0.0
        top, kii = (v[i], np.float64(rows[ri, i])) if real_i else (0.0, 0.0)
        j, violation = partner(part, own, ri, top, np.float32(kii), two if real_i else none, tau32, narrow)
        if steps >= check:
            most = np.float64(violation) if intercept else max(np.float64(violation), top)
            centre, radius = (top - 0.5 * most, 0.5 * most) if intercept else (0.0, max(top, most - top))
            verdict, check = _verdict(part, centre, radius, totals, steps, steps - bound, stop)
            if verdict != _GO:
                return steps, bound, verdict
        rj = row(K, part, own, j)
        kjj, kij = np.float64(rows[rj, j]), np.float64(rows[ri, j]) if real_i else 0.0
        slope, curvature = top - v[j], max(kii + kjj - 2.0 * kij, tau)
        gains_most = slope > 0.0 and part.fall[j] == OPEN and slope * slope * max(kii, tau) > top * top * curvature
        real_j = intercept or not real_i or gains_most
        if not real_j:
            slope, curvature = top, max(kii, tau)
        room_i = hi[i] - beta[i] if real_i else np.inf
        room_j = beta[j] - lo[j] if real_j else np.inf
        step = min(slope / curvature, room_i, room_j)
        if not 0.0 < step < np.inf:
            return steps, bound, _STALLED
        steps += 1
        up, down = step if real_i else 0.0, step if real_j else 0.0
        if real_i:
            set_beta(part, i, hi[i] if step == room_i else beta[i] + step)
        if real_j:
            set_beta(part, j, lo[j] if step == room_j else beta[j] - step)
        if step >= room_i or step >= room_j:
            bound = steps
        totals[0] += step * (slope - 0.5 * step * curvature)
        totals[1] += up * p[i] - down * p[j]


@compiled
def _survey(
    scores: Float64, whole: tuple[Float64, ...], totals: Float64, intercept: bool, inflate: bool
) -> tuple[Part, float, float, Members]:
    """All samples with fresh slopes; the relative gap and its scale; samples that can move. Writes the totals."""
    p, beta = whole[0], whole[1]
    members = np.empty(p.shape[0], np.uint32)
    for t in range(p.shape[0]):
        members[t] = t
    all_samples = restrict(members, p - scores, whole)
    totals[1] = ordered_sum(p * beta)
    totals[0] = totals[1] - 0.5 * ordered_sum(beta * scores)
    centre, radius = optimality(all_samples, intercept)
    gap, scale = relative_gap(all_samples, centre, radius, totals, inflate)
    return all_samples, gap, scale, can_move(all_samples, centre, radius)


@compiled
def _shrunk(part: Part, intercept: bool) -> Members:
    centre, radius = optimality(part, intercept)
    chosen = can_move(part, centre, radius)
    for k in range(chosen.shape[0]):
        chosen[k] = part.members[chosen[k]]
    return chosen


@compiled
def _put_back(part: Part, v: Float64, beta: Float64) -> None:
    for t in range(part.members.shape[0]):
        v[part.members[t]], beta[part.members[t]] = part.v[t], part.beta[t]


@compiled
def _improve(
    K: FloatArray,
    members: Members,
    v: Float64,
    whole: tuple[Float64, ...],
    intercept: bool,
    stop: _Stop,
    rest: Float64,
    own: Own,
) -> tuple[Members, Own, int]:
    """Steps on ever fewer members until their own gap meets the target; (members, own, verdict).

    `rest` says how far the steps on these members came before a pause.
    """
    beta, totals = whole[1], rest[_TOTALS:]
    part, began = restrict(members, v, whole), rest[_TAKEN]
    while True:
        alone = stop.inflate and np.count_nonzero(part.beta) == np.count_nonzero(beta)
        steps, bound, room, doubt = int(rest[_TAKEN]), int(rest[_BOUND]), int(rest[_ROOM]), int(rest[_DOUBT])
        pause = int(began + max(rest[_PORTION] / (2 * part.v.shape[0]), 1.0))
        current = _Stop(stop.target, stop.p_scale, stop.K_scale, alone, stop.shrink, room, doubt, pause)
        taken, bound, verdict = _steps(K, part, own, totals, intercept, current, steps, bound)
        rest[_STEPS] += taken - steps
        if verdict == _PAUSE:
            rest[_TAKEN], rest[_BOUND] = taken, bound
            _put_back(part, v, beta)
            return part.members, own, verdict
        rest[_TAKEN], rest[_BOUND], rest[_ROOM], began = 0, 0, room - taken, 0.0
        if verdict == _NEWTON:
            free = free_members(part)
            if free.shape[0] ** 3 > rest[_PORTION]:
                _put_back(part, v, beta)
                return part.members, own, verdict
            U = newton_matrix(K, part, free)
            share = newton_step(K, part, own, totals, free, U, intercept) if factor(U, 0, free.shape[0]) else 0.0
            after_newton(rest, share)
            continue
        _put_back(part, v, beta)
        if verdict != _SHRINK:
            return part.members, own, verdict
        members, rest[_DOUBT] = _shrunk(part, intercept), 1
        part, own = restrict(members, v, whole), own_rows(K, members)


@compiled
def after_newton(rest: Float64, share: float) -> None:
    """Count a Newton step. Where bounds cut it short, the set of free samples was not settled: wait longer."""
    rest[_DOUBT] = 1.0 if share > 0.05 else min(2 * rest[_DOUBT], 1024.0)
    rest[_STEPS] += 1
    rest[_ROOM] -= 1


@compiled
def maximise(
    K: FloatArray,
    whole: tuple[Float64, ...],
    intercept: bool,
    inflate: bool,
    tol: float,
    max_steps: int,
    rest: Float64,
    members: Members,
    v: Float64,
    store: FloatArray,
    slot: Slots,
) -> tuple[Float64, float, Members, Float64, FloatArray, Slots]:
    """Improve beta until the relative gap of scale * beta is at most tol, or until a pause.

    whole = p, beta, lo, hi, diagonal of K. The first two results are K beta and the scale, unless this is a pause
    (`rest[_WHY]`); the others are the last arguments of the next call.
    """
    scores, scale, shrink = v, 1.0, rest[_SHRINKING] > 0.0
    p_scale, K_scale = np.abs(whole[0]).max(), max(np.abs(whole[4]).max(), LEAST_OBJECTIVE)
    own = kept_rows(K, store, slot)
    while True:
        if rest[_WHY] not in (_PAUSE, _NEWTON):
            verdict, last = rest[_WHY], rest[_LAST]
            scores = row_scores(K, whole[1])
            all_samples, gap, scale, members = _survey(scores, whole, rest[_TOTALS:], intercept, inflate)
            whole_stalled = verdict == _STALLED and not shrink
            if (
                gap <= tol
                or rest[_STEPS] >= max_steps
                or members.shape[0] == 0
                or (whole_stalled and not gap < 0.9 * last)
            ):
                rest[_WHY] = _DONE
                return scores, scale, members, v, own.store, own.slot
            shrink = verdict != _STALLED  # a part may have stalled where all samples together have not
            if not shrink or members.shape[0] > _WORTH_A_COPY * scores.shape[0]:
                members = all_samples.members
            v, own = all_samples.v, own_rows(K, members)
            rest[_TAKEN], rest[_BOUND], rest[_DOUBT], rest[_ROOM] = 0, 0, 1, max_steps - rest[_STEPS]
            rest[_TARGET], rest[_LAST], rest[_SHRINKING] = 0.5 * rest[_TARGET], gap, 1.0 if shrink else 0.0
        stop = _Stop(rest[_TARGET], p_scale, K_scale, inflate, shrink, 0, 0, 0)
        members, own, why = _improve(K, members, v, whole, intercept, stop, rest, own)
        rest[_WHY] = why
        if why in (_PAUSE, _NEWTON):
            return scores, scale, members, v, own.store, own.slot


# The oracle.


class SmoOracle:
    """The oracle `smo`: everything an oracle can support, and the quickest on dense kernels."""

    name = "smo"
    copies = False
    supports: frozenset[Feature] = frozenset({"linear", "upper", "no_intercept", "warm_start"})

    def prepare(self, K: FloatArray | PreparedKernel) -> PreparedKernel:
        """The checked kernel; nothing is copied."""
        return K if isinstance(K, PreparedKernel) else checked_kernel(K)

    def __call__(
        self,
        K: FloatArray | PreparedKernel,
        y: FloatArray,
        upper: FloatArray | float,
        *,
        linear: FloatArray | None = None,
        intercept: bool = True,
        alpha: FloatArray | None = None,
        tol: float = 1e-3,
        max_steps: int = MAX_STEPS,
    ) -> SvmResult:
        """See base: the problem, its arguments, the certified answer."""
        kernel = self.prepare(K)
        task = checked_task(
            len(kernel.diagonal),
            y,
            upper,
            linear=linear,
            intercept=intercept,
            alpha=alpha,
            tol=tol,
            max_steps=max_steps,
        )
        beta = feasible_start(task)
        p = task.y * (1.0 if task.linear is None else task.linear)
        lo, hi = np.minimum(task.y, 0.0) * task.upper, np.maximum(task.y, 0.0) * task.upper
        whole = (p, beta, lo, hi, kernel.diagonal)
        scores, scale, steps = maximised(kernel.K, whole, intercept, task.linear is None, tol, max_steps)
        return certified(kernel, task, scale * beta, scale * scores, steps)


def maximised(
    K: FloatArray, whole: tuple[Float64, ...], intercept: bool, inflate: bool, tol: float, max_steps: int
) -> tuple[Float64, float, int]:
    """Improve beta in place until the gap of scale * beta is at most tol, or the steps or the time are used up.

    Returns K beta, the scale and the number of steps. With an intercept sum(beta) stays what it is.

    `whole` is p, beta, lo, hi and the diagonal of K, by sample.
    """
    rest = np.array((0, 0, 1, 0, 1, 0, _GO, 1.8 * tol, np.inf, PORTION, 0.0, 0.0))
    members, v, store, slot = _NO_MEMBERS, _NO_SLOPES, _NO_ROWS[K.dtype], _NO_SLOTS
    while True:
        scores, scale, members, v, store, slot = maximise(
            K, whole, intercept, inflate, tol, max_steps, rest, members, v, store, slot
        )
        if rest[_WHY] == _DONE:
            return scores, scale, int(rest[_STEPS])
        if rest[_WHY] == _NEWTON:
            _large_newton_step(K, whole, intercept, rest, members, v, store, slot)
        if must_stop():
            rest[_WHY], max_steps = _GO, 0  # nothing but a look at where it is


def _large_newton_step(
    K: FloatArray,
    whole: tuple[Float64, ...],
    intercept: bool,
    rest: Float64,
    members: Members,
    v: Float64,
    store: FloatArray,
    slot: Slots,
) -> None:
    """A Newton step on so many free samples that the factorisation lasts; left out where there is no time for it."""
    part, own = restrict(members, v, whole), kept_rows(K, store, slot)
    free = free_members(part)
    U, f, share = newton_matrix(K, part, free), len(free), 0.0
    rows = max(PORTION // f**2, 1)
    if all(not must_stop() and factor(U, first, min(first + rows, f)) for first in range(0, f, rows)):
        share = newton_step(K, part, own, rest[_TOTALS:], free, U, intercept)
        _put_back(part, v, whole[1])
    after_newton(rest, share)


_NO_MEMBERS, _NO_SLOPES, _NO_SLOTS = np.empty(0, np.uint32), np.empty(0), np.zeros(1, np.int64)
_NO_ROWS = {np.dtype(dtype): np.empty((0, 0), dtype) for dtype in (np.float32, np.float64)}


SMO = SmoOracle()
