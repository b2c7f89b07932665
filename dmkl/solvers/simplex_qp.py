"""The small convex program of the bundle and Newton methods, over one simplex of weights or a product of several.

    min_{p, t}  t + 1/2 (p - centre)' Q (p - centre)
    s.t.        heights_i + slopes_i . p <= t,    p >= 0,    sum_{a in j} p_a = 1 for every group j

It is solved by an interior point method (Mehrotra's predictor and corrector); it has as many variables as there are
kernels and also returns the multipliers of the linear functions. All of it is compiled: a step on a dozen kernels is
thousands of additions, which numpy's calls would take fifty times as long for, and they hold the GIL.

No library is used: scipy's SLSQP takes as long for a dozen kernels but 300 times as long for 48, quadprog needs a
definite Q (here it is also zero) and like cvxopt is under the GPL, and other QP solvers would be one more compiled
dependency for this one function.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.types import Float64, Samples

PANEL = 48  # columns of a matrix that are factored together, fixed when compiling


class SimplexQpOptions(NamedTuple):
    """Constants of the interior point method."""

    max_steps: int = 60
    tol: float = 1e-10  # of complementarity, relative to the size of the heights
    stationary: float = 1e-9  # the residual of the stationarity equations that is accepted,
    stalled: float = 0.5  # also accepted if a step leaves more than this share of it: a large Q has more rounding
    short: float = 0.1  # a step of which at most this share keeps the point positive: a step to the middle instead,
    centring: float = 0.5  # which lowers the complementarity by this factor
    to_boundary: float = 0.99  # share of the way to the boundary that a step goes at most
    flat: float = 1e-8  # values smaller than this share of the slopes are not told apart
    ridge: float = 1e-12  # keeps the equations solvable where two cuts, or two kernels, are equal


QP = SimplexQpOptions()


def simplex_qp(
    heights: Float64,
    slopes: Float64,
    Q: Float64,
    centre: Float64,
    groups: Samples | None = None,
    options: SimplexQpOptions = QP,
) -> tuple[Float64, Float64]:
    """Minimise the largest of some linear functions plus a quadratic over a product of simplices.

    Parameters
    ----------
    heights : array (cuts,)
        The linear functions at p = 0.
    slopes : array (cuts, s)
        Their gradients.
    Q : array (s, s)
        The quadratic term, symmetric and positive semidefinite.
    centre : array (s,)
        The centre of the quadratic.
    groups : array (s,), optional
        The number of each variable's simplex, from 0; one simplex if left out.
    options : SimplexQpOptions

    Returns
    -------
    p : array (s,)
        The minimiser.
    multipliers : array (cuts,)
        The multipliers of the linear functions: non-negative, of sum 1.
    """
    size = max(abs(float((heights + slopes @ centre).max())), options.flat * float(np.abs(slopes).max()), 1e-300)
    owner = np.zeros(len(centre), dtype=np.int64) if groups is None else np.asarray(groups, dtype=np.int64)
    heights, slopes, Q, centre = (
        np.ascontiguousarray(part, dtype=np.float64) for part in (heights / size, slopes / size, Q / size, centre)
    )
    p, lam = _interior_point(heights, slopes, Q, centre, owner, np.bincount(owner), options)
    return p / np.bincount(owner, p)[owner], lam / lam.sum()


@jit(error_model="numpy")
def _interior_point(
    heights: Float64,
    slopes: Float64,
    Q: Float64,
    centre: Float64,
    owner: Samples,
    sizes: Samples,
    options: SimplexQpOptions,
) -> tuple[Float64, Float64]:
    """p and the multipliers of the linear functions.

    A point, and a step, is one array: p and the slacks of the cuts, then the multipliers of both in the same order,
    which all stay positive; then t and the multipliers of the sums.
    """
    rows, s = slopes.shape
    half, groups = s + rows, len(sizes)
    at = np.empty(2 * half + 1 + groups)
    steepest = _first_point(heights, slopes, owner, sizes, at)
    ahead, step = np.empty(len(at)), np.empty(len(at))
    slope, over = np.empty(s), np.empty(rows)
    products = np.empty(half)  # what a step is to take from variables times multipliers
    residual = np.inf
    for _ in range(options.max_steps):
        before, residual = residual, _residuals(heights, slopes, Q, centre, owner, at, slope, over)
        mean = _mean_product(at, at, 0.0, half)
        if mean < options.tol and (residual < options.stationary * steepest or residual > options.stalled * before):
            break
        matrix = _equations(slopes, Q, at, owner, groups, options.ridge)
        order = factorise(matrix)
        for v in range(half):
            products[v] = at[v] * at[half + v]
        _direction(matrix, order, slopes, at, owner, slope, over, products, ahead)
        target = (_mean_product(at, ahead, _room(at, ahead, half), half) / mean) ** 3 * mean
        for v in range(half):
            products[v] = at[v] * at[half + v] + ahead[v] * ahead[half + v] - target
        _direction(matrix, order, slopes, at, owner, slope, over, products, step)
        length = _room(at, step, half)
        if length < options.short:  # the correction of a long step leads astray, or in circles
            for v in range(half):
                products[v] = at[v] * at[half + v] - options.centring * mean
            _direction(matrix, order, slopes, at, owner, slope, over, products, step)
            length = _room(at, step, half)
        for v in range(len(at)):
            at[v] += options.to_boundary * length * step[v]
    return at[:s].copy(), at[half + s : 2 * half].copy()


@jit(error_model="numpy")
def _first_point(heights: Float64, slopes: Float64, owner: Samples, sizes: Samples, at: Float64) -> float:
    """Equal weights, and multipliers of the size of the slopes; the steepest of these, or 1."""
    rows, s = slopes.shape
    half, steepest, highest = s + rows, 1.0, -np.inf
    at[:] = 0.0
    for a in range(s):
        at[a] = 1.0 / sizes[owner[a]]
    for i in range(rows):
        at[s + i] = heights[i]
        for a in range(s):
            at[s + i] += slopes[i, a] * at[a]
            steepest = max(steepest, abs(slopes[i, a]))
        highest = max(highest, at[s + i])
    at[2 * half] = highest + 1.0
    for a in range(s):
        at[half + a] = 0.1 * steepest
    for i in range(rows):
        at[s + i] = at[2 * half] - at[s + i]
        at[half + s + i] = 1.0 / rows
    return steepest


@jit(error_model="numpy")
def _residuals(
    heights: Float64,
    slopes: Float64,
    Q: Float64,
    centre: Float64,
    owner: Samples,
    at: Float64,
    slope: Float64,
    over: Float64,
) -> float:
    """Fill in what is left of the stationarity equations and of the cuts' equations; how far from stationary it is."""
    rows, s = slopes.shape
    half, total = s + rows, 0.0
    for a in range(s):
        slope[a] = at[2 * half + 1 + owner[a]] - at[half + a]
    for b in range(s):
        moved = at[b] - centre[b]
        for a in range(s):
            slope[a] += moved * Q[b, a]
    for i in range(rows):
        lam, value = at[half + s + i], heights[i] + at[s + i] - at[2 * half]
        total += lam
        for a in range(s):
            slope[a] += lam * slopes[i, a]
            value += slopes[i, a] * at[a]
        over[i] = value
    largest = abs(1.0 - total)
    for a in range(s):
        largest = max(largest, abs(slope[a]))
    return largest


