"""A stack of some samples answers as one built from that part of the very kernel matrix, for every formulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import small_working_sets, whole
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dmkl
from dmkl.errors import DataError, SolverError
from dmkl.solvers import FORMULATIONS
from dmkl.stack import KernelStack, open_stack
from dmkl.stack.tiles import StoredSource
from dmkl.store import KernelStore

CONSTANTS: dict[str, dict[str, Any]] = {
    "vskl": {"q": 1.5, "C": 5.0},
    "spicy": {"C": 2.0},
    "obscure": {"C": 1.0},
    "mikl": {"lam": 5.0},
}
PART = np.flatnonzero(np.random.default_rng(1).random(150) < 0.7)


def formulation(name: str) -> Any:
    return FORMULATIONS[name](**CONSTANTS.get(name, {"C": 5.0}))


@pytest.fixture(scope="module")
def K(store: KernelStore) -> np.ndarray:
    return whole(store)


def opened(store: KernelStore, backend: str) -> KernelStack:
    return open_stack(store.path, workers=2, backend=backend)


def nearly(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * max(1e-6, float(np.abs(b).max())))


def test_every_formulation_has_its_constants_here() -> None:
    assert set(CONSTANTS) <= set(FORMULATIONS)


@pytest.mark.parametrize("backend", ["memory", "disk", "computed", "array"])
@pytest.mark.parametrize("name", FORMULATIONS)
def test_the_fit_on_a_part_is_the_fit_on_that_part_of_the_matrix(
    name: str, backend: str, store: KernelStore, K: np.ndarray
) -> None:
    stack = KernelStack.from_array(K, largest_tile=40) if backend == "array" else opened(store, backend)
    stack.groups = KernelStack.open(store.path).groups
    labels = store.labels
    assert labels is not None
    y = labels.take(PART)
    part = stack.restrict(PART)
    fit = dmkl.solve(part, y, formulation(name), tol=1e-6)
    alone = KernelStack.from_array(K[:, PART][:, :, PART], groups=stack.groups)
    same = dmkl.solve(alone, y, formulation(name), tol=1e-6)
    assert fit.converged
    nearly(fit.objective, same.objective)
    nearly(fit.weights, same.weights)
    nearly(fit.coef, same.coef)
    out = np.setdiff1d(np.arange(stack.n), PART)
    reached = part.reach(out, fit.coef_matrix, None if fit.per_kernel else fit.weights)
    assert reached.shape == (len(out), 3)
    nearly(reached, scores_of(K, same, out))


def scores_of(K: np.ndarray, fit: dmkl.Fit, out: np.ndarray) -> np.ndarray:
    """What a fit on the part scores at other samples, from the array."""
    cross = K[:, PART][:, :, out].astype(np.float64)
    if fit.per_kernel:
        return np.einsum("apo,kpa->ok", cross, fit.coef)
    weights = np.broadcast_to(fit.weights, (fit.coef_matrix.shape[1], len(K)))
    return np.einsum("apo,pk,ka->ok", cross, fit.coef_matrix, weights)


def test_kernels_that_are_not_symmetric(rng: np.random.Generator) -> None:
    K = rng.normal(size=(2, 60, 60))
    y = np.sign(rng.normal(size=60))
    part, out = np.arange(0, 60, 2), np.arange(1, 60, 2)
    stack = KernelStack.from_array(K, largest_tile=25).restrict(part)
    fit = dmkl.solve(stack, y[part], dmkl.MIKL("1", lam=20.0), tol=1e-5)
    alone = KernelStack.from_array(K[:, part][:, :, part])
    same = dmkl.solve(alone, y[part], dmkl.MIKL("1", lam=20.0), tol=1e-5)
    nearly(fit.coef, same.coef)
    expected = np.einsum("apo,pa->o", K[:, part][:, :, out], same.coef)
    nearly(stack.reach(out, fit.coef_matrix, None)[:, 0], expected)


QUESTIONS: dict[str, Callable[[KernelStack], Any]] = {
    "rows": lambda stack: stack.rows(np.array([1, 5, stack.n - 1])),
    "block": lambda stack: stack.block([np.array([0, 4, stack.n - 2])])[0],
    "combine": lambda stack: stack.combine(np.linspace(0, 1, stack.s)),
    "apply": lambda stack: stack.apply(np.eye(stack.n)[:, :3], np.ones(stack.s)).forms,
    "expand": lambda stack: stack.expand(np.ones((stack.s, stack.n, 2))),
    "correlate": lambda stack: stack.correlate(np.eye(stack.n)[:, :2]),
    "row_norms": lambda stack: stack.row_norms(),
    "pick": lambda stack: stack.pick(np.arange(stack.s * stack.n).reshape(stack.s, stack.n) % 7 == 0),
    "cross": lambda stack: stack.source.on_demand.cross(np.array([7, 3]), np.array([0, 9, 2])),
    "chosen": lambda stack: stack.choose([2, 0]).rows(np.array([3])),
}


@pytest.mark.parametrize("backend", ["memory", "disk", "computed", "array"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_the_part(question: str, backend: str, store: KernelStore, K: np.ndarray) -> None:
    stack = KernelStack.from_array(K, largest_tile=40) if backend == "array" else opened(store, backend)
    alone = KernelStack.from_array(K[:, PART][:, :, PART])
    nearly(QUESTIONS[question](stack.restrict(PART)), QUESTIONS[question](alone))


@pytest.mark.parametrize("backend", ["memory", "disk", "computed"])
def test_shuffled_rows_come_in_pieces_that_cover_the_part(backend: str, store: KernelStore) -> None:
    source = opened(store, backend).restrict(PART).source.on_demand
    everything = np.arange(len(PART))
    for pieces in (source.pieces(everything), source.chunks(everything)):
        assert np.array_equal(np.concatenate(pieces), everything)
    batches = source.batches(np.random.default_rng(0))
    assert np.array_equal(np.sort(np.concatenate(batches)), everything)


def test_blocks_without_samples_are_never_read(store: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    tile = StoredSource.tile
    monkeypatch.setattr(StoredSource, "tile", lambda source, a, i, j: asked.append((i, j)) or tile(source, a, i, j))
    part = opened(store, "disk").restrict(np.arange(90, 120))
    part.combine(np.ones(part.s))
    assert set(asked) == {(2, 2), (2, 3), (3, 3)}
    assert part.grid.blocks == 2


def test_parts_of_parts_and_of_chosen_kernels(K: np.ndarray) -> None:
    stack = KernelStack.from_array(K, largest_tile=40)
    twice = stack.restrict(PART).restrict(np.arange(10, 40))
    assert twice.source.whole is stack.source
    kept = PART[10:40]
    nearly(twice.choose([3, 1]).rows(np.array([2]))[:, 0], K[[3, 1]][:, kept[2], kept])
    assert twice.identity != stack.restrict(PART).identity
    others, coef, weights = np.array([0, 3, 50]), np.ones((30, 1)), np.ones(len(K))  # numbers in the first part
    for part in (twice, twice.choose(range(len(K)))):
        nearly(part.reach(others, coef, weights)[:, 0], K[:, PART[others]][:, :, kept].sum(axis=(0, 2)))


@pytest.mark.parametrize("backend", ["auto", "disk", "computed"])
def test_a_part_on_a_cluster(
    backend: str, store: KernelStore, K: np.ndarray, two_workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held by workers, read or computed by them: rounds of several classes over working sets give the same bits."""
    small_working_sets(monkeypatch, start=5, least_growth=10)
    stack = open_stack(store.path, runtime=two_workers, backend=backend)
    assert store.labels is not None
    y = store.labels.take(PART)
    fit = dmkl.solve(stack.restrict(PART), y, formulation("vskl"), tol=1e-6)
    local = opened(store, "memory").restrict(PART)
    here = dmkl.solve(local, y, formulation("vskl"), tol=1e-6)
    assert fit.rounds > 1
    again = dmkl.solve(local, y, formulation("vskl"), tol=1e-6, client=two_workers.client)
    for same in (here, again):
        assert (fit.passes, fit.objective.tolist(), fit.dual.tolist()) == (
            same.passes,
            same.objective.tolist(),
            same.dual.tolist(),
        )
        assert np.array_equal(fit.coef, same.coef)
    out = np.setdiff1d(np.arange(stack.n), PART)
    nearly(stack.restrict(PART).reach(out, fit.coef_matrix, fit.weights), scores_of(K, fit, out))


