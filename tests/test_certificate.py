"""The certificate against its definition: brute force for the intercept, weak duality for the bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dmkl.oracles import best_intercept, least_hinge, solve_svm, svm_bounds
from dmkl.solvers.certificate import best_multiple, largest_violation

Float64Array = NDArray[np.float64]
numbers = st.floats(-5.0, 5.0, width=32)
bounds = st.sampled_from([0.0, 0.1, 0.3, 1.0, 10.0, 1e3])


@st.composite
def hinge_problems(draw: st.DrawFn) -> tuple[Float64Array, Float64Array, Float64Array, Float64Array]:
    n = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[float]) -> Float64Array:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)))

    return column(numbers), column(st.sampled_from([-1.0, 1.0])), column(bounds), column(numbers)


def loss(b: float, scores: Float64Array, y: Float64Array, upper: Float64Array, linear: Float64Array) -> float:
    return float(upper @ np.maximum(linear - y * (scores + b), 0.0))


@given(hinge_problems())
def test_best_intercept_is_as_good_as_every_breakpoint(
    problem: tuple[Float64Array, Float64Array, Float64Array, Float64Array],
) -> None:
    scores, y, upper, linear = problem
    b = best_intercept(scores, y, upper, linear)
    least = min(loss(t, *problem) for t in y * linear - scores)
    assert loss(b, *problem) <= least + 1e-9 * (1.0 + upper.sum())


@given(hinge_problems(), bounds.filter(bool))
def test_best_intercept_is_the_middle_of_a_flat_minimum(
    problem: tuple[Float64Array, Float64Array, Float64Array, Float64Array], C: float
) -> None:
    scores, y, _, linear = problem
    whole = (scores, y, np.full(len(y), C), linear)
    breaks = y * linear - scores
    least = min(loss(t, *whole) for t in breaks)
    flat = [t for t in breaks if loss(t, *whole) <= least + 1e-9 * C]
    b = best_intercept(scores, y, C, linear)
    if len(set(y)) == 2:
        assert b == pytest.approx(0.5 * (min(flat) + max(flat)), abs=1e-6)
    else:
        assert b == (max(flat) if y[0] > 0 else min(flat))


def test_best_intercept_of_nothing_that_counts_is_zero() -> None:
    assert best_intercept(np.array([3.0, 4.0]), np.array([1.0, -1.0]), np.zeros(2), np.ones(2)) == 0.0
    assert best_intercept(np.array([]), np.array([]), np.array([]), np.array([])) == 0.0


def feasible(rng: np.random.Generator, y: Float64Array, upper: Float64Array, intercept: bool) -> Float64Array:
    """A random beta in the box, some entries at its faces, on y'alpha = 0 if there is an intercept."""
    alpha = np.clip(rng.uniform(-0.3, 1.3, len(y)), 0.0, 1.0) * upper
    if intercept:
        sums = {sign: alpha[y == sign].sum() for sign in (-1.0, 1.0)}
        least = min(sums.values())
        for sign, total in sums.items():
            alpha[y == sign] *= least / total if total else 0.0
    return alpha * y


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_primal_bound_is_above_every_dual_bound(seed: int, intercept: bool, plain: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    X = rng.normal(size=(n, int(rng.integers(1, 5))))
    K = X @ X.T
    y = rng.choice([-1.0, 1.0], n)
    upper = np.full(n, 3.0) if plain else rng.choice([0.0, 0.5, 10.0], n)
    linear = np.ones(n) if plain else rng.normal(size=n)
    points = [feasible(rng, y, upper, intercept) for _ in range(4)]
    found = [svm_bounds(beta, K @ beta, y, upper, linear, intercept) for beta in points]
    scale = 1.0 + max(primal for primal, _, _ in found)
    assert min(primal for primal, _, _ in found) >= max(dual for _, dual, _ in found) - 1e-9 * scale
    assert intercept or all(b == 0.0 for _, _, b in found)


def test_bounds_take_one_bound_and_one_linear_term_for_all() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], 9)
    beta, scores = feasible(rng, y, np.ones(9), True), rng.normal(size=9)
    assert svm_bounds(beta, scores, y, 2.0, 1.0, True) == pytest.approx(
        svm_bounds(beta, scores, y, np.full(9, 2.0), np.ones(9), True), rel=1e-14
    )


def test_the_best_multiple_is_the_better_primal_value() -> None:
    """Scaling w takes small violations away: with a large C that is worth a larger penalty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 40))
    K, y = X @ X.T, np.where(rng.random(40) < 0.5, 1.0, -1.0)  # separable
    for C, tol in ((1e4, 1e-2), (1.0, 1e-2), (1e4, 1e-9)):
        upper = np.full(40, C)
        svm = solve_svm(K, y, C, tol=tol)
        beta = 0.999 * svm.alpha * y
        scores = K @ beta
        penalty = 0.5 * float(beta @ scores)
        plain = penalty + least_hinge(scores, y, upper)[0]
        best = best_multiple(penalty, beta, scores, y, upper)
        assert 0.0 <= largest_violation(beta, scores, y, upper) <= 0.5
        assert best.primal <= plain
        loss = (upper * np.maximum(1.0 - y * (best.scale * scores + best.intercept), 0.0)).sum()
        assert best.primal == pytest.approx(best.scale**2 * penalty + loss, rel=1e-12)
        assert best.scale == 1.0 or best.primal < plain
