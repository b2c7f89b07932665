"""Our own oracle: sequential minimal optimisation with warm start, linear term, per-sample bounds, optional intercept.

    maximise  p'beta - 1/2 beta' K beta    over lo <= beta <= hi, and sum(beta) = 0 if intercept,

with beta = alpha * y, p = y * linear, and (lo, hi) = (0, upper) for y = +1, (-upper, 0) for y = -1: labels disappear.
The state is v = p - K beta, the slope of the dual. A step moves a pair: i has the largest v among the samples that
can rise, j gains most to second order among those that can fall (WSS 2 of Fan, Chen and Lin 2005, "Working set
selection using second order information for training SVM", JMLR 6). What makes it quick:

* Two sweeps a step and nothing else: one applies it and finds the next i, one finds j.
* Shrinking (Joachims 1999) copies what can still move into a small matrix, a row when it is first wanted, so that
  the late steps, which are most of them, run in the cache.
* When the steps on one set of free samples have cost more than solving for all of them at once, that is done: a
  Newton step, cut where it meets the box.
* The gap itself is what stops the solver. K beta is then computed afresh for ALL samples; where the gap does not hold
  there, the samples that were left aside join again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmkl.oracles.base import (
    MAX_STEPS,
    Feature,
    Prepared,
    SvmResult,
    certified,
    checked_kernel,
    checked_task,
    feasible_start,
)
from dmkl.oracles.certificate import Float64Array, FloatArray
from dmkl.oracles.smo_newton import free_members, newton_step
from dmkl.oracles.smo_part import (
    OPEN,
    Members,
    Own,
    Part,
    can_move,
    compiled,
    index_mask,
    move,
    optimality,
    ordered_sum,
    own_rows,
    partner,
    relative_gap,
    restrict,
    row,
    row_scores,
    set_beta,
)

_GO, _DONE, _STALLED, _SHRINK, _NEWTON = 0, 1, 2, 3, 4
_ROUNDING = 1e-15  # a few units in the last place of a float64
_WORTH_A_COPY = 0.6  # of the members: with fewer left, copying their rows pays


class _Stop(NamedTuple):
    """When to leave the steps on one part."""

    target: float  # relative gap
    p_scale: float  # the largest |p|
    K_scale: float  # the largest kernel entry
    inflate: bool  # whether the inflated point may be what meets the target (see base.inflation)
    shrink: bool  # whether to leave for fewer members
    room: int  # steps left
    doubt: int  # how many times its cost in steps to wait before a Newton step


@compiled
def _newton_is_due(part: Part, steps: int, quiet: int, doubt: int) -> bool:
    """The steps since the last one have cost as much as it will, and the set of free samples seems settled."""
    a = part.v.shape[0]
    if steps < 500 + a:
        return False
    f = float(free_members(part).shape[0])
    cost = 8.0 * f + f**3 / (3.5 * a + 800.0)  # in steps on a members; fitted, AVX-512, f from 50 to 500
    return quiet > 2 * f and steps >= doubt * cost


@compiled
def _verdict(
    part: Part, centre: float, radius: float, totals: Float64Array, steps: int, quiet: int, stop: _Stop
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
    return (_NEWTON if _newton_is_due(part, steps, quiet, stop.doubt) else _GO), again


@compiled
def _steps(K: FloatArray, part: Part, own: Own, totals: Float64Array, intercept: bool, stop: _Stop) -> tuple[int, int]:
    """Steps on pairs until `_verdict` has one; (steps, verdict).

    Without intercept sum(beta) is free, and one more sample with a kernel row of zeros, a slope of 0 and no bounds
    makes it so: `real_i` and `real_j` tell a sample from that one.
    """
    v, p, beta, lo, hi, rows = part.v, part.p, part.beta, part.lo, part.hi, own.rows
    mask, tau = index_mask(v.shape[0]), 1e-12 * stop.K_scale
    wide, narrow, tau32, two, none = np.int64(mask), np.int32(mask), np.float32(tau), np.float32(2.0), np.float32(0.0)
    ri = rj = row(K, part, own, 0)
    steps, check, bound, up, down = 0, 0, 0, 0.0, 0.0  # the first sweep moves nothing
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
                return steps, verdict
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
            return steps, _STALLED
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
    scores: Float64Array, whole: tuple[Float64Array, ...], totals: Float64Array, intercept: bool, inflate: bool
) -> tuple[Part, float, float, Members]:
    """Everyone, with fresh slopes; the relative gap and its scale; those who can move; totals anew."""
    p, beta = whole[0], whole[1]
    members = np.empty(p.shape[0], np.uint32)
    for t in range(p.shape[0]):
        members[t] = t
    everyone = restrict(members, p - scores, whole)
    totals[1] = ordered_sum(p * beta)
    totals[0] = totals[1] - 0.5 * ordered_sum(beta * scores)
    centre, radius = optimality(everyone, intercept)
    gap, scale = relative_gap(everyone, centre, radius, totals, inflate)
    return everyone, gap, scale, can_move(everyone, centre, radius)


@compiled
def _shrunk(part: Part, intercept: bool) -> Members:
    centre, radius = optimality(part, intercept)
    chosen = can_move(part, centre, radius)
    for k in range(chosen.shape[0]):
        chosen[k] = part.members[chosen[k]]
    return chosen


@compiled
def _put_back(part: Part, v: Float64Array, beta: Float64Array) -> None:
    for t in range(part.members.shape[0]):
        v[part.members[t]], beta[part.members[t]] = part.v[t], part.beta[t]


@compiled
def _improve(
    K: FloatArray,
    members: Members,
    v: Float64Array,
    whole: tuple[Float64Array, ...],
    totals: Float64Array,
    intercept: bool,
    stop: _Stop,
) -> tuple[int, int]:
    """Steps on ever fewer members until their own gap meets the target; (steps, verdict)."""
    beta, steps, doubt = whole[1], 0, 1
    part, own = restrict(members, v, whole), own_rows(K, members)
    while True:
        alone = stop.inflate and np.count_nonzero(part.beta) == np.count_nonzero(beta)
        current = _Stop(stop.target, stop.p_scale, stop.K_scale, alone, stop.shrink, stop.room - steps, doubt)
        taken, verdict = _steps(K, part, own, totals, intercept, current)
        steps += taken
        if verdict == _NEWTON:  # where bounds cut it short, the set of free samples was not settled: wait longer
            doubt = 1 if newton_step(K, part, own, totals, intercept) > 0.05 else min(2 * doubt, 1024)
            steps += 1
            continue
        _put_back(part, v, beta)
        if verdict != _SHRINK:
            return steps, verdict
        members, doubt = _shrunk(part, intercept), 1
        part, own = restrict(members, v, whole), own_rows(K, members)


@compiled
def maximise(
    K: FloatArray, whole: tuple[Float64Array, ...], intercept: bool, inflate: bool, tol: float, max_steps: int
) -> tuple[Float64Array, float, int]:
    """Improves beta until the relative gap of scale * beta is at most tol; (K beta, scale, steps).

    whole = p, beta, lo, hi, diagonal of K.
    """
    steps, verdict, target, last, whole_stalled = 0, _GO, 0.9 * tol, np.inf, False
    p_scale, K_scale = np.abs(whole[0]).max(), max(np.abs(whole[4]).max(), 1e-18)
    totals = np.empty(2)  # the dual value, p'beta
    while True:
        scores = row_scores(K, whole[1])
        everyone, gap, scale, members = _survey(scores, whole, totals, intercept, inflate)
        if gap <= tol or steps >= max_steps or members.shape[0] == 0 or (whole_stalled and not gap < 0.9 * last):
            return scores, scale, steps
        shrink = verdict != _STALLED  # what stops a part may not be what stops everyone
        if not shrink or members.shape[0] > _WORTH_A_COPY * scores.shape[0]:
            members = everyone.members
        stop = _Stop(target, p_scale, K_scale, inflate, shrink, max_steps - steps, 1)
        taken, verdict = _improve(K, members, everyone.v, whole, totals, intercept, stop)
        whole_stalled = verdict == _STALLED and not shrink
        steps, target, last = steps + taken, 0.5 * target, gap


class SmoOracle:
    """The oracle `smo`: everything an oracle can support, and the quickest on dense kernels."""

    name = "smo"
    supports: frozenset[Feature] = frozenset({"linear", "upper", "no_intercept", "warm_start"})

    def prepare(self, K: FloatArray | Prepared) -> Prepared:
        """The checked kernel; nothing is copied."""
        return K if isinstance(K, Prepared) else checked_kernel(K)

    def __call__(
        self,
        K: FloatArray | Prepared,
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
        scores, scale, steps = maximise(kernel.K, whole, intercept, task.linear is None, tol, max_steps)
        return certified(kernel, task, scale * beta, scale * scores, steps)
