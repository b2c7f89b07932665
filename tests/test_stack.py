"""One conformance suite for every way to hold a stack, against plain numpy on the whole array."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from conftest import whole
from hypothesis import given
from hypothesis import strategies as st

from dmkl._util import kept
from dmkl._util.machine import Scratch
from dmkl.errors import DataError, ResourceError, SolverError
from dmkl.runtime import Local
from dmkl.stack import KernelStack, TaskMatrix, open_stack, tiles
from dmkl.stack.blocks import chunks
from dmkl.stack.tiles import MemoryShares
from dmkl.store import KernelStore

BACKENDS = ("array", "memory", "disk", "computed", "cluster", "cluster-streamed", "cluster-computed")
STREAMED = {"cluster-streamed": "disk", "cluster-computed": "computed"}
LARGEST_TILE = 40  # of the shared store


@pytest.fixture(params=BACKENDS)
def stack(request: pytest.FixtureRequest, store: KernelStore) -> KernelStack:
    return make(request.param, store, request)


def make(backend: str, store: KernelStore, request: pytest.FixtureRequest) -> KernelStack:
    if backend == "array":
        return KernelStack.from_array(whole(store), groups=store.bank.groups, largest_tile=LARGEST_TILE)
    if backend == "cluster":
        return open_stack(store.path, runtime=request.getfixturevalue("two_workers"))
    if backend in STREAMED:
        return open_stack(store.path, runtime=request.getfixturevalue("two_workers"), backend=STREAMED[backend])
    return open_stack(store.path, backend=backend, workers=2)


def questions(stack: KernelStack) -> list[np.ndarray]:
    """The four questions, each asked once."""
    rng = np.random.default_rng(5)
    coef = rng.normal(size=(stack.n, 3)) * (rng.random((stack.n, 3)) < 0.5)
    own, shared = rng.random((3, stack.s)), rng.random(stack.s)
    shared[1] = 0.0
    sets = [np.array([0, 3, 41, 100, 149]), np.arange(20, 90), np.array([], dtype=np.int64)]
    both = stack.apply(coef, own)
    return [
        both.scores,
        both.forms,
        stack.apply(coef, shared, forms=False).scores,
        *stack.block(sets),
        *stack.block(sets, kernels=[[4, 1], [0], [2]]),
        stack.apply(coef, own * (np.arange(stack.s) != 2), forms=np.eye(3, stack.s, 2, dtype=bool)).forms,
        *stack.block(sets, weights=shared),
        stack.rows(np.array([2, 60, 61, 148]), kernels=[0, 5]),
        stack.combine(shared),
    ]


def expected(K: np.ndarray) -> list[np.ndarray]:
    """The same answers from numpy."""
    rng = np.random.default_rng(5)
    exact = K.astype(np.float64)
    n, s = K.shape[1], K.shape[0]
    coef = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.5)
    own, shared = rng.random((3, s)), rng.random(s)
    shared[1] = 0.0
    sets = [np.array([0, 3, 41, 100, 149]), np.arange(20, 90), np.array([], dtype=np.int64)]
    total = np.tensordot(shared, exact, 1)
    return [
        np.einsum("ka,aij,jk->ik", own, exact, coef),
        np.einsum("ik,aij,jk->ka", coef, exact, coef),
        total @ coef,
        *(K[:, W][:, :, W] for W in sets),
        *(K[chosen][:, W][:, :, W] for chosen, W in zip([[4, 1], [0], [2]], sets, strict=True)),
        np.einsum("ik,aij,jk->ka", coef, exact, coef) * np.eye(3, s, 2),
        *(total[W][:, W] for W in sets),
        K[[0, 5]][:, [2, 60, 61, 148]],
        total,
    ]


def test_answers_are_right(stack: KernelStack, store: KernelStore) -> None:
    for ours, numpys in zip(questions(stack), expected(whole(store)), strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=1e-5, atol=1e-5)


def test_every_backend_gives_the_same_bits(stack: KernelStack, store: KernelStore) -> None:
    reference = questions(open_stack(store.path, backend="disk", workers=1))
    for ours, theirs in zip(questions(stack), reference, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_threads_gives_the_same_bits(store: KernelStore, workers: int) -> None:
    reference = questions(open_stack(store.path, backend="memory", workers=1))
    for ours, theirs in zip(questions(open_stack(store.path, backend="disk", workers=workers)), reference, strict=True):
        assert np.array_equal(ours, theirs)


def test_every_question_counts_one_pass(stack: KernelStack) -> None:
    questions(stack)
    assert stack.passes == 8


def test_a_pass_reads_every_tile_once(store: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int]] = []
    read = KernelStore.read_tile
    monkeypatch.setattr(KernelStore, "read_tile", lambda self, a, i, j: seen.append((a, i, j)) or read(self, a, i, j))
    stack = open_stack(store.path, backend="disk", workers=2)
    every = sorted((a, i, j) for a in range(store.s) for i, j in store.grid.pairs())
    stack.apply(np.ones((stack.n, 4)), np.ones((4, stack.s)))
    assert sorted(seen) == every
    seen.clear()
    stack.block([np.arange(0, stack.n, 7), np.arange(3)])
    assert sorted(seen) == every
    seen.clear()
    stack.block([np.arange(stack.n)], kernels=[[2]])
    assert sorted(seen) == [(2, i, j) for i, j in store.grid.pairs()]


def test_choosing_kernels_renumbers_them(stack: KernelStack, store: KernelStore) -> None:
    some = stack.choose([5, 2])
    assert some.names == (stack.names[5], stack.names[2])
    np.testing.assert_allclose(some.combine(np.array([1.0, 0.0])), whole(store)[5], rtol=1e-6)


def test_combine_near_the_tasks_is_combine(stack: KernelStack) -> None:
    weights = np.linspace(0, 1, stack.s)
    near = stack.runtime.map(lambda K: K, [(stack.combine_near(weights),)])
    assert np.array_equal(next(iter(near)), stack.combine(weights))


def product(block: np.ndarray, column: np.ndarray) -> np.ndarray:
    return block @ column


@pytest.mark.parametrize("together", [True, False])
def test_workers_open_a_weighted_sum_that_is_not_sent(
    stack: KernelStack, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory that they share, or each makes it from tiles that it has at hand, and keeps it until it is told to
    forget."""
    if stack.runtime.remote:
        monkeypatch.setattr(stack.runtime, "together", together)
    weights = np.linspace(0, 1, stack.s)
    matrix, by_themselves = stack.combine_in_tasks(weights), stack.source.portable is not None and stack.source.at_hand
    assert (matrix is not None) == (stack.runtime.remote and (together or by_themselves))
    if matrix is not None:
        opened = list(stack.runtime.map(opened_matrix, [(matrix,)] * 4))
        assert all(np.array_equal(one, stack.combine(weights)) for one in opened)
        stack.runtime.forget()
        assert set(stack.runtime.map(is_forgotten, [()] * 4)) == {True}


