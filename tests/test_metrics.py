"""Every registered metric: its direction, its range, what scikit-learn says; and the choice of one for a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import save_npz, three_classes
from sklearn import metrics as theirs

import dmkl
from dmkl.cli.main import main
from dmkl.config import TASKS
from dmkl.data import Labels
from dmkl.errors import ConfigError
from dmkl.model import METRICS, leading_metric, measure

LEADING = {"binary": "accuracy", "multiclass": "accuracy", "multilabel": "mean_average_precision", "regression": "r2"}
REPORTED = {
    "binary": ["accuracy", "balanced_accuracy", "roc_auc"],
    "multiclass": ["accuracy", "balanced_accuracy"],
    "multilabel": ["mean_average_precision", "micro_f1"],
    "regression": ["r2", "rmse", "mae"],
}


def drawn(task: str, noise: float = 1.0, seed: int = 0) -> tuple[np.ndarray, Labels]:
    """Scores that agree with the truth up to noise."""
    rng = np.random.default_rng(seed)
    if task == "regression":
        target = rng.normal(size=80)
        return (target + noise * rng.normal(size=80))[:, None], Labels(task, target, ())
    m = 1 if task == "binary" else 4
    clean = rng.normal(size=(80, m))
    if task == "binary":
        values = (clean[:, 0] > 0).astype(np.int64)
    elif task == "multilabel":
        values = (clean > 0).astype(np.uint8)
    else:
        values = rng.integers(0, m, 80)
        clean = 2.0 * np.eye(m)[values] - 1.0
    classes = ("a", "b") if task == "binary" else ("a", "b", "c", "d")
    return clean + noise * rng.normal(size=(80, m)), Labels(task, values, classes)


PAIRS = [(name, task) for name, metric in METRICS.items() for task in metric.tasks]


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_a_metric_knows_which_way_is_better(name: str, task: str) -> None:
    metric = METRICS[name]
    assert metric.name == name
    assert set(metric.reported) <= set(metric.tasks) <= set(TASKS) - {"auto"}
    assert metric.title
    values = [next(iter(measure(*drawn(task, noise), metric=name).values())) for noise in (1e-9, 0.3, 3.0)]
    assert sorted(values, reverse=metric.larger_is_better) == values
    assert values[0] == pytest.approx(1.0 if metric.larger_is_better else 0.0, abs=1e-6)
    assert float(metric.shown(values[1])) == pytest.approx(values[1], rel=1e-3)
    assert metric.shown(None) == metric.shown(np.nan) == "-"


@pytest.mark.parametrize("task", LEADING)
def test_the_usual_metrics_of_a_task(task: str) -> None:
    assert leading_metric(task).name == LEADING[task]
    assert list(measure(*drawn(task))) == REPORTED[task]
    for name, metric in METRICS.items():
        if task in metric.tasks:
            others = [other for other in REPORTED[task] if other != name]
            assert list(measure(*drawn(task), metric=name)) == [name, *others]


def test_metrics_are_scikit_learns() -> None:
    scores, truth = drawn("binary")
    y, f, said = truth.values, scores[:, 0], scores[:, 0] > 0
    expected: dict[str, Any] = {
        "accuracy": theirs.accuracy_score(y, said),
        "balanced_accuracy": theirs.balanced_accuracy_score(y, said),
        "roc_auc": theirs.roc_auc_score(y, f),
        "f1": theirs.f1_score(y, said),
        "average_precision": theirs.average_precision_score(y, f),
    }
    for name, value in expected.items():
        assert measure(scores, truth, name)[name] == pytest.approx(value)
    scores, truth = drawn("multilabel")
    for name, function in (("average_precision", theirs.average_precision_score), ("roc_auc", theirs.roc_auc_score)):
        assert measure(scores, truth, name)[name] == pytest.approx(function(truth.values, scores, average="macro"))
    assert (
        measure(scores, truth)["mean_average_precision"]
        == measure(scores, truth, "average_precision")["average_precision"]
    )
    assert measure(scores, truth, "macro_f1")["macro_f1"] == pytest.approx(
        theirs.f1_score(truth.values, scores > 0, average="macro")
    )


def test_an_undefined_metric_is_left_out_unless_it_leads() -> None:
    scores, _ = drawn("binary")
    one_class = Labels("binary", np.zeros(80, dtype=np.int64), ("a", "b"))
    assert "roc_auc" not in measure(scores, one_class)
    assert np.isnan(measure(scores, one_class, "roc_auc")["roc_auc"])


def test_metrics_that_do_not_fit_are_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"unknown metric 'acuracy'; did you mean 'accuracy'\? \(known: accuracy, "):
        leading_metric("binary", "acuracy")
    with pytest.raises(ConfigError, match=r"'rmse' is for regression, the task is binary; choose from: accuracy, bal"):
        leading_metric("binary", "rmse")
    with pytest.raises(ConfigError, match=r"'f1' is for binary, the task is regression; choose from: r2, rmse, mae$"):
        leading_metric("regression", "f1")


def test_a_search_follows_the_metric(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 3))
    stack = dmkl.KernelStack.from_array(np.stack([np.outer(x, x) for x in X.T]))
    target = X[:, 0] + 0.1 * rng.normal(size=60)
    points = [dmkl.SpicyMKL(C, "squared") for C in (1.0, 1e9)]  # the second predicts the mean
    by_r2 = dmkl.tune(stack, target, points, folds=3)
    by_rmse = dmkl.tune(stack, target, points, folds=3, metric="rmse")
    by_mae = dmkl.tune(stack, target, points, folds=3, metric="mae", rule="best")
    assert (by_r2.metric, by_rmse.metric, by_mae.metric) == ("r2", "rmse", "mae")
    assert by_r2.best == by_rmse.best == by_mae.best == 0
    assert by_rmse.rows[0].mean < by_rmse.rows[1].mean
    assert [by_rmse.larger_is_better, by_r2.larger_is_better] == [False, True]
    assert by_rmse.to_dict()["larger_is_better"] is False


def test_kept_scores_of_another_metric_are_not_taken(rng: np.random.Generator, tmp_path: Path) -> None:
    X = rng.normal(size=(40, 2))
    stack = dmkl.KernelStack.from_array(np.stack([np.outer(x, x) for x in X.T]))
    y, points = X[:, 0] + 0.5 * rng.normal(size=40) > 0, [dmkl.L1MKL(1.0)]
    for metric in ("", "roc_auc", "f1"):
        kept = dmkl.tune(stack, y, points, folds=2, metric=metric, folder=tmp_path)
        fresh = dmkl.tune(stack, y, points, folds=2, metric=metric)
        assert kept.rows[0].values == fresh.rows[0].values


def test_nothing_is_solved_for_a_metric_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmkl.tuning.fold_path.solve", lambda *_, **__: pytest.fail("solved"))
    stack = dmkl.KernelStack.from_array(np.eye(12)[None])
    with pytest.raises(ConfigError, match="'mae' is for regression"):
        dmkl.tune(stack, [0, 1] * 6, [dmkl.L1MKL()], folds=2, metric="mae")


CONFIG = """
[data]
path = "data.npz"
[[kernels]]
kernel = "rbf"
width = "1 median"
[formulation]
name = "l1"
[tune]
folds = 2
metric = "balanced_accuracy"
grid = { C = [1, 10] }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_npz(tmp_path / "data.npz", three_classes(90))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_metric_from_the_file_and_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "config.toml", "-o", "file"]) == 0
    assert "balanced accuracy 0." in capsys.readouterr().out
    assert main(["tune", "config.toml", "-o", "line", "--metric", "macro_f1", "-q"]) == 0
    facts = json.loads((folder / "line/tuning.json").read_text())
    assert (facts["metric"], facts["larger_is_better"]) == ("macro_f1", True)
    summary = json.loads((folder / "line/scores.json").read_text())["score"]
    assert list(summary["metrics"]) == ["macro_f1", "accuracy", "balanced_accuracy"]
    report = folder / "line/report.html"
    written = report.read_text()
    assert "macro F1 on held-out samples" in written
    (folder / "line/scores.json").unlink()  # as in a run that is not finished
    assert main(["report", "line", "-q"]) == 0
    assert "macro F1 on held-out samples" in report.read_text()
    assert main(["train", "config.toml", "-o", "trained", "-q"]) == 0  # the table is about searches only
    trained = json.loads((folder / "trained/scores.json").read_text())["score"]
    assert list(trained["metrics"]) == ["accuracy", "balanced_accuracy"]


@pytest.mark.parametrize(("name", "message"), [("rmse", "is for regression"), ("best", "unknown metric 'best'")])
def test_no_kernel_is_computed_for_a_metric_that_does_not_fit(
    name: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "config.toml", "-o", "run", "--metric", name]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "run").exists()
