"""A checkpoint belongs to the very kernels it was made from: the same kernels go on from it, others never do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import KERNELS, single, three_classes, whole

import dmkl
from dmkl.errors import StoreError
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore, build_store

EVEN, ODD = np.arange(0, 150, 2), np.arange(1, 150, 2)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    """A store of the same kernels of other samples."""
    data = three_classes(seed=4)
    path = tmp_path_factory.mktemp("other") / "k.zarr"
    return build_store(path, single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=40)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> tuple[KernelStore, KernelStore]:
    """Two stores without tiles, of different samples."""
    folder, stores = tmp_path_factory.mktemp("computed"), []
    for seed in (3, 4):
        data = three_classes(seed=seed)
        path = folder / f"{seed}.zarr"
        stores.append(
            build_store(path, single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=40, computed=True)
        )
    return stores[0], stores[1]


Pair = Callable[[KernelStack, KernelStack], tuple[KernelStack, KernelStack]]
# what is made of a stack and of one with other kernels: two stacks of the same shape that are not the same
DERIVED: dict[str, Pair] = {
    "itself": lambda one, other: (one, other),
    "the same choice": lambda one, other: (one.choose([0, 3]), other.choose([0, 3])),
    "another choice": lambda one, other: (one.choose([0, 3]), one.choose([3, 0])),
    "the same part": lambda one, other: (one.restrict(EVEN), other.restrict(EVEN)),
    "another part": lambda one, other: (one.restrict(EVEN), one.restrict(ODD)),
    "a part of a choice": lambda one, other: (one.choose([0, 3]).restrict(EVEN), one.choose([0, 2]).restrict(EVEN)),
    "a choice of a part": lambda one, other: (one.restrict(EVEN).choose([0, 3]), one.restrict(ODD).choose([0, 3])),
    "a part of a part": lambda one, other: (
        one.restrict(EVEN).restrict(np.arange(60)),
        one.restrict(EVEN).restrict(np.arange(1, 61)),
    ),
}
SOURCES = ("array", "memory", "disk", "computed", "cluster", "computed store")


def stacks(name: str, request: pytest.FixtureRequest) -> tuple[KernelStack, KernelStack]:
    """A new stack of some kernels and one of others, of the same shape."""
    pair = request.getfixturevalue("store"), request.getfixturevalue("other")
    if name == "array":
        one, other = (KernelStack.from_array(whole(store), largest_tile=40) for store in pair)
    elif name == "cluster":
        runtime = request.getfixturevalue("two_workers")
        one, other = (open_stack(store.path, runtime=runtime) for store in pair)
    elif name == "computed store":
        one, other = (open_stack(store.path, workers=2) for store in request.getfixturevalue("computed"))
    else:
        one, other = (open_stack(store.path, workers=2, backend=name) for store in pair)
    return one, other


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("derived", DERIVED)
def test_the_same_kernels_have_the_same_identity_and_others_another(
    source: str, derived: str, request: pytest.FixtureRequest
) -> None:
    one, other = DERIVED[derived](*stacks(source, request))
    again, _ = DERIVED[derived](*stacks(source, request))
    assert one.identity == again.identity
    assert one.identity != other.identity
    assert one.names == other.names or derived == "another choice" or "of a choice" in derived


@pytest.mark.parametrize("source", ["array", "memory", "disk", "computed store"])
@pytest.mark.parametrize("derived", DERIVED)
def test_a_checkpoint_is_taken_up_for_the_same_kernels_only(
    source: str, derived: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    one, other = DERIVED[derived](*stacks(source, request))
    again, _ = DERIVED[derived](*stacks(source, request))
    y = np.arange(one.n) % 2
    fit = dmkl.solve(one, y, dmkl.VSKL(C=1.0), checkpoint=tmp_path / "c")
    resumed = dmkl.solve(again, y, dmkl.VSKL(C=1.0), checkpoint=tmp_path / "c")
    assert np.array_equal(resumed.coef, fit.coef)
    assert not resumed.history, "no round is left to do"
    with pytest.raises(StoreError, match="belongs to another problem"):
        dmkl.solve(other, y, dmkl.VSKL(C=1.0), checkpoint=tmp_path / "c")


def test_the_values_of_an_array_are_its_identity() -> None:
    K = np.stack([np.eye(4), np.ones((4, 4))])
    identity = KernelStack.from_array(K).identity
    assert KernelStack.from_array(K.copy(), largest_tile=2, workers=1).identity == identity
    assert KernelStack.from_array(np.asfortranarray(K)).identity == identity
    assert KernelStack.from_array(K.astype(np.float32)).identity != identity
    K[1, 3, 0] = K[1, 0, 3] = 0.5
    assert KernelStack.from_array(K).identity != identity


def test_groups_are_part_of_the_problem(store: KernelStore, tmp_path: Path) -> None:
    K, y = whole(store), np.arange(store.n) % 2
    groups = [[0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2]]
    one, other = (KernelStack.from_array(K, groups=labels) for labels in groups)
    assert one.identity == other.identity
    dmkl.solve(one, y, dmkl.VSKL(q=1.5, C=1.0), checkpoint=tmp_path / "c")
    with pytest.raises(StoreError, match="belongs to another problem"):
        dmkl.solve(other, y, dmkl.VSKL(q=1.5, C=1.0), checkpoint=tmp_path / "c")


def test_groups_of_a_store_go_with_its_id(store: KernelStore, tmp_path: Path) -> None:
    """A checkpoint that was written before groups were part of the problem is continued."""
    stack, y = open_stack(store.path), np.arange(store.n) % 2
    assert stack.identity == store.id
    for derived in (stack, stack.choose([5, 0]), stack.restrict(EVEN), stack.choose([4, 2]).restrict(ODD)):
        assert not derived.own_groups
    dmkl.solve(stack, y, dmkl.VSKL(q=1.5, C=1.0), checkpoint=tmp_path / "c")
    stack.groups = np.array([0, 1, 2, 0, 1, 2])
    assert stack.own_groups
    with pytest.raises(StoreError, match="belongs to another problem"):
        dmkl.solve(stack, y, dmkl.VSKL(q=1.5, C=1.0), checkpoint=tmp_path / "c")


def test_derived_stacks_inherit_groups_and_whether_they_are_their_own(store: KernelStore, two_workers: Any) -> None:
    for own in (False, True):
        stack = open_stack(store.path, backend="disk")
        if own:
            stack.groups = np.array([3, 1, 2, 0, 1, 2])
        assert stack.own_groups == own
        part = stack.restrict(EVEN)
        derived = {
            (0, 1, 2, 3, 4, 5): [part, stack.moved(two_workers), part.moved(two_workers), stack.over(stack.source)],
            (5, 0, 3): [stack.choose([5, 0, 3]), part.choose([5, 0, 3]), stack.choose([5, 0, 3]).moved(two_workers)],
        }
        for kernels, found in derived.items():
            for one in found:
                assert one.own_groups == own
                assert one.groups.tolist() == stack.groups[list(kernels)].tolist(), "the same numbers, not from 0 on"
                assert one.names == tuple(stack.names[a] for a in kernels)


def test_kept_scores_of_a_search_are_those_of_the_same_kernels(
    store: KernelStore, other: KernelStore, tmp_path: Path
) -> None:
    def scores(K: np.ndarray, folder: Path | None) -> list[float]:
        stack, labels = KernelStack.from_array(K), np.arange(len(K[0])) % 2
        found = dmkl.tune(stack, labels, [dmkl.UniformMKL(C=1.0)], folds=3, folder=folder)
        return [row.mean for row in found.rows]

    first = scores(whole(store), tmp_path)
    assert scores(whole(store), tmp_path) == first
    assert scores(whole(other), tmp_path) == scores(whole(other), None)


@pytest.mark.parametrize("kernels", [range(6), [5, 0, 3]])
def test_a_search_goes_on_on_a_cluster(store: KernelStore, two_workers: Any, tmp_path: Path, kernels: Any) -> None:
    stack, points = open_stack(store.path).choose(kernels), [dmkl.VSKL(q=1.5, C=1.0)]
    here = dmkl.tune(stack, store.labels, points, folds=3, folder=tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    there = dmkl.tune(stack, store.labels, points, folds=3, folder=tmp_path, client=two_workers.client)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")} == kept, "nothing is scored again"
    assert there.rows == here.rows


def test_nothing_is_hashed_before_a_checkpoint_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    K = np.eye(30)[None] + 1.0
    y = np.arange(30) % 2
    stack = KernelStack.from_array(K)
    monkeypatch.setattr("hashlib.blake2b", lambda *a, **k: asked.append(a) or pytest.fail("a digest was made"))
    dmkl.solve(stack, y, dmkl.UniformMKL())
    dmkl.tune(stack, y, [dmkl.UniformMKL(C=1.0)], folds=3)
    assert not asked


def test_a_stack_that_was_sent_has_its_identity(store: KernelStore) -> None:
    for stack in (KernelStack.from_array(whole(store)), open_stack(store.path, backend="disk")):
        for derived in (stack, stack.choose([0, 2]), stack.restrict(EVEN), stack.choose([1]).restrict(ODD)):
            assert pickle.loads(pickle.dumps(derived)).identity == derived.identity
