"""The command line: commands, what they print and their exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import flip_a_bit, save_npz, small_working_sets, three_classes

from dmkl.cli.main import cli, main
from dmkl.model import load_model
from dmkl.run import RunDirectory
from dmkl.store import KernelStore

CONFIG = """
[data]
path = "data.npz"
test = 0.25
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median"]
[[kernels]]
kernel = "linear"
normalise = "unit-trace"
[formulation]
name = "uniform"
C = 5
[run]
tile = 40
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with data and a configuration."""
    save_npz(tmp_path / "data.npz", three_classes(120))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return main(list(arguments))


def test_the_whole_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kernels", "config.toml", "-o", "k.zarr") == 0
    assert run("train", "k.zarr", "-o", "run") == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == [
        "kernels",
        "store",
        "kernels",
        "train",
        "score",
        "report",
    ]
    assert "(proved)" in shown
    assert run("info", "k.zarr", "--verify") == 0
    assert run("info", "run") == 0
    assert run("evaluate", "run", "data.npz") == 0
    assert run("predict", "run", "data.npz", "-o", "out.csv") == 0
    assert run("predict", "run", "data.npz", "-o", "out.npz") == 0
    shown = capsys.readouterr().out
    assert "every checksum right" in shown
    rows = (folder / "out.csv").read_text().splitlines()
    assert rows[0] == "label,score 0,score 1,score 2"
    predicted = np.load(folder / "out.npz")
    assert [row.split(",")[0] for row in rows[1:]] == predicted["label"].tolist()
    truth = np.load(folder / "data.npz")["y"].astype(str)
    assert np.mean(predicted["label"] == truth) > 0.7
    left = {path.name for path in (folder / "run").iterdir()}
    assert left == {
        *("config.json", "manifest.json", "events.jsonl", "model.zarr.zip", "scores.json", "report.html"),
        *("predictions.npz", "calibration.json", "timeline.json"),
    }
    assert "<script" not in (folder / "run/report.html").read_text()


def test_from_configuration_to_report_in_one_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "config.toml", "--json", "-s", "solve.baselines=true") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["kernels"]["kernels"] == 6
    assert summary["train"]["gap"] <= 1e-3
    assert 0.7 < summary["score"]["metrics"]["accuracy"] <= 1
    assert "/" in summary["score"]["best_single"]["kernel"]
    assert 0.7 < summary["score"]["average"]["metrics"]["accuracy"] <= 1
    manifest = json.loads((folder / "runs/config/manifest.json").read_text())
    assert manifest["versions"]["dmkl"]
    assert manifest["data"] == KernelStore(folder / "runs/config/kernels.zarr").data_hash


def test_options_override_the_file(folder: Path) -> None:
    assert run("train", "config.toml", "-q", "-o", "a", "--tol", "1e-6", "--seed", "3", "-s", "formulation.C=50") == 0
    config = json.loads((folder / "a/config.json").read_text())
    assert (config["solve"]["tol"], config["solve"]["seed"], config["formulation"]["params"]) == (1e-6, 3, {"C": 50})
    assert max(load_model(folder / "a/model.zarr.zip").about["gap"]) <= 1e-6


def test_print_config_names_the_origin_of_every_value(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMKL_SOLVE_SEED", "5")
    assert run("train", "config.toml", "--print-config", "--tol", "1e-4", "-s", "formulation.name=vskl") == 0
    shown = capsys.readouterr().out
    values = [re.split(r" += +| +# ", line) for line in shown.splitlines() if " = " in line]
    assert all(len(parts) == 3 for parts in values)  # key, value, origin
    origins = {key: origin for key, _, origin in values}
    assert origins["tol"] == origins["name"] == "command line"
    assert origins["seed"] == "environment DMKL_SOLVE_SEED"
    assert origins["width"] == "file config.toml"
    assert origins["oracle"] == origins["C"] == origins["q"] == "default"  # C of the file was another formulation's
    (folder / "again.toml").write_text(shown)
    monkeypatch.delenv("DMKL_SOLVE_SEED")
    assert run("train", "again.toml", "--print-config", "--json") == 0
    assert json.loads(capsys.readouterr().out)["config"]["solve"]["seed"] == 5
    assert not (folder / "runs").exists()


def test_both_oracles_train(folder: Path) -> None:
    assert run("train", "config.toml", "-q", "-o", "a", "--oracle", "libsvm", "--tol", "1e-5") == 0
    assert run("train", "config.toml", "-q", "-o", "b", "--oracle", "smo", "--tol", "1e-5") == 0
    one, other = (load_model(folder / name / "model.zarr.zip").about["objective"] for name in "ab")
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_dry_run_computes_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmkl.store.build.fill_tile", lambda *_: pytest.fail("a tile was computed"))
    assert run("kernels", "config.toml", "-o", "k.zarr", "--dry-run", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kernels"], facts["n"], facts["tiles"]) == (6, 90, 6)
    layer, page = 8 * 30 * 30 + 4, 8192  # values and checksum, and the pages that they take
    assert facts["nbytes"] == 6 * (5 * page + layer + 6 * 16 + 4)
    assert not (folder / "k.zarr").exists()


def test_quiet_is_quiet(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("train", "config.toml", "-q") == 0
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("kernels", ["store", "compute"])
def test_an_interrupted_run_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    command = ["train", "config.toml", "-o", "run", "-s", f"run.kernels={kernels}"]

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dmkl.run.train.solve", interrupt)
        assert run(*command) == 130
    assert not (folder / "run/scores.json").exists()
    tiles = sorted((folder / "run/kernels.zarr/gram/c").rglob("*"))
    assert bool(tiles) == (kernels == "store")
    before = [path.stat().st_mtime_ns for path in tiles]
    assert run(*command, "-s", "formulation.C=7") == 8
    assert run(*command) == 0
    assert before == [path.stat().st_mtime_ns for path in tiles]


def rewrite(folder: Path, **changes: np.ndarray) -> None:
    arrays = dict(np.load(folder / "data.npz"))
    np.savez(folder / "data.npz", **{**arrays, **changes})


def test_outputs_that_exist_stay_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "config.toml", "-q", "-o", "run") == 0
    before = {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*")}
    assert run("train", "config.toml", "-o", "run") == 8
    assert "holds a finished run" in capsys.readouterr().err
    (folder / "mine").mkdir()
    (folder / "mine/thesis.tex").write_text("words")
    assert run("train", "config.toml", "-o", "mine") == 8
    assert "exists and is not a dmkl run" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*")}
    assert [path.name for path in (folder / "mine").iterdir()] == ["thesis.tex"]


def test_a_store_of_other_data_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kernels", "config.toml", "-q", "-o", "k.zarr") == 0
    rewrite(folder, X_points=np.load(folder / "data.npz")["X_points"] + 1.0)
    assert run("kernels", "config.toml", "-o", "k.zarr") == 5
    assert run("train", "config.toml", "-o", "run", "-s", "run.store=k.zarr") == 5
    assert capsys.readouterr().err.count("was built from other data") == 2
    assert not (folder / "run").exists()
    assert KernelStore(folder / "k.zarr").missing() == []


def test_a_damaged_store_is_named_and_can_be_mended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kernels", "config.toml", "-q", "-o", "k.zarr") == 0
    path = KernelStore(folder / "k.zarr").tile_path(0, 1)
    flip_a_bit(path, 1000)
    assert run("info", "k.zarr", "--verify") == 5
    shown = capsys.readouterr()
    assert f"is damaged: {path}" in shown.out
    assert "error: 1 of 6 tiles cannot be used\nhint: training computes damaged tiles again" in shown.err
    path.unlink()
    assert run("info", "k.zarr", "--verify") == 5
    assert run("train", "k.zarr", "-o", "run2") == 5
    assert "finish it with: dmkl kernels" in capsys.readouterr().err
    assert run("kernels", "config.toml", "-q", "-o", "k.zarr") == 0
    assert run("train", "k.zarr", "-q", "-o", "run") == 0


def test_a_store_trains_where_its_data_are_gone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kernels", "config.toml", "-q", "-o", "k.zarr") == 0
    (folder / "data.npz").unlink()
    assert run("train", "k.zarr", "-o", "run") == 0
    assert "score" not in capsys.readouterr().out


@contextlib.contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Run the body as an unprivileged user, for root may write everywhere. All modules must be imported already."""
    for path in (folder, *folder.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o055)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def test_a_read_only_folder_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "config.toml", "-q", "-o", "warm") == 0
    assert run("predict", "warm", "data.npz", "-q", "-o", "warm.csv") == 0
    before = sorted(path.name for path in folder.iterdir())
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode | 0o044)
    folder.chmod(0o555)
    with as_nobody(folder):
        codes = [
            run("kernels", "config.toml", "-o", "k.zarr"),
            run("train", "config.toml", "-o", "run"),
            run("predict", "warm", "data.npz", "-o", "out.csv"),
        ]
    folder.chmod(0o755)
    assert codes == [8, 8, 8]
    assert capsys.readouterr().err.count("error: cannot write") == 3
    assert sorted(path.name for path in folder.iterdir()) == before


