"""Estimators keep scikit-learn's contract and give the models that `dmkl train` gives."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from joblib import cpu_count, parallel_config
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

import dmkl
from dmkl.config import KernelConfig, construct
from dmkl.data import Dataset, make_labels, make_view
from dmkl.errors import ConfigError, ResourceError
from dmkl.estimators import ESTIMATORS, UniformMKLClassifier, training_set
from dmkl.kernels import plan_bank
from dmkl.model import load_model, make_model, save_model
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import build_store

TABLES = [
    {"kernel": "rbf", "width": ["0.5 median", "1 median"]},
    {"kernel": "linear", "normalise": ["centre", "unit-trace"]},
]
SMALL = {"kernels": [{"kernel": "rbf", "width": ["1 median", "2 median"]}]}


def blobs(classes: int = 3, n: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, 4)) + 2 * np.eye(4)[y], y


CHECKED = [estimator(**SMALL) for estimator in (*ESTIMATORS, dmkl.KernelBank)]
CHECKED += [estimator(kernels="precomputed") for estimator in (dmkl.UniformMKLClassifier, dmkl.VSKLClassifier)]
UP_TO_THE_GAP = "compares scores to 1e-7, what is proved is the gap: tests/test_weights.py compares objectives"
NO_KERNEL = "gives a matrix that is not positive semidefinite for a kernel, which is refused"


def expected_failures(estimator: Any) -> dict[str, str]:
    """The checks that an estimator is known to fail, and why."""
    if estimator.kernels == "precomputed":
        return {"check_positive_only_tag_during_fit": NO_KERNEL, "check_estimators_dtypes": NO_KERNEL}
    if has_fit_parameter(estimator, "sample_weight"):
        return {f"check_sample_weight_equivalence_on_{kind}_data": UP_TO_THE_GAP for kind in ("dense", "sparse")}
    return {}


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures, xfail_strict=True)
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("tile", [1024, 40])
def test_the_model_is_the_one_a_store_gives(tile: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: both solve the same float32 tiles by the same code."""
    monkeypatch.setattr(training_set.RunConfig, "tile", tile)
    X, y = blobs()
    mine = UniformMKLClassifier(C=5.0, kernels=TABLES, tol=1e-6).fit(X, y)
    data = Dataset({"x": make_view("x", "features", X)}, make_labels(y))
    bank = plan_bank([construct(KernelConfig, table, "") for table in TABLES], data)
    store = build_store(tmp_path / "k.zarr", bank, data, Local(1), largest_tile=tile)
    fit = dmkl.solve(open_stack(store.path), store.labels, dmkl.UniformMKL(C=5.0), tol=1e-6)
    theirs = make_model(store, fit)
    for name in ("samples", "weights", "scales", "coef", "shift", "intercept"):
        assert np.array_equal(getattr(mine.model_, name), getattr(theirs, name)), name
    assert mine.model_.about == theirs.about
    assert np.array_equal(mine.decision_function(X), theirs.decision(data, Local(1)))


