"""`dmkl init` writes configurations that train and reports what the data hold."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_schema import fits

from dmkl.cli.main import main
from dmkl.run.init import schema

n = 60


@pytest.fixture
def points(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 3
    return rng.normal(size=(n, 4)) + 2.5 * np.eye(4)[y], y


def trained(*arguments: str) -> dict[str, Any]:
    """The configuration that init writes, after training with it unchanged."""
    assert main(["init", *arguments, "-q"]) == 0
    path = Path(arguments[0]).with_suffix(".toml")
    assert main(["train", str(path), "-q"]) == 0
    table = tomllib.loads(path.read_text())
    assert fits(table, schema())
    return table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where the schema for editors goes
    return tmp_path


def write_table(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    scales = np.array([1, 1, 100, 1])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "a wide name", "b", "c, d", "e", "comment", "zero", "gaps", "species"])
        for i, row in enumerate(X * scales):
            writer.writerow([i + 1, *row, "some words", 0, "nan" if i % 7 else 1.5, ("ant", "bee", "cat")[y[i]]])


def test_a_newcomer_s_walk(
    folder: Path, points: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = points
    write_table(folder / "insects.csv", X, y)
    write_table(folder / "more.csv", X + 0.1, y)
    assert main(["init", "insects.csv"]) == 4
    assert "cannot tell what the labels of insects.csv are" in capsys.readouterr().err
    assert main(["init", "insects.csv", "--labels", "species"]) == 0
    shown = capsys.readouterr().out
    assert "column 'number' numbers the rows" in shown
    assert "column 'comment' is text" in shown
    assert "column 'zero' is constant" in shown
    assert "column 'gaps' lacks 51 of 60 values" in shown
    assert main(["train", "insects.toml", "-q"]) == 0
    assert main(["tune", "insects.toml", "-q", "-o", "best", "-g", "C=1,10", "-g", "q=2", "--folds", "3"]) == 0
    assert main(["report", "best", "-o", "page.html", "-q"]) == 0
    assert 'id="tuning"' in (folder / "page.html").read_text()
    assert main(["evaluate", "runs/insects", "more.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] > 0.8
    assert main(["predict", "best", "more.csv", "-o", "labels.csv", "--proba", "--explain"]) == 0
    labels = [row["label"] for row in csv.DictReader((folder / "labels.csv").read_text().splitlines())]
    assert np.mean(np.array(labels) == np.array(["ant", "bee", "cat"])[y]) > 0.8


def test_kernels_are_chosen_by_what_views_hold(points: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> None:
    X, y = points
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.savez("all.npz", X_p=X, X_h=rng.dirichlet(np.ones(5), n), D_d=D, K_k=X @ X.T, y=y)
    table = trained("all.npz")
    chosen = {kernel["views"]: kernel["kernel"] for kernel in table["kernels"]}
    assert chosen == {"p": "rbf", "h": "chi2", "d": "distance", "k": "precomputed"}
    assert table["formulation"]["name"] == "vskl"


def test_similarities_that_are_no_kernels_get_mikl(points: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = points
    S = np.tanh(X @ X.T - 2)
    np.savez("indefinite.npz", K_s=S, X_p=X, y=y)
    table = trained("indefinite.npz")
    assert (table["formulation"]["name"], table["kernels"][0]["kernel"]) == ("mikl", "similarity")
    np.savez("skew.npz", K_s=S + np.triu(np.ones_like(S)), y=y)
    assert trained("skew.npz")["views"]["s"]["symmetric"] is False


def test_targets_and_labels_of_every_task(points: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = points
    np.savez("whole.npz", X=X, y=np.rint(1000 * X[:, 0]))
    table = trained("whole.npz")
    assert (table["data"]["task"], table["formulation"]["name"]) == ("regression", "spicy")
    np.savez("several.npz", X=X, labels=np.stack([y == 0, y > 0], axis=1))
    assert trained("several.npz")["data"]["labels"] == "labels"
    lines = [f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for label, row in zip(y, X, strict=True)]
    Path("sparse.svmlight").write_text("\n".join(lines) + "\n")
    assert trained("sparse.svmlight")["views"]["X"]["array"] == "X"


def test_a_file_that_is_there_stays_unless_forced(
    folder: Path, points: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("mine.npz", X=points[0], y=points[1])
    (folder / "mine.toml").write_text("# precious\n")
    assert main(["init", "mine.npz"]) == 8
    assert "mine.toml exists" in capsys.readouterr().err
    assert (folder / "mine.toml").read_text() == "# precious\n"
    assert main(["init", "mine.npz", "--force", "-q"]) == 0
    (folder / "elsewhere").mkdir()
    assert main(["init", "mine.npz", "-o", "elsewhere/a.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["views"][0]["shape"] == [n, 4]
    assert tomllib.loads((folder / "elsewhere/a.toml").read_text())["data"]["path"] == "../mine.npz"
    assert main(["train", "elsewhere/a.toml", "-q"]) == 0


def test_missing_values_of_an_array_are_counted(
    points: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = points
    X[3, 1] = X[3, 2] = X[5, 0] = np.nan
    np.savez("gaps.npz", X_p=X, y=y)
    assert main(["init", "gaps.npz"]) == 4
    assert "array 'X_p' lacks 3 of 240 values in 2 rows" in capsys.readouterr().err
    assert not Path("gaps.toml").exists()
