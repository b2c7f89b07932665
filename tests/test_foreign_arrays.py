"""Arrays of Dask and of xarray in place of numpy arrays: the same results, and one clear line where they do not fit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import dask.array
import numpy as np
import pytest
from test_estimators import blobs

import dmkl
from dmkl._util import in_memory as module
from dmkl._util.in_memory import in_memory
from dmkl.data import make_labels, make_view
from dmkl.errors import DataError, ResourceError

VIEWS = {"first": slice(0, 2), "last": [2, 3]}


def chunked(values: Any, size: int = 20) -> Any:
    return dask.array.from_array(np.asarray(values), chunks=size)


def test_other_values_stay_as_they_are() -> None:
    for values in (None, "no_validation", [1, 2], np.arange(3), {"a": 1}):
        assert in_memory(values, "X") is values


def test_importing_dmkl_imports_neither_library() -> None:
    code = (
        "import sys, numpy, dmkl;"
        "dmkl.KernelBank().fit(numpy.arange(8.0).reshape(4, 2));"
        "assert not {'dask.array', 'xarray'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- dask


def test_a_dask_array_is_computed_once_and_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(block: np.ndarray) -> np.ndarray:
        calls.append(1)
        return block + 1

    lazy = chunked(np.arange(60.0).reshape(30, 2), 10).map_blocks(counted, dtype=float, meta=np.empty((0, 0)))
    shifted = lazy - lazy.mean(axis=0)  # all blocks depend on all blocks
    found = in_memory(shifted, "X")
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, np.arange(60.0).reshape(30, 2) - [29.0, 30.0])
    assert len(calls) == 3


def test_blocks_are_fetched_from_workers(two_workers: Any) -> None:
    values = np.random.default_rng(0).normal(size=(50, 7))
    with two_workers.client.as_current():
        found = in_memory(chunked(values) * 2, "X")
        held = (chunked(values) * 3).persist()
        again = in_memory(held, "X")
    np.testing.assert_array_equal(found, values * 2)
    np.testing.assert_array_equal(again, values * 3)


def test_what_does_not_fit_is_refused_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    large = dask.array.zeros((10_000_000, 1_000_000))
    monkeypatch.setattr(dask.array, "store", lambda *_, **__: pytest.fail("computed"))
    refused = r"dask array of shape \(10000000, 1000000\), would take 80,000,000 MB, [\d,]+ MB are free; use fewer"
    with pytest.raises(ResourceError, match=f"view 'x', a {refused}"):
        make_view("x", "features", large)
    with pytest.raises(ResourceError, match=f"X, a {refused}"):
        dmkl.UniformMKLClassifier().fit(large, np.zeros(10))
    with pytest.raises(ResourceError, match="the stack of kernels, a dask array of shape"):
        dmkl.KernelStack.from_array(dask.array.zeros((10, 1_000_000, 1_000_000)))


def test_a_dask_array_of_unknown_length_is_refused() -> None:
    values = chunked(np.arange(40.0).reshape(20, 2), 5)
    unknown = values[values[:, 0] > 10]
    with pytest.raises(DataError, match="X is a dask array of unknown length; call its method compute_chunk_sizes"):
        dmkl.KernelBank().fit(unknown)
    dmkl.KernelBank().fit(unknown.compute_chunk_sizes())


@pytest.mark.parametrize("estimator", [dmkl.VSKLClassifier, dmkl.SpicyMKLRegressor])
def test_estimators_take_dask_arrays(estimator: Any) -> None:
    X, y = blobs()
    weights = np.linspace(0.5, 2.0, len(y))
    model = estimator(views=VIEWS).fit(chunked(X), chunked(y), chunked(weights))
    near = estimator(views=VIEWS).fit(X, y, weights)
    np.testing.assert_array_equal(model.kernel_weights_, near.kernel_weights_)
    np.testing.assert_array_equal(model.predict(chunked(X)), near.predict(X))
    assert model.score(chunked(X), chunked(y)) == near.score(X, y)
    assert isinstance(model.predict(chunked(X)), np.ndarray)


def test_views_stacks_and_stores_take_dask_arrays(store: Any) -> None:
    X, y = blobs()
    views = {"first": X[:, :2], "last": X[:, 2:]}
    lazy = {name: chunked(values) for name, values in views.items()}
    near = dmkl.VSKLClassifier().fit(views, y)
    far = dmkl.VSKLClassifier().fit(lazy, chunked(y))
    np.testing.assert_array_equal(far.decision_function(lazy), near.decision_function(views))
    bank = dmkl.KernelBank(views=VIEWS)
    stack = bank.fit_transform(X)
    precomputed = dmkl.L1MKLClassifier(kernels="precomputed")
    scores = precomputed.fit(chunked(stack), chunked(y)).decision_function(chunked(stack))
    np.testing.assert_array_equal(scores, precomputed.fit(stack, y).decision_function(stack))
    of_store = [dmkl.UniformMKLClassifier().fit(store.path, labels) for labels in (None, chunked(store.labels.values))]
    np.testing.assert_array_equal(of_store[0].model_.coef, of_store[1].model_.coef)


def test_solve_tune_and_stacks_take_dask_arrays() -> None:
    X, y = blobs(classes=2)
    K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2))])
    stack, near = dmkl.KernelStack.from_array(chunked(K)), dmkl.KernelStack.from_array(K)
    np.testing.assert_array_equal(stack.to_dask().compute(), K)
    counts = np.linspace(0.5, 2.0, len(y))
    for formulation in (dmkl.VSKL(C=5.0), dmkl.SpicyMKL(C=5.0)):
        fit = dmkl.solve(stack, chunked(y), formulation, sample_weight=chunked(counts))
        same = dmkl.solve(near, y, formulation, sample_weight=counts)
        np.testing.assert_array_equal(fit.coef, same.coef)
    points = dmkl.grid(dmkl.L1MKL, C=(0.1, 1.0))
    means = [[row.mean for row in dmkl.tune(stack, labels, points, folds=3).rows] for labels in (y, chunked(y))]
    assert means[0] == means[1]
    paths = [[fit.gap for fit in dmkl.solve_path(stack, labels, points)] for labels in (y, chunked(y))]
    assert paths[0] == paths[1]
    kernels = [{"kernel": "rbf", "width": 1.0, "subsets": [[0], [1, 2]]}]
    lazy = dmkl.KernelStack.from_features(chunked(X), kernels)
    assert lazy.identity == dmkl.KernelStack.from_features(X, kernels).identity


def test_labels_of_text_and_of_several_columns() -> None:
    assert make_labels(chunked(["b", "a", "b"])).classes == ("a", "b")
    several = make_labels(chunked([[0, 1], [1, 0], [1, 1]]))
    assert several.task == "multilabel"


def test_without_distributed_threads_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_client", lambda: None)
    with dask.config.set(scheduler="processes"):  # which could not write into an array of this process
        assert (in_memory(chunked(np.zeros(30)) + 7.5, "X") == 7.5).all()


def test_a_data_frame_of_dask_keeps_the_names_of_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe")
    X, y = blobs()
    table = pandas.DataFrame(X, columns=["a_one", "a_two", "b_one", "b_two"])
    lazy, labels = (dataframe.from_pandas(one, npartitions=3) for one in (table, pandas.Series(y)))
    views = {"a": ["a_one", "a_two"], "b": ["b_one", "b_two"]}
    model = dmkl.VSKLClassifier(views=views).fit(lazy, labels)
    near = dmkl.VSKLClassifier(views=VIEWS).fit(X, y)
    np.testing.assert_array_equal(model.predict(lazy), near.predict(X))
    assert model.feature_names_in_.tolist() == list(table.columns)


# --- xarray


def labelled(values: Any, *dimensions: str) -> Any:
    return pytest.importorskip("xarray").DataArray(np.asarray(values), dims=dimensions)


def test_estimators_take_arrays_of_xarray() -> None:
    X, y = blobs()
    near = dmkl.VSKLClassifier(views=VIEWS).fit(X, y)
    table, labels = labelled(X, "sample", "column"), labelled(y, "sample")
    for one, other in ((table, labels), (table.chunk(30), labels.chunk(30))):  # in memory, and lazy with Dask
        model = dmkl.VSKLClassifier(views=VIEWS).fit(one, other)
        np.testing.assert_array_equal(model.predict(one), near.predict(X))
        assert model.score(one, other) == near.score(X, y)


def test_the_variables_of_a_dataset_are_views() -> None:
    xarray = pytest.importorskip("xarray")
    X, y = blobs()
    distances = np.sqrt(((X[:, None, 2:] - X[:, 2:]) ** 2).sum(axis=2))
    kernels = [{"kernel": "rbf", "width": 1.0}, {"kernel": "distance", "width": 1.0}]
    near = dmkl.VSKLClassifier(kernels=kernels).fit({"first": X[:, :2], "D_last": distances}, y)
    dataset = xarray.Dataset(
        {
            "first": (("sample", "column"), X[:, :2]),
            "D_last": (("sample", "training"), distances),
        },
        coords={"sample": np.arange(len(y))},
    )
    model = dmkl.VSKLClassifier(kernels=kernels).fit(dataset, labelled(y, "sample"))
    assert model.kernel_names_ == near.kernel_names_
    np.testing.assert_array_equal(model.kernel_weights_, near.kernel_weights_)
    some = dataset.isel(sample=slice(5))
    np.testing.assert_array_equal(model.predict(some), near.predict({"first": X[:5, :2], "D_last": distances[:5]}))
    turned = dataset.assign(first=dataset["first"].transpose())
    named = "variable 'first' begins with the dimension 'column', variable 'D_last' with 'sample'"
    with pytest.raises(DataError, match=named):
        model.predict(turned)


def test_stacks_and_labels_of_xarray() -> None:
    X, y = blobs(classes=2)
    K = labelled(np.stack([X @ X.T, np.eye(len(X))]), "kernel", "sample", "other")
    fit = dmkl.solve(dmkl.KernelStack.from_array(K), labelled(y, "sample"), dmkl.VSKL(C=5.0))
    np.testing.assert_array_equal(fit.coef, dmkl.solve(dmkl.KernelStack.from_array(K.values), y, dmkl.VSKL(C=5.0)).coef)
    assert make_view("x", "features", labelled(X, "sample", "column")).values.shape == X.shape