@pytest.mark.parametrize("backend", ["auto", "disk"])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, 3)])
def test_workers_cut_blocks_of_a_part(
    backend: str, weights: Any, store: KernelStore, K: np.ndarray, two_workers: Any
) -> None:
    part = open_stack(store.path, runtime=two_workers, backend=backend).choose([4, 0, 2]).restrict(PART)
    sets = [np.arange(0, len(PART), 3), np.array([5, 17, 90]), np.arange(len(PART))]
    blocks = part.answers(scaled, [(1.0,), (2.0,), (3.0,)], sets, runtime=two_workers, weights=weights)
    for factor, W, block in zip((1.0, 2.0, 3.0), sets, blocks, strict=True):
        own = K[[4, 0, 2]][:, PART[W]][:, :, PART[W]]
        nearly(block, factor * (own if weights is None else np.einsum("a,aij->ij", weights, own)))
    assert part.passes == 1


def scaled(block: np.ndarray, factor: float) -> np.ndarray:
    return factor * block


@given(members=arrays(bool, 23), seed=st.integers(0, 5))
def test_any_members_in_any_blocks(members: np.ndarray, seed: int) -> None:
    members[seed] = True
    K = np.random.default_rng(seed).normal(size=(2, 23, 23))
    K = K + K.transpose(0, 2, 1)
    part = KernelStack.from_array(K, largest_tile=5, workers=1).restrict(np.flatnonzero(members))
    nearly(part.combine(np.array([1.0, -2.0])), (K[0] - 2 * K[1])[members][:, members])


def test_what_is_no_set_of_samples_is_refused(K: np.ndarray) -> None:
    stack = KernelStack.from_array(K)
    for samples in ([], [3, 2], [0, 0], [-1, 2], [0, 150], [True, False], [0.5]):
        with pytest.raises(DataError):
            stack.restrict(samples)


def test_an_indefinite_kernel_is_refused_of_the_whole() -> None:
    K = -np.eye(40)[None]
    y = np.repeat([-1, 1], 20)
    with pytest.raises(SolverError, match="semidefinite"):
        dmkl.solve(KernelStack.from_array(K).restrict(np.arange(10, 30)), y[10:30], dmkl.L1MKL())
