"""The method "automatic" of VSKL, L1MKL and LpMKL: which method a block is solved by, and when another one takes over.

Few samples and kernels of low rank are for the interior point method, all else for Newton's method. Before the interior
point method, mirror descent is tried: on most small problems it is the fastest by far, and on the others it hardly
converges. So after every SVM, the remaining cost is forecast from the fall of the gap so far, and mirror descent is
given up once this cost is larger than that of the method that comes next.

Costs are seconds of one core of the machine on which they were fitted, from sizes and counted steps. Only their ratios
matter, and no clock is read: the same problem takes the same methods everywhere, and its answer has the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from dmkl._util.types import FloatArray, Samples
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.cone import apart_of
from dmkl.solvers.low_rank import estimated_ranks, has_low_rank

Hopeless: TypeAlias = Callable[[float, int], bool]  # of (gap, steps of its SVM), after every SVM: whether to give up

INTERIOR, NEWTON, MIRROR = "interior", "newton", "mirror"


# Costs.


@dataclass(frozen=True)
class CostOptions:
    """Factors of the terms of every cost (283 blocks of 194 problems, n up to 2,000; AMD EPYC, 2026-11-20)."""

    svm: tuple[float, ...] = (1.2e-4, 2.8e-10, 5.5e-10)  # 1, s n^2, n^2
    svm_step: tuple[float, ...] = (6.2e-8, 7.1e-11)  # 1, n
    interior: tuple[float, ...] = (2.4e-3, 3.2e-8, 8.5e-11, 2.4e-9)  # 1, n^2, n^3, s n^2
    cone: tuple[float, ...] = (7.2e-3, 3.2e-9)  # 1, s n^2, and for the sum R of the ranks and c columns
    cone_ranks: tuple[float, ...] = (7.6e-8, 8e-8, 8.6e-10)  # n R, n c, n c^2 + c^3 / 3,
    cone_full: float = 7.5e-10  # n^3 / 3 + s n^2 + n^2 c, where a kernel's columns are not kept apart
    newton: tuple[float, ...] = (5.8e-3, 3.3e-9, 1.8e-6)  # 1, s n^2, squared number of kernels in its model,
    newton_kernels: int = 200  # which is at most this


@dataclass(frozen=True)
class Costs:
    """The costs of a block of s kernels over n samples."""

    n: int
    s: int
    options: CostOptions = field(default_factory=CostOptions)

    def svm(self, steps: int) -> float:
        """The sum of the kernels, an SVM of so many steps, and all forms."""
        fixed, all_values, values = self.options.svm
        step, by_sample = self.options.svm_step
        return fixed + (all_values * self.s + values) * self.n**2 + (step + by_sample * self.n) * steps

    def interior(self) -> float:
        """The interior point method."""
        fixed, values, factor, all_values = self.options.interior
        return fixed + (values + factor * self.n + all_values * self.s) * self.n**2

    def cone(self, ranks: Samples | None = None) -> float:
        """The cone method for kernels of these ranks; without them, as if they were zero."""
        n, s, options = self.n, self.s, self.options
        fixed, all_values = options.cone
        cost = fixed + all_values * s * n**2
        if ranks is None:
            return cost
        apart = apart_of(ranks, n)
        c, total = int(ranks[apart].sum() + (~apart).sum()), int(ranks.sum())
        by_rank, by_column, by_matrix = options.cone_ranks
        cost += by_rank * n * total + by_column * n * c + by_matrix * (n * c**2 + c**3 / 3)
        return cost + (0.0 if apart.all() else options.cone_full * n**2 * (n / 3 + s + c))

    def newton(self) -> float:
        """Newton's method in the weights."""
        fixed, all_values, model = self.options.newton
        return fixed + all_values * self.s * self.n**2 + model * min(self.s, self.options.newton_kernels) ** 2


# Forecasts.


@dataclass(frozen=True)
class ForecastOptions:
    """How forecasts are made."""

    first: int = 3  # evaluations before the first one
    window: int = 20  # evaluations, or a third of all if they are more, over which the fall of the gap is taken
    goal: float = 0.8  # of the tolerance, at which the gap will count as small enough


FORECASTS = ForecastOptions()


