"""A small convex program over the simplex: the largest of some linear functions plus a quadratic, by interior point.

    min_{p, t}  t + 1/2 (p - centre)' Q (p - centre)    s.t.  heights_i + slopes_i . p <= t,  p >= 0,  sum(p) = 1

p has as many entries as there are kernels; rows are cuts. The multipliers of the cuts come back too: non-negative, they
sum to one and are what lower bounds are made of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs  # lu_factor's checks take longer than so few equations

from dmkl._util.types import Float64

MAX_STEPS = 60
TOL = 1e-10  # of complementarity, against the size of the heights
ENOUGH = 1e-9  # what may be left of the stationarity equations
STALLED = 0.5  # or when a step leaves more than this of it
TO_BOUNDARY = 0.99
RIDGE = 1e-12  # keeps the equations solvable where two cuts, or two kernels, are the same


def simplex_qp(heights: Float64, slopes: Float64, Q: Float64, centre: Float64) -> tuple[Float64, Float64]:
    """The minimising p and the multipliers of the cuts."""
    size = max(np.abs(heights).max(), np.abs(slopes).max(), 1e-300)
    heights, slopes, Q = heights / size, slopes / size, Q / size
    s, rows = len(centre), len(heights)
    p = np.full(s, 1.0 / s)
    t = float((heights + slopes @ p).max()) + 1.0
    point = _Point(p, t, t - heights - slopes @ p, np.full(rows, 1.0 / rows), np.full(s, 0.1), 0.0)
    unsolved = np.inf
    for _ in range(MAX_STEPS):
        equations = _Equations(slopes, Q, point, heights, centre)
        mean = point.complementarity / (rows + s)
        before, unsolved = unsolved, equations.unsolved
        if mean < TOL and (unsolved < ENOUGH or unsolved > STALLED * before):  # a large Q leaves more by rounding
            break
        ahead = equations.direction(point.lam * point.slack, point.low * point.p)
        target = (point.moved(ahead, point.room(ahead)).complementarity / (rows + s) / mean) ** 3 * mean
        step = equations.direction(
            point.lam * point.slack + ahead.lam * ahead.slack - target,
            point.low * point.p + ahead.low * ahead.p - target,
        )
        point = point.moved(step, TO_BOUNDARY * point.room(step))
    return point.p / point.p.sum(), point.lam / point.lam.sum()


@dataclass(frozen=True)
class _Point:
    """Variables, slacks of the cuts, and multipliers of the cuts, of p >= 0 and of sum(p) = 1."""

    p: Float64
    t: float
    slack: Float64
    lam: Float64
    low: Float64
    level: float

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
        """How far this step can go, at most 1, before something positive is zero."""
        pairs = ((self.p, step.p), (self.slack, step.slack), (self.lam, step.lam), (self.low, step.low))
        return min(float((-values[by < 0] / by[by < 0]).min(initial=1.0)) for values, by in pairs)


class _Equations:
    """The Newton equations at a point, factored once for both directions."""

    def __init__(self, slopes: Float64, Q: Float64, point: _Point, heights: Float64, centre: Float64) -> None:
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
        matrix[np.arange(s + 1), np.arange(s + 1)] *= 1 + RIDGE
        matrix[:s, s + 1] = matrix[s + 1, :s] = 1.0
        self._factor = dgetrf(matrix)[:2]

    @property
    def unsolved(self) -> float:
        """How far the point is from stationary."""
        return max(float(np.abs(self._grad).max()), abs(1 - float(self._point.lam.sum())))

    def direction(self, cuts: Float64, bounds: Float64) -> _Point:
        """The step that takes lam * slack and low * p down by these amounts, to first order."""
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
        return _Point(p, t, slack, lam, -(bounds + point.low * p) / point.p, float(x[s + 1]))
