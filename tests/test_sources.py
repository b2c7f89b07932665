"""One conformance suite for every source of kernel values: six, a choice and a part of them, and one of this file.

A new source is one file and one line in `SOURCES`: dmkl/docs/adding/source.md.
"""

from __future__ import annotations

import importlib
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import KERNELS, single, three_classes, whole

import dmkl
from dmkl._util.tiling import Grid
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_view
from dmkl.errors import SolverError, StoreError
from dmkl.kernels import Bank, plan_bank
from dmkl.runtime import Local, Runtime
from dmkl.runtime.base import itself
from dmkl.stack import KernelStack, Source
from dmkl.stack.features import FeatureSource
from dmkl.stack.sources import ArraySource, KernelChoice, SamplePart
from dmkl.stack.tiles import ComputedSource, StoredSource, WorkerSource, held_here, hold_block_row
from dmkl.store import KernelStore, build_store

N, TILE = 150, 40


# --- a sixth source, in full


class FactorSource(Source):
    """Kernels K_a = Z_a Z_a' of factors Z (s, n, r): tiles are products, and no n x n matrix is ever made."""

    backend = "factors"

    def __init__(self, Z: Float64, largest_tile: int) -> None:
        self.Z = Z
        self.s, self.dtype = len(Z), Z.dtype
        self.grid = Grid.cut(Z.shape[1], largest_tile)

    def tile(self, a: int, i: int, j: int) -> FloatArray:
        return self._product(a, self.grid.span(i), self.grid.span(j))

    def cross(self, rows: Samples, columns: Samples) -> FloatArray:
        return np.stack([self._product(a, rows, columns) for a in range(self.s)])

    def diagonal(self, samples: Samples) -> FloatArray:
        return np.asarray(np.square(self.Z[:, samples]).sum(axis=2))

    def _product(self, a: int, rows: Any, columns: Any) -> FloatArray:
        return np.asarray(self.Z[a, rows] @ self.Z[a, columns].T)

    @property
    def smallest_read(self) -> int:
        return 1

    @property
    def held_bytes(self) -> int:
        return self.Z.nbytes

    @property
    def portable(self) -> Source:
        return self


# --- the table


@dataclass(frozen=True)
class Places:
    """What sources are made of here: stores of six kernels over 150 samples, an array of them, and a cluster."""

    store: KernelStore
    computed: KernelStore
    request: pytest.FixtureRequest

    @property
    def array(self) -> ArraySource:
        return ArraySource(whole(self.store), Grid.cut(N, TILE, full=True))

    @property
    def stored(self) -> StoredSource:
        return StoredSource(self.store)

    @property
    def workers(self) -> Any:
        return self.request.getfixturevalue("two_workers")

    @property
    def on_workers(self) -> Source:
        source, runtime = self.stored, self.workers
        rows = [runtime.hold(hold_block_row, row) for row in source.rows]
        return WorkerSource(rows, source.grid, source.s, runtime=runtime, dtype=source.dtype, origin=source)


@dataclass(frozen=True)
class Case:
    """A source, or its place "package.module:Name", with its arguments; and the dense matrices that it stands for, made
    from those of the stores."""

    source: Callable[..., Source] | str
    arguments: Callable[[Places], tuple[Any, ...]]
    dense: Callable[[np.ndarray], np.ndarray] = np.asarray
    on_cluster: bool = False

    def make(self, places: Places) -> Source:
        made = self.source
        if isinstance(made, str):
            module, _, name = made.partition(":")
            made = getattr(importlib.import_module(module), name)
        return made(*self.arguments(places))


def factors(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, N, 4))


def products(K: np.ndarray) -> np.ndarray:
    return np.asarray(factors() @ factors().transpose(0, 2, 1))


def part_of_choice(source: Source, runtime: Any) -> Source:
    return source.choose([4, 1], runtime).restrict(np.arange(0, N, 3), runtime)


def on_columns() -> tuple[dict[str, np.ndarray], Bank, Grid]:
    """Three Gaussians on sets of columns, and what their source is made of."""
    data = Dataset({"x": make_view("x", "features", factors()[0])})
    table = KernelConfig("rbf", params={"width": 2.0}, subsets=((0,), (1, 3), (0, 1, 2, 3)))
    return {"x": factors()[0]}, plan_bank([table], data), Grid.cut(N, TILE)


def gaussians(K: np.ndarray) -> np.ndarray:
    Z = factors()[0]
    squares = (Z[:, None] - Z) ** 2
    return np.stack([np.exp(-squares[:, :, list(own)].sum(axis=2) / 8) for own in ((0,), (1, 3), (0, 1, 2, 3))])