class Forecast:
    """How much a method whose gap falls from evaluation to evaluation still has to work."""

    def __init__(self, tol: float, cost: Callable[[int], float], options: ForecastOptions = FORECASTS) -> None:
        self._options = options
        self._goal, self._cost = math.log(self._options.goal * tol), cost
        self._logs: list[float] = []  # of the smallest gap so far, after every evaluation
        self._spent = 0.0

    def add(self, gap: float, steps: int) -> None:
        """Enter an evaluation with the gap after it, and its steps."""
        log = math.log(max(gap, 1e-300))
        self._logs.append(min(log, self._logs[-1]) if self._logs else log)
        self._spent += self._cost(steps)

    @property
    def left(self) -> float:
        """The cost of what is left, if the gap goes on to fall as it did; zero before there is a forecast."""
        number, here = len(self._logs), self._logs[-1]
        if number < self._options.first or here <= self._goal:
            return 0.0
        back = min(number - 1, max(self._options.window, number // 3))
        fall = self._logs[-1 - back] - here
        return (here - self._goal) * back / fall * self._spent / number if fall > 0 else np.inf


# The rule.


@dataclass(frozen=True)
class RuleOptions:
    """Constants of the rule (`decisions/automatic-method.md`)."""

    small: int = 500  # samples up to which the interior point method is before Newton's
    far_dearer: float = 2.0  # times the cost of Newton's method, above which the interior point method is after it
    hopeless: float = 1.5  # times the cost of the next method, above which a remaining cost is too high to go on
    one_group: float = 0.2  # of the next method's cost, that the first SVMs may cost where all kernels are one group


OPTIONS = RuleOptions()


def interior_is_faster(samples: int, options: RuleOptions = OPTIONS) -> bool:
    """Whether the interior point method is before Newton's for kernels of full rank: its step factors a matrix of all
    samples, where an evaluation of Newton's method only reads the kernels."""
    return samples <= options.small


class Rule:
    """What is done with one block."""

    def __init__(self, K: FloatArray, norm: MixedNorm, options: RuleOptions = OPTIONS) -> None:
        self._K, self._norm, self._options = K, norm, options
        self._small = interior_is_faster(K.shape[1], options)
        self.costs = Costs(K.shape[1], len(K))

    @cached_property
    def _ranks(self) -> Samples:
        return estimated_ranks(self._K, self._norm)

    @cached_property
    def low_rank(self) -> bool:
        """Whether the interior point method is the cone method."""
        return has_low_rank(self._ranks, self.costs.n, self._norm)

    @cached_property
    def _interior(self) -> float:
        return self.costs.cone(self._ranks) if self.low_rank else self.costs.interior()

    @cached_property
    def names(self) -> list[str]:
        """The methods in the order in which they are tried, after mirror descent where `tries_mirror` says so.

        The SVM of Newton's method is slow where weights of kernels of low rank grow without bound, which they do where
        there are several groups.
        """
        if not (self._small or (self._norm.count > 1 and self.low_rank)):
            return [NEWTON, MIRROR, INTERIOR]
        dear = self._interior > self._options.far_dearer * self.costs.newton()
        return [NEWTON, INTERIOR, MIRROR] if dear else [INTERIOR, NEWTON, MIRROR]

    @property
    def tries_mirror(self) -> bool:
        """Whether mirror descent is tried first."""
        if self._norm.count > 1:
            return self._small or self.low_rank
        first = FORECASTS.first * self.costs.svm(steps=2 * self.costs.n)
        return self._small and first <= self._options.one_group * self._cost(self.names[0])

    def _cost(self, name: str) -> float:
        return self.costs.newton() if name == NEWTON else self._interior

    def hopeless(self, tol: float, following: str | None = None) -> Judge:
        """Whether a method that aims at this gap should give up, for it to ask after every SVM.

        `following` is the method that would come next, the first of `names` if left out.
        """
        factor = self._options.hopeless
        least = min(self.costs.interior(), self.costs.cone())  # known before the ranks are
        return Judge(
            Forecast(tol, self.costs.svm),
            lambda left: left > factor * least and left > factor * self._cost(following or self.names[0]),
        )


class Judge:
    """Says after every SVM whether a method should give up, and remembers the answer."""

    def __init__(self, forecast: Forecast, too_much: Callable[[float], bool]) -> None:
        self._forecast, self._too_much = forecast, too_much
        self.gave_up = False

    def __call__(self, gap: float, steps: int) -> bool:
        self._forecast.add(gap, steps)
        self.gave_up = self._too_much(self._forecast.left)
        return self.gave_up
