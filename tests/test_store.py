"""The store on disk: readable by Zarr, resumed by what is there, damage found and named."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import KERNELS, flip_a_bit, single, three_classes, whole

from dmkl._util.tiling import Grid
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_view
from dmkl.errors import OutputError, ResourceError, StoreError
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import KernelStore, build_store, check_space, projected_bytes
from dmkl.store import build as build_module
from dmkl.store.format import write_tile_file
from dmkl.store.store import opened


def copied(store: KernelStore, folder: Path) -> KernelStore:
    return KernelStore(Path(shutil.copytree(store.path, folder / "copy.zarr")))


def test_zarr_itself_reads_what_was_written(store: KernelStore) -> None:
    gram = zarr.open_group(store.path, mode="r")["gram"]
    upper = np.triu(np.ones((store.n, store.n), dtype=bool))
    np.testing.assert_array_equal(np.asarray(gram[:])[:, upper], whole(store)[:, upper])


def test_zarr_reads_a_tile_file_of_ours_in_place_of_its_own(tmp_path: Path) -> None:
    from dmkl.store.format import create_tiled

    values = np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)
    array = create_tiled(zarr.create_group(tmp_path / "a.zarr"), "gram", 3, 8, 8)
    file = tmp_path / "a.zarr/gram/c/0/0/0"
    write_tile_file(file, 8, 3, ((a, [layer[:3], layer[3:]]) for a, layer in enumerate(values)))
    np.testing.assert_array_equal(array[...], values)
    flip_a_bit(file, 4096 + 50)
    np.testing.assert_array_equal(array[0], values[0])
    with pytest.raises(ValueError, match="checksum"):
        array[1]


def test_a_tile_file_needs_every_layer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"layers \[1\] are missing"):
        write_tile_file(tmp_path / "tile", 2, 2, [(0, [np.ones((2, 2), np.float32)])])
    assert not list(tmp_path.iterdir())


def test_only_the_upper_triangle_is_stored(store: KernelStore) -> None:
    files = [path for path in (store.path / "gram" / "c").rglob("*") if path.is_file()]
    assert len(files) == len(store.grid.pairs()) == 10
    assert sum(path.stat().st_size for path in files) == store.nbytes == projected_bytes(store.grid, store.s)


def test_few_kernels_of_few_samples_keep_their_digits(data: Dataset, tmp_path: Path) -> None:
    """Up to `PRECISE_BYTES` tiles are float64, on disk and computed, and in a store that was opened again."""
    bank = plan_bank(KERNELS, data)
    assert bank.dtype == np.float64
    stored = build_store(tmp_path / "k.zarr", bank, data, Local(2), largest_tile=40)
    computed = build_store(tmp_path / "c.zarr", bank, data, Local(2), largest_tile=40, computed=True)
    again = KernelStore(stored.path)
    assert again.bank == bank
    assert again.missing() == []
    coarse = build_store(tmp_path / "s.zarr", single(bank), data, Local(2), largest_tile=40)
    exact, rounded = whole(again), whole(coarse)
    assert exact.dtype == np.float64
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, exact, rtol=1e-5, atol=1e-9)
    assert not np.array_equal(rounded, exact)
    np.testing.assert_allclose(open_stack(computed.path).block([np.arange(data.n)])[0], exact, rtol=1e-12, atol=1e-14)


def test_values_are_those_of_the_kernels(store: KernelStore, data: Dataset) -> None:
    from scipy.spatial.distance import cdist

    X = np.asarray(data.views["points"].values)
    width = store.bank.kernels[0].function.width
    np.testing.assert_allclose(whole(store)[0], np.exp(-cdist(X, X, "sqeuclidean") / (2 * width**2)), rtol=1e-5)


def test_centred_kernels_are_centred_across_tiles(store: KernelStore) -> None:
    a = store.bank.centred[0]
    K = whole(store)[a].astype(np.float64)
    np.testing.assert_allclose(K.sum(axis=0), 0.0, atol=1e-6)
    assert np.trace(K) == pytest.approx(1.0, rel=1e-5)


def test_any_number_of_workers_writes_the_same_bytes(store: KernelStore, data: Dataset, tmp_path: Path) -> None:
    other = build_store(tmp_path / "k.zarr", single(plan_bank(KERNELS, data)), data, Local(1), largest_tile=40)
    for i, j in store.grid.pairs():
        assert store.tile_path(i, j).read_bytes() == other.tile_path(i, j).read_bytes()


def test_only_missing_tiles_are_built_again(
    store: KernelStore, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = copied(store, tmp_path)
    mine.tile_path(0, 2).unlink()
    mine.tile_path(1, 1).unlink()
    half = mine.tile_path(0, 0).with_name("2.0123456789abcdef.partial")
    half.write_bytes(b"cut")
    assert mine.missing() == [(0, 2), (1, 1)]
    filled = []
    monkeypatch.setattr(build_module, "fill_tile", lambda path, identity, i, j: filled.append((i, j)))
    build_store(mine.path, single(plan_bank(KERNELS, data)), data, Local(1))
    assert filled == [(0, 2), (1, 1)]
    assert not half.exists()
    monkeypatch.undo()
    build_store(mine.path, single(plan_bank(KERNELS, data)), data, Local(1))
    assert mine.tile_path(0, 2).read_bytes() == store.tile_path(0, 2).read_bytes()


def test_a_block_of_zeros_is_not_mistaken_for_a_missing_one(tmp_path: Path) -> None:
    data = Dataset({"z": make_view("z", "kernel", np.zeros((30, 30)))})
    built = build_store(
        tmp_path / "z.zarr", plan_bank([KernelConfig("precomputed")], data), data, Local(1), largest_tile=10
    )
    assert built.missing() == []
    assert not built.read_tile(0, 0, 1).any()


@pytest.mark.parametrize("position", [100, -3])
def test_a_flipped_bit_is_found_and_named(store: KernelStore, tmp_path: Path, position: int) -> None:
    mine = copied(store, tmp_path)
    path = mine.tile_path(0, 1)
    flip_a_bit(path, position)
    with pytest.raises(StoreError, match=rf"tile \(0, 1\) of kernel 0 'points/rbf.*is damaged: {path}"):
        mine.read_tile(0, 0, 1)


def test_a_truncated_tile_is_found_and_named(store: KernelStore, tmp_path: Path) -> None:
    mine = copied(store, tmp_path)
    path = mine.tile_path(1, 2)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(StoreError, match=r"tile \(1, 2\) of kernel 2 .* is damaged"):
        mine.read_tile(2, 1, 2)


def test_a_missing_tile_is_said_and_incomplete_stores_are_refused(store: KernelStore, tmp_path: Path) -> None:
    mine = copied(store, tmp_path)
    mine.tile_path(3, 3).unlink()
    with pytest.raises(StoreError, match=r"tile \(3, 3\) of kernel 1 .* is missing"):
        mine.read_tile(1, 3, 3)
    with pytest.raises(StoreError, match="lacks 1 of 10 tiles; finish it with: dmkl kernels"):
        mine.require_complete()


def test_other_data_and_other_kernels_are_refused(store: KernelStore, data: Dataset, tmp_path: Path) -> None:
    mine = copied(store, tmp_path)
    other = three_classes(seed=4)
    with pytest.raises(StoreError, match="was built from other data"):
        build_store(mine.path, plan_bank(KERNELS, other), other, Local(1))
    with pytest.raises(StoreError, match="holds other kernels"):
        build_store(mine.path, plan_bank(KERNELS[:1], data), data, Local(1))
    assert mine.missing() == []


def test_foreign_and_future_stores_are_refused(store: KernelStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no kernel store at"):
        KernelStore(tmp_path)
    zarr.create_group(tmp_path / "other.zarr")
    with pytest.raises(StoreError, match="is not a dmkl kernel store"):
        KernelStore(tmp_path / "other.zarr")
    mine = copied(store, tmp_path)
    header = json.loads((mine.path / "zarr.json").read_text())
    header["attributes"]["dmkl"]["schema"] = 99
    (mine.path / "zarr.json").write_text(json.dumps(header))
    with pytest.raises(StoreError, match="has schema 99, this dmkl reads schema 1"):
        KernelStore(mine.path)
    (mine.path / "zarr.json").write_text("{")
    with pytest.raises(StoreError, match="is not a readable kernel store"):
        KernelStore(mine.path)


def test_a_task_notices_that_its_store_was_replaced(store: KernelStore) -> None:
    with pytest.raises(StoreError, match="was replaced during the run"):
        opened(str(store.path), "another")


def test_a_store_too_large_for_the_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    needed = projected_bytes(Grid.cut(10_000_000, 1024), 100)
    with pytest.raises(ResourceError, match=r"the kernels need .* GB, the disk of .* has .* GB free"):
        check_space(tmp_path / "k.zarr", needed)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [(errno.ENOSPC, ResourceError, "the disk is full"), (errno.EROFS, OutputError, "Read-only file system")],
)
def test_a_full_or_read_only_disk_is_one_clear_refusal(
    store: KernelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type, message: str
) -> None:
    mine = copied(store, tmp_path)
    mine.tile_path(0, 0).unlink()
    monkeypatch.setattr("dmkl.store.format._write_checked", lambda *_: (_ for _ in ()).throw(OSError(code, "no")))
    with pytest.raises(error, match=message):
        mine.write_tile(0, 0, [(0, np.ones((38, 38), np.float32))])
    assert mine.missing() == [(0, 0)]
    assert not list(mine.path.rglob("*.partial"))


SLOW_BUILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from conftest import KERNELS, single, three_classes
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.store import build_store
data = three_classes(400)
def slow(event):
    print(event.done, flush=True)
    time.sleep(0.05)
build_store(Path({path!r}), single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=40, observer=slow)
"""


def test_a_killed_build_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "k.zarr"
    script = SLOW_BUILD.format(tests=str(Path(__file__).parent), path=str(path))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while not path.exists() or len(KernelStore(path).missing()) > 45:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    survived = KernelStore(path)
    left = survived.missing()
    assert 0 < len(left) < 55
    kept = {pair: survived.tile_path(*pair).stat().st_mtime_ns for pair in set(survived.grid.pairs()) - set(left)}
    data = three_classes(400)
    finished = build_store(path, single(plan_bank(KERNELS, data)), data, Local(2))
    assert finished.missing() == []
    assert not list(path.rglob("*.partial"))
    assert kept == {pair: finished.tile_path(*pair).stat().st_mtime_ns for pair in kept}
    undisturbed = build_store(tmp_path / "calm.zarr", single(plan_bank(KERNELS, data)), data, Local(1), largest_tile=40)
    assert np.array_equal(whole(finished), whole(undisturbed))
