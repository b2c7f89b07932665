"""The dual restricted to some samples, and the sweeps over it that the oracle `smo` is made of.

Vector units decide the shape of the sweeps. A maximum is taken over integers, whose order the compiler may change
freely, by the bits of a float: positive floats and their bits sort alike, and the lowest bits give way to the
sample's number, so that the maximum names its sample. Only the choice between near-equal samples feels those bits;
the state stays exact float64. No sum's order depends on the machine or the thread: same input, same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl.oracles.certificate import LEAST_OBJECTIVE, Float64Array, FloatArray

Float32Array: TypeAlias = NDArray[np.float32]
Members: TypeAlias = NDArray[np.uint32]
Index: TypeAlias = int | np.integer[Any]

_ALL_BUT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)
OPEN, SHUT = np.float32(0.0), np.float32(-np.inf)  # added to a slope, SHUT takes the sample out of a maximum


# numpy's division, which does not stop to check for zero
compiled = jit(error_model="numpy")
# for what is called in every step: a real call would count references to each array it is given
inlined = jit(error_model="numpy", inline="always")


class Part(NamedTuple):
    """The problem restricted to some samples, the others staying where they are; all arrays by member."""

    members: Members
    v: Float64Array  # p - K beta, the slope of the dual
    p: Float64Array
    beta: Float64Array
    lo: Float64Array
    hi: Float64Array
    diagonal: Float32Array
    rise: Float32Array  # OPEN where beta < hi, else SHUT
    fall: Float32Array  # OPEN where beta > lo, else SHUT
    scratch: Float64Array


class Own(NamedTuple):
    """The part's own kernel matrix, filled row by row as it is needed."""

    rows: FloatArray  # K itself where every sample is a member, else `store`
    store: FloatArray  # rows of K on the members, in the order they were first wanted
    slot: NDArray[np.int64]  # a member's row in `rows`, -1 for none yet; the last entry counts those stored


@inlined
def set_beta(part: Part, t: Index, value: float) -> None:
    part.beta[t] = value
    part.rise[t] = OPEN if value < part.hi[t] else SHUT
    part.fall[t] = OPEN if value > part.lo[t] else SHUT


@compiled
def restrict(members: Members, v: Float64Array, whole: tuple[Float64Array, ...]) -> Part:
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
    return Own(store if a < n else K, store, slot)


@inlined
def row(K: FloatArray, part: Part, own: Own, t: Index) -> int:
    """Where member t's row is, after copying it there if need be."""
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
def ordered_sum(x: Float64Array) -> float:
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
def row_scores(K: FloatArray, beta: Float64Array) -> Float64Array:
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
def relative_gap(part: Part, centre: float, radius: float, totals: Float64Array, inflate: bool) -> tuple[float, float]:
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
