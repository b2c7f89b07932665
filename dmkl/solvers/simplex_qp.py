"""The small convex program of the bundle and Newton methods, over one simplex of weights or a product of several.

    min_{p, t}  t + 1/2 (p - centre)' Q (p - centre)
    s.t.        heights_i + slopes_i . p <= t,    p >= 0,    sum_{a in j} p_a = 1 for every group j

It is solved by an interior point method (Mehrotra's predictor and corrector); it has as many variables as there are
kernels and also returns the multipliers of the linear functions. No library is used: scipy's SLSQP takes as long for a
dozen kernels but 300 times as long for 48, quadprog needs a definite Q (here it is also zero) and like cvxopt is under
the GPL, and other QP solvers would be one more compiled dependency for this one function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs  # lu_factor's checks take longer than so few equations

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, Samples


@dataclass(frozen=True)
class SimplexQpOptions:
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
    heights, slopes, Q = heights / size, slopes / size, Q / size
    steepest = max(float(np.abs(slopes).max()), 1.0)
    s, rows = len(centre), len(heights)
    owner = np.zeros(s, dtype=np.int64) if groups is None else groups
    sizes = np.bincount(owner)
    p = (1.0 / sizes)[owner]
    t = float((heights + slopes @ p).max()) + 1.0
    slack = t - heights - slopes @ p
    point = _Point(p, t, slack, np.full(rows, 1.0 / rows), np.full(s, 0.1 * steepest), np.zeros(len(sizes)))
    residual = np.inf
    for _ in range(options.max_steps):
        equations = _Equations(slopes, Q, point, heights, centre, owner, options.ridge)
        mean = point.complementarity / (rows + s)
        before, residual = residual, equations.residual
        if mean < options.tol and (residual < options.stationary * steepest or residual > options.stalled * before):
            break
        if must_stop():
            break
        ahead = equations.direction(point.lam * point.slack, point.low * point.p)
        target = (point.moved(ahead, point.room(ahead)).complementarity / (rows + s) / mean) ** 3 * mean
        step = equations.direction(
            point.lam * point.slack + ahead.lam * ahead.slack - target,
            point.low * point.p + ahead.low * ahead.p - target,
        )
        length = point.room(step)
        if length < options.short:  # the correction of a long step leads astray, or in circles
            target = options.centring * mean
            step = equations.direction(point.lam * point.slack - target, point.low * point.p - target)
            length = point.room(step)
        point = point.moved(step, options.to_boundary * length)
    return point.p / np.bincount(owner, point.p)[owner], point.lam / point.lam.sum()


@dataclass(frozen=True)
class _Point:
    """Variables, slacks of the cuts, and multipliers: of the cuts, of p >= 0 and of the sums."""

    p: Float64
    t: float
    slack: Float64
    lam: Float64
    low: Float64
    level: Float64  # (groups,)

    @property
    def complementarity(self) -> float:
        return float(self.lam @ self.slack + self.low @ self.p)

    def moved(self, step: _Point, length: float) -> _Point:
        return _Point(
            self.p + length * step.p,
            self.t + length * step.t,
            self.slack + length * step.slack,
            self.lam + length * step.lam,
            self.low + length * step.low,
            self.level + length * step.level,
        )

    def room(self, step: _Point) -> float:
        """The largest length of this step, at most 1, that keeps all positive variables positive."""
        pairs = ((self.p, step.p), (self.slack, step.slack), (self.lam, step.lam), (self.low, step.low))
        return min(float((-values[by < 0] / by[by < 0]).min(initial=1.0)) for values, by in pairs)


class _Equations:
    """The Newton equations at a point, factored once for predictor and corrector."""

    def __init__(
        self,
        slopes: Float64,
        Q: Float64,
        point: _Point,
        heights: Float64,
        centre: Float64,
        owner: Samples,
        ridge: float,
    ) -> None:
        s, count = len(centre), len(point.level)
        self._slopes, self._point, self._owner = slopes, point, owner
        self._grad = Q @ (point.p - centre) + point.lam @ slopes - point.low + point.level[owner]
        self._over = heights + slopes @ point.p + point.slack - point.t
        pull = point.lam / point.slack
        matrix = np.zeros((s + 1 + count, s + 1 + count))
        matrix[:s, :s] = Q + (slopes.T * pull) @ slopes
        matrix[np.arange(s), np.arange(s)] += point.low / point.p
        matrix[:s, s] = matrix[s, :s] = -(pull @ slopes)
        matrix[s, s] = pull.sum()
        matrix[np.arange(s + 1), np.arange(s + 1)] *= 1 + ridge
        matrix[np.arange(s), s + 1 + owner] = matrix[s + 1 + owner, np.arange(s)] = 1.0
        self._factor = dgetrf(matrix)[:2]

    @property
    def residual(self) -> float:
        """How far the point is from stationary."""
        return max(float(np.abs(self._grad).max()), abs(1 - float(self._point.lam.sum())))

    def direction(self, cuts: Float64, bounds: Float64) -> _Point:
        """The step that lowers lam * slack and low * p by these amounts, to first order."""
        point, slopes, s = self._point, self._slopes, len(self._point.p)
        toward = (point.lam * self._over - cuts) / point.slack
        right = np.empty(s + 1 + len(point.level))
        right[:s] = -self._grad - toward @ slopes - bounds / point.p
        right[s] = point.lam.sum() - 1 + toward.sum()
        right[s + 1 :] = 1 - np.bincount(self._owner, point.p)
        x = dgetrs(*self._factor, right)[0]
        p, t = x[:s], float(x[s])
        slack = t - self._over - slopes @ p
        lam = -(cuts + point.lam * slack) / point.slack
        return _Point(p, t, slack, lam, -(bounds + point.low * p) / point.p, x[s + 1 :])
