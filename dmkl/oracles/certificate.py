"""Bounds on the support vector machine of one class, computed from scratch, whatever an oracle claims.

With beta = alpha * y and f = K beta the problem is

    dual    max_alpha  sum_i linear_i alpha_i - 1/2 beta' K beta,  0 <= alpha_i <= upper_i, y'alpha = 0 if intercept
    primal  min_{w,b}  1/2 ||w||^2 + sum_i upper_i [linear_i - y_i (f(x_i) + b)]+,        b = 0 unless intercept

and any feasible alpha gives both a dual value and, through ||w||^2 = beta' K beta and the best b for its scores, a
primal value: the optimum lies between the two. Everything is float64 and shaped (n,). Sums are numpy's own: those of
BLAS depend on its threads.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from dmkl._util.types import Float64

LEAST_OBJECTIVE = 1e-12  # relative gaps are against no smaller objective than this

# Slopes are sums of `upper`; two that differ by less than this share of the whole are the same slope.
_SLOPE_ROUNDING = 1e-12


@overload
def relative_gap(primal: float, dual: float) -> float: ...


@overload
def relative_gap(primal: Float64, dual: Float64) -> Float64: ...


def relative_gap(primal: float | Float64, dual: float | Float64) -> float | Float64:
    """(primal - dual) / max(|primal|, 1e-12), the share of the objective that is not certified.

    Parameters
    ----------
    primal, dual : float or array
        Values of feasible points; +inf and -inf where there is no bound yet.

    Returns
    -------
    float or array
        The gap, infinite where there is no bound yet.
    """
    if isinstance(primal, np.ndarray):
        with np.errstate(invalid="ignore"):
            gaps = (primal - dual) / np.maximum(np.abs(primal), LEAST_OBJECTIVE)
        return np.where(np.isnan(gaps), np.inf, gaps)
    value = float(primal)
    gap = (value - float(dual)) / max(abs(value), LEAST_OBJECTIVE)
    return np.inf if np.isnan(gap) else gap


def best_intercept(scores: Float64, y: Float64, upper: Float64 | float, linear: Float64 | float = 1.0) -> float:
    """Exact minimiser over b of sum_i upper_i [linear_i - y_i (scores_i + b)]+.

    The function is convex and piecewise linear: its slope starts at -sum_{y=+1} upper and rises by upper_i at the
    breakpoint y_i linear_i - scores_i, so the minimum is where the sorted breakpoints have given back that sum.
    Where the minimum is a flat interval the answer is its midpoint; where the interval is unbounded (labels of one
    sign only) its finite end; where no sample counts (`upper` all zero) 0.
    """
    breaks = y * linear - scores
    order = breaks.argsort()
    weight = upper if isinstance(upper, np.ndarray) else np.full(len(breaks), float(upper))
    risen = weight[order].cumsum()
    whole = float(risen[-1]) if len(risen) else 0.0
    if not whole > 0.0:
        return 0.0
    wanted = 0.5 * (whole + float((weight * y).sum()))
    rounding = _SLOPE_ROUNDING * whole
    first = risen.searchsorted(wanted - rounding, side="left")
    last = risen.searchsorted(wanted + rounding, side="right")
    if wanted <= rounding:  # flat from -infinity: nothing pulls b up
        first = last
    elif last == len(order):  # flat to +infinity: nothing pulls b down
        last = first
    return float(0.5 * (breaks[order[first]] + breaks[order[last]]))


def least_hinge(scores: Float64, y: Float64, upper: Float64 | float) -> tuple[float, float]:
    """The sum of hinge losses, `upper` times each, at the best intercept, and that intercept."""
    b = best_intercept(scores, y, upper)
    return float((upper * np.maximum(1.0 - y * (scores + b), 0.0)).sum()), b


def svm_bounds(
    beta: Float64,
    scores: Float64,
    y: Float64,
    upper: Float64 | float,
    linear: Float64 | float,
    intercept_wanted: bool,
) -> tuple[float, float, float]:
    """(primal, dual, b) at a feasible beta with scores = K beta; b is 0 unless `intercept_wanted`.

    primal >= optimum >= dual whenever K is positive semidefinite, whatever solver made beta.
    """
    b = best_intercept(scores, y, upper, linear) if intercept_wanted else 0.0
    norm = 0.5 * float((beta * scores).sum())
    loss = float((np.maximum(linear - y * (scores + b), 0.0) * upper).sum())
    gain = float((y * linear * beta).sum())
    return norm + loss, gain - norm, b
