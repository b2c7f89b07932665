"""Samples that count more than once: a weight of 2 is the sample twice, for every formulation that takes weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import small_working_sets
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.validation import has_fit_parameter
from test_estimators import blobs

import dmkl
from dmkl.errors import ConfigError, DataError, SolverError
from dmkl.estimators import ESTIMATORS

LOSSES = ("hinge", "logistic", "squared", "epsilon")
WEIGHTED = [
    *(dmkl.UniformMKL(C=3.0, loss=loss) for loss in LOSSES),
    dmkl.UniformMKL(C=3.0, intercept=False),
    dmkl.VSKL(q=2.0, C=3.0),
    dmkl.VSKL(q=np.inf, C=0.3),
    dmkl.L1MKL(C=3.0),
    dmkl.LpMKL(p=1.5, C=3.0),
    *(dmkl.SpicyMKL(C=0.5, loss=loss) for loss in LOSSES),
    dmkl.SpicyMKL(C=0.3, ridge=0.5),
]
UNWEIGHTED = [dmkl.SharedMKL(), dmkl.Obscure(C=1.0), dmkl.MIKL()]
EVERY = pytest.mark.parametrize("formulation", WEIGHTED, ids=repr)
TOL = 1e-7
GROUPS = [0, 0, 1, 1]


def kernels(n: int, seed: int) -> np.ndarray:
    """Four kernels (s, n, n) over points of the plane."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    distances = ((X[:, None] - X) ** 2).sum(axis=2)
    return np.stack([X @ X.T, (X @ X.T + 1) ** 2 / 4, np.exp(-distances / 2), np.exp(-distances / 8)])


def targets(formulation: Any, K: np.ndarray, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed + 1).normal(size=K.shape[1])
    y = K[2, :, 0] + K[0, :, 1] + 0.5 * noise
    return y if getattr(formulation, "loss", "") in ("squared", "epsilon") else np.where(y > np.median(y), 1.0, -1.0)


def solved(K: np.ndarray, y: np.ndarray, formulation: Any, **options: Any) -> dmkl.Fit:
    return dmkl.solve(dmkl.KernelStack.from_array(K, groups=GROUPS), y, formulation, tol=TOL, **options)


@EVERY
@settings(max_examples=3)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=20, max_size=20))
def test_a_weight_is_a_number_of_copies(formulation: Any, seed: int, times: list[int]) -> None:
    K = kernels(20, seed)
    y, copies = targets(formulation, K, seed), np.repeat(np.arange(20), times)
    weighed = solved(K, y, formulation, sample_weight=np.array(times))
    repeated = solved(K[:, copies[:, None], copies], y[copies], formulation)
    assert weighed.converged
    assert repeated.converged
    assert weighed.objective == pytest.approx(repeated.objective, rel=1e-6)
    assert weighed.dual <= repeated.objective * (1 + 1e-9)


@EVERY
def test_weights_of_any_size_are_certified(formulation: Any) -> None:
    """Small and large ones, on working sets too; the objective is what the formulation says, computed afresh."""
    K = kernels(60, 5)
    y = targets(formulation, K, 5)
    weights = np.geomspace(0.02, 20.0, 60)
    whole = solved(K, y, formulation, sample_weight=weights)
    with pytest.MonkeyPatch.context() as patch:
        small_working_sets(patch, start=15, least_growth=10)
        parts = solved(K, y, formulation, sample_weight=weights)
    assert whole.converged
    assert parts.converged
    assert parts.objective == pytest.approx(whole.objective, rel=2 * TOL)
    assert whole.objective != pytest.approx(solved(K, y, formulation).objective, rel=0.01)
    if isinstance(formulation, dmkl.UniformMKL):
        scores = np.einsum("aij,j->i", K, whole.coef) / 4
        f = scores + whole.intercept
        losses = {
            "hinge": np.maximum(1 - y * f, 0),
            "logistic": np.logaddexp(0, -y * f),
            "squared": (y - f) ** 2,
            "epsilon": np.maximum(np.abs(y - f) - formulation.epsilon, 0),
        }
        objective = 0.5 * whole.coef @ scores + formulation.C * (weights @ losses[formulation.loss])
        assert whole.objective == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("method", ["mirror", "mirror-paper"])
def test_the_other_methods_weigh_too(method: str) -> None:
    K = kernels(30, 2)
    y, weights = targets(None, K, 2), np.linspace(0.5, 2.0, 30)
    stack = dmkl.KernelStack.from_array(K, groups=GROUPS)
    best = solved(K, y, dmkl.VSKL(), sample_weight=weights)
    other = dmkl.solve(stack, y, dmkl.VSKL(), tol=1e-3, method=method, sample_weight=weights, oracle="smo")
    assert other.converged
    assert best.dual <= other.objective <= best.objective * (1 + 2e-3)


def test_neighbours_and_classes_weigh_the_same() -> None:
    K = kernels(40, 3)
    y, weights = np.arange(40) % 3, np.linspace(0.2, 3.0, 40)
    stack = dmkl.KernelStack.from_array(K, groups=GROUPS)
    points = dmkl.grid(dmkl.VSKL, q=(1.0, 2.0), C=(1.0, 5.0))
    for fit in dmkl.solve_path(stack, y, points, tol=1e-6, sample_weight=weights):
        cold = dmkl.solve(stack, y, fit.formulation, tol=1e-6, sample_weight=weights)
        np.testing.assert_allclose(fit.objective, cold.objective, rtol=3e-6)