def dask(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers, started with Dask's own commands."""
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    processes = [dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file), folder=folder)]
    try:
        for _ in range(600):
            if file.exists() and file.read_text():
                break
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        processes += [dask("worker", address, "--nthreads", "1", folder=folder) for _ in range(2)]
        yield address
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(30)


def test_workers_started_by_hand_give_the_local_model(folder: Path, scheduler: str) -> None:
    command = ["train", "config.toml", "-q", "-s", "run.kernels=store"]
    assert run(*command, "-o", "near") == 0
    assert run(*command, "-o", "far", "--cluster", scheduler) == 0
    near, far = (load_model(folder / name / "model.zarr.zip") for name in ("near", "far"))
    assert np.array_equal(near.coef, far.coef)
    assert np.array_equal(near.intercept, far.intercept)
    assert near.about["gap"] == far.about["gap"]
    tiles = [sorted((folder / name / "kernels.zarr/gram/c").rglob("*")) for name in ("near", "far")]
    for one, other in zip(*tiles, strict=True):
        assert one.is_dir() or one.read_bytes() == other.read_bytes()


def test_doctor_finds_this_machine_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    shown = capsys.readouterr().out
    assert "PROBLEM" not in shown
    assert "oracle smo: solved a tiny SVM" in shown
    looked_at = {line.split()[1].rstrip(":") for line in shown.splitlines()}
    assert {"python", "numpy", "compiler", "threads", "memory", "disk", "schedulers", "dashboard", "bokeh"} <= looked_at


