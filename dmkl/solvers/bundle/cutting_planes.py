"""Cutting planes of an objective over the kernel weights p, and where their model is least.

The alpha of any SVM solved on the way gives a linear function of p that never exceeds that class's objective,

    H_k(p) >= total - 1/2 p . forms        total = sum(alpha), forms = D_a(beta)

so a convex combination of cuts of the whole objective proves a lower bound: its minimum over the simplex. The bundle
method goes where the largest cut plus a quadratic around the best point so far (`centre`) is least:

    min_{p, t}  t + 1/2 (p - centre)' Q (p - centre)    s.t.  heights_i + slopes_i . p <= t,  p >= 0,  sum(p) = 1

`simplex_qp` solves that by an interior point method (Mehrotra's predictor and corrector); it has as many variables as
there are kernels and also returns the multipliers of the cuts. No library is used: scipy's SLSQP takes as long for a
dozen kernels but 300 times as long for 48, quadprog needs a definite Q (here it is also zero) and like cvxopt is under
the GPL, and other QP solvers would be one more compiled dependency for this one function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs  # lu_factor's checks take longer than so few equations

from dmkl._util.types import Float64, Mask, Samples


@dataclass(frozen=True)
class BundleOptions:
    """Constants of the bundle methods, for the sum of the classes and for the worst class."""

    inner_steps: int = 25  # weights tried in one round at most
    tol_share: float = 0.5  # of the tolerance, for the inner problem: the samples outside the blocks need the rest
    gap_share: float = 0.1  # of the certified gap so far: the first rounds are solved loosely
    first_gap: float = 0.05  # the inner gap of the first round
    svm_share: float = 0.1  # the tolerance of an SVM as a share of the inner gap so far
    loose_gap: float = 0.1  # the gap that the first SVMs are solved for
    least_fall: float = 0.1  # a step that falls by less than this share of what the model promised is rejected
    stiffer: float = 4.0  # factor of the curvature after a rejected step
    stiffest: float = 64.0  # the largest such factor; from there the new cuts have to do the rest
    proximity: float = 0.1  # of gap times objective, added to the curvature: a model of cuts alone jumps
    rounding: float = 1e-10  # of the objective: a smaller rise is rounding, the QP is solved no further
    kept_cuts: int = 12  # newest cuts of a class that are kept; older ones are kept while their multiplier is positive
    least_multiplier: float = 1e-6  # smaller multipliers count as zero

    def svm_tol(self, gap: float, wanted: float) -> float:
        """The tolerance of an SVM at weights with this gap, when the gap `wanted` is to be reached.

        Weights that are off by e raise the objective by e^2 and lower the bound by e, so the smaller the gap is, the
        more digits it takes to see which of two weights is better.
        """
        least = min(max(gap, wanted), 1.0)  # first gaps can be far above 1, where any alpha would do
        return min(self.svm_share * least, least * float(np.sqrt(least)))


@dataclass(frozen=True)
class SimplexQpOptions:
    """Constants of the interior point method of `simplex_qp`."""

    max_steps: int = 60
    tol: float = 1e-10  # of complementarity, relative to the size of the heights
    stationary: float = 1e-9  # the residual of the stationarity equations that is accepted,
    stalled: float = 0.5  # also accepted if a step leaves more than this share of it: a large Q has more rounding
    to_boundary: float = 0.99  # share of the way to the boundary that a step goes at most
    ridge: float = 1e-12  # keeps the equations solvable where two cuts, or two kernels, are equal


BUNDLE = BundleOptions()
QP = SimplexQpOptions()


@dataclass(frozen=True)
class ModelMinimum:
    """The point where a model of cuts is least."""

    weights: Float64  # (s,)
    multipliers: Float64  # (cuts,)
    active: Mask  # (cuts,): whose multiplier is positive
    value: float  # of the model
    bound: float  # lower bound of the objective that the cuts prove


@dataclass(frozen=True)
class CuttingPlanes:
    """Cuts; `owner` says whose objective a cut bounds: the number of a class, or -1 for the sum of all classes."""

    total: Float64  # (cuts,)
    forms: Float64  # (cuts, s)
    owner: Samples  # (cuts,)

    @classmethod
    def none(cls, s: int) -> CuttingPlanes:
        """No cuts yet, of s kernels."""
        return cls(np.zeros(0), np.zeros((0, s)), np.zeros(0, dtype=np.int64))

    def plus(self, total: Float64, forms: Float64, owner: Samples) -> CuttingPlanes:
        """With more cuts, the newest last."""
        return CuttingPlanes(
            np.concatenate([self.total, total]), np.vstack([self.forms, forms]), np.concatenate([self.owner, owner])
        )

    def pruned(self, active: Mask, options: BundleOptions = BUNDLE) -> CuttingPlanes:
        """Without the old cuts that are not active."""
        newest = np.zeros(len(self.total), dtype=bool)
        seen: dict[int, int] = {}
        for number in range(len(self.owner) - 1, -1, -1):
            k = int(self.owner[number])
            seen[k] = seen.get(k, 0) + 1
            newest[number] = seen[k] <= options.kept_cuts
        keep = newest | active
        return CuttingPlanes(self.total[keep], self.forms[keep], self.owner[keep])

    def values(self, weights: Float64) -> Float64:
        """(cuts,): every cut at these weights."""
        return self.total - 0.5 * self.forms @ weights

    def highest(self, weights: Float64) -> float:
        """The largest cut at these weights: a lower bound of the objective there."""
        return float(self.values(weights).max())

    def highest_of_each(self, weights: Float64, m: int) -> Float64:
        """(m,): every class's largest cut at these weights; -inf for a class without cuts."""
        highest = np.full(m, -np.inf)
        np.maximum.at(highest, self.owner, self.values(weights))
        return highest

    def bound(self, multipliers: Float64) -> float:
        """The lower bound that this convex combination of cuts proves."""
        return float(multipliers @ self.total) - 0.5 * float((multipliers @ self.forms).max())

    def minimum(self, centre: Float64, curvature: Float64, options: BundleOptions = BUNDLE) -> ModelMinimum:
        """The minimum of the largest cut plus the curvature (s, s) around `centre` (s,)."""
        weights, multipliers = simplex_qp(self.total, -0.5 * self.forms, curvature, centre)
        newest = np.zeros(len(self.total))
        newest[-1] = 1.0
        plain = simplex_qp(self.total, -0.5 * self.forms, np.zeros_like(curvature), centre)[1]  # the tightest bound
        step = weights - centre
        value = self.highest(weights) + 0.5 * float(step @ curvature @ step)
        active = np.maximum(multipliers, plain) > options.least_multiplier
        return ModelMinimum(weights, multipliers, active, value, max(self.bound(plain), self.bound(newest)))


