"""One Newton step on the free samples of a part: the end of the long tails SMO has on smooth kernels with a large C.

With F the samples strictly inside the box, d solves K_FF d = v_F - b with b such that sum(d) = 0 (b = 0 without
intercept); the step goes to the best point of the box along d. Where no bound is in the way that is the optimum over
F. A Cholesky factorisation of our own, because LAPACK's bits depend on its threads.
"""

from __future__ import annotations

import numpy as np

from dmkl.oracles.certificate import Float64Array, FloatArray
from dmkl.oracles.smo_part import OPEN, Members, Own, Part, compiled, ordered_sum, row, set_beta

_RIDGE = 1e-8  # share of the diagonal added to K_FF: float32 kernels are singular to within their rounding


@compiled
def factor(A: Float64Array) -> bool:
    """A = U'U in the upper triangle of A, row by row; False where A is not positive definite."""
    n = A.shape[0]
    for k in range(n):
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
def solve_factored(U: Float64Array, x: Float64Array) -> None:
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
def newton_direction(K: FloatArray, part: Part, free: Members, intercept: bool) -> Float64Array:
    """d as above; zero where K_FF is not positive definite."""
    n = free.shape[0]
    A, d, ones = np.empty((n, n)), np.zeros(n), np.ones(n)
    for r in range(n):
        source = K[part.members[free[r]]]
        for c in range(r, n):
            A[r, c] = source[part.members[free[c]]]
        A[r, r] *= 1.0 + _RIDGE
    if factor(A):
        for k in range(n):
            d[k] = part.v[free[k]]
        solve_factored(A, d)
        if intercept:
            solve_factored(A, ones)
            b = ordered_sum(d) / ordered_sum(ones)
            d -= b * ones
            d -= ordered_sum(d) / n  # what cancellation left: it would add up in sum(beta)
    return d


@compiled
def newton_step(K: FloatArray, part: Part, own: Own, totals: Float64Array, intercept: bool) -> float:
    """Takes the step and returns the share of the way to the optimum over F that the box left open."""
    free = free_members(part)
    d = newton_direction(K, part, free, intercept)
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