def test_weights_that_cannot_be_are_refused() -> None:
    K = kernels(20, 0)
    y = targets(None, K, 0)
    for formulation in UNWEIGHTED:
        with pytest.raises(
            ConfigError, match=f"{type(formulation).__name__} does not support sample weights; use UniformMKL"
        ):
            solved(K, y, formulation, sample_weight=np.ones(20))
    with pytest.raises(DataError, match=r"sample weights of shape \(3,\) for 20 samples"):
        solved(K, y, dmkl.VSKL(), sample_weight=np.ones(3))
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(DataError, match="sample weights should be positive and finite; leave out samples"):
            solved(K, y, dmkl.VSKL(), sample_weight=np.r_[wrong, np.ones(19)])
    with pytest.raises(SolverError, match="oracle 'libsvm' cannot solve with per-sample upper bounds"):
        solved(K, y, dmkl.UniformMKL(), sample_weight=np.arange(1, 21), oracle="libsvm")


FIXED = [{"kernel": "rbf", "width": [1.0, 2.0]}]


def test_estimators_say_whether_they_weigh() -> None:
    unweighted = {estimator for estimator in ESTIMATORS if not has_fit_parameter(estimator(), "sample_weight")}
    assert unweighted == {
        dmkl.SharedMKLClassifier,
        dmkl.ObscureClassifier,
        dmkl.ObscureRegressor,
        dmkl.MIKLClassifier,
    }
    assert all(estimator.formulation.weighted == (estimator not in unweighted) for estimator in ESTIMATORS)


@pytest.mark.parametrize("estimator", [estimator for estimator in ESTIMATORS if estimator.formulation.weighted])
@pytest.mark.parametrize("stacked", [False, True])
def test_samples_of_weight_zero_are_not_there(estimator: Any, stacked: bool) -> None:
    """Also in widths, means and stacks."""
    X, y = blobs()
    kernels: Any = [{"kernel": "rbf", "width": "1 median", "normalise": ["centre"]}]
    weights = np.arange(len(X)) % 3 * 1.0
    kept = np.flatnonzero(weights)
    if stacked:
        bank = dmkl.KernelBank(kernels=FIXED)
        X, kernels = bank.fit_transform(X), "precomputed"
    all_of_them = estimator(kernels=kernels).fit(X, y, sample_weight=weights)
    those = X[np.ix_(kept, kept)] if stacked else X[kept]
    without = estimator(kernels=kernels).fit(those, y[kept], sample_weight=weights[kept])
    assert np.array_equal(all_of_them.predict(X), without.predict(X[:, kept] if stacked else X))
    with pytest.raises(ValueError, match="1 samples have a weight above 0"):
        estimator(kernels=kernels).fit(X, y, sample_weight=np.arange(len(X)) == 4)


def test_class_weights_are_sample_weights() -> None:
    X, y = blobs()
    by_class = {0: 5.0, 1: 1.0, 2: 0.2}
    ours = dmkl.VSKLClassifier(kernels=FIXED, class_weight=by_class).fit(X, y)
    same = dmkl.VSKLClassifier(kernels=FIXED).fit(X, y, sample_weight=[by_class[k] for k in y])
    assert np.array_equal(ours.decision_function(X), same.decision_function(X))
    y = (y > 0).astype(int)
    one = dmkl.UniformMKLClassifier(kernels=[{"kernel": "rbf", "width": 1.0}], class_weight="balanced", tol=1e-7)
    theirs = SVC(C=1.0, gamma=0.5, class_weight="balanced", tol=1e-7)
    np.testing.assert_allclose(one.fit(X, y).decision_function(X), theirs.fit(X, y).decision_function(X), atol=3e-3)


def test_weights_go_where_scikit_learn_sends_them() -> None:
    X, y = blobs()
    weights = np.where(y == 0, 3.0, 0.5)
    plain = dmkl.VSKLClassifier(kernels=FIXED).fit(StandardScaler().fit_transform(X), y, sample_weight=weights)
    with config_context(enable_metadata_routing=True):
        model = dmkl.VSKLClassifier(kernels=FIXED).set_fit_request(sample_weight=True)
        model = model.set_score_request(sample_weight=True)
        scaled = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        scaled.fit(X, y, sample_weight=weights)
        assert np.array_equal(scaled.decision_function(X), plain.decision_function(StandardScaler().fit_transform(X)))
        search = GridSearchCV(scaled, {"vsklclassifier__C": [0.1, 1.0]}, cv=2).fit(X, y, sample_weight=weights)
        assert search.best_score_ > 0.7
        found = cross_validate(scaled, X, y, params={"sample_weight": weights}, cv=2, error_score="raise")
        assert found["test_score"].mean() > 0.7
        calibrated = CalibratedClassifierCV(model, cv=2).fit(X, y, sample_weight=weights)
        assert calibrated.predict_proba(X).shape == (90, 3)
