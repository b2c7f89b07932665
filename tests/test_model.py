"""A model predicts without the training store what the solver's scores say."""

from __future__ import annotations

import dataclasses
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import KERNELS, three_classes, whole
from scipy.spatial.distance import cdist

import dmkl
from dmkl.config import KernelConfig
from dmkl.data import Dataset, Labels, make_labels, make_view
from dmkl.errors import DataError, OutputError, StoreError
from dmkl.kernels import plan_bank
from dmkl.model import Model, load_model, make_model, measure, per_class, save_model
from dmkl.model.model import ModelOptions
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import KernelStore, build_store


def trained(store: KernelStore, *, intercept: bool = True) -> tuple[dmkl.Fit, Model]:
    fit = dmkl.solve(open_stack(store.path), store.labels, dmkl.UniformMKL(C=5.0, intercept=intercept), tol=1e-6)
    return fit, make_model(store, fit)


def solver_scores(store: KernelStore, fit: dmkl.Fit) -> np.ndarray:
    K = np.tensordot(fit.weights, whole(store).astype(np.float64), 1)
    return K @ fit.coef_matrix + fit.intercept


@pytest.mark.parametrize("intercept", [True, False])
def test_scores_of_training_samples_are_the_solvers(store: KernelStore, data: Dataset, intercept: bool) -> None:
    """Centring is folded into coefficients and intercept, also where the coefficients do not sum to zero."""
    fit, model = trained(store, intercept=intercept)
    np.testing.assert_allclose(model.decision(data, Local(2)), solver_scores(store, fit), atol=2e-4)


def test_batches_change_nothing(store: KernelStore, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    _, model = trained(store)
    at_once = model.decision(data, Local(1))
    monkeypatch.setattr("dmkl.model.model.OPTIONS", ModelOptions(batch_bytes=8.0 * 7 * len(model.samples)))
    np.testing.assert_allclose(model.decision(data, Local(2)), at_once, rtol=1e-9, atol=1e-12)


def test_a_file_gives_the_same_model_without_the_store(store: KernelStore, data: Dataset, tmp_path: Path) -> None:
    mine = KernelStore(Path(shutil.copytree(store.path, tmp_path / "k.zarr")))
    _, model = trained(mine)
    save_model(tmp_path / "model.zarr.zip", model)
    shutil.rmtree(mine.path)
    again = load_model(tmp_path / "model.zarr.zip")
    assert np.array_equal(again.decision(data, Local(1)), model.decision(data, Local(1)))
    assert (again.task, again.classes, again.about) == (model.task, model.classes, model.about)
    assert [path.name for path in tmp_path.iterdir()] == ["model.zarr.zip"]


def test_only_support_samples_are_kept(store: KernelStore) -> None:
    fit, model = trained(store)
    assert len(model.samples) == int(fit.coef.any(axis=1).sum()) < store.n


def test_distance_and_kernel_views_predict_from_rows_against_training_samples(tmp_path: Path) -> None:
    data = three_classes(120)
    X = np.asarray(data.views["points"].values)
    both = Dataset(
        {"far": make_view("far", "distance", cdist(X, X)), "dot": make_view("dot", "kernel", X @ X.T)}, data.labels
    )
    train, test = both.train_test(np.arange(90), np.arange(90, 120))
    bank = plan_bank([KernelConfig("distance"), KernelConfig("precomputed", normalise=("centre", "unit-trace"))], train)
    store = build_store(tmp_path / "k.zarr", bank, train, Local(1), largest_tile=32)
    fit, model = trained(store)
    assert not model.views
    np.testing.assert_allclose(model.decision(train, Local(1)), solver_scores(store, fit), atol=1e-4)
    assert test.labels is not None
    assert measure(model.decision(test, Local(1)), test.labels)["accuracy"] > 0.6
    save_model(tmp_path / "m.zip", model)
    assert np.array_equal(load_model(tmp_path / "m.zip").samples, model.samples)


def test_sparse_views_predict_like_dense_ones(tmp_path: Path) -> None:
    import scipy.sparse

    data = three_classes(100)
    X = np.maximum(np.asarray(data.views["points"].values), 0)
    scores = []
    for name, values in (("dense", X), ("sparse", scipy.sparse.csr_array(X))):
        view = Dataset({"v": make_view("v", "features", values)}, data.labels)
        bank = plan_bank([KernelConfig("rbf", params={"width": 2.0}), KernelConfig("linear")], view)
        _, model = trained(build_store(tmp_path / f"{name}.zarr", bank, view, Local(1), largest_tile=30))
        save_model(tmp_path / f"{name}.zip", model)
        scores.append(load_model(tmp_path / f"{name}.zip").decision(view, Local(1)))
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_binary_and_multilabel_data_go_all_the_way(task: str, tmp_path: Path) -> None:
    data = three_classes(150)
    assert data.labels is not None
    codes = data.labels.values
    raw = np.where(codes == 0, "no", "yes") if task == "binary" else np.eye(3, dtype=int)[codes] | (codes == 2)[:, None]
    labelled = Dataset(data.views, make_labels(raw))
    store = build_store(tmp_path / "k.zarr", plan_bank(KERNELS, labelled), labelled, Local(2))
    _, model = trained(store)
    scores = model.decision(labelled, Local(1))
    assert labelled.labels is not None
    metrics = measure(scores, labelled.labels)
    assert all(0.7 < value <= 1 for value in metrics.values())
    assert next(iter(metrics)) == ("accuracy" if task == "binary" else "mean_average_precision")
    assert model.predict(scores).values.shape == labelled.labels.values.shape
    assert len(per_class(model, scores, labelled.labels)) == (1 if task == "binary" else 3)


def test_metrics_allow_classes_that_do_not_occur(store: KernelStore, data: Dataset) -> None:
    _, model = trained(store)
    some = data.take(np.flatnonzero(three_classes().labels.values < 2))
    assert isinstance(some.labels, Labels)
    scores = model.decision(some, Local(1))
    assert set(measure(scores, some.labels)) == {"accuracy", "balanced_accuracy"}
    assert [row["class"] for row in per_class(model, scores, some.labels)] == ["0", "1"]


def test_other_views_are_refused(store: KernelStore, data: Dataset) -> None:
    _, model = trained(store)
    without = Dataset({"points": data.views["points"]})
    with pytest.raises(DataError, match="the model needs view 'words', the data lack it"):
        model.decision(without, Local(1))
    narrow = make_view("points", "features", np.ones((3, 2)))
    with pytest.raises(
        DataError, match="features view with 2 columns, the model was trained on a features view with 5"
    ):
        model.decision(Dataset({"words": data.take([0, 1, 2]).views["words"], "points": narrow}), Local(1))


def test_files_that_are_no_models_are_refused(store: KernelStore, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no model at"):
        load_model(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(StoreError, match="is not a readable model"):
        load_model(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "zip", "w") as file:
        file.writestr("a", "b")
    with pytest.raises(StoreError, match="is not a readable model"):
        load_model(tmp_path / "zip")
    _, model = trained(store)
    save_model(tmp_path / "model", model)
    raw = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(StoreError, match="is not a readable model"):
        load_model(tmp_path / "model")


def test_a_model_is_plain_values(store: KernelStore) -> None:
    _, model = trained(store)
    for field in dataclasses.fields(model):
        assert getattr(model, field.name) is not None
