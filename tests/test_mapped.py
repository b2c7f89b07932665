"""Tile files are mapped: shared with other processes, verified once, looked at before every use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import flip_a_bit

from dmkl._util.tiling import Grid
from dmkl._util.types import FloatArray
from dmkl.store import mapped
from dmkl.store.format import PAGE, write_tile_file
from dmkl.store.mapped import TileMaps
from dmkl.store.store import tile_bytes

SIDE, DEPTH = 40, 3
SIZE = tile_bytes(Grid(SIDE, SIDE), DEPTH)
FLOAT = np.dtype(np.float32)


def written(path: Path, seed: int = 0) -> FloatArray:
    values = np.random.default_rng(seed).random((DEPTH, SIDE, SIDE)).astype(np.float32)
    write_tile_file(path, SIDE, DEPTH, ((a, [layer]) for a, layer in enumerate(values)))
    return values


def read(maps: TileMaps, path: Path, a: int = 0) -> FloatArray:
    return maps.layer(path, a, SIDE, DEPTH, SIZE, FLOAT)


def maps_of(path: Path) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]


def is_open(path: Path) -> bool:
    return str(path) in [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tile"


def test_layers_are_those_that_were_written_and_are_read_only(path: Path) -> None:
    values = written(path)
    assert path.stat().st_size == SIZE
    maps = TileMaps()
    for a in (2, 0, 1, 2):
        layer = read(maps, path, a)
        assert np.array_equal(layer, values[a])
        assert not layer.flags.writeable
        assert layer.ctypes.data % PAGE == 0
    assert len(maps_of(path)) == 1, "nothing is copied"
    assert not is_open(path), "no file stays open"


def test_an_array_keeps_its_file_mapped(path: Path) -> None:
    values = written(path)
    layer = read(TileMaps(), path)
    path.unlink()
    assert np.array_equal(layer, values[0])
    del layer
    assert not maps_of(path)


def test_a_file_that_was_replaced_is_mapped_anew(path: Path) -> None:
    written(path)
    maps = TileMaps()
    old = read(maps, path).copy()
    new = written(path, seed=1)
    assert np.array_equal(read(maps, path), new[0])
    assert not np.array_equal(old, new[0])


def test_checksums_are_verified_once_and_again_after_a_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = written(path)
    seen, verify = [], mapped.verify
    monkeypatch.setattr(mapped, "verify", lambda checked, where: seen.append(len(checked)) or verify(checked, where))
    maps = TileMaps()
    for _ in range(3):
        assert np.array_equal(read(maps, path, 1), values[1])
    assert len(seen) == 2, "the index and the layer"
    flip_a_bit(path, PAGE * 2 + 8)
    assert np.array_equal(read(maps, path, 0), values[0])
    with pytest.raises(ValueError, match="checksum"):
        read(maps, path, 1)


@pytest.mark.parametrize("kept", [0, 10, SIZE - 1])
def test_a_file_that_was_cut_short_is_found_before_it_is_read(path: Path, kept: int) -> None:
    written(path)
    maps = TileMaps()
    read(maps, path)
    os.truncate(path, kept)
    with pytest.raises(ValueError, match="is no file of"):
        read(maps, path)
    values = written(path)
    assert np.array_equal(read(maps, path), values[0])


def test_what_is_no_file_is_refused(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(TileMaps(), path)
    path.mkdir()
    with pytest.raises(ValueError, match="is no file"):
        read(TileMaps(), path)
    written(path.with_name("other"))
    path.rmdir()
    path.symlink_to("other")
    with pytest.raises(ValueError, match="is no file"):
        read(TileMaps(), path)


def test_files_beyond_the_room_are_let_go_and_stay_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"tile{number}" for number in range(5)]
    values = [written(path, seed) for seed, path in enumerate(paths)]
    maps = TileMaps()
    maps.room = 2 * SIZE
    for path, own in zip(paths, values, strict=True):
        assert np.array_equal(read(maps, path), own[0])
        assert sum(len(maps_of(one)) for one in paths) <= 2
    assert [len(maps_of(path)) for path in paths] == [0, 0, 0, 1, 1]
    monkeypatch.setattr(mapped, "verify", lambda checked, where: len(checked) < 1000 or pytest.fail("verified again"))
    assert np.array_equal(read(maps, paths[0]), values[0][0])
    maps.room = 1
    assert np.array_equal(read(maps, paths[1]), values[1][0]), "one file may be mapped in any case"


def test_many_threads_map_and_let_go(tmp_path: Path) -> None:
    paths = [tmp_path / f"tile{number}" for number in range(6)]
    values = [written(path, seed) for seed, path in enumerate(paths)]
    maps = TileMaps()
    maps.room = 2 * SIZE

    def check(turn: int) -> bool:
        return np.array_equal(read(maps, paths[turn % 6], turn % DEPTH), values[turn % 6][turn % DEPTH])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(600)))


def test_files_of_earlier_versions_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their layers follow each other without a gap, so that those in float64 are not aligned."""
    monkeypatch.setattr("dmkl.store.format.aligned", lambda position: position)
    values = np.random.default_rng(0).random((DEPTH, SIDE, SIDE))
    write_tile_file(path, SIDE, DEPTH, ((a, [layer]) for a, layer in enumerate(values)), np.dtype(np.float64))
    size = tile_bytes(Grid(SIDE, SIDE), DEPTH, np.dtype(np.float64), paged=False)
    assert path.stat().st_size == size
    for a in range(DEPTH):
        layer = TileMaps().layer(path, a, SIDE, DEPTH, size, np.dtype(np.float64))
        assert np.array_equal(layer, values[a])
        assert layer.flags.aligned


def test_a_file_cut_short_under_its_map_ends_the_process_and_no_other(path: Path) -> None:
    """What cannot be caught: the file changes between the look at it and the read. The next process finds it."""
    written(path)
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path; from test_mapped import *\n"
        f"path = Path({str(path)!r}); layer = read(TileMaps(), path); os.truncate(path, 0); print(layer.sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGBUS
    with pytest.raises(ValueError, match="is no file"):
        read(TileMaps(), path)
