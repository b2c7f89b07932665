"""What every oracle shares: its arguments, its result, the checks on both, and the certificate, computed from scratch.

An oracle solves the support vector machine of ONE class on ONE dense symmetric kernel matrix. With beta = alpha * y:

    dual    max_alpha  sum_i linear_i alpha_i - 1/2 beta' K beta,  0 <= alpha_i <= upper_i, y'alpha = 0 if intercept
    primal  min_{w,b}  1/2 ||w||^2 + sum_i upper_i [linear_i - y_i (f(x_i) + b)]+,  ||w||^2 = beta' K beta, f = K beta

    K       (n, n) float32 or float64, C-contiguous, symmetric (not checked: it would cost as much as solving)
    y       (n,)   -1 or +1
    upper   C, or (n,) one bound a sample
    linear  (n,)   1 by default
    alpha   (n,)   where to start; clipped into the box and repaired to satisfy y'alpha = 0

In the primal, b = 0 unless there is an intercept. Any feasible alpha gives both a dual value and, through ||w||^2 and
the best b for its scores, a primal value: the optimum lies between the two, whatever an oracle claims. The certificate
is float64, and its sums are numpy's own: those of BLAS depend on its threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, overload

import numpy as np

from dmkl._util.types import Float64, FloatArray
from dmkl.errors import SolverError

MAX_STEPS = 10_000_000
LEAST_OBJECTIVE = 1e-290  # relative gaps are against no smaller objective: there is no scale but that of the numbers

# Slopes are sums of `upper`; two that differ by less than this share of the whole are the same slope.
_SLOPE_ROUNDING = 1e-12

# Beyond the plain SVM with one C and an intercept: a linear term, per-sample bounds, no intercept, a warm start.
Feature: TypeAlias = Literal["linear", "upper", "no_intercept", "warm_start"]


@dataclass(frozen=True)
class SvmResult:
    """A feasible point and the certificate computed from it in float64."""

    alpha: Float64
    intercept: float
    primal: float
    dual: float
    steps: int
    scores: Float64  # K beta, computed afresh from alpha; the decision values are scores + intercept

    @property
    def gap(self) -> float:
        """Relative gap: how far the dual value can be from the optimum, as a share of the primal value."""
        return relative_gap(self.primal, self.dual)


@dataclass(frozen=True)
class PreparedKernel:
    """A kernel matrix checked once and used for every class; oracles add their own form of it."""

    K: FloatArray
    diagonal: Float64


class Oracle(Protocol):
    """Solves one class on one kernel to a certified relative gap of `tol`; `supports` names its optional features."""

    @property
    def name(self) -> str: ...

    @property
    def supports(self) -> frozenset[Feature]: ...

    @property
    def copies(self) -> bool:
        """Whether `prepare` copies the matrix."""
        ...

    def prepare(self, K: FloatArray | PreparedKernel) -> PreparedKernel:
        """Do once what every class with this kernel needs; the result can be passed in place of K."""
        ...

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
    ) -> SvmResult: ...


@dataclass(frozen=True)
class SvmTask:
    """The arguments of one class after their checks, everything float64."""

    y: Float64
    upper: Float64
    linear: Float64 | None
    intercept: bool
    alpha: Float64 | None
    tol: float
    max_steps: int


def checked_kernel(K: FloatArray) -> PreparedKernel:
    """The kernel with its diagonal, or a SolverError that says what is wrong with it."""
    if not isinstance(K, np.ndarray) or K.ndim != 2 or K.shape[0] != K.shape[1] or not K.shape[0]:
        raise SolverError(f"a kernel matrix is a square array, got {getattr(K, 'shape', type(K).__name__)}")
    if K.dtype not in (np.float32, np.float64):
        raise SolverError(f"a kernel matrix is float32 or float64, got {K.dtype}", "convert it with astype")
    if not K.flags.c_contiguous:
        raise SolverError("the kernel matrix is not C-contiguous", "pass numpy.ascontiguousarray(K)")
    diagonal = np.diagonal(K).astype(np.float64)
    if not np.isfinite(diagonal).all():
        raise SolverError("the kernel matrix has NaN or infinite entries on its diagonal")
    view = K.view()
    view.flags.writeable = False  # numba compiles one variant, whatever the caller's flags
    return PreparedKernel(K=view, diagonal=diagonal)


def _vector(name: str, value: FloatArray, n: int) -> Float64:
    vector = np.ascontiguousarray(value, dtype=np.float64)
    if vector.shape != (n,):
        raise SolverError(f"{name} has shape {vector.shape}, the kernel matrix has {n} rows")
    if not np.isfinite(vector).all():
        raise SolverError(f"{name} has NaN or infinite entries")
    return vector


def checked_task(
    n: int,
    y: FloatArray,
    upper: FloatArray | float,
    *,
    linear: FloatArray | None,
    intercept: bool,
    alpha: FloatArray | None,
    tol: float,
    max_steps: int,
) -> SvmTask:
    """The arguments for n samples as float64 arrays, or a SolverError that says what is wrong with them."""
    labels = _vector("y", y, n)
    if not (labels * labels == 1.0).all():
        raise SolverError(f"y has values {np.unique(labels)[:4]}, expected -1 and +1")
    bounds = np.full(n, float(upper)) if np.ndim(upper) == 0 else _vector("upper", np.asarray(upper), n)
    least = float(upper) if np.ndim(upper) == 0 else bounds.min()
    if not 0.0 <= least < np.inf:
        raise SolverError(f"upper bounds must be finite and not negative, got {least}")
    if not tol >= 0.0:
        raise SolverError(f"tol is a relative gap, got {tol}")
    if max_steps < 0:
        raise SolverError(f"max_steps must not be negative, got {max_steps}")
    return SvmTask(
        y=labels,
        upper=bounds,
        linear=None if linear is None else _vector("linear", linear, n),
        intercept=intercept,
        alpha=None if alpha is None else _vector("alpha", alpha, n),
        tol=tol,
        max_steps=max_steps,
    )


def refuse_unsupported(name: str, supports: frozenset[Feature], task: SvmTask) -> None:
    """SolverError for a feature that the oracle does not declare; an unsupported warm start is only ignored."""
    asked: list[tuple[Feature, bool, str]] = [
        ("linear", task.linear is not None, "a linear term"),
        ("upper", bool(task.upper.min() != task.upper.max()), "per-sample upper bounds"),
        ("no_intercept", not task.intercept, "a machine without intercept"),
    ]
    for feature, wanted, words in asked:
        if wanted and feature not in supports:
            raise SolverError(f"oracle '{name}' cannot solve with {words}", "use oracle 'smo'")


def feasible_start(task: SvmTask) -> Float64:
    """beta of the warm start, clipped into the box and balanced until sum(beta) = 0."""
    if task.alpha is None:
        return np.zeros(len(task.y))
    alpha = np.minimum(np.maximum(task.alpha, 0.0), task.upper)
    if task.intercept:
        balance(alpha, task.y, task.upper)
    return alpha * task.y


def balance(alpha: Float64, y: Float64, upper: Float64) -> None:
    """Make y'alpha = 0, in place: raise the lighter side's free entries if that is enough, else scale the heavier side.

    So entries at their bound stay there if possible. Most bounded support vectors stay bounded when upper grows: move
    them to the new bound, numpy.where(alpha >= old, new, alpha), and a warm start takes half as many steps.
    """
    excess, weight = float((y * alpha).sum()), float(alpha.sum())
    if abs(excess) <= 1e-12 * weight:  # rounding
        return
    light = (y * excess < 0.0) & (alpha < upper)
    free = float(alpha[light].sum())
    if abs(excess) < 1e6 * free:
        raised = alpha[light] * (1.0 + abs(excess) / free)
        if (raised <= upper[light]).all():
            alpha[light] = raised
            return
    alpha[y * excess > 0.0] *= (weight - abs(excess)) / (weight + abs(excess))


def fresh_scores(K: FloatArray, beta: Float64) -> Float64:
    """K beta in float64, from the support vectors' rows, some hundreds at a time to spare memory; without BLAS."""
    scores = np.zeros(len(beta))
    support = np.flatnonzero(beta)
    for start in range(0, len(support), 256):
        chosen = support[start : start + 256]
        scores += np.einsum("i,ij->j", beta[chosen], K[chosen].astype(np.float64, copy=False))
    return scores