SOURCES: dict[str, Case] = {
    "array": Case(ArraySource, lambda p: (whole(p.store), Grid.cut(N, TILE, full=True))),
    "stored": Case(StoredSource, lambda p: (p.store,)),
    "computed": Case(ComputedSource, lambda p: (p.computed,)),
    "held": Case(held_here, lambda p: (p.stored, Local(2))),
    "held without a store": Case(held_here, lambda p: (FactorSource(factors(), TILE), Local(2)), products),
    "on workers": Case(lambda source: source, lambda p: (p.on_workers,), on_cluster=True),
    "choice": Case(KernelChoice, lambda p: (p.stored, (5, 0, 3)), lambda K: K[[5, 0, 3]]),
    "part": Case(SamplePart, lambda p: (p.stored, np.arange(3, N, 2)), lambda K: K[:, 3::2, 3::2]),
    "part of a choice on workers": Case(
        part_of_choice, lambda p: (p.on_workers, p.workers), lambda K: K[[4, 1]][:, ::3, ::3], on_cluster=True
    ),
    "factors": Case(FactorSource, lambda p: (factors(), TILE), products),
    "features": Case(FeatureSource, lambda p: on_columns(), gaussians),
    "part of features": Case(
        lambda *of: FeatureSource(*of).restrict(np.arange(1, N, 2)),
        lambda p: on_columns(),
        lambda K: gaussians(K)[:, 1::2, 1::2],
    ),
}


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    """The shared store's kernels without tiles."""
    data, path = three_classes(), tmp_path_factory.mktemp("computed") / "k.zarr"
    return build_store(path, single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=TILE, computed=True)


