"""Two processes use one store: readers do not disturb each other, and only one process builds."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same_model, flip_a_bit, three_classes
from test_cli import CONFIG

from dmkl.store import KernelStore

pytestmark = pytest.mark.long
N = 1200
BUILD = ("kernels", "config.toml", "-o", "k.zarr")
LIMIT = 240.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    data = three_classes(N)
    assert data.labels is not None
    arrays = {f"X_{name}": np.asarray(view.values) for name, view in data.views.items()}
    np.savez(folder / "data.npz", y=data.labels.values, **arrays)
    (folder / "config.toml").write_text(CONFIG.replace('"uniform"', '"vskl"').replace("test = 0.25", "test = 0"))
    return folder


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dmkl", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    said = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == code, said
    return said


def stopped_in_the_middle(folder: Path) -> subprocess.Popen[str]:
    """A process that stops in the middle of building a store, when some tiles exist and others do not."""
    process = begin(folder, *BUILD)
    tiles = folder / "k.zarr/gram/c/0"
    deadline = time.monotonic() + LIMIT
    while not (tiles / "1").is_dir():
        assert process.poll() is None, ended(process)
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    return process


def test_one_builds_and_who_was_killed_is_not_waited_for(folder: Path) -> None:
    first = stopped_in_the_middle(folder)
    try:
        left = KernelStore(folder / "k.zarr").missing()
        assert left
        assert ended(begin(folder, *BUILD), 8).splitlines()[-2:] == [
            "error: another process builds k.zarr",
            "hint: wait for it, then run the same command again",
        ]
        trains = ("train", "config.toml", "-o", "early", "-s", "run.store=k.zarr")
        assert f"another process builds {folder / 'k.zarr'}\n" in ended(begin(folder, *trains), 8)
    finally:
        first.kill()
        first.communicate()
    assert (folder / ".k.zarr.lock").exists()
    kept = {path: path.stat().st_mtime_ns for path in (folder / "k.zarr/gram").rglob("*") if path.is_file()}
    ended(begin(folder, *BUILD))
    store = KernelStore(folder / "k.zarr")
    assert store.missing() == []
    assert not list(folder.glob(".k.zarr.*"))
    assert not list(store.path.rglob("*.partial"))
    whole = {path: when for path, when in kept.items() if not path.name.endswith(".partial")}
    assert whole == {path: path.stat().st_mtime_ns for path in whole}
    assert "every checksum right" in ended(begin(folder, "info", "k.zarr", "--verify"))


def test_two_builders_at_once_leave_a_whole_store(folder: Path) -> None:
    ended(begin(folder, *BUILD, "-q"))
    builders = [begin(folder, "kernels", "config.toml", "-o", "both.zarr") for _ in range(2)]
    codes = []
    for builder in builders:
        said = builder.communicate(timeout=LIMIT)[0]
        codes.append(builder.returncode)
        assert builder.returncode == 0 or "another process builds both.zarr" in said
    assert 0 in codes
    alone, both = KernelStore(folder / "k.zarr"), KernelStore(folder / "both.zarr")
    for pair in alone.pairs:
        assert alone.tile_path(*pair).read_bytes() == both.tile_path(*pair).read_bytes()


def test_two_runs_train_as_if_alone(folder: Path) -> None:
    ended(begin(folder, *BUILD, "-q"))
    ended(begin(folder, "train", "k.zarr", "-q", "-o", "alone"))
    store = KernelStore(folder / "k.zarr")
    sound = {pair: store.tile_path(*pair).read_bytes() for pair in store.pairs[::7]}
    for pair in sound:  # both will mend them
        flip_a_bit(store.tile_path(*pair), 50)
    for process in [begin(folder, "train", "k.zarr", "-q", "-o", out) for out in ("one", "other")]:
        ended(process)
    assert_same_model(folder / "alone", folder / "one")
    assert_same_model(folder / "alone", folder / "other")
    assert sound == {pair: store.tile_path(*pair).read_bytes() for pair in sound}
    assert not list(store.path.rglob("*.partial"))
