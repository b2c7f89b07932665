"""The rule of the method "automatic": costs, forecasts, and what is tried in which order."""

from __future__ import annotations

import numpy as np
import pytest

import dmkl
from dmkl import KernelStack
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.automatic import INTERIOR, MIRROR, NEWTON, Costs, Forecast, Rule

RNG = np.random.default_rng(0)


def gaussians(n: int, s: int) -> np.ndarray:
    X = RNG.normal(size=(n, s))
    return np.stack([np.exp(-np.square(x[:, None] - x)) + 1e-3 * np.eye(n) for x in X.T])


def norm(s: int, groups: int, rho: float = 2.0) -> MixedNorm:
    return MixedNorm(np.arange(s) % groups, rho)


def test_a_steady_fall_of_the_gap_is_forecast() -> None:
    forecast = Forecast(1e-3, lambda steps: 1.0 + steps)
    for gap in 0.5 ** np.arange(1, 7):
        forecast.add(float(gap), steps=1)
    halvings = np.log2(0.5**6 / (0.8 * 1e-3))
    assert forecast.left == pytest.approx(2.0 * halvings)


def test_a_gap_that_does_not_fall_never_ends_and_one_that_is_small_enough_has() -> None:
    forecast = Forecast(1e-3, lambda steps: 1.0)
    forecast.add(0.5, 0)
    assert forecast.left == 0.0  # too early to say
    for _ in range(3):
        forecast.add(0.7, 0)
    assert forecast.left == np.inf
    forecast.add(1e-4, 0)
    assert forecast.left == 0.0


def test_costs_grow_with_all_sizes() -> None:
    small = Costs(100, 5)
    for larger in (Costs(200, 5), Costs(100, 50)):
        for name in ("interior", "cone", "newton"):
            assert getattr(larger, name)() > getattr(small, name)()
        assert larger.svm(10) > small.svm(10)
    assert small.svm(1000) > small.svm(10)
    ranks = np.full(5, 3)
    assert small.cone(np.full(5, 100)) > small.cone(np.full(5, 20)) > small.cone(ranks) > small.cone()


def test_the_order_of_the_methods_follows_from_size_and_rank() -> None:
    few, many = Rule(gaussians(60, 4), norm(4, 2)), Rule(gaussians(520, 4), norm(4, 2))
    assert few.names == [INTERIOR, NEWTON, MIRROR]
    assert few.tries_mirror
    assert many.names == [NEWTON, MIRROR, INTERIOR]
    assert not many.tries_mirror
    X = RNG.normal(size=(520, 4))
    low = Rule(np.stack([np.outer(x, x) for x in X.T]), norm(4, 2))
    assert low.low_rank
    assert low.names[0] == INTERIOR
    assert low.tries_mirror


def test_hopeless_is_what_costs_more_than_the_next_method() -> None:
    rule = Rule(gaussians(60, 4), norm(4, 2))
    judge = rule.hopeless(1e-6)
    assert not any(judge(gap, 60) for gap in (1e-1, 1e-3, 1e-5, 1e-7))
    judge = rule.hopeless(1e-6)
    assert [judge(0.5, 60) for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("seed", [1, 3])
def test_float32_kernels_of_low_rank_have_one_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(90, 12)) * 10.0 ** rng.uniform(-2, 2, size=12)
    y = np.sign((X / X.std(axis=0)) @ rng.normal(size=12) + 0.5 * rng.normal(size=90))
    K = np.stack([part @ part.T for part in np.split(X, 3, axis=1)]).astype(np.float32)
    stack = KernelStack.from_array(K, groups=np.arange(3))
    fits = [
        dmkl.solve(stack, y, dmkl.VSKL(q=1, C=1000.0), tol=1e-6, method=method, warn=False)
        for method in ("automatic", "interior", "mirror")
    ]
    assert fits[0].converged
    highest, lowest = max(fit.dual for fit in fits), min(fit.objective for fit in fits)
    assert highest <= lowest * (1 + 1e-7)