def test_doctor_names_what_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bin = folder / "bin"
    bin.mkdir()
    (bin / "sbatch").write_text("#!/bin/sh\n")
    (bin / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin))
    monkeypatch.setattr("dmkl.run.directory.PACKAGES", ("dmkl", "no-such-package"))
    assert run("doctor") == 1
    captured = capsys.readouterr()
    assert "PROBLEM  no-such-package: not installed" in captured.out
    assert "PROBLEM  slurm: squeue, scancel not found" in captured.out
    assert captured.err.startswith("error: found a problem with no-such-package, slurm\nhint: ")


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    assert "Usage: dmkl" in capsys.readouterr().out


def completed(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The completions that bash offers after these words."""
    with monkeypatch.context() as patch:
        patch.setenv("_DMKL_COMPLETE", "bash_complete")
        patch.setenv("COMP_WORDS", words)
        patch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit):
            run()
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


def test_tab_completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert completed("dmkl tr", monkeypatch, capsys) == ["train"]
    assert "--max-time" in completed("dmkl train --ma", monkeypatch, capsys)
    assert completed("dmkl train -s solve.max_", monkeypatch, capsys) == ["solve.max_rounds=", "solve.max_time="]
    assert completed("dmkl predict ru", monkeypatch, capsys) == ["ru"]  # the shell offers files
    for shell in ("bash", "zsh", "fish"):
        assert run("completion", shell) == 0
        assert "_DMKL_COMPLETE" in capsys.readouterr().out
    assert run("completion", "tcsh") == 2


def test_the_module_is_the_command(folder: Path) -> None:
    result = subprocess.run([sys.executable, "-m", "dmkl", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("dmkl, version")
    assert (
        shutil.which("dmkl") is None
        or subprocess.run(["dmkl", "info", "."], check=False, stderr=subprocess.DEVNULL).returncode == 5
    )


def test_a_deadline_saves_the_best_model_and_can_be_gone_on_from(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_working_sets(monkeypatch, start=10, least_growth=20)
    command = ["train", "config.toml", "-o", "run", "-s", "formulation.name=vskl", "--tol", "1e-6"]
    assert run(*command, "--max-time", "1e-9 s") == 3
    assert "out of time with a gap of" in capsys.readouterr().err
    early = load_model(folder / "run/model.zarr.zip")
    assert not early.about["converged"]
    assert run(*command, "-s", "solve.max_rounds=1") == 9
    assert run(*command) == 8  # that one was finished: it had used up its rounds
    shutil.rmtree(folder / "run")
    assert run(*command, "--max-time", "1e-9 s") == 3
    assert run(*command, "--max-time", "1 h") == 0
    assert max(load_model(folder / "run/model.zarr.zip").about["gap"]) <= 1e-6


def test_a_run_that_somebody_works_on_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    with RunDirectory(folder).exclusive():
        assert main(["train", "--example", "diabetes", "-o", str(folder)]) == 8
        assert f"another process is working on {folder}" in capsys.readouterr().err
    assert not folder.exists()  # nothing was there, nothing is left
