"""A disk that is really full: one line names the file, nothing is half-written, with more room the run continues."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same_model, flip_a_bit, small_working_sets
from test_cli import folder, run

from dmkl._util.files import append_line
from dmkl.cli.console import Console
from dmkl.errors import ResourceError
from dmkl.events import Event, RoundDone
from dmkl.solvers.state import DIGEST
from dmkl.stack import open_stack
from dmkl.store import KernelStore
from dmkl.store.format import LayoutOptions
from dmkl.store.store import opened

__all__ = ["folder"]  # a fixture
VSKL = ("-s", "formulation.name=vskl", "-s", "solve.tol=1e-6", "-q")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 640 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "dmkl", str(path)], capture_output=True).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield path
    opened.cache_clear()  # its tile files are mapped
    subprocess.run(["umount", str(path)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """A file that fills the disk but for `leave` bytes."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free - leave))
    return ballast


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The error; the hint is checked here."""
    what, to_do = [line for line in capsys.readouterr().err.splitlines() if line]
    assert to_do == "hint: free some space and run the same command again"
    return what


@pytest.mark.parametrize("cluster", ["none", "local:1"])
def test_a_store_goes_on_when_there_is_room_again(
    folder: Path, disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    store = disk / "k.zarr"
    build = ("kernels", "config.toml", "-q", "-o", str(store), "-s", "run.tile=20", "--cluster", cluster)
    monkeypatch.setattr(
        "dmkl.store.format.LAYOUT", LayoutOptions(free_margin=0.0)
    )  # somebody else fills the disk while the tiles are built
    ballast = fill(disk)
    assert run(*build) == 6
    assert f"error: the disk is full: cannot write {store}" in complaint(capsys)
    assert list(disk.iterdir()) == [ballast]
    ballast.unlink()
    fill(disk, leave=160_000)
    assert run(*build) == 6
    assert f"error: the disk is full: cannot write {store}/gram/c/0/" in complaint(capsys)
    assert not list(disk.rglob("*.partial"))
    assert 0 < len(KernelStore(store).missing()) < len(KernelStore(store).pairs)
    ballast.unlink()
    assert run(*build) == 0
    assert run("info", str(store), "--verify", "-q") == 0


def test_a_store_that_cannot_fit_is_not_begun(folder: Path, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(disk, leave=100_000)
    assert run("kernels", "config.toml", "-o", str(disk / "k.zarr")) == 6
    assert "the kernels need 0.00 GB, the disk of" in capsys.readouterr().err


@pytest.fixture
def calm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store, and an undisturbed run of several rounds on it."""
    small_working_sets(monkeypatch, start=10, least_growth=10)
    assert run("kernels", "config.toml", "-q", "-o", "k.zarr") == 0
    assert run("train", "k.zarr", "-o", "calm", *VSKL) == 0
    return folder


@pytest.mark.parametrize(("last", "named"), [(False, "checkpoint"), (True, "model.zarr.zip")])
def test_a_run_keeps_its_last_checkpoint_and_goes_on(
    calm: Path, disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, last: bool, named: str
) -> None:
    out = disk / "run"
    command = ("train", "k.zarr", "-o", str(out), *VSKL)

    def full(self: Console, event: Event) -> None:
        if isinstance(event, RoundDone) and event.finished == event.classes * last and not (disk / "ballast").exists():
            fill(disk)

    with monkeypatch.context() as patch:
        patch.setattr(Console, "observe", full)
        assert run(*command) == 6
    assert f"error: the disk is full: cannot write {out / named}" in complaint(capsys)
    assert not [path for path in out.iterdir() if "partial" in path.name]
    assert (out / "checkpoint").stat().st_size > DIGEST
    rounds = written(out)
    assert rounds
    (disk / "ballast").unlink()
    assert run(*command) == 0
    assert written(out)[: len(rounds)] == rounds
    assert len(set(written(out))) == len(written(out))  # none again: the checkpoint was whole
    assert_same_model(calm / "calm", out)


def written(out: Path) -> list[int]:
    """The rounds in events.jsonl, all of whose lines are complete."""
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [event["round"] for event in events if event["event"] == "RoundDone"]


def test_a_line_is_added_as_a_whole_or_not_at_all(disk: Path) -> None:
    log = disk / "log"
    log.write_bytes(b"-" * 4089 + b"\n")  # six more bytes fit in its last page
    ballast = fill(disk)
    with pytest.raises(ResourceError, match=f"the disk is full: cannot write {log}"):
        append_line(log, "more than six bytes")
    assert log.stat().st_size == 4090
    ballast.unlink()
    append_line(log, "more than six bytes")
    assert log.read_text().endswith("-\nmore than six bytes\n")


def test_a_tile_that_cannot_be_mended_for_lack_of_room_is_named(
    folder: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("kernels", "config.toml", "-q", "-o", str(disk / "k.zarr")) == 0
    store = KernelStore(disk / "k.zarr")
    ballast = fill(disk)
    broken = store.tile_path(0, 1)
    flip_a_bit(broken, 50)
    stack = open_stack(store.path, backend="disk")
    with pytest.raises(ResourceError, match=rf"is damaged: {broken}; the disk is full: cannot write {broken}"):
        stack.combine(np.ones(store.s))
    ballast.unlink()
    stack.combine(np.ones(store.s))
    assert len(stack.news()) == 1