def test_a_fitted_estimator_says_what_it_learnt(tmp_path: Path) -> None:
    X, y = blobs(classes=2)
    names = np.array(["low", "high"])[y]
    fitted = UniformMKLClassifier(kernels=TABLES).fit(X, names)
    assert fitted.classes_.tolist() == ["high", "low"]
    assert fitted.kernel_weights_.shape == (1, 3)
    assert fitted.kernel_names_[0] == "x/rbf(width=0.5 median)"
    assert fitted.gap_ <= 1e-3
    assert fitted.n_passes_ >= 1
    assert fitted.score(X, names) > 0.8
    save_model(tmp_path / "model", fitted.model_)
    again = load_model(tmp_path / "model").decision(Dataset({"x": make_view("x", "features", X)}), Local(1))
    assert np.array_equal(again[:, 0], fitted.decision_function(X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_shares_of_kernels_add_up(estimator: Any) -> None:
    X, y = blobs()
    views = {"first": slice(0, 2), "last": [2, 3]}
    for target in (y, y > 0):
        fitted = estimator(kernels=TABLES, views=views).fit(X, target)
        shares = fitted.predict(X, split=True)
        scores = fitted.predict(X) if is_regressor(fitted) else fitted.decision_function(X)
        m = 1 if scores.ndim == 1 else scores.shape[1]
        assert shares.shape == (len(X), m, len(fitted.kernel_names_)) == (len(X), *fitted.kernel_weights_.shape)
        np.testing.assert_allclose(shares.sum(axis=2) + fitted.intercept_, scores.reshape(-1, m), atol=1e-9)
        assert (shares[:, fitted.kernel_weights_ == 0] == 0).all()
        if is_classifier(fitted):
            assert np.array_equal(fitted.decision_function(X, split=True), shares)


def test_every_estimator_is_to_be_had_from_the_package() -> None:
    for estimator in ESTIMATORS:
        assert getattr(dmkl, estimator.__name__) is estimator
        assert estimator.__name__ in dmkl.__all__


def test_views_divide_the_columns() -> None:
    X, y = blobs()
    views = {"first": slice(0, 2), "last": [3], "some": np.array([True, False, True, False])}
    fitted = UniformMKLClassifier(kernels=SMALL["kernels"], views=views).fit(X, y)
    assert [name.split("/")[0] for name in fitted.kernel_names_] == ["first", "first", "last", "last", "some", "some"]
    elsewhere = X.copy()
    elsewhere[:, 1] += 9
    only_last = UniformMKLClassifier(kernels=SMALL["kernels"], views={"last": [3]}).fit(X, y)
    assert np.array_equal(only_last.predict(elsewhere), only_last.predict(X))


def test_columns_go_by_their_names() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    X, y = blobs()
    table = pyarrow.table({name: X[:, k] for k, name in enumerate("abcd")})
    named = UniformMKLClassifier(**SMALL, views={"one": ["a", "c"], "other": "d"}).fit(table, y)
    numbered = UniformMKLClassifier(**SMALL, views={"one": [0, 2], "other": 3}).fit(X, y)
    assert np.array_equal(named.decision_function(table), numbered.decision_function(X))
    with pytest.raises(ConfigError, match="view 'one': X has no column 'abd'; known: a, b, c, d"):
        UniformMKLClassifier(**SMALL, views={"one": ["abd"]}).fit(table, y)
    with pytest.raises(ConfigError, match="view 'one': index 7 is out of bounds"):
        UniformMKLClassifier(**SMALL, views={"one": [7]}).fit(X, y)


def test_sparse_samples_give_the_scores_of_dense_ones() -> None:
    X, y = blobs()
    X = np.maximum(X, 0)
    dense = UniformMKLClassifier(kernels=TABLES, tol=1e-6).fit(X, y)
    sparse = UniformMKLClassifier(kernels=TABLES, tol=1e-6).fit(scipy.sparse.csc_array(X), y)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_cluster_and_threads_change_nothing(n_jobs: int, two_workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_set.RunConfig, "tile", 40)
    X, y = blobs()
    near = UniformMKLClassifier(kernels=TABLES, n_jobs=n_jobs).fit(X, y)
    far = UniformMKLClassifier(kernels=TABLES, cluster=two_workers.client.scheduler.address).fit(X, y)
    assert np.array_equal(near.decision_function(X), far.decision_function(X))


def scores_of_a_fit(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return UniformMKLClassifier(kernels=TABLES, cluster="current").fit(X, y).decision_function(X)


def test_the_current_client_is_used(two_workers: Any) -> None:
    X, y = blobs()
    with pytest.raises(ConfigError, match="no Dask client is current"):
        scores_of_a_fit(X, y)
    here = UniformMKLClassifier(kernels=TABLES).fit(X, y).decision_function(X)
    client = two_workers.client
    with client.as_current():
        assert np.array_equal(scores_of_a_fit(X, y), here)
        assert client.status == "running"
    inside = [client.submit(scores_of_a_fit, X, y, pure=False) for _ in range(3)]  # more than there are threads
    assert all(np.array_equal(scores, here) for scores in client.gather(inside))
    with pytest.raises(ConfigError, match="cluster should be a text, because scikit-learn copies parameters"):
        UniformMKLClassifier(cluster=client).fit(X, y)


@pytest.mark.parametrize(
    ("n_jobs", "threads"), [(None, 1), (1, 1), (3, 3), (-1, cpu_count()), (-2, max(1, cpu_count() - 1))]
)
def test_n_jobs_means_what_it_means_everywhere(n_jobs: int | None, threads: int) -> None:
    assert UniformMKLClassifier(n_jobs=n_jobs)._threads() == threads
    with parallel_config(n_jobs=2, backend="threading"):
        assert UniformMKLClassifier()._threads() == 2


def test_it_works_with_scikit_learns_tools() -> None:
    X, y = blobs()
    search = GridSearchCV(UniformMKLClassifier(**SMALL), {"C": np.array([1, 10])}, cv=2)
    model = make_pipeline(StandardScaler(), search).fit(X, y)
    assert model.score(X, y) > 0.8
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_searches_and_validation(estimator: Any) -> None:
    X, y = blobs(classes=2)
    constant = "lam" if estimator is dmkl.MIKLClassifier else "C"
    points = {constant: [0.1, 1.0], "tol": [1e-2]}
    best = GridSearchCV(estimator(**SMALL), points, cv=2, error_score="raise").fit(X, y).best_estimator_
    scoring = ["r2", "neg_mean_absolute_error"] if is_regressor(best) else ["accuracy", "roc_auc", "f1"]
    found = cross_validate(best, X, y, scoring=scoring, cv=2, return_estimator=True, error_score="raise")
    assert all(fitted.gap_ <= 1e-2 for fitted in found["estimator"])
    assert all(np.mean(found[f"test_{name}"]) > -0.4 for name in scoring)


@pytest.mark.parametrize("estimator", [estimator for estimator in ESTIMATORS if is_classifier(estimator())])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_by_calibration(estimator: Any, classes: int) -> None:
    X, y = blobs(classes)
    calibrated = CalibratedClassifierCV(estimator(**SMALL), cv=2).fit(X, y)
    chances = calibrated.predict_proba(X)
    assert chances.shape == (len(X), classes)
    assert calibrated.score(X, y) > 0.7
    assert np.log(chances[np.arange(len(X)), y]).mean() > -np.log(classes)


@pytest.mark.parametrize("routing", [False, True])
def test_shares_come_through_a_pipeline(routing: bool) -> None:
    X, y = blobs()
    with config_context(enable_metadata_routing=routing):
        model = make_pipeline(StandardScaler(), UniformMKLClassifier(kernels=TABLES)).fit(X, y)
        shares = model.predict(X, split=True)
        np.testing.assert_allclose(shares.sum(axis=2) + model[-1].intercept_, model.decision_function(X), atol=1e-9)


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs()
    with pytest.raises(ConfigError, match="C should be positive"):
        UniformMKLClassifier(C=-1).fit(X, y)
    with pytest.raises(ConfigError, match="unknown kernel 'rbg'; did you mean 'rbf'"):
        UniformMKLClassifier(kernels=[{"kernel": "rbg"}]).fit(X, y)
    with pytest.raises(ConfigError, match=r"kernels\[1\] lacks kernel"):
        UniformMKLClassifier(kernels=[{"kernel": "rbf"}, {"width": 1.0}]).fit(X, y)
    monkeypatch.setattr(training_set, "OPTIONS", training_set.HoldingOptions(memory_share=0.0))
    with pytest.raises(ResourceError, match="3 kernels of 90 samples take 0 MB, more than 0% of"):
        UniformMKLClassifier().fit(X, y)


def test_a_gap_that_is_not_proved_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs()
    solve = dmkl.solvers.api.run
    cut_short = "dmkl.solvers.api.run"
    monkeypatch.setattr(cut_short, lambda *args, **kwargs: replace(solve(*args, **kwargs), converged=False))
    with pytest.warns(ConvergenceWarning, match=r"the certified gap is .* after 1 round, above tol = 0.001") as seen:
        UniformMKLClassifier(**SMALL).fit(X, y)
    assert [warning.filename for warning in seen] == [__file__]  # once, and where the user called