def opened_matrix(matrix: TaskMatrix) -> np.ndarray:
    return np.array(matrix.opened())


def is_forgotten() -> bool:
    return kept._value == ("", None)


@pytest.mark.parametrize(
    "cut",
    [{}, {"kernels": [[5, 0], [2], [1, 3, 4], [0], [5]]}, {"weights": np.linspace(0, 1, 6), "dtype": "float64"}],
)
def test_answers_are_made_of_the_blocks(stack: KernelStack, cut: dict[str, object]) -> None:
    """Twice, the sets the other way round: what is left of the first blocks must not show in the second."""
    sets = [np.arange(0, 150, 3), np.array([7]), np.arange(30, 120), np.arange(150), np.array([], dtype=np.int64)]
    columns = [np.linspace(-1, 1, len(W)) for W in sets]
    for order in (range(5), range(4, -1, -1)):
        some = [sets[position] for position in order]
        mine = {**cut, "kernels": [cut["kernels"][position] for position in order]} if "kernels" in cut else cut
        passes = stack.passes
        found = stack.answers(product, [(columns[p],) for p in order], some, runtime=stack.runtime, **mine)
        assert stack.passes == passes + 1
        for answer, block, position in zip(found, stack.block(some, **mine), order, strict=True):
            assert np.array_equal(answer, block @ columns[position])


def test_each_worker_holds_a_small_stack_and_reads_a_large_one(
    store: KernelStore, two_workers: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "SHARES", MemoryShares(each_worker=0.0))
    stack = open_stack(store.path, runtime=two_workers)
    sets = [np.arange(40), np.arange(10, 140)]
    found = stack.answers(np.sum, [(), ()], sets, runtime=two_workers)
    assert found == [block.sum() for block in stack.block(sets)]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 40), st.integers(1, 200))
def test_chunks_share_the_blocks_evenly(sizes: list[int], workers: int, room: int) -> None:
    found = chunks(sizes, workers, room)
    assert sorted(position for chunk in found for position in chunk) == list(range(len(sizes)))
    loads = [sum(sizes[position] for position in chunk) for chunk in found]
    assert max(loads) <= max(room, max(sizes))
    busy = [0] * workers  # workers that take one chunk after the other
    for load in loads:
        busy[busy.index(min(busy))] += load
    assert max(busy) <= sum(sizes) / workers + max(0.2 * sum(sizes) / workers, max(sizes))


