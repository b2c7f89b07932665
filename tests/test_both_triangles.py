"""Stores with the tiles below the diagonal, for programs that open the array themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dask.array
import numpy as np
import pytest
import zarr
from conftest import KERNELS, save_npz, single, three_classes, whole

import dmkl
from dmkl.cli.main import main
from dmkl.data import Dataset
from dmkl.errors import ConfigError, ResourceError, StoreError
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import KernelStore, build_store
from dmkl.store import build as build_module


@pytest.fixture(scope="module")
def full(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    """The kernels of `store` with all tiles; tests must not change it."""
    path = tmp_path_factory.mktemp("full") / "k.zarr"
    return build_store(path, single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=40, full=True)


def test_dask_reads_both_triangles_of_a_full_store(full: KernelStore, store: KernelStore) -> None:
    K = dask.array.from_zarr(str(full.path), component="gram").compute(scheduler="threads")
    np.testing.assert_array_equal(K, whole(store))
    np.testing.assert_array_equal(K, K.transpose(0, 2, 1))
    assert full.nbytes == store.nbytes // 10 * 16


def test_half_a_store_reads_as_nan_and_says_why(full: KernelStore, store: KernelStore) -> None:
    half = dask.array.from_zarr(str(store.path), component="gram").compute(scheduler="threads")
    assert np.isnan(half[:, 60, 0]).all()
    group = zarr.open_group(store.path, mode="r")
    for attributes in (group.attrs, group["gram"].attrs):
        assert "all others read as NaN" in attributes["note"]
        assert "dmkl.KernelStack.open(path).to_dask()" in attributes["note"]
    assert "note" not in zarr.open_group(full.path, mode="r").attrs


def test_passes_read_half_of_a_full_store(full: KernelStore, store: KernelStore, data: Dataset) -> None:
    """So they take as long as without it, and fits have the same bits."""
    stacks = [open_stack(one, backend="disk") for one in (full, store)]
    assert [stack.grid.tiles for stack in stacks] == [10, 10]
    one, other = (dmkl.solve(stack, data.labels, dmkl.VSKL(C=5.0)) for stack in stacks)
    np.testing.assert_array_equal(one.coef, other.coef)
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(stacks[0].to_dask().compute(), whole(store))


def test_a_build_goes_on_and_a_damaged_mirror_image_is_mended(
    full: KernelStore, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = KernelStore(Path(shutil.copytree(full.path, tmp_path / "copy.zarr")))
    for pair in ((0, 1), (1, 0), (3, 2)):
        mine.tile_path(*pair).unlink()
    with pytest.raises(StoreError, match="lacks 3 of 16 tiles"):
        mine.require_complete()
    filled: list[tuple[int, int]] = []
    fill = build_module.fill_tile
    monkeypatch.setattr(build_module, "fill_tile", lambda *task: filled.append(task[2:]) or fill(*task))
    bank = single(plan_bank(KERNELS, data))
    build_store(mine.path, bank, data, Local(1), full=True)
    assert filled == [(0, 1), (1, 0), (3, 2)]  # a mirror image comes after what it mirrors
    for pair in filled:
        assert mine.tile_path(*pair).read_bytes() == full.tile_path(*pair).read_bytes()
    mine.tile_path(2, 0).write_bytes(b"cut")
    tile = build_module.sound_tile(mine, 1, 2, 0)
    np.testing.assert_array_equal(tile, full.read_tile(1, 0, 2).T)
    other = np.random.default_rng(0).random((6, 38, 38)).astype(np.float32)
    mine.write_tile(0, 1, ((a, [layer]) for a, layer in enumerate(other)))
    mine.tile_path(1, 0).unlink()
    build_store(mine.path, bank, data, Local(1))  # whoever needs half of it may have all of it
    np.testing.assert_array_equal(mine.read_tile(4, 1, 0), other[4].T)  # copied, not computed


def test_half_a_store_is_not_taken_for_a_full_one(store: KernelStore, data: Dataset, tmp_path: Path) -> None:
    bank = single(plan_bank(KERNELS, data))
    with pytest.raises(StoreError, match="has only the tiles on and above the diagonal; choose another place"):
        build_store(store.path, bank, data, Local(1), full=True)
    with pytest.raises(ConfigError, match="a store without tiles cannot be full"):
        build_store(tmp_path / "k.zarr", bank, data, Local(1), full=True, computed=True)
    assert not list(tmp_path.iterdir())


CONFIG = """
[data]
path = "data.npz"
[[kernels]]
kernel = "rbf"
[formulation]
name = "uniform"
[run]
tile = 40
"""


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_npz(tmp_path / "data.npz", three_classes(120))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert main(["kernels", "config.toml", "-q", "-o", "half.zarr"]) == 0
    assert main(["kernels", "config.toml", "-o", "full.zarr", "--full", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tiles"] == 9
    assert not Path("full.zarr").exists()
    assert main(["kernels", "config.toml", "-o", "full.zarr", "--full"]) == 0
    assert not np.isnan(dask.array.from_zarr("full.zarr", component="gram")).any().compute()
    assert KernelStore(Path("full.zarr")).config["run"]["full"] is True
    assert main(["info", "full.zarr", "--verify"]) == 0
    assert "9 tiles read, every checksum right" in capsys.readouterr().out
    assert main(["kernels", "config.toml", "-o", "half.zarr", "--full"]) == 5
    assert "half.zarr has only the tiles on and above the diagonal\nhint: choose" in capsys.readouterr().err
    settings = ["-s", "run.full=true"]
    assert main(["train", "config.toml", "-q", "-o", "no", *settings, "-s", "run.kernels=compute"]) == 2
    assert "run.full stores every tile, run.kernels = 'compute' stores none" in capsys.readouterr().err
    assert main(["train", "config.toml", "-q", "-o", "run", *settings]) == 0  # stored, though computing is cheaper
    assert len([path for path in Path("run/kernels.zarr/gram/c/0").rglob("*") if path.is_file()]) == 9


def test_room_for_all_tiles_is_asked_for(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: KernelStore
) -> None:
    def refuse(path: Path, needed: int) -> None:
        raise ResourceError(f"{needed}")

    monkeypatch.setattr("dmkl.store.store.check_space", refuse)
    with pytest.raises(ResourceError, match=str(full.nbytes)):
        build_store(tmp_path / "k.zarr", single(plan_bank(KERNELS, data)), data, Local(1), largest_tile=40, full=True)
