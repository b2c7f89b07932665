"""What must not matter to any estimator: the order of samples, kernels and classes, names, units, copies.

Objectives are compared, which are certified, and scores, which strong convexity ties to them where there is any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import is_classifier, is_regressor

import dmkl
from dmkl.estimators import ESTIMATORS

N = 24
TOL = 1e-6
SEEDS = st.integers(0, 10**6)
VIEWS = {"first": [0, 1], "last": [2, 3]}
CLASSIFIERS = [estimator for estimator in ESTIMATORS if is_classifier(estimator())]
quick = settings(max_examples=2)


def every(estimators: Any) -> Any:
    return pytest.mark.parametrize("estimator", estimators, ids=lambda estimator: estimator.__name__)


def stack(seed: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Four kernels (n, n, 4) over noisy clusters, and their labels, all of which occur."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(N) % classes)
    X = rng.normal(size=(N, 3)) + 1.5 * np.eye(3)[y]
    D = ((X[:, None] - X) ** 2).sum(axis=2)
    near = ((X[:, None, :1] - X[:, :1]) ** 2).sum(axis=2)
    return np.stack([np.exp(-D / 2), np.exp(-D / 8), X @ X.T / 3, np.exp(-near)], axis=2), y


def fitted(estimator: Any, K: np.ndarray, y: np.ndarray, views: Any = None, **constants: Any) -> Any:
    return estimator(kernels="precomputed", views=views or VIEWS, tol=TOL, **constants).fit(K, y)


def objective(model: Any) -> np.ndarray:
    return np.asarray(model.model_.about["objective"])


def scores(model: Any, K: np.ndarray) -> np.ndarray:
    return model.predict(K) if is_regressor(model) else model.decision_function(K)


def same(one: Any, K: np.ndarray, other: Any, L: np.ndarray, factor: float = 1.0) -> None:
    """The objectives up to both gaps, and what is proved of the scores: a gap of 1e-6 may move them by 1e-3 of w."""
    np.testing.assert_allclose(objective(one), factor * objective(other), rtol=3 * TOL)
    if not isinstance(one, dmkl.MIKLClassifier):  # whose scores may differ at the same objective
        np.testing.assert_allclose(scores(one, K), scores(other, L), atol=0.03)


@every(ESTIMATORS)
@quick
@given(SEEDS)
def test_the_order_of_samples_does_not_matter(estimator: Any, seed: int) -> None:
    K, y = stack(seed)
    order = np.random.default_rng(seed).permutation(N)
    turned = fitted(estimator, K[np.ix_(order, order)], y[order])
    same(fitted(estimator, K, y), K, turned, K[:, order])


@every(ESTIMATORS)
@quick
@given(SEEDS)
def test_permuting_kernels_permutes_weights(estimator: Any, seed: int) -> None:
    K, y = stack(seed)
    order = np.random.default_rng(seed).permutation(4)
    at = np.argsort(order)
    plain = fitted(estimator, K, y)
    turned = fitted(estimator, K[:, :, order], y, {name: at[chosen] for name, chosen in VIEWS.items()})
    same(plain, K, turned, K[:, :, order])
    if estimator is not dmkl.MIKLClassifier:
        mine, theirs = plain.predict(K, split=True), turned.predict(K[:, :, order], split=True)
        by_name = [[*np.concatenate([at[chosen] for chosen in VIEWS.values()])].index(at[a]) for a in range(4)]
        np.testing.assert_allclose(mine, theirs[:, :, by_name], atol=0.05)


@every(CLASSIFIERS)
@quick
@given(SEEDS, st.permutations(["ash", "birch", "cedar"]))
def test_names_of_classes_do_not_matter(estimator: Any, seed: int, names: list[str]) -> None:
    K, y = stack(seed)
    plain, named = fitted(estimator, K, y), fitted(estimator, K, np.array(names)[y])
    assert named.classes_.tolist() == sorted(names)
    column = [sorted(names).index(name) for name in names]
    joint = len(objective(plain)) == 1
    found = objective(named) if joint else objective(named)[column]
    np.testing.assert_allclose(objective(plain), found, rtol=3 * TOL)
    if estimator is not dmkl.MIKLClassifier:
        np.testing.assert_allclose(plain.decision_function(K), named.decision_function(K)[:, column], atol=0.03)


@every(CLASSIFIERS)
@quick
@given(SEEDS)
def test_the_other_of_two_classes_is_the_negative(estimator: Any, seed: int) -> None:
    K, y = stack(seed, classes=2)
    plain, turned = fitted(estimator, K, y), fitted(estimator, K, 1 - y)
    np.testing.assert_allclose(objective(plain), objective(turned), rtol=3 * TOL)
    if estimator is not dmkl.MIKLClassifier:
        np.testing.assert_allclose(plain.decision_function(K), -turned.decision_function(K), atol=0.03)


SPARSE = [dmkl.VSKLClassifier, dmkl.L1MKLClassifier, dmkl.SpicyMKLClassifier, dmkl.SpicyMKLRegressor]


@every([*SPARSE, dmkl.SharedMKLClassifier])
@quick
@given(SEEDS, st.integers(0, 3))
def test_a_duplicated_kernel_leaves_the_function_alone(estimator: Any, seed: int, again: int) -> None:
    """Where weights inside a group are a simplex: two copies share what one had."""
    K, y = stack(seed)
    longer = np.concatenate([K, K[:, :, [again]]], axis=2)
    home = "first" if again < 2 else "last"
    views = {name: [*chosen, 4] if name == home else chosen for name, chosen in VIEWS.items()}
    same(fitted(estimator, K, y), K, fitted(estimator, longer, y, views), longer)


@every(ESTIMATORS)
@quick
@given(SEEDS, st.floats(-2, 2))
def test_units_of_kernels_go_into_constants(estimator: Any, seed: int, magnitude: float) -> None:
    """c K with the constants that go with it is the same problem: scores stay, objectives are in other units."""
    K, y = stack(seed)
    c = 10.0**magnitude
    if estimator is dmkl.MIKLClassifier:  # alpha / c under a norm
        constants, factor = {"lam": c}, 1.0
    elif estimator in (dmkl.SpicyMKLClassifier, dmkl.SpicyMKLRegressor):
        constants, factor = {"C": np.sqrt(c)}, 1.0
    else:
        constants, factor = {"C": 1.0 / c}, 1.0 / c
    plain, scaled = fitted(estimator, K, y), fitted(estimator, c * K, y, **constants)
    if estimator.formulation is dmkl.Obscure:  # its objective is lam/2 ||w||^2 + a mean, lam = 1 / (C n)
        factor = 1.0
    same(scaled, c * K, plain, K, factor)


@every([estimator for estimator in ESTIMATORS if estimator.formulation.weighted])
@quick
@given(SEEDS, st.integers(2, 3))
def test_copies_of_all_samples_are_a_larger_C(estimator: Any, seed: int, times: int) -> None:
    K, y = stack(seed)
    copies = np.tile(np.arange(N), times)
    spicy = estimator in (dmkl.SpicyMKLClassifier, dmkl.SpicyMKLRegressor)
    repeated = fitted(estimator, K[np.ix_(copies, copies)], y[copies])
    same(
        repeated,
        K[:, copies],
        fitted(estimator, K, y, C=1.0 / times if spicy else float(times)),
        K,
        float(times) if spicy else 1.0,
    )
    weighed = estimator(kernels="precomputed", views=VIEWS, tol=TOL).fit(K, y, sample_weight=np.full(N, float(times)))
    same(repeated, K[:, copies], weighed, K)
