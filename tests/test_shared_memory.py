"""Arrays that other processes of this machine fill, and sums that tasks make."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import whole
from hypothesis import given
from hypothesis import strategies as st

from dmkl._util import shared_memory, stopping
from dmkl._util.shared_memory import KeptArrays, SharedArrays, opened_again, share_arrays
from dmkl.runtime import Local, Runtime
from dmkl.runtime.base import PairwiseSum
from dmkl.stack import open_stack
from dmkl.store import KernelStore

SHAPES = ((2, 3, 5), (0, 4, 4), (1, 7, 7))
DOUBLE = np.dtype(np.float64)


@pytest.fixture
def shared() -> Iterator[tuple[list[np.ndarray], SharedArrays, int]]:
    made = share_arrays(SHAPES, DOUBLE)
    yield made
    os.close(made[2])


def test_another_process_fills_them(shared: tuple[list[np.ndarray], SharedArrays, int]) -> None:
    arrays, address, _ = shared
    assert [array.shape for array in arrays] == list(SHAPES)
    assert all((array == 0).all() for array in arrays)
    code = (
        "import pickle, sys; address = pickle.loads(sys.stdin.buffer.read())\n"
        "for number, array in enumerate(address.opened()): array[...] = number + 1"
    )

    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(address), check=True, cwd=Path(__file__).parents[1])
    for number, array in enumerate(arrays):
        assert (array == number + 1).all()


def test_what_is_out_of_reach_or_something_else_is_an_error() -> None:
    arrays, address, file = share_arrays(SHAPES, DOUBLE)
    other, another, second = share_arrays(SHAPES, DOUBLE)
    wrong = SharedArrays(another.path, address.token, SHAPES, DOUBLE)
    with pytest.raises(OSError, match="is something else"):
        wrong.opened()
    with pytest.raises(OSError, match="is something else"):
        SharedArrays(another.path, another.token, SHAPES[:1], DOUBLE).opened()
    os.close(file)
    os.close(second)
    with pytest.raises(FileNotFoundError):
        address.opened()
    arrays[0][...] = 3.0  # they stay
    assert not other[0].any()


def test_workers_that_cannot_reach_the_blocks_send_them(
    store: KernelStore, two_workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [np.arange(0, 150, 3), np.arange(40)]
    expected = [whole(store)[:, W[:, None], W] for W in sets]
    stack = open_stack(store.path, runtime=two_workers)
    for block, right in zip(stack.block(sets), expected, strict=True):
        assert np.array_equal(block, right)
    share = shared_memory.share_arrays

    def elsewhere(*of: Any) -> Any:
        arrays, address, file = share(*of)
        return arrays, SharedArrays("/proc/0/fd/0", address.token, address.shapes, address.dtype), file

    monkeypatch.setattr(shared_memory, "share_arrays", elsewhere)
    for block, right in zip(stack.block(sets), expected, strict=True):
        assert np.array_equal(block, right)


def test_arrays_that_are_kept_are_the_same_until_their_shapes_change() -> None:
    kept = KeptArrays()
    one, address = kept.arrays(SHAPES, DOUBLE)
    again, same = kept.arrays(SHAPES, DOUBLE)
    assert same is address
    assert np.shares_memory(one[0], again[0])
    assert opened_again(address) is opened_again(same)
    other, another = kept.arrays(SHAPES[:1], DOUBLE)
    assert another != address
    one[0][...] = 7.0
    assert not other[0].any()
    with pytest.raises(OSError, match=r"something else|No such file"):
        address.opened()
    assert pickle.loads(pickle.dumps(kept)).arrays(SHAPES, DOUBLE)[1] != another
    before = len(list(Path("/proc/self/fd").iterdir()))
    del kept
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1


@pytest.mark.parametrize("where", ["threads", "workers"])
def test_passing_blocks_are_overwritten_by_the_next_ones(
    store: KernelStore, where: str, request: pytest.FixtureRequest
) -> None:
    runtime = Local(2) if where == "threads" else request.getfixturevalue("two_workers")
    stack, W, K = open_stack(store.path, runtime=runtime), np.arange(0, 150, 2), whole(store)[:, ::2, ::2]
    first = stack.block([W], kernels=[[0, 1]], passing=True)[0]
    assert np.array_equal(first, K[:2])
    second = stack.block([W], kernels=[[3, 2]], passing=True)[0]
    assert np.array_equal(second, K[[3, 2]])
    assert np.shares_memory(first, second)
    apart = stack.block([W], kernels=[[0, 1]])[0]
    assert not np.shares_memory(apart, second)


# --- sums that tasks make


def joined(one: str, two: str) -> str:
    return f"({one}{two})"


def lettered(number: int) -> str:
    return chr(ord("a") + number)


def test_a_sum_is_a_tree_that_depends_on_the_number_alone() -> None:
    found = {}
    for count in (1, 2, 3, 4, 5, 8):
        total = PairwiseSum(joined)
        for number in range(count):
            total.add(lettered(number))
        found[count] = total.total()
    assert found == {1: "a", 2: "(ab)", 3: "((ab)c)", 4: "((ab)(cd))", 5: "(((ab)(cd))e)", 8: "(((ab)(cd))((ef)(gh)))"}


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=70))
def test_nothing_is_lost_in_a_sum(values: list[int]) -> None:
    total = PairwiseSum[int](lambda one, two: one + two)
    for value in values:
        total.add(value)
        assert len(total._waiting) <= len(values).bit_length()
    assert total.total() == sum(values)


@pytest.mark.parametrize("where", ["one thread", "three threads", "two workers"])
def test_runtimes_combine_alike_and_tell_progress(where: str, request: pytest.FixtureRequest) -> None:
    runtime: Runtime = {
        "one thread": lambda: Local(1),
        "three threads": lambda: Local(3),
        "two workers": lambda: request.getfixturevalue("two_workers"),
    }[where]()
    for count in (1, 2, 7, 40):
        met: list[int] = []
        found = runtime.reduce(joined, lettered, ((number,) for number in range(count)), lambda met=met: met.append(1))
        assert found == Local(1).reduce(joined, lettered, ((number,) for number in range(count)), lambda: None)
        assert len(met) == count


def fails(number: int) -> str:
    if number == 5:
        raise ValueError("the sixth")
    return lettered(number)


def test_an_error_in_a_task_of_a_sum_arrives(two_workers: Any) -> None:
    for runtime in (Local(2), two_workers):
        with pytest.raises(ValueError, match="the sixth"):
            runtime.reduce(joined, fails, ((number,) for number in range(9)), lambda: None)


def is_late(number: int) -> str:
    if number == 5:
        raise stopping.Stopped
    return lettered(number)


def test_a_sum_that_there_is_no_time_for_is_stopped(two_workers: Any) -> None:
    for runtime in (Local(2), two_workers):
        with pytest.raises(stopping.Stopped), stopping.deadline(100.0):
            runtime.reduce(joined, is_late, ((number,) for number in range(9)), lambda: None)


def test_a_value_that_was_shared_is_everywhere(two_workers: Any) -> None:
    value = np.arange(5.0)
    assert Local(2).share(value) is value
    shared = two_workers.share(value)
    place = next(iter(two_workers.client.who_has([shared.future]).values()))
    assert len(place) == 2
    assert list(two_workers.map(np.sum, [(shared,)] * 4)) == [10.0] * 4
    held = two_workers.hold(np.negative, shared)
    assert two_workers.share(held) is held
    assert list(two_workers.map(np.sum, [(held,)])) == [-10.0]
