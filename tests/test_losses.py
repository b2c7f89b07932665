"""Losses by what defines them: conjugacy, slacks that add up to the loss, intercepts that minimise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dmkl.errors import ConfigError
from dmkl.problems.losses import LOSSES, Loss, balanced

EVERY = pytest.mark.parametrize("name", [*LOSSES, *(f"{name}, counted" for name in LOSSES)])
WIDTH = 0.3
numbers = st.floats(-5, 5, allow_subnormal=False)
SAMPLES = st.integers(2, 8).flatmap(lambda n: st.tuples(arrays(float, n, elements=numbers), st.just(n)))


def made(name: str, n: int) -> Loss:
    """A loss of n samples; of those that are counted, each another number of times."""
    name, _, counted = name.partition(", ")
    return LOSSES[name](WIDTH).counting(np.linspace(0.3, 2.5, n) if counted else np.ones(n))


def labels(name: str, n: int, seed: int) -> Any:
    """Signs of both kinds, or real targets."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) if made(name, n).regression else np.where(np.arange(n) % 2 == rng.integers(2), 1.0, -1.0)


def derivative(function: Any, at: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.eye(len(at))
    return np.array([(function(at + step) - function(at - step)) / 2e-6 for step in steps])


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_fenchel_young(name: str, drawn: Any, seed: int) -> None:
    """l(f) + l*(-rho) >= -rho f, with equality at rho = -l'(f): that is what makes dual values lower bounds."""
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    rho = loss.into_domain(y, np.random.default_rng(seed).normal(size=n))
    assert loss.total(y, f) + loss.conjugate(y, rho) + rho @ f >= -1e-9
    tangent = loss.into_domain(y, -derivative(lambda at: loss.total(y, at), f))
    gap = loss.total(y, f) + loss.conjugate(y, tangent) + tangent @ f
    assert gap <= 1e-4  # numerical differences, also across a kink


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_slacks_make_up_the_scores_at_the_price_of_the_loss(name: str, drawn: Any, seed: int) -> None:
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    slacks = loss.slacks(y)
    if not slacks:
        return
    values = loss.slack_values(y, f)
    for slack, value in zip(slacks, values, strict=True):
        assert (value >= slack.low - 1e-12).all()
        assert (value <= slack.high + 1e-12).all()
    np.testing.assert_allclose(y + sum(s.sign * v for s, v in zip(slacks, values, strict=True)), f, atol=1e-12)
    price = sum((slack.cost * value).sum() for slack, value in zip(slacks, values, strict=True))
    assert price == pytest.approx(loss.total(y, f), abs=1e-9)


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_the_smooth_part_has_its_derivatives(name: str, drawn: Any, seed: int) -> None:
    _, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    rho = 0.9 * loss.into_domain(y, np.random.default_rng(seed).uniform(0.1, 0.9, n) * np.sign(y))
    smooth = loss.smooth(y, rho)
    assert smooth is not None

    def value(at: np.ndarray) -> float:
        here = loss.smooth(y, at)
        assert here is not None
        return here.value

    def slope(at: np.ndarray) -> float:
        here = loss.smooth(y, at)
        assert here is not None
        return float(here.gradient.sum())

    np.testing.assert_allclose(derivative(value, rho), smooth.gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(derivative(slope, rho), smooth.curvature, rtol=1e-3, atol=1e-4)


@EVERY
@given(SAMPLES, st.integers(0, 99), st.floats(-3, 3))
def test_the_intercept_is_the_best_one(name: str, drawn: Any, seed: int, other: float) -> None:
    scores, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    b = loss.intercept(y, scores)
    assert loss.total(y, scores + b) <= loss.total(y, scores + b + other) + 1e-9


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_rho_may_be_zero_where_margins_say_so(name: str, drawn: Any, seed: int) -> None:
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    left_alone = loss.margins(y, f) >= 1.0
    np.testing.assert_allclose(derivative(lambda at: loss.total(y, at), f)[loss.margins(y, f) > 1.001], 0.0, atol=1e-6)
    assert loss.sparse or not left_alone.any()


@EVERY
def test_the_null_point_is_a_dual_point(name: str) -> None:
    loss, y = made(name, 9), labels(name, 9, 3)
    rho = loss.null(y)
    assert rho.sum() == pytest.approx(0.0, abs=1e-12)
    assert rho.any()
    np.testing.assert_allclose(loss.into_domain(y, rho), rho, atol=1e-9)


@given(arrays(float, 6, elements=numbers))
def test_balancing_shrinks_one_side(rho: np.ndarray) -> None:
    result = balanced(rho)
    assert result.sum() == pytest.approx(0.0, abs=1e-9)
    assert (np.abs(result) <= np.abs(rho) + 1e-12).all()
    assert (result * rho >= 0).all()


def test_an_epsilon_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon should be at least 0"):
        LOSSES["epsilon"](-1.0)