@overload
def relative_gap(primal: float, dual: float) -> float: ...


@overload
def relative_gap(primal: Float64, dual: Float64) -> Float64: ...


def relative_gap(primal: float | Float64, dual: float | Float64) -> float | Float64:
    """|primal - dual| / |primal|, 0 where both are zero: the share of the objective that is not certified.

    Bounds may contradict each other where rounding made a kernel indefinite: then the dual value is above the primal
    one. That is no proof, so it counts as a gap, but where the primal value is zero: there it is rounding.

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
        return np.where(np.isnan(gaps), np.inf, np.where(primal > 0, np.abs(gaps), gaps))
    value = float(primal)
    gap = (value - float(dual)) / max(abs(value), LEAST_OBJECTIVE)
    return np.inf if np.isnan(gap) else abs(gap) if value > 0 else gap


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


def certified(kernel: PreparedKernel, task: SvmTask, beta: Float64, scores: Float64, steps: int) -> SvmResult:
    """The result with its certificate; scores = K beta computed afresh."""
    linear: Float64 | float = 1.0 if task.linear is None else task.linear
    primal, dual, b = svm_bounds(beta, scores, task.y, task.upper, linear, task.intercept)
    alpha = np.minimum(np.abs(beta), task.upper)
    result = SvmResult(alpha=alpha, intercept=b, primal=primal, dual=dual, steps=steps, scores=scores)
    stuck = result.gap > task.tol and not beta.any() and task.max_steps > 0  # no first step: no sum met a NaN yet
    if not np.isfinite(primal) or (stuck and not np.isfinite(kernel.K).all()):
        raise SolverError("the kernel matrix has NaN or infinite entries")
    return result


def inflation(task: SvmTask, beta: Float64, scores: Float64) -> float:
    """A scale for beta and scores that may close the gap at once, or 1.

    A point within e of the optimality conditions leaves every free sample a slack of up to e, and where C is large, C
    times their sum dwarfs the primal value. Scaling w by 1 / (1 - e) removes those slacks at a cost of order
    e ||w||^2, and the scaled alpha is feasible as long as no support vector is at its bound: a relative gap of about e
    where it was C n e. (With s = 1 / (1 - e) and linear = 1, 1 - s y (f + b) <= s e - (s - 1) = 0.)
    """
    if task.linear is not None:
        return 1.0
    slope, bound = task.y - scores, task.y * task.upper
    rising, falling = slope[beta < np.maximum(bound, 0.0)], slope[beta > np.minimum(bound, 0.0)]
    if not len(rising) or not len(falling):
        return 1.0
    top, bottom = float(rising.max()), float(falling.min())
    violation = 0.5 * (top - bottom) if task.intercept else max(top, -bottom)
    scale = 1.0 / (1.0 - violation) if 0.0 < violation < 0.5 else 1.0
    return scale if bool((scale * np.abs(beta) <= task.upper).all()) else 1.0