@pytest.fixture(params=SOURCES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(name: str, store: KernelStore, computed: KernelStore, request: pytest.FixtureRequest) -> Source:
    return SOURCES[name].make(Places(store, computed, request))


@pytest.fixture
def runtime(name: str, request: pytest.FixtureRequest) -> Runtime:
    return request.getfixturevalue("two_workers") if SOURCES[name].on_cluster else Local(2)


@pytest.fixture
def K(name: str, store: KernelStore) -> np.ndarray:
    """The dense matrices (s, n, n), from numpy."""
    return SOURCES[name].dense(whole(store))


@pytest.fixture
def stack(source: Source, runtime: Runtime) -> KernelStack:
    return KernelStack(source, groups=np.arange(source.s) % 2, runtime=runtime)


def close(found: Any, expected: Any) -> None:
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(
        found, expected, rtol=2e-5, atol=2e-5 * max(1e-6, float(np.abs(expected).max(initial=0)))
    )


# --- a source by itself


def test_tiles_are_those_of_the_matrix(source: Source, K: np.ndarray) -> None:
    grid = source.grid
    assert (source.s, grid.n) == K.shape[:2]
    for i in range(grid.blocks):
        for j in grid.kept(i):
            tile = source.tile(source.s - 1, i, j)
            assert tile.dtype == source.dtype
            close(tile, K[-1, grid.span(i), grid.span(j)])


def test_any_samples_against_any_others(source: Source, K: np.ndarray, rng: np.random.Generator) -> None:
    n = source.grid.n
    for rows, columns in ((rng.permutation(n)[:17], rng.permutation(n)[:31]), (np.arange(2), np.arange(0))):
        for asked in (source, source.on_demand):
            found = asked.cross(rows, columns)
            close(found, K[:, rows[:, None], columns])
            assert found.dtype == source.dtype


def test_the_diagonal(source: Source, K: np.ndarray, rng: np.random.Generator) -> None:
    samples = rng.permutation(source.grid.n)[:13]
    close(source.diagonal(samples), K[:, samples, samples])


def test_what_is_one_array_is_read_only_and_right(source: Source, K: np.ndarray) -> None:
    array = source.as_array()
    if array is not None:
        assert np.array_equal(array, K)
        assert not array.flags.writeable


def test_costs_are_numbers_and_portions_cover_all_samples(source: Source, rng: np.random.Generator) -> None:
    n = source.grid.n
    assert 1 <= source.smallest_read <= max(TILE, source.grid.tile)
    assert source.tile_bytes > 0
    assert source.held_bytes >= 0
    samples = np.arange(0, n, 2)
    for portions in (source.pieces(samples), source.chunks(samples)):
        assert np.array_equal(np.concatenate(portions), samples)
    batches = source.batches(rng)
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    if source.smallest_read > 1:
        assert all(len(source.places(batch)) <= source.smallest_read for batch in batches)


def test_the_identity_is_of_the_kernels(
    name: str, source: Source, store: KernelStore, computed: KernelStore, request: pytest.FixtureRequest
) -> None:
    again = SOURCES[name].make(Places(store, computed, request))
    assert source.identity == again.identity
    others = [
        source.choose([1, 0]),
        source.choose([0, 1]),
        source.restrict(np.arange(9)),
        source.restrict(np.arange(8)),
    ]
    assert len({source.identity, *(other.identity for other in others)}) == 5


def test_what_is_sent_is_small_and_right(source: Source, K: np.ndarray) -> None:
    portable = source.portable
    if portable is not None:
        sent = pickle.dumps(portable)
        assert len(sent) < (100_000 if isinstance(portable, FactorSource) else 10_000)
        there = pickle.loads(sent)
        some = np.array([0, 7, 3])
        close(there.cross(some, some), K[:, some[:, None], some])
        assert there.identity == portable.identity


def test_block_rows_can_be_taken_by_tasks(source: Source, runtime: Runtime, K: np.ndarray) -> None:
    grid = source.grid
    tiles = runtime.map(_last_tile, ((row,) for row in source.rows))
    for i, tile in enumerate(tiles):
        close(tile, K[0, grid.span(i), grid.span(grid.blocks - 1)])


def _last_tile(row: Any) -> np.ndarray:
    tile: np.ndarray = row.tile(0, row.grid.blocks - 1)
    return tile


# --- a stack over it


def test_scores_and_forms(stack: KernelStack, K: np.ndarray, rng: np.random.Generator) -> None:
    coef, weights = rng.normal(size=(stack.n, 3)), rng.random((3, stack.s))
    found = stack.apply(coef, weights)
    close(found.scores, np.einsum("ka,aij,jk->ik", weights, K, coef))
    close(found.forms, np.einsum("ik,aij,jk->ka", coef, K, coef))
    close(stack.apply(coef, weights[0], forms=False).scores, np.einsum("a,aij,jk->ik", weights[0], K, coef))


def test_rows_blocks_and_sums(stack: KernelStack, K: np.ndarray, rng: np.random.Generator) -> None:
    weights = rng.random(stack.s)
    sets = [np.array([0, 3, 41]), np.arange(5, 45), np.arange(0)]
    total = np.tensordot(weights, K, 1)
    close(stack.rows(sets[0], kernels=[1, 0]), K[[1, 0]][:, sets[0]])
    for block, W in zip(stack.block(sets), sets, strict=True):
        close(block, K[:, W[:, None], W])
    for block, W in zip(stack.block(sets, weights=weights), sets, strict=True):
        close(block, total[W[:, None], W])
    close(stack.combine(weights), total)
    close(next(iter(stack.runtime.map(itself, [(stack.combine_near(weights),)]))), total)
    found = stack.answers(np.sum, [()] * 3, sets, runtime=stack.runtime, weights=weights)
    close(found, [total[W[:, None], W].sum() for W in sets])
    assert stack.passes == 6


def test_questions_about_every_kernel(stack: KernelStack, K: np.ndarray, rng: np.random.Generator) -> None:
    alpha, beta = rng.normal(size=(stack.s, stack.n, 2)), rng.normal(size=(stack.n, 2))
    close(stack.expand(alpha), np.einsum("aij,aik->jk", K, alpha))
    close(stack.correlate(beta, kernels=[1]), np.einsum("aij,jk->aik", K[[1]], beta))
    close(stack.row_norms(), np.sqrt(np.square(K.astype(np.float64)).sum(axis=2)))
    for members in (np.arange(stack.s * stack.n).reshape(stack.s, -1) % 7 == 0, np.ones((stack.s, stack.n), bool)):
        close(stack.pick(members), K[members])


def test_as_a_dask_array(stack: KernelStack, K: np.ndarray) -> None:
    lazy = stack.to_dask()
    sides = tuple(stack.grid.span(i).stop - stack.grid.span(i).start for i in range(stack.grid.blocks))
    assert (lazy.shape, lazy.chunks[1:], lazy.dtype) == (K.shape, (sides, sides), stack.dtype)
    found = lazy.compute(scheduler="threads")
    assert found.dtype == stack.dtype
    close(found, K)
    close(found, stack.block([np.arange(stack.n)])[0])
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))


def test_choices_and_parts(stack: KernelStack, K: np.ndarray, rng: np.random.Generator) -> None:
    kept, out = np.arange(0, stack.n, 2), np.arange(1, stack.n, 2)
    part = stack.restrict(kept)
    weights, coef = rng.random(stack.s), rng.normal(size=(part.n, 2))
    close(part.combine(weights), np.tensordot(weights, K[:, ::2, ::2], 1))
    close(part.reach(out, coef, weights), np.einsum("a,aoi,ik->ok", weights, K[:, 1::2, ::2], coef))
    twice = part.restrict(np.arange(0, part.n, 2)).choose([1, 0])
    assert twice.names == (stack.names[1], stack.names[0])
    assert twice.groups.tolist() == [stack.groups[1], stack.groups[0]]
    close(twice.block([np.arange(5)])[0], K[[1, 0]][:, :20:4, :20:4])
    others, own = np.arange(0, part.n, 3), rng.normal(size=(twice.n, 1))
    close(twice.reach(others, own, np.ones(2)), np.einsum("aoi,ik->ok", K[[1, 0]][:, kept[others], ::4], own))
    close(
        stack.reach(out, rng.normal(size=(stack.n, 1)) * 0 + 1, weights)[:, 0], np.tensordot(weights, K, 1)[out].sum(1)
    )


