"""dmkl rerun: a run is repeated from its directory and compared with the first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import three_classes

from dmkl.cli.main import main

CONFIG = """
[data]
path = "data.npz"
[[kernels]]
kernel = "rbf"
width = ["0.5 mean", "1 mean"]
[formulation]
name = "vskl"
[solve]
baselines = true
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with data and a finished run."""
    data = three_classes(120)
    assert data.labels is not None
    np.savez(tmp_path / "data.npz", y=data.labels.values, **{f"X_{k}": v.values for k, v in data.views.items()})
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "config.toml", "-q", "-o", "run"]) == 0
    return tmp_path


def test_the_same_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert main(["rerun", "run"]) == 0
    assert "the same: model bit for bit, certificate, scores" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert main(["rerun", "run", "-o", "again", "--workers", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["same"], told["differences"]) == (True, [])
    assert (folder / "again/model.zarr.zip").read_bytes()
    assert main(["rerun", "run", "-o", "again"]) == 8
    assert "again holds a finished run" in capsys.readouterr().err


def test_a_search_is_done_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "config.toml", "-q", "-o", "best", "-g", "C=0.1,10", "-g", "q=1", "--folds", "2"]) == 0
    capsys.readouterr()
    assert main(["rerun", "best"]) == 0
    shown = capsys.readouterr().out
    assert "2 folds x 2 points" in shown
    assert "the same: model bit for bit" in shown


def test_what_differs_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = dict(np.load("data.npz"))
    arrays["X_points"][:7] += 0.5
    np.savez("data.npz", **arrays)
    manifest = json.loads(Path("run/manifest.json").read_text())
    Path("run/manifest.json").write_text(json.dumps({**manifest, "versions": {**manifest["versions"], "numpy": "1.0"}}))
    assert main(["rerun", "run", "--json"]) == 10
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert "the data changed since the first run" in told["differences"]
    assert any(text.startswith("model coef: ") for text in told["differences"])
    assert any(text.startswith("objective: ") for text in told["differences"])
    assert told["changed"] == [f"numpy 1.0 -> {np.__version__}"]
    assert captured.err.startswith(
        "error: the second run of run differs from the first: the data changed since the first run\n"
    )


def test_only_finished_runs_are_done_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run/scores.json").unlink()
    assert main(["rerun", "run"]) == 8
    assert "run holds no finished run" in capsys.readouterr().err


def test_the_manifest_says_what_it_takes(folder: Path) -> None:
    manifest = json.loads(Path("run/manifest.json").read_text())
    needed = {"command", "started", "host", "platform", "python", "cpu", "cores", "versions", "origins", "data"}
    assert needed | {"kernel_hash", "store", "seed", "threads", "memory", "kernels"} <= set(manifest)
    assert manifest["origins"]["formulation.name"] == "file config.toml"
