"""SimpleMKL (Rakotomamonjy, Bach, Canu and Grandvalet, JMLR 2008), the method that the papers compare with.

    min over d in the simplex of  J(d) = max 1'alpha - 1/2 beta' (sum_a d_a K_a) beta,   0 <= alpha <= C, 1'beta = 0

A reduced gradient: a step to the end of the feasible segment as long as that lowers J, then a golden section search,
each value of J an SVM. Written for comparison only, on dmkl's own SVM and kernel sums; each SVM starts at the alpha of
the last one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dmkl.oracles import solve_svm
from dmkl.solvers.kernel_operators import combine, quadratic_forms

SVM_TOL = 1e-5  # the line search compares values of J
SHORT = 0.05  # where the golden section search ends, as a share of its first segment
GOLDEN = (np.sqrt(5) - 1) / 2
TINY = 1e-8  # weights below are zero

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The result."""

    weights: Float64
    svm_calls: int
    steps: int
    gap: float
    seconds: float


class _Values:
    """J at weights, SVM calls counted."""

    def __init__(self, K: NDArray[Any], y: Float64, C: float) -> None:
        self._K, self._y, self._C = K, y, C
        self._combined, self._alpha = np.empty(K.shape[1:]), np.zeros(len(y))
        self.calls = 0

    def at(self, weights: Float64) -> float:
        combine(self._K, weights, self._combined)
        svm = solve_svm(self._combined, self._y, self._C, alpha=self._alpha, tol=SVM_TOL)
        self.calls += 1
        self._alpha = svm.alpha
        beta = svm.alpha * self._y
        return float(svm.alpha.sum() - 0.5 * beta @ self._combined @ beta)

    def forms(self) -> Float64:
        """beta' K_a beta of all kernels at the last weights; -1/2 of them is the gradient of J."""
        return quadratic_forms(self._K, self._alpha * self._y)

    def bound(self, forms: Float64) -> float:
        """What no weights can be below."""
        return float(self._alpha.sum() - 0.5 * forms.max())


def solve_simple(K: NDArray[Any], y: Float64, C: float, tol: float, most: int) -> Found:
    """Until the relative duality gap is at most `tol`, or after `most` SVM calls."""
    with threadpool_limits(1):
        started = time.perf_counter()
        values = _Values(K, y, C)
        weights, steps = np.full(len(K), 1 / len(K)), 0
        value = values.at(weights)
        while True:
            forms = values.forms()
            gap = (value - values.bound(forms)) / value
            if gap <= tol or values.calls >= most:
                break
            weights, value = _stepped(values, weights, value, -0.5 * forms)
            steps += 1
        return Found(weights, values.calls, steps, gap, time.perf_counter() - started)


def _stepped(values: _Values, weights: Float64, value: float, slopes: Float64) -> tuple[Float64, float]:
    """One descent: ends of the segment while they are lower, then the best place between."""
    way = _direction(weights, slopes)
    while True:
        falling = way < 0
        if not falling.any():
            return weights, values.at(weights)
        lengths = np.divide(weights, -way, where=falling, out=np.full(len(way), np.inf))
        end = _tidied(weights + lengths.min() * way)
        at_end = values.at(end)
        if at_end >= value:
            return _between(values, weights, end)
        weights, value = end, at_end
        way = _emptied(way, weights)


def _direction(weights: Float64, slopes: Float64) -> Float64:
    """Down the slope inside the simplex; the largest weight takes what the others give."""
    largest = int(np.argmax(weights))
    way = slopes[largest] - slopes
    way[(weights <= 0) & (way < 0)] = 0.0
    way[largest] = 0.0
    way[largest] = -way.sum()
    return np.asarray(way)


def _emptied(way: Float64, weights: Float64) -> Float64:
    """The same direction without the weights that have come to zero."""
    way = np.where((weights <= 0) & (way < 0), 0.0, way)
    largest = int(np.argmax(weights))
    way[largest] -= way.sum()
    return way


def _between(values: _Values, start: Float64, end: Float64) -> tuple[Float64, float]:
    """Golden section search from `start` to `end`; the last value is that of the weights returned."""
    low, high = 0.0, 1.0
    places = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    found = [values.at(_tidied(start + place * (end - start))) for place in places]
    while high - low > SHORT:
        if found[0] < found[1]:
            high, places[1], found[1] = places[1], places[0], found[0]
            places[0] = high - GOLDEN * (high - low)
            found[0] = values.at(_tidied(start + places[0] * (end - start)))
        else:
            low, places[0], found[0] = places[0], places[1], found[1]
            places[1] = low + GOLDEN * (high - low)
            found[1] = values.at(_tidied(start + places[1] * (end - start)))
    best = _tidied(start + places[int(found[1] < found[0])] * (end - start))
    return best, values.at(best)


def _tidied(weights: Float64) -> Float64:
    weights = np.where(weights < TINY, 0.0, weights)
    return np.asarray(weights / weights.sum())