def test_the_fit_is_that_of_the_array(stack: KernelStack, K: np.ndarray) -> None:
    y = np.random.default_rng(1).integers(0, 2, stack.n)
    formulation = dmkl.VSKL(q=1.5, C=1.0)
    fit = dmkl.solve(stack, y, formulation, tol=1e-6)
    alone = KernelStack.from_array(K.astype(np.float64), groups=stack.groups)
    expected = dmkl.solve(alone, y, formulation, tol=1e-6)
    assert fit.converged
    assert fit.objective == pytest.approx(expected.objective, rel=3e-6)


def test_the_learner_of_shuffled_samples(stack: KernelStack, K: np.ndarray) -> None:
    y = np.arange(stack.n) % 2
    fit = dmkl.solve(stack, y, dmkl.Obscure(p=1.5, C=1.0), tol=1e-3)
    expected = dmkl.solve(KernelStack.from_array(K), y, dmkl.Obscure(p=1.5, C=1.0), tol=1e-3)
    assert fit.converged
    assert fit.objective == pytest.approx(expected.objective, rel=2e-3)


@pytest.mark.parametrize("name", ["stored", "computed", "held", "choice", "part", "factors"])
def test_a_portable_source_is_moved_to_a_cluster(
    source: Source, stack: KernelStack, K: np.ndarray, two_workers: Any, tmp_path: Path
) -> None:
    weights = np.linspace(0.5, 1.0, stack.s)
    there = stack.moved(two_workers)
    assert there.runtime is two_workers
    assert there.groups.tolist() == stack.groups.tolist()
    assert np.array_equal(there.combine(weights), stack.combine(weights))
    y = np.arange(stack.n) % 3
    here = dmkl.solve(stack, y, dmkl.VSKL(C=1.0), checkpoint=tmp_path / "c")
    elsewhere = dmkl.solve(stack, y, dmkl.VSKL(C=1.0), client=two_workers.client)
    assert np.array_equal(here.coef, elsewhere.coef)
    resumed = dmkl.solve(stack, y, dmkl.VSKL(C=1.0), client=two_workers.client, checkpoint=tmp_path / "c")
    assert not resumed.history, "the identity is the same on a cluster"


def test_an_array_stays_in_its_process(two_workers: Any) -> None:
    stack = KernelStack.from_array(np.eye(20)[None])
    assert stack.moved(two_workers) is stack


def test_kernels_that_only_workers_hold_cannot_be_asked_for_by_tasks(two_workers: Any) -> None:
    source = FactorSource(factors(), TILE)
    rows = [two_workers.hold(hold_block_row, row) for row in held_here(source, Local(1)).rows]
    held = WorkerSource(rows, source.grid, source.s, runtime=two_workers, dtype=source.dtype)
    close(held.tile(2, 0, 1), source.tile(2, 0, 1))
    assert held.portable is None
    assert held.identity == held_here(source, Local(1)).choose(range(6)).base.identity
    with pytest.raises(SolverError, match="only the workers of a cluster hold"):
        _ = held.choose([0]).on_demand


def test_a_checkpoint_of_other_factors_is_refused(tmp_path: Path) -> None:
    y = np.arange(N) % 2
    for seed in (0, 0, 1):
        stack = KernelStack(FactorSource(factors(seed), TILE))
        if seed == 0:
            dmkl.solve(stack, y, dmkl.VSKL(C=1.0), checkpoint=tmp_path / "c")
            continue
        with pytest.raises(StoreError, match="belongs to another problem"):
            dmkl.solve(stack, y, dmkl.VSKL(C=1.0), checkpoint=tmp_path / "c")


def test_the_stack_never_asks_for_the_type_of_a_source() -> None:
    allowed = {"stack.py: isinstance(store, KernelStore)"}  # an argument that may be a path
    found = {
        f"{module.name}: {asked}"
        for module in Path(dmkl.__file__).parent.joinpath("stack").glob("*.py")
        for asked in re.findall(r"\b(?:isinstance|issubclass|type)\([^)]*\)", module.read_text())
    }
    assert found <= allowed
