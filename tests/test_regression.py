"""Real targets all the way: data, training, model, scores, files, report."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import KERNELS, single, three_classes, whole
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import dmkl
from dmkl.cli.console import metric_text
from dmkl.cli.main import main
from dmkl.data import Dataset, Labels, make_labels
from dmkl.errors import DataError
from dmkl.kernels import plan_bank
from dmkl.model import Model, held_out_predictions, load_model, make_model, measure, per_class, save_model
from dmkl.report import Contents, write_report
from dmkl.run.report import score_record
from dmkl.runtime import Local
from dmkl.solvers.state import csc_array
from dmkl.stack import open_stack
from dmkl.store import KernelStore, build_store


def target(data: Dataset) -> np.ndarray:
    """A smooth function of the points, with noise."""
    points = np.asarray(data.views["points"].values)
    return np.sin(points[:, 0]) + points[:, 1] + 0.1 * np.random.default_rng(1).normal(size=data.n)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, KernelStore, dmkl.Fit]:
    """Data with real targets, their kernels, and a ridge regression on the average kernel as a fit."""
    data = three_classes()
    data = Dataset(data.views, make_labels(target(data)))
    path = tmp_path_factory.mktemp("regression") / "k.zarr"
    store = build_store(path, single(plan_bank(KERNELS, data)), data, Local(1), largest_tile=40)
    any_fit = dmkl.solve(open_stack(path), three_classes().labels, dmkl.UniformMKL())
    y = store.labels.values
    K = whole(store).astype(np.float64).mean(axis=0)
    bordered = np.block([[K + 0.1 * np.eye(store.n), np.ones((store.n, 1))], [np.ones((1, store.n)), 0.0]])
    *coef, intercept = np.linalg.solve(bordered, np.append(y, 0.0))
    state = dataclasses.replace(any_fit.state, coef=csc_array(np.array(coef)[:, None]))
    plain = {"objective": 1.0, "dual": 1.0, "gap": 0.0, "task": "regression", "classes": ()}
    return data, store, dataclasses.replace(any_fit, state=state, intercept=intercept, **plain)


def test_scores_are_the_predicted_targets(measured: tuple[Dataset, KernelStore, dmkl.Fit], tmp_path: Path) -> None:
    data, store, fit = measured
    model = make_model(store, fit)
    assert model.outputs == ("target",)
    scores = model.decision(data, Local(1))
    K = whole(store).astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(scores, K @ fit.coef_matrix + fit.intercept, atol=1e-4)
    predicted = model.predict(scores)
    assert (predicted.task, predicted.classes, predicted.values.shape) == ("regression", (), (data.n,))
    assert np.array_equal(predicted.values, scores[:, 0])
    save_model(tmp_path / "model.zarr.zip", model)
    again = load_model(tmp_path / "model.zarr.zip")
    assert (again.task, again.classes, again.outputs) == ("regression", (), ("target",))
    assert np.array_equal(again.decision(data, Local(1)), scores)


def test_metrics_are_scikit_learns(measured: tuple[Dataset, KernelStore, dmkl.Fit]) -> None:
    data, store, fit = measured
    model = make_model(store, fit)
    scores = model.decision(data, Local(1))
    assert data.labels is not None
    metrics = measure(scores, data.labels)
    y = data.labels.values
    assert list(metrics) == ["r2", "rmse", "mae"]
    theirs = [metric(y, scores[:, 0]) for metric in (r2_score, root_mean_squared_error, mean_absolute_error)]
    np.testing.assert_allclose(list(metrics.values()), theirs, rtol=1e-12)
    assert per_class(model, scores, data.labels) == []


@pytest.mark.parametrize("constant", [3.0, 0.1])
def test_r2_of_a_constant_truth_is_unknown(constant: float) -> None:
    truth = Labels("regression", np.full(7, constant), ())
    metrics = measure(np.full((7, 1), constant + 2), truth)
    assert np.isnan(metrics["r2"])
    assert (metrics["rmse"], metrics["mae"]) == pytest.approx((2.0, 2.0))


def test_the_report_speaks_of_a_target(measured: tuple[Dataset, KernelStore, dmkl.Fit], tmp_path: Path) -> None:
    data, store, fit = measured
    model = make_model(store, fit)
    scores = model.decision(data, Local(1))
    kept = held_out_predictions(model, data, scores, Local(1))
    run = Contents(config={"formulation": {"name": "spicy"}, "solve": {"tol": 1e-3}}, model=model, predictions=kept)
    for summary in ({"score": score_record(model, kept)}, {}):
        write_report(tmp_path / "report.html", replace(run, summary=summary))
        page = (tmp_path / "report.html").read_text()
        words = re.sub("<style>.*</style>|<[^>]+>", " ", page, flags=re.S).lower()
        assert "<h2>Target</h2>" in page
        assert (">RMSE</th>" in page) == ("score" in summary)
        assert "average precision" not in words
        assert "class" not in words


def test_figures_keep_digits_that_say_something() -> None:
    values = {"balanced_accuracy": 0.9123, "rmse": 51234.5678, "mae": 0.00012345, "r2": np.nan, "accuracy": 1.0}
    shown = [metric_text(name, value) for name, value in values.items()]
    assert shown == ["balanced accuracy 0.912", "rmse 51234.568", "mae 0.000123", "r2 nan", "accuracy 1.000"]


CONFIG = """
[data]
path = "houses.csv"
labels = "price"
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median", "2 median"]
normalise = "unit-trace"
[formulation]
name = "spicy"
loss = "squared"
C = 0.1
[run]
tile = 40
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with a real target in its last column, the same without it, and a configuration."""
    data = three_classes()
    points, price = np.asarray(data.views["points"].values), target(data)
    for name, columns in (("houses", np.column_stack([points, price])), ("new", points)):
        head = ",".join(["a", "b", "c", "d", "e", "price"][: columns.shape[1]])
        np.savetxt(tmp_path / f"{name}.csv", columns, delimiter=",", header=head, comments="")
    (tmp_path / "houses.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return main(list(arguments))


@pytest.mark.parametrize("loss", ["squared", "epsilon"])
def test_the_whole_way(loss: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "houses.toml", "-o", "run", "-s", f"formulation.loss={loss}") == 0
    shown = capsys.readouterr().out
    assert "1 target" in shown
    assert "class" not in shown
    assert "score    r2 0." in shown
    assert run("evaluate", "run", "houses.csv", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["metrics"]["r2"] > 0.7
    assert facts["per_class"] == []
    assert run("evaluate", "run", "houses.csv") == 0
    assert [word.split()[0] for word in capsys.readouterr().out.split("   ")[2:]] == ["r2", "rmse", "mae"]
    assert run("predict", "run", "new.csv", "-o", "out.csv", "-q") == 0
    assert run("predict", "run", "new.csv", "-o", "out.npz", "-q") == 0
    with (folder / "out.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["prediction"]
    predicted = np.load(folder / "out.npz")
    assert predicted.files == ["prediction"]
    assert np.array_equal(np.array(rows[1:], dtype=float)[:, 0], predicted["prediction"])
    price = np.genfromtxt(folder / "houses.csv", delimiter=",", names=True)["price"]
    assert r2_score(price, predicted["prediction"]) == pytest.approx(facts["metrics"]["r2"])
    assert "<h2>Target</h2>" in (folder / "run/report.html").read_text()
    assert run("info", "run") == 0
    assert "score    rmse " in capsys.readouterr().out


def test_baselines_are_of_the_same_loss(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "houses.toml", "-o", "run", "-s", "solve.baselines=true") == 0
    assert "average kernel 0." in capsys.readouterr().out
    metrics: dict[str, Any] = json.loads((folder / "run/scores.json").read_text())["score"]["average"]["metrics"]
    assert list(metrics) == ["r2", "rmse", "mae"]


def test_whole_numbers_are_targets_when_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = np.genfromtxt(folder / "houses.csv", delimiter=",", skip_header=1)
    table[:, -1] = np.rint(10 * table[:, -1])
    np.savetxt(folder / "houses.csv", table, delimiter=",", header="a,b,c,d,e,price", comments="")
    assert run("train", "houses.toml", "-o", "run", "-s", "data.task=regression") == 0
    assert "1 target" in capsys.readouterr().out
    assert run("evaluate", "run", "houses.csv") == 0
    assert "r2 0." in capsys.readouterr().out


def test_text_is_no_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "houses.toml", "-o", "run", "-q") == 0
    text = (folder / "houses.csv").read_text().splitlines()
    rows = [text[0], *(line.rsplit(",", 1)[0] + ",dear" for line in text[1:])]
    (folder / "houses.csv").write_text("\n".join(rows))
    assert run("evaluate", "run", "houses.csv") == 4
    assert "regression needs numbers, but the labels are text" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["vskl", "l1", "shared"])
def test_formulations_of_classes_say_what_to_use(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "houses.toml", "-o", "run", "-s", f"formulation.name={name}") == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 2
    assert 'use formulation.name = "spicy" with loss = "squared" or "epsilon"' in error
    with pytest.raises(DataError, match="no classes to tell apart"):
        make_labels([0.5, 1.5, 2.5]).signs()


def test_estimators_give_the_same_targets(folder: Path) -> None:
    assert run("train", "houses.toml", "-o", "run", "-q", "-s", "data.test=0") == 0
    model: Model = load_model(folder / "run/model.zarr.zip")
    table = np.genfromtxt(folder / "houses.csv", delimiter=",", skip_header=1)
    X, y = table[:, :-1], table[:, -1]
    kernels = [{"kernel": "rbf", "width": ["0.5 median", "1 median", "2 median"], "normalise": "unit-trace"}]
    fitted = dmkl.SpicyMKLRegressor(C=0.1, kernels=kernels).fit(X, y)
    np.testing.assert_allclose(fitted.kernel_weights_, model.weights, rtol=1e-2, atol=1e-3 * model.weights.max())
    assert fitted.score(X, y) > 0.7


def test_the_bundled_example_beats_its_average_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--example", "diabetes", "-o", str(tmp_path / "run"), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["train"]["converged"]
    assert summary["score"]["metrics"]["r2"] > max(0.4, summary["score"]["average"]["metrics"]["r2"])
