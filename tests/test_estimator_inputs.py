"""What estimators take: columns, dicts of views, stacks of kernels, stores; and `KernelBank`, which makes stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.compose import make_column_selector
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from test_estimators import blobs

import dmkl
from dmkl.config import KernelConfig, construct
from dmkl.data import Dataset, make_labels, make_view
from dmkl.errors import ConfigError, DataError
from dmkl.estimators import ESTIMATORS
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.store import KernelStore, build_store

VIEWS = {"first": slice(0, 2), "last": [2, 3]}
FIXED = [{"kernel": "rbf", "width": [0.5, 1.0, 2.0]}]  # the same kernels on every fold
ALL_NORMALISED = [
    {"kernel": "rbf", "width": ["1 median", 2.0]},
    {"kernel": "linear", "views": ["first"], "normalise": ["centre", "unit-trace"]},
    {"kernel": "poly", "views": ["last"], "normalise": ["unit-diagonal", "centre", "unit-mean"]},
]


def test_a_search_over_a_stack_gives_the_scores_of_one_over_features() -> None:
    X, y = blobs(n=120)
    bank = dmkl.KernelBank(kernels=FIXED, views=VIEWS)
    stack = bank.fit_transform(X)
    assert stack.shape == (120, 120, 6)
    points = {"q": [1.0, 2.0, np.inf], "C": [0.1, 1.0, 10.0]}
    over_features = GridSearchCV(dmkl.VSKLClassifier(kernels=FIXED, views=VIEWS, tol=1e-4), points, cv=3)
    over_stack = GridSearchCV(dmkl.VSKLClassifier(kernels="precomputed", views=bank.groups_, tol=1e-4), points, cv=3)
    over_features.fit(X, y)
    over_stack.fit(stack, y)
    for fold in ("split0_test_score", "split1_test_score", "split2_test_score", "mean_test_score"):
        assert np.array_equal(over_features.cv_results_[fold], over_stack.cv_results_[fold])
    assert over_features.best_params_ == over_stack.best_params_
    assert np.ptp(over_stack.cv_results_["mean_test_score"]) > 0
    new, _ = blobs(seed=1)
    theirs = over_stack.decision_function(bank.transform(new))
    np.testing.assert_allclose(theirs, over_features.decision_function(new), atol=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_stack_gives_the_model_of_the_features(estimator: Any) -> None:
    X, y = blobs()
    bank = dmkl.KernelBank(kernels=ALL_NORMALISED, views=VIEWS).fit(X)
    near = estimator(kernels=ALL_NORMALISED, views=VIEWS, tol=1e-5).fit(X, y)
    far = estimator(kernels="precomputed", views=bank.groups_, tol=1e-5).fit(bank.transform(X), y)
    order = np.concatenate(list(bank.groups_.values()))
    assert [bank.kernel_names_[a] for a in order] == [near.kernel_names_[a] for a in order]
    at = {int(a): position for position, a in enumerate(order)}
    back = [at[a] for a in range(len(order))]
    np.testing.assert_allclose(far.kernel_weights_[:, back], near.kernel_weights_, rtol=0.05, atol=0.02)
    new, _ = blobs(seed=1)
    if hasattr(near, "decision_function"):
        np.testing.assert_allclose(far.decision_function(bank.transform(new)), near.decision_function(new), atol=0.03)


def test_the_bank_makes_the_values_that_a_store_keeps(tmp_path: Path) -> None:
    X, _ = blobs()
    bank = dmkl.KernelBank(kernels=ALL_NORMALISED, views=VIEWS, n_jobs=2).fit(X)
    data = Dataset({name: make_view(name, "features", X[:, columns]) for name, columns in VIEWS.items()})
    plan = plan_bank([construct(KernelConfig, table, "") for table in ALL_NORMALISED], data)
    store = build_store(tmp_path / "k.zarr", plan, data, Local(1))
    kept = np.stack([store.read_tile(a, 0, 0) for a in range(store.s)], axis=2)
    np.testing.assert_allclose(bank.transform(X), kept[:90, :90], atol=1e-6)
    assert bank.kernel_names_ == [kernel.name for kernel in store.bank.kernels]
    assert bank.groups_ == {"first": [0, 1, 4], "last": [2, 3, 5]}
    centred = bank.transform(blobs(seed=1)[0])[:, :, 4]
    np.testing.assert_allclose(centred.sum(axis=1), 0.0, atol=1e-5)


def test_a_bank_in_a_pipeline_with_estimators_of_stacks() -> None:
    X, y = blobs()
    bank, groups = dmkl.KernelBank(kernels=FIXED, views=VIEWS), {"first": slice(0, 3), "last": slice(3, 6)}
    model = make_pipeline(StandardScaler(), bank, dmkl.VSKLClassifier(kernels="precomputed", views=groups))
    whole = make_pipeline(StandardScaler(), dmkl.VSKLClassifier(kernels=FIXED, views=VIEWS))
    assert np.array_equal(cross_val_score(model, X, y), cross_val_score(whole, X, y))
    model.set_params(kernelbank__kernels=[{"kernel": "rbf", "width": 1.0}], vsklclassifier__views=None)
    assert model.fit(X, y)[-1].kernel_weights_.shape == (3, 2)


def test_one_matrix_is_a_stack_of_one() -> None:
    X, y = blobs(classes=2)
    K, new = rbf_kernel(X, gamma=0.5), blobs(seed=1)[0]
    mine = dmkl.UniformMKLClassifier(kernels="precomputed", tol=1e-6).fit(K, y)
    theirs = SVC(C=1.0, kernel="precomputed", tol=1e-6).fit(K, y)
    to_new = rbf_kernel(new, X, gamma=0.5)
    np.testing.assert_allclose(mine.decision_function(to_new), theirs.decision_function(to_new), atol=1e-2)


def test_views_in_a_dict() -> None:
    X, y = blobs()
    distances = np.sqrt(((X[:, None, 2:] - X[:, 2:]) ** 2).sum(axis=2))
    kernels = [{"kernel": "rbf", "width": 1.0}, {"kernel": "distance", "width": 1.0}]
    views = {"first": X[:, :2], "D_last": distances}
    model = dmkl.VSKLClassifier(kernels=kernels).fit(views, y)
    assert model.kernel_names_ == ["first/rbf(width=1.0)", "last/distance(width=1.0)"]
    same = dmkl.VSKLClassifier(
        kernels=[{**kernels[0], "views": ["first"]}, {"kernel": "laplacian", "width": 1.0, "views": ["last"]}]
    ).fit({"X_first": X[:, :2], "last": X[:, 2:]}, y)
    assert same.kernel_names_[0] == model.kernel_names_[0]
    assert model.score(views, y) > 0.8
    some = {"first": X[:5, :2], "D_last": distances[:5]}
    assert np.array_equal(model.predict(some), model.predict(views)[:5])
    with pytest.raises(DataError, match="this was fitted on views with names"):
        model.predict(X)
    with pytest.raises(DataError, match="the model needs view 'last', the data lack it"):
        model.predict({"first": X[:, :2]})
    with pytest.raises(DataError, match="labels of the wrong length: 90 labels for 80 samples"):
        dmkl.VSKLClassifier(kernels=kernels[:1]).fit({"first": X[:80, :2]}, y)


def test_selectors_choose_columns() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    X, y = blobs()
    table = pyarrow.table({name: X[:, k] for k, name in enumerate(["a_one", "a_two", "b_one", "b_two"])})
    selected = {"a": lambda X: [name for name in X.column_names if name.startswith("a")], "all": slice(None)}
    model = dmkl.UniformMKLClassifier(kernels=FIXED, views=selected).fit(table, y)
    assert {name: chosen.tolist() for name, chosen in model.columns_.items()} == {"a": [0, 1], "all": [0, 1, 2, 3]}
    numbered = dmkl.UniformMKLClassifier(kernels=FIXED, views={"a": [0, 1], "all": slice(None)}).fit(X, y)
    assert np.array_equal(model.decision_function(table), numbered.decision_function(X))


def test_scikit_learns_selector_and_tables() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = blobs()
    table = pandas.DataFrame(X, columns=["a_one", "a_two", "b_one", "b_two"])
    views = {"a": make_column_selector("^a_"), "b": make_column_selector("^b_")}
    model = dmkl.VSKLClassifier(kernels=FIXED, views=views)
    numbered = dmkl.VSKLClassifier(kernels=FIXED, views=VIEWS).fit(X, y)
    scaled = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    assert scaled.fit(table, y).score(table, y) > 0.8
    assert np.array_equal(model.fit(table, y).predict(table), numbered.predict(X))
    bank = dmkl.KernelBank(kernels=FIXED, views=views)
    with config_context(transform_output="pandas"):
        assert bank.fit_transform(table).shape == (90, 90, 6)


def test_a_store_by_its_path(data: Dataset, store: KernelStore) -> None:
    assert data.labels is not None
    model = dmkl.UniformMKLClassifier(C=2.0, tol=1e-5).fit(store.path)
    fit = dmkl.solve(dmkl.KernelStack.open(store.path), store.labels, dmkl.UniformMKL(C=2.0), tol=1e-5)
    assert model.classes_.tolist() == ["0", "1", "2"]
    assert np.array_equal(model.model_.coef, fit.coef_matrix[model.model_.samples])
    views = {name: view.values for name, view in data.views.items()}
    assert model.score(views, np.array(data.labels.classes)[data.labels.values]) > 0.8
    given = dmkl.UniformMKLClassifier(C=2.0, tol=1e-5).fit(str(store.path), data.labels.values)
    assert given.classes_.tolist() == [0, 1, 2]
    assert np.array_equal(given.decision_function(views), model.decision_function(views))
    target = dmkl.UniformMKLRegressor().fit(store.path, data.labels.values.astype(float))
    assert target.score(views, data.labels.values) > 0.5
    with pytest.raises(ConfigError, match="a store has its own kernels and views; leave kernels and views out"):
        dmkl.UniformMKLClassifier(kernels=FIXED).fit(store.path)
    with pytest.raises(DataError, match="this was fitted on views with names"):
        model.predict(np.zeros((2, 5)))


def test_a_store_of_several_labels_needs_a_y(tmp_path: Path) -> None:
    X, y = blobs()
    several = Dataset({"x": make_view("x", "features", X)}, make_labels(np.stack([y > 0, y > 1], axis=1)))
    store = build_store(
        tmp_path / "k.zarr", plan_bank(dmkl.KernelBank(kernels=FIXED)._tables(), several), several, Local(1)
    )
    with pytest.raises(DataError, match="the store holds several labels a sample"):
        dmkl.UniformMKLClassifier().fit(store.path)
    assert dmkl.UniformMKLClassifier().fit(store.path, y).score({"x": X}, y) > 0.8


def test_what_is_no_input_is_refused() -> None:
    X, y = blobs()
    stack = dmkl.KernelBank(kernels=FIXED).fit_transform(X)
    with pytest.raises(ValueError, match=r"precomputed kernels are shaped \(n, n, s\), X is \(90, 4\)"):
        dmkl.UniformMKLClassifier(kernels="precomputed").fit(X, y)
    with pytest.raises(ConfigError, match="kernels should be tables or 'precomputed', not 'rbf'"):
        dmkl.UniformMKLClassifier(kernels="rbf").fit(X, y)
    model = dmkl.UniformMKLClassifier(kernels="precomputed").fit(stack, y)
    with pytest.raises(DataError, match="X has 2 kernels, more were fitted"):
        model.predict(stack[:, :, :2])
    with pytest.raises(ValueError, match="X has 80 features"):
        model.predict(stack[:, :80])
    with pytest.raises(DataError, match=r"kernel view 'x.0' is not symmetric"):
        dmkl.MIKLClassifier(kernels="precomputed").fit(X @ np.roll(X, 1, axis=1).T, y)
    with pytest.raises(DataError, match="the model needs view 'x', the data lack it"):
        dmkl.KernelBank().fit({"x": X}).transform({"z": X})