def simplex_qp(
    heights: Float64, slopes: Float64, Q: Float64, centre: Float64, options: SimplexQpOptions = QP
) -> tuple[Float64, Float64]:
    """Minimise the largest of some linear functions plus a quadratic over the simplex (see the module's docstring).

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
    options : SimplexQpOptions

    Returns
    -------
    p : array (s,)
        The minimiser.
    multipliers : array (cuts,)
        The multipliers of the linear functions: non-negative, of sum 1.
    """
    size = max(np.abs(heights).max(), np.abs(slopes).max(), 1e-300)
    heights, slopes, Q = heights / size, slopes / size, Q / size
    s, rows = len(centre), len(heights)
    p = np.full(s, 1.0 / s)
    t = float((heights + slopes @ p).max()) + 1.0
    point = _QpPoint(p, t, t - heights - slopes @ p, np.full(rows, 1.0 / rows), np.full(s, 0.1), 0.0)
    residual = np.inf
    for _ in range(options.max_steps):
        equations = _QpEquations(slopes, Q, point, heights, centre, options.ridge)
        mean = point.complementarity / (rows + s)
        before, residual = residual, equations.residual
        if mean < options.tol and (residual < options.stationary or residual > options.stalled * before):
            break
        ahead = equations.direction(point.lam * point.slack, point.low * point.p)
        target = (point.moved(ahead, point.room(ahead)).complementarity / (rows + s) / mean) ** 3 * mean
        step = equations.direction(
            point.lam * point.slack + ahead.lam * ahead.slack - target,
            point.low * point.p + ahead.low * ahead.p - target,
        )
        point = point.moved(step, options.to_boundary * point.room(step))
    return point.p / point.p.sum(), point.lam / point.lam.sum()