@jit(error_model="numpy")
def _mean_product(at: Float64, step: Float64, length: float, half: int) -> float:
    """The mean of variables times multipliers, so far along a step."""
    total = 0.0
    for v in range(half):
        total += (at[v] + length * step[v]) * (at[half + v] + length * step[half + v])
    return total / half


@jit(error_model="numpy")
def _equations(slopes: Float64, Q: Float64, at: Float64, owner: Samples, groups: int, ridge: float) -> Float64:
    """The matrix of the Newton equations in p, t and the multipliers of the sums."""
    rows, s = slopes.shape
    half = s + rows
    matrix = np.zeros((s + 1 + groups, s + 1 + groups))
    for a in range(s):
        for b in range(s):
            matrix[a, b] = Q[a, b]
    for i in range(rows):
        pull = at[half + s + i] / at[s + i]
        matrix[s, s] += pull
        for a in range(s):
            own = pull * slopes[i, a]
            matrix[s, a] -= own
            for b in range(s):
                matrix[a, b] += own * slopes[i, b]
    for a in range(s):
        matrix[a, s] = matrix[s, a]
        matrix[a, a] += at[half + a] / at[a]
        matrix[a, s + 1 + owner[a]] = matrix[s + 1 + owner[a], a] = 1.0
    for a in range(s + 1):
        matrix[a, a] *= 1.0 + ridge
    return matrix