def test_scratch_is_used_again_and_let_go() -> None:
    scratch = Scratch()
    first = scratch.arrays([(2, 3, 3), (1, 5, 5), (1, 0, 0)], np.dtype("float32"))
    for array in first:
        array[:] = len(array)
    assert [array.shape for array in first] == [(2, 3, 3), (1, 5, 5), (1, 0, 0)]
    assert (first[0] == 2).all()  # the second does not lie in it
    again = scratch.arrays([(1, 4, 4)], np.dtype("float64"))
    assert np.shares_memory(first[0], again[0])
    assert scratch.used
    scratch.release()
    assert not scratch.used


@given(st.integers(1, 23), st.integers(1, 8), st.randoms(use_true_random=False))
def test_any_tiling_of_any_size_is_right(n: int, tile: int, random) -> None:
    rng = np.random.default_rng(random.randrange(2**32))
    half = rng.normal(size=(2, n, n))
    K = half + half.transpose(0, 2, 1)
    stack = KernelStack.from_array(K, largest_tile=tile, workers=1)
    coef, weights = rng.normal(size=(n, 2)), rng.random((2, 2))
    answer = stack.apply(coef, weights)
    np.testing.assert_allclose(answer.scores, np.einsum("ka,aij,jk->ik", weights, K, coef), atol=1e-10)
    np.testing.assert_allclose(answer.forms, np.einsum("ik,aij,jk->ka", coef, K, coef), atol=1e-10)
    W = np.flatnonzero(rng.random(n) < 0.5)
    assert np.array_equal(stack.block([W])[0], K[:, W][:, :, W])
    assert np.array_equal(stack.rows(W), K[:, W])


def test_arrays_are_kept_as_they_are() -> None:
    K = np.eye(4)[None]
    stack = KernelStack.from_array(K)
    assert stack.dtype == np.float64
    assert np.shares_memory(stack.source.as_array(), K)
    assert KernelStack.from_array(np.eye(4, dtype=np.float32)[None]).dtype == np.float32
    assert KernelStack.from_array(np.eye(4, dtype=int)[None]).dtype == np.float64


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.eye(3), r"array \(s, n, n\) of square kernels, not \(3, 3\)"),
        (np.ones((2, 3, 4)), "square kernels"),
        (np.array([[[1.0, np.nan], [np.nan, 1.0]]]), r"kernel 0 has NaN or infinity at \(0, 1\)"),
        (np.array([[["a"]]]), "kernels should be real numbers"),
    ],
)
def test_wrong_arrays_are_refused(K: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        KernelStack.from_array(K)


def test_a_nonsymmetric_kernel_is_refused_where_symmetry_is_needed() -> None:
    K = np.array([np.eye(3), [[1, 2, 3], [2, 1, 5], [3, 4, 1]]])
    with pytest.raises(DataError, match=r"kernel 1 is not symmetric: entries \(1, 2\) and \(2, 1\) differ by 1"):
        KernelStack.from_array(K).require_semidefinite("UniformMKL")


def test_wrong_questions_are_refused(store: KernelStore) -> None:
    stack = open_stack(store.path, backend="disk")
    with pytest.raises(SolverError, match="do not fit a stack of 6 kernels over 150 samples"):
        stack.apply(np.ones((3, 1)), np.ones(6))
    with pytest.raises(DataError, match="name the group of each of 2 kernels"):
        KernelStack.from_array(np.ones((2, 3, 3)), groups=[0])


def test_what_does_not_fit_in_memory_is_refused_before_it_is_allocated(store: KernelStore) -> None:
    stack = open_stack(store.path, backend="disk", memory=1)
    with pytest.raises(ResourceError, match="raise --memory"):
        stack.combine(np.ones(stack.s))


def test_local_map_keeps_order_and_stops_early() -> None:
    started: list[int] = []

    def task(number: int) -> int:
        started.append(number)
        if number == 3:
            raise ValueError(number)
        return number

    runner: Callable[..., Iterator[int]] = Local(2).map
    assert list(runner(lambda number: number * 2, ((i,) for i in range(50)))) == [2 * i for i in range(50)]
    with pytest.raises(ValueError, match="3"):
        list(runner(task, ((i,) for i in range(1000))))
    assert len(started) < 20


def test_the_example_in_the_documentation_runs() -> None:
    result = doctest.testmod(importlib.import_module("dmkl.stack.stack"))
    assert result.attempted > 5
    assert not result.failed