@dataclass(frozen=True)
class _QpPoint:
    """Variables, slacks of the cuts, and multipliers: of the cuts, of p >= 0 and of sum(p) = 1."""

    p: Float64
    t: float
    slack: Float64
    lam: Float64
    low: Float64
    level: float

    @property
    def complementarity(self) -> float:
        return float(self.lam @ self.slack + self.low @ self.p)

    def moved(self, step: _QpPoint, length: float) -> _QpPoint:
        return _QpPoint(
            self.p + length * step.p,
            self.t + length * step.t,
            self.slack + length * step.slack,
            self.lam + length * step.lam,
            self.low + length * step.low,
            self.level + length * step.level,
        )

    def room(self, step: _QpPoint) -> float:
        """The largest length of this step, at most 1, that keeps all positive variables positive."""
        pairs = ((self.p, step.p), (self.slack, step.slack), (self.lam, step.lam), (self.low, step.low))
        return min(float((-values[by < 0] / by[by < 0]).min(initial=1.0)) for values, by in pairs)


class _QpEquations:
    """The Newton equations at a point, factored once for predictor and corrector."""

    def __init__(
        self, slopes: Float64, Q: Float64, point: _QpPoint, heights: Float64, centre: Float64, ridge: float
    ) -> None:
        s = len(centre)
        self._slopes, self._point = slopes, point
        self._grad = Q @ (point.p - centre) + point.lam @ slopes - point.low + point.level
        self._over = heights + slopes @ point.p + point.slack - point.t
        pull = point.lam / point.slack
        matrix = np.zeros((s + 2, s + 2))
        matrix[:s, :s] = Q + (slopes.T * pull) @ slopes
        matrix[np.arange(s), np.arange(s)] += point.low / point.p
        matrix[:s, s] = matrix[s, :s] = -(pull @ slopes)
        matrix[s, s] = pull.sum()
        matrix[np.arange(s + 1), np.arange(s + 1)] *= 1 + ridge
        matrix[:s, s + 1] = matrix[s + 1, :s] = 1.0
        self._factor = dgetrf(matrix)[:2]

    @property
    def residual(self) -> float:
        """How far the point is from stationary."""
        return max(float(np.abs(self._grad).max()), abs(1 - float(self._point.lam.sum())))

    def direction(self, cuts: Float64, bounds: Float64) -> _QpPoint:
        """The step that lowers lam * slack and low * p by these amounts, to first order."""
        point, slopes, s = self._point, self._slopes, len(self._point.p)
        toward = (point.lam * self._over - cuts) / point.slack
        right = np.empty(s + 2)
        right[:s] = -self._grad - toward @ slopes - bounds / point.p
        right[s] = point.lam.sum() - 1 + toward.sum()
        right[s + 1] = 1 - point.p.sum()
        x = dgetrs(*self._factor, right)[0]
        p, t = x[:s], float(x[s])
        slack = t - self._over - slopes @ p
        lam = -(cuts + point.lam * slack) / point.slack
        return _QpPoint(p, t, slack, lam, -(bounds + point.low * p) / point.p, float(x[s + 1]))