@jit(error_model="numpy")
def _direction(
    matrix: Float64,
    order: Samples,
    slopes: Float64,
    at: Float64,
    owner: Samples,
    slope: Float64,
    over: Float64,
    products: Float64,
    step: Float64,
) -> None:
    """The step that lowers variables times multipliers by `products`, to first order; the matrix is factored."""
    rows, s = slopes.shape
    half = s + rows
    right = np.ones(len(matrix))
    right[s] = -1.0
    for a in range(s):
        right[a] = -slope[a] - products[a] / at[a]
        right[s + 1 + owner[a]] -= at[a]
    for i in range(rows):
        lam = at[half + s + i]
        toward = (lam * over[i] - products[s + i]) / at[s + i]
        right[s] += lam + toward
        for a in range(s):
            right[a] -= toward * slopes[i, a]
    x = solved(matrix, order, right)
    for a in range(s):
        step[a] = x[a]
        step[half + a] = -(products[a] + at[half + a] * x[a]) / at[a]
    for i in range(rows):
        moved = x[s] - over[i]
        for a in range(s):
            moved -= slopes[i, a] * x[a]
        step[s + i] = moved
        step[half + s + i] = -(products[s + i] + at[half + s + i] * moved) / at[s + i]
    for k in range(s, len(x)):
        step[2 * half + k - s] = x[k]


@jit(error_model="numpy")
def _room(at: Float64, step: Float64, half: int) -> float:
    """The largest length of this step, at most 1, that keeps all positive variables positive."""
    room = 1.0
    for v in range(2 * half):
        if step[v] < 0.0:
            room = min(room, -at[v] / step[v])
    return room


@jit(error_model="numpy")
def factorise(matrix: Float64) -> Samples:
    """L and U in place of a square matrix, and the order in which its rows were taken: the largest pivot first.

    Panels of columns are factored one after the other, and the rest is updated by matrix products."""
    size = len(matrix)
    order = np.arange(size)
    for start in range(0, size, PANEL):
        stop = min(start + PANEL, size)
        for k in range(start, stop):
            best = k
            for i in range(k + 1, size):
                if abs(matrix[i, k]) > abs(matrix[best, k]):
                    best = i
            if best != k:
                order[k], order[best] = order[best], order[k]
                for j in range(size):
                    matrix[k, j], matrix[best, j] = matrix[best, j], matrix[k, j]
            pivot = matrix[k, k]
            if pivot != 0.0:
                for i in range(k + 1, size):
                    share = matrix[i, k] / pivot
                    matrix[i, k] = share
                    if share != 0.0:
                        for j in range(k + 1, stop):
                            matrix[i, j] -= share * matrix[k, j]
        if stop < size:
            for k in range(start, stop):
                for i in range(k + 1, stop):
                    for j in range(stop, size):
                        matrix[i, j] -= matrix[i, k] * matrix[k, j]
            below = np.ascontiguousarray(matrix[stop:, start:stop])
            beside = np.ascontiguousarray(matrix[start:stop, stop:])
            matrix[stop:, stop:] -= np.dot(below, beside)
    return order


@jit(error_model="numpy")
def solved(factors: Float64, order: Samples, right: Float64) -> Float64:
    """x with `matrix x = right`, from what `factorise` left in the matrix's place."""
    size = len(order)
    x = right[order]
    for i in range(size):
        for j in range(i):
            x[i] -= factors[i, j] * x[j]
    for i in range(size - 1, -1, -1):
        for j in range(i + 1, size):
            x[i] -= factors[i, j] * x[j]
        x[i] /= factors[i, i]
    return x
