"""The dual of a support vector machine by an interior point method, where pairwise steps (SMO) need too many.

    min  1/2 rho' K rho - pull' rho + above' [rho]+ + below' [-rho]+      low <= rho <= high,  sum(rho) = 0

Without an intercept the sum is free. rho is a sum of parts: one up to `high`, one down to `low` that counts negatively,
where these are not zero. So all costs are linear. Each step of Mehrotra's predictor and corrector is a system in K +
W^-1, where W_i is the sum of the inverse barrier terms of the parts of rho_i; so a matrix of n samples is factored in
each of the 10 to 30 steps, whatever its condition is. SMO takes less time where few samples are free, but on smooth or
low-rank kernels with weak regularisation it needs many millions of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray
from dmkl.solvers.cholesky import Cholesky


@dataclass(frozen=True)
class BoxQpOptions:
    """Constants of the method."""

    steps: int = 100  # at most
    stalled: int = 5  # steps that hardly lower the mean product of slacks and multipliers
    progress: float = 0.9  # of it, that is left at most by a step that does
    to_boundary: float = 0.995  # share of the way to the nearest bound
    first: float = 0.1  # multipliers of the start, as a share of the mean slope
    largest: float = 1e12  # of W times the mean diagonal of K
    largest32: float = 1e5  # in float32


OPTIONS = BoxQpOptions()


@dataclass(frozen=True)
class Box:
    """The bounds and slopes of the problem, all (n,)."""

    pull: Float64
    low: Float64
    high: Float64
    below: Float64
    above: Float64


@dataclass(frozen=True)
class _Point:
    """Of all parts of rho: their sizes, what is left to their bounds, the multipliers of both; and the intercept."""

    x: Float64
    slack: Float64
    lower: Float64
    upper: Float64
    b: float

    def moved(self, step: _Point, length: float) -> _Point:
        return _Point(
            self.x + length * step.x,
            self.slack + length * step.slack,
            self.lower + length * step.lower,
            self.upper + length * step.upper,
            self.b + length * step.b,
        )

    def room(self, step: _Point) -> float:
        """The largest length of this step, at most 1, that keeps all positive variables positive."""
        pairs = (self.x, step.x), (self.slack, step.slack), (self.lower, step.lower), (self.upper, step.upper)
        return min(float((-value[by < 0] / by[by < 0]).min(initial=1.0)) for value, by in pairs)

    @property
    def mean(self) -> float:
        """The mean product of a variable and its multiplier."""
        return float(self.x @ self.lower + self.slack @ self.upper) / (2 * len(self.x))


class BoxQp:
    """The problem on one matrix.

    Parameters
    ----------
    K : array (n, n)
        Symmetric and positive semidefinite.
    box : Box
    threads : int
        Threads for factorisations.
    intercept : bool
        Whether rho sums to zero.
    options : BoxQpOptions, optional
    """

    def __init__(
        self, K: FloatArray, box: Box, threads: int = 1, *, intercept: bool = True, options: BoxQpOptions = OPTIONS
    ) -> None:
        self._K, self._threads, self._intercept, self._options = K, threads, intercept, options
        up, down = np.flatnonzero(box.high > 0), np.flatnonzero(box.low < 0)
        self._sample = np.concatenate([up, down])
        self._sign = np.repeat([1.0, -1.0], [len(up), len(down)])
        self._bound = np.concatenate([box.high[up], -box.low[down]])
        self._cost = np.concatenate([(box.above - box.pull)[up], (box.below + box.pull)[down]])
        largest = options.largest if K.dtype == np.float64 else options.largest32
        self._largest = largest / max(float(K.diagonal().mean()), 1e-300)
        self.factor: Cholesky | None = None  # of the last step

    def solve(self, enough: Callable[[Float64], bool]) -> tuple[Float64, int]:
        """rho, in the box and but for rounding of the right sum, and the steps; it ends when `enough(rho)`."""
        point, options = self._start(), self._options
        least, idle, number = np.inf, 0, 0
        while number < options.steps and idle < options.stalled and not must_stop():
            try:
                point = self._next(point)
            except np.linalg.LinAlgError:
                break
            number += 1
            if enough(self._total(self._sign * point.x)):
                break
            least, idle = (point.mean, 0) if point.mean < options.progress * least else (least, idle + 1)
        return self._total(self._sign * point.x), number

    def _total(self, parts: Float64) -> Float64:
        """(n,): the sums of what belongs to each sample."""
        return np.asarray(np.bincount(self._sample, parts, len(self._K)), dtype=np.float64)

    def _start(self) -> _Point:
        """The middle of the box, with multipliers of the size of the slopes there."""
        x = 0.5 * self._bound
        slopes = self._slopes(x, 0.0)
        size = max(self._options.first * float(np.abs(slopes).mean()), 1e-300)
        return _Point(x, x.copy(), np.maximum(slopes, 0.0) + size, np.maximum(-slopes, 0.0) + size, 0.0)

    def _slopes(self, x: Float64, b: float) -> Float64:
        """The derivatives of the objective by all parts."""
        rho = self._total(self._sign * x)
        product = (self._K @ rho.astype(self._K.dtype)).astype(np.float64)
        return np.asarray(self._cost + self._sign * (product + b)[self._sample])

    def _next(self, point: _Point) -> _Point:
        inverse = 1.0 / (point.lower / point.x + point.upper / point.slack)
        w = self._total(inverse)
        self.factor = Cholesky(self._K, w / (1.0 + w / self._largest), self._threads)
        one = self.factor.solve(np.ones(len(w)))
        total = max(float(one.sum()), 1e-300)
        rest = self._slopes(point.x, point.b) - point.lower + point.upper

        def direction(lower: Float64, upper: Float64) -> _Point:
            """The step that takes the products with both multipliers, to first order, down by these amounts."""
            assert self.factor is not None
            pull = -rest - lower / point.x + upper / point.slack
            wanted = self._total(self._sign * inverse * pull)
            free = self.factor.solve(np.where(w > 0, wanted / np.maximum(w, 1e-300), 0.0))
            b = (float(free.sum()) + float((self._sign * point.x).sum())) / total if self._intercept else 0.0
            rho = free - b * one
            balance = np.where(w > 0, (wanted - rho) / np.maximum(w, 1e-300), 0.0)
            x = inverse * (pull - self._sign * balance[self._sample])
            return _Point(x, -x, -(lower + point.lower * x) / point.x, -(upper - point.upper * x) / point.slack, b)

        products = point.x * point.lower, point.slack * point.upper
        ahead = direction(*products)
        target = max((point.moved(ahead, point.room(ahead)).mean / point.mean) ** 3, 1e-8) * point.mean
        step = direction(products[0] + ahead.x * ahead.lower - target, products[1] + ahead.slack * ahead.upper - target)
        return point.moved(step, self._options.to_boundary * point.room(step))
