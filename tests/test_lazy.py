"""Kernels as a dask array: the values of the stack, read where tasks run, and nothing before."""

from __future__ import annotations

import pickle
from typing import Any

import dask
import dask.array
import numpy as np
import pytest
from conftest import three_classes, whole

from dmkl.errors import SolverError
from dmkl.runtime import Local
from dmkl.stack import KernelStack, open_stack
from dmkl.stack.tiles import StoredSource, WorkerSource, hold_block_row
from dmkl.store import KernelStore, place


def sent(array: Any) -> int:
    """Bytes of the graph of a dask array, as it is sent."""
    return len(pickle.dumps(dict(array.__dask_graph__())))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The tiles that are read from stores in this process."""
    found: list[tuple[int, int, int]] = []
    read = KernelStore.read_tile

    def counted(self: KernelStore, a: int, i: int, j: int) -> Any:
        found.append((a, i, j))
        return read(self, a, i, j)

    monkeypatch.setattr(KernelStore, "read_tile", counted)
    return found


def test_nothing_is_read_before_it_is_needed(store: KernelStore, reads: list[tuple[int, int, int]]) -> None:
    stack = open_stack(store, backend="disk")
    lazy = stack.to_dask()
    assert reads == []
    assert lazy.shape == (6, 150, 150)
    assert lazy.chunks == ((6,), (38, 38, 38, 36), (38, 38, 38, 36))
    values = lazy[2:4, 140:, :10].compute(scheduler="synchronous")
    assert reads == [(a, 0, 3) for a in range(6)]  # the mirror image of a chunk below the diagonal, and no other
    np.testing.assert_array_equal(values, whole(store)[2:4, 140:, :10])


def test_chunks_are_as_large_as_dask_is_set_to(store: KernelStore) -> None:
    stack = open_stack(store, backend="disk")
    tile = 38 * 38 * 4
    for size, kernels in ((2 * tile, (2, 2, 2)), (1, (1,) * 6), (1e9, (6,))):
        with dask.config.set({"array.chunk-size": int(size)}):
            lazy = stack.to_dask()
        assert lazy.chunks[0] == kernels
        np.testing.assert_array_equal(lazy.compute(scheduler="threads"), whole(store))


def test_equal_kernels_have_equal_names(store: KernelStore) -> None:
    stack = open_stack(store, backend="disk")
    again = open_stack(store, backend="memory")
    part = stack.restrict(np.arange(0, 150, 2))
    names = [one.to_dask().name for one in (stack, again, part, stack.choose([1, 2]), stack.choose([2, 1]))]
    assert names[0] == names[1]
    assert len(set(names)) == 4
    with dask.config.set({"array.chunk-size": 1}):
        assert stack.to_dask().name != names[0]


def test_a_store_is_sent_by_its_path_and_read_by_the_workers(
    store: KernelStore, two_workers: Any, reads: list[tuple[int, int, int]]
) -> None:
    stack = KernelStack.open(store.path, client=two_workers.client)
    part = stack.choose([4, 1]).restrict(np.arange(0, 150, 3))
    for one, expected in ((stack, whole(store)), (part, whole(store)[[4, 1]][:, ::3, ::3])):
        lazy = one.to_dask()
        assert sent(lazy) < 20_000
        reads.clear()
        np.testing.assert_array_equal(two_workers.client.compute(lazy).result(), expected)
        assert reads == []  # not here


def test_an_array_and_features_work_on_a_cluster_too(two_workers: Any) -> None:
    rng = np.random.default_rng(0)
    K = rng.normal(size=(3, 50, 50))
    arrays = KernelStack.from_array(K, largest_tile=20)
    features = KernelStack.from_features(rng.normal(size=(50, 4)), [{"kernel": "rbf", "subsets": 5}], largest_tile=20)
    gaussians = features.block([np.arange(50)])[0]
    cases = (
        (arrays, K),  # not symmetric: both halves are its own
        (arrays.restrict(np.arange(5, 45)), K[:, 5:45, 5:45]),
        (arrays.choose([2, 0]), K[[2, 0]]),
        (features, gaussians),
        (features.choose([3, 0]), gaussians[[3, 0]]),
    )
    for stack, expected in cases:
        lazy = stack.to_dask()
        np.testing.assert_allclose(lazy.compute(scheduler="threads"), expected, rtol=1e-6)
        np.testing.assert_allclose(two_workers.client.compute(lazy).result(), expected, rtol=1e-6)


def test_chunks_of_an_array_are_views_of_it() -> None:
    K = np.random.default_rng(0).normal(size=(3, 50, 50))
    lazy = KernelStack.from_array(K, largest_tile=20).to_dask()
    graph = dict(lazy.__dask_graph__())
    blocks = [dask.get(graph, key) for key in graph]
    assert len(blocks) == 9
    assert all(np.shares_memory(block, K) for block in blocks)
    np.testing.assert_allclose((lazy @ np.ones(50)).compute(), K @ np.ones(50), rtol=1e-10)


def test_a_damaged_tile_is_computed_again(store: KernelStore, tmp_path: Any) -> None:
    import shutil

    mine = KernelStore(shutil.copytree(store.path, tmp_path / "copy.zarr"))
    mine.tile_path(0, 1).write_bytes(b"damaged")
    np.testing.assert_array_equal(open_stack(mine, backend="disk").to_dask().compute(), whole(store))
    assert (mine.path / place.LOG).exists()


def test_kernels_that_only_workers_hold_are_refused(store: KernelStore, two_workers: Any) -> None:
    source = StoredSource(store)
    rows = [two_workers.hold(hold_block_row, row) for row in source.rows]
    held = WorkerSource(rows, source.grid, source.s, runtime=two_workers, dtype=source.dtype)
    with pytest.raises(SolverError, match="only the workers of a cluster hold"):
        KernelStack(held, runtime=two_workers).to_dask()


def test_a_kernel_that_is_not_symmetric_keeps_both_halves(tmp_path: Any) -> None:
    from dmkl.config import KernelConfig
    from dmkl.data import Dataset, make_view
    from dmkl.kernels import plan_bank
    from dmkl.store import build_store

    K = np.random.default_rng(0).normal(size=(40, 40))
    data = Dataset({"k": make_view("k", "kernel", K, symmetric=False)}, three_classes(40).labels)
    store = build_store(
        tmp_path / "k.zarr", plan_bank([KernelConfig("similarity")], data), data, Local(1), largest_tile=15
    )
    np.testing.assert_allclose(open_stack(store, backend="disk").to_dask()[0].compute(), K, rtol=1e-12)
