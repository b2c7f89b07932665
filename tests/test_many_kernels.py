"""Very many kernels on sets of columns: computed together in every pass, a few of them in blocks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import three_classes
from hypothesis import given
from hypothesis import strategies as st

import dmkl
from dmkl._util.machine import resident
from dmkl._util.tiling import Grid
from dmkl.cli.main import main
from dmkl.config import KernelConfig, construct
from dmkl.data import Dataset, make_view
from dmkl.errors import ConfigError, DataError, StoreError
from dmkl.kernels import Bank, plan_bank
from dmkl.kernels.distances import BASES
from dmkl.kernels.functions import exponential
from dmkl.kernels.plan import random_subsets
from dmkl.model import load_model
from dmkl.model.model import save_model
from dmkl.runtime import Local
from dmkl.solvers import working_sets
from dmkl.stack import KernelStack, score
from dmkl.stack.tiles import ComputedSource, held_here
from dmkl.store import build_store

ALL = tuple(range(13))
SETS = [(0,), (12,), (1, 2, 3, 4), (3, 4, 8, 9, 10, 11), ALL]
TABLES: list[dict[str, Any]] = [
    {"kernel": "rbf", "width": [1.0, 2.5], "subsets": SETS},
    {"kernel": "laplacian", "width": 3.0, "subsets": SETS, "normalise": ["unit-trace"]},
    {"kernel": "chi2", "width": 2.0, "subsets": SETS, "normalise": ["unit-diagonal"]},
    {"kernel": "linear", "subsets": SETS, "normalise": ["unit-mean"]},
    {"kernel": "poly", "degree": 2, "subsets": SETS},
    {"kernel": "intersection", "subsets": SETS},
    {"kernel": "additive_chi2", "subsets": SETS},
    {"kernel": "rbf", "width": 2.0},
]


def features(n: int = 60, columns: int = 13, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, columns))


def planned(X: np.ndarray, tables: Sequence[Mapping[str, object]] = TABLES) -> Bank:
    return plan_bank([construct(KernelConfig, table, "kernels") for table in tables], dataset(X))


def dataset(X: np.ndarray) -> Dataset:
    return Dataset({"x": make_view("x", "features", X)})


def dense_kernels(X: np.ndarray, tables: Sequence[dict[str, Any]] = TABLES) -> np.ndarray:
    """The same kernels, each from a view of its columns alone."""
    found = []
    for table in tables:
        for columns in table.get("subsets", [ALL]):
            alone = {key: value for key, value in table.items() if key != "subsets"}
            found.append(tiles_of(planned(X[:, list(columns)], [alone]), X[:, list(columns)]))
    return np.concatenate(found)


class Everything:
    """All samples against all."""

    same = True

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def sides(self, view: str) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.X


def tiles_of(bank: Bank, X: np.ndarray) -> np.ndarray:
    everything = slice(0, len(X))
    tiles = dict(bank.tiles(Everything(X), everything, everything, np.zeros((len(bank), len(X)))))  # type: ignore[arg-type]
    return np.stack([tiles[a] for a in range(len(bank))])


# --- values


def test_exponentials_are_right_to_the_last_bit_but_one(rng: np.random.Generator) -> None:
    x = np.concatenate([-90 * rng.random(5000), -rng.random(5000), 88 * rng.random(1000)])
    exact = np.exp(x.astype(np.float32).astype(np.float64))
    found = exponential(x, 1.0)
    normal = exact >= np.finfo(np.float32).tiny
    assert np.abs(found / exact - 1)[normal].max() < 1e-7
    assert (found[exact < 5e-39] == 0).all()
    ends = exponential(np.array([0.0, -np.inf, np.inf, np.nan]), 1.0)
    np.testing.assert_array_equal(ends, np.array([1.0, 0.0, np.inf, np.nan], np.float32))


def test_values_are_those_of_views_of_the_columns() -> None:
    X = features()
    stack = KernelStack.from_features(X, TABLES, workers=1)
    K = np.concatenate([stack.source.tile(a, 0, 0)[None] for a in range(stack.s)])
    expected = dense_kernels(X)
    np.testing.assert_allclose(K, expected, rtol=2e-6, atol=1e-7 * float(np.abs(expected).max()))


@pytest.mark.parametrize("n", [60, 700])
def test_every_way_to_a_value_gives_the_same_bits(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel or all, any rectangle, tables in one go or several, and the bank alone, as stores are made."""
    X = features(n)
    source = KernelStack.from_features(X, TABLES, largest_tile=40).source
    K = source.cross(np.arange(n), np.arange(n))
    span = source.grid.span(1)
    for a in range(0, source.s, 3):
        assert np.array_equal(source.tile(a, 0, 1), K[a, : span.start, span])
    some = np.array([n - 1, 3, 17])
    monkeypatch.setattr("dmkl.stack.features.TABLE_BYTES", 1e4)
    assert np.array_equal(source.cross(some, some), K[:, some[:, None], some])
    assert np.array_equal(K, K.transpose(0, 2, 1))
    if n == 60:
        assert np.array_equal(tiles_of(planned(X), X), K)
    exponentials = [a for a, kernel in enumerate(planned(X).kernels) if kernel.name.startswith(("x/rbf", "x[4]/rbf"))]
    assert (K[exponentials][:, np.arange(n), np.arange(n)] == 1).all()


def test_a_pass_agrees_with_the_matrices(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X = features(90)
    K = dense_kernels(X).astype(np.float64)
    for tile, values in ((1024, 1.0), (25, 1.0), (25, 1e9)):
        monkeypatch.setattr(score, "SCORES", dataclasses.replace(score.SCORES, values=values))
        stack = KernelStack.from_features(X, TABLES, largest_tile=tile)
        coef = rng.normal(size=(90, 3)) * (rng.random((90, 3)) < 0.4)
        weights = rng.random((3, stack.s)) * (rng.random((3, stack.s)) < 0.3)
        asked = rng.random((3, stack.s)) < 0.7
        found = stack.apply(coef, weights, forms=asked)
        np.testing.assert_allclose(found.scores, np.einsum("ka,aij,jk->ik", weights, K, coef), rtol=1e-5, atol=1e-5)
        forms = np.where(asked, np.einsum("ik,aij,jk->ka", coef, K, coef), 0.0)
        assert found.forms is not None
        np.testing.assert_allclose(found.forms, forms, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(stack.combine(weights[0]), np.tensordot(weights[0], K, 1), rtol=1e-5, atol=1e-5)
        part = stack.restrict(np.arange(1, 90, 2)).choose([7, 2, 30])
        own, few = part.apply(coef[1::2], np.zeros(3)).forms, K[[7, 2, 30]][:, 1::2, 1::2]
        np.testing.assert_allclose(own, np.einsum("ik,aij,jk->ka", coef[1::2], few, coef[1::2]), rtol=1e-5, atol=1e-5)
        total = part.combine(weights[0, :3])
        np.testing.assert_allclose(total, np.tensordot(weights[0, :3], few, 1), rtol=1e-5, atol=1e-5)


def test_a_pass_is_divided_by_kernels_where_block_rows_are_few() -> None:
    few, many = KernelStack.from_features(features(200), TABLES).grid, 100_000
    parts = score.portions(few, many)
    assert len(parts) == score.SCORES.tasks
    assert all(runs == [(0, range(1))] for runs, _ in parts)
    assert [a for _, span in parts for a in range(many)[span]] == list(range(many))
    assert score.portions(few, 20) == [([(0, range(1))], slice(0, 20))]
    assert [span for _, span in score.portions(few, many, least=50_000)] == [slice(0, 50_000), slice(50_000, many)]
    rows = dataclasses.replace(few, n=200_000, tile=1000)
    assert len(score.portions(rows, many)) == 200, "as many workers as there are block rows have work"


@given(st.integers(1, 12), st.integers(1, 30), st.integers(1, 40), st.floats(1e3, 1e9))
def test_the_tasks_of_a_pass_have_about_equal_work(blocks: int, kernels: int, least: int, values: float) -> None:
    grid = Grid(blocks * 100, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score, "SCORES", dataclasses.replace(score.SCORES, values=values))
        parts = score.portions(grid, kernels, least)
    met = [(i, j, a) for runs, span in parts for i, columns in runs for j in columns for a in range(kernels)[span]]
    assert sorted(met) == [(i, j, a) for i in range(blocks) for j in range(i, blocks) for a in range(kernels)]
    work = [sum(map(len, (columns for _, columns in runs))) * len(range(kernels)[span]) for runs, span in parts]
    assert max(work) <= 2 * min(work) + kernels


# --- the plan


def test_random_sets_are_the_same_again_and_the_first_of_more() -> None:
    few, more = random_subsets(20, 10), random_subsets(20, 50)
    assert more[:10] == few
    assert len(set(more)) == 50
    assert all(list(chosen) == sorted(set(chosen)) and 0 <= chosen[0] <= chosen[-1] < 20 for chosen in more)
    assert {len(chosen) for chosen in random_subsets(3, 200)} == {1, 2, 3}
    assert len(random_subsets(3, 200)) == 7


def test_sets_have_numbers_and_come_once() -> None:
    bank = planned(features(), [{"kernel": "rbf", "width": ["1 median", "2 median"], "subsets": 4}])
    assert [kernel.name for kernel in bank.kernels[:3]] == [
        "x[0]/rbf(width=1 median)",
        "x[0]/rbf(width=2 median)",
        "x[1]/rbf(width=1 median)",
    ]
    first, second = bank.kernels[0], bank.kernels[1]
    assert first.columns == second.columns == random_subsets(13, 1)[0]
    assert second.function.width == pytest.approx(2 * first.function.width)  # type: ignore[attr-defined]
    assert len(planned(features(columns=2), [{"kernel": "rbf", "width": 1.0, "subsets": 500}])) == 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kernel": "kl", "width": 1.0, "subsets": 3}, "no sum over columns"),
        ({"kernel": "rbf", "subsets": [[0, 13]]}, r"has no columns \[0, 13\]"),
        ({"kernel": "rbf", "subsets": [[]]}, "has no columns"),
        ({"kernel": "rbf", "subsets": -1}, "number of sets"),
        ({"kernel": "rbf", "subsets": "many"}, "subsets should be"),
        ({"kernel": "rbf", "width": 1.0, "subsets": 3, "normalise": ["centre"]}, "sums over columns"),
        ({"kernel": "linear", "subsets": 3, "normalise": ["unit-diagonal"]}, "sums over columns"),
    ],
)
def test_what_has_no_sets_of_columns_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KernelStack.from_features(features(), [table])


def test_what_overflows_is_refused() -> None:
    for X, table in (
        (1e160 * features(), {"kernel": "rbf", "width": 1.0, "subsets": 2}),
        (features(), {"kernel": "rbf", "width": 1e-200, "subsets": 2}),
    ):
        with pytest.raises(DataError, match="overflow"):
            KernelStack.from_features(X, [table])
    with pytest.raises(DataError, match="overflow"):
        KernelStack.from_features(1e30 * features(), [{"kernel": "poly", "subsets": 2}]).combine(np.ones(2))


@pytest.mark.parametrize("columns", [[], [1, 0], [0, 0], [-1], ["0"], [True], "columns"])
def test_damaged_columns_of_a_recipe_are_refused(columns: Any) -> None:
    recipe = planned(features()).kernels[0].recipe()
    assert Bank.from_recipes([json.loads(json.dumps(recipe))], 60).recipes() == [recipe]
    with pytest.raises((ConfigError, TypeError)):
        Bank.from_recipes([{**recipe, "columns": columns}], 60)


def test_every_sum_over_columns_adds_them_one_by_one(rng: np.random.Generator) -> None:
    X, Z = rng.random((7, 5)), rng.random((9, 5))
    for base in BASES.values():
        if base.add is not None:
            total = np.zeros((7, 9))
            for c in range(5):
                base.add(X[:, [c]], np.ascontiguousarray(Z[:, [c]].T), total)
            np.testing.assert_allclose(total, base.tile(X, Z), rtol=1e-10, atol=1e-12)


# --- solving


def problem(s: int, n: int = 80) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """Two noisy classes that a few of the columns tell apart, and Gaussians of different widths on random columns."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 20))
    y = np.where(X[:, 2] * X[:, 5] + 0.5 * X[:, 9] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    widths = 5 * rng.chisquare(1, size=s) + 0.1
    sets = random_subsets(20, s)
    return X, y, [{"kernel": "rbf", "width": float(w), "subsets": [own]} for w, own in zip(widths, sets, strict=True)]


FORMULATIONS = [
    dmkl.L1MKL(C=1.0),
    dmkl.L1MKL(C=100.0),
    dmkl.SpicyMKL(C=0.5),
    dmkl.SpicyMKL(C=0.5, loss="logistic"),
    dmkl.SpicyMKL(C=0.5, loss="squared", ridge=0.01),
]


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]], np.ndarray]:
    X, y, tables = problem(2500)
    source = KernelStack.from_features(X, tables).source
    return X, y, tables, source.cross(np.arange(len(X)), np.arange(len(X)))


@pytest.mark.parametrize("formulation", FORMULATIONS, ids=repr)
def test_a_few_of_many_kernels_find_the_optimum(
    formulation: Any, many: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, tables, K = many
    fits = [
        dmkl.solve(KernelStack.from_features(X, tables, workers=workers), y, formulation, tol=1e-4)
        for workers in (1, 2)
    ]
    assert fits[0].converged
    assert np.array_equal(fits[0].weights, fits[1].weights)
    assert np.array_equal(fits[0].coef, fits[1].coef)
    assert fits[0].state.active.sum() < len(tables) / 2
    monkeypatch.setattr(working_sets, "KERNEL_SETS", dataclasses.replace(working_sets.KERNEL_SETS, many=10**9))
    whole = dmkl.solve(KernelStack.from_array(K), y, formulation, tol=1e-4)
    assert whole.converged
    low, high = max(whole.dual, fits[0].dual), min(whole.objective, fits[0].objective)
    assert low <= high * (1 + 1e-7)  # both enclose one optimum


def test_groups_each_have_a_kernel_in_every_block(many: tuple[Any, ...]) -> None:
    X, y, tables, K = many
    groups = np.arange(len(tables)) % 7
    fits = []
    for source in (KernelStack.from_features(X, tables).source, KernelStack.from_array(K).source):
        fits.append(dmkl.solve(KernelStack(source, groups=groups), y, dmkl.VSKL(q=2, C=10.0), tol=1e-4))
        assert fits[-1].converged
        assert len(set(groups[fits[-1].state.active[0]])) == 7
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=2e-4)


def test_scaling_all_kernels_changes_nothing(many: tuple[Any, ...]) -> None:
    _, y, _, K = many
    for scale in (2.0**-40, 2.0**40):
        one = dmkl.solve(KernelStack.from_array(K), y, dmkl.L1MKL(C=100.0))
        other = dmkl.solve(KernelStack.from_array(K * np.float32(scale)), y, dmkl.L1MKL(C=100.0 / scale))
        assert other.passes == one.passes
        assert other.objective * scale == pytest.approx(one.objective, rel=1e-6)


def test_several_classes_within_less_memory_than_the_kernels_take() -> None:
    X, _, tables = problem(3000, n=150)
    y = np.random.default_rng(0).integers(0, 4, 150)
    X[np.arange(150), y] += 2.0
    memory = resident() + 150 * 10**6  # all kernels of one class take 270 MB
    for formulation in (dmkl.L1MKL(C=1.0), dmkl.SpicyMKL(C=1.0)):
        fit = dmkl.solve(KernelStack.from_features(X, tables, memory=memory), y, formulation, tol=1e-2)
        assert fit.converged


def test_a_neighbour_starts_from_the_kernels_of_the_last(many: tuple[Any, ...]) -> None:
    X, y, tables, _ = many
    stack = KernelStack.from_features(X, tables)
    first = dmkl.solve(stack, y, dmkl.L1MKL(C=1.0))
    second = dmkl.solve(stack, y, dmkl.L1MKL(C=1.2), start=first)
    assert second.converged
    assert second.rounds <= first.rounds


# --- stores, estimators, runs


def test_a_store_of_them_is_computed_with_the_bits_of_stored_tiles(tmp_path: Path) -> None:
    X = features(90)
    tables = [construct(KernelConfig, table, "kernels") for table in TABLES]
    data, bank = dataset(X), planned(X)
    stored = build_store(tmp_path / "stored.zarr", plan_bank(tables, data), data, Local(2), largest_tile=40)
    lean = build_store(tmp_path / "lean.zarr", bank, data, Local(2), largest_tile=40, computed=True)
    source = ComputedSource(lean)
    assert source.by_columns
    assert dmkl.KernelStack.open(lean.path).backend == "computed"
    for a in range(lean.s):
        for i, j in lean.grid.pairs():
            assert np.array_equal(source.tile(a, i, j), stored.read_tile(a, i, j))
    held = held_here(source, Local(2))
    coef, weights = np.random.default_rng(0).normal(size=(90, 1)), np.zeros(lean.s)
    computed, read = (KernelStack(own).apply(coef, weights).forms for own in (source, held))
    np.testing.assert_allclose(computed, read, rtol=1e-9)


def test_a_store_whose_views_are_narrower_than_its_sets_is_refused(tmp_path: Path) -> None:
    X = features()
    bank = planned(X, [{"kernel": "rbf", "width": 1.0, "subsets": [[0, 12]]}])
    with pytest.raises(StoreError, match="no column 12"):
        build_store(tmp_path / "k.zarr", bank, dataset(X[:, :12]), Local(1), computed=True)


def test_an_estimator_predicts_with_the_kernels_that_have_weight(tmp_path: Path) -> None:
    X, y, tables = problem(2100)
    model = dmkl.L1MKLClassifier(C=1.0, kernels=tables).fit(X[:60], y[:60])
    assert model.gap_ <= 1e-3
    new = X[60:]
    expected = np.full(len(new), model.intercept_)
    for a in np.flatnonzero(model.kernel_weights_[0]):
        columns, width = list(tables[a]["subsets"][0]), tables[a]["width"]
        D = ((new[:, None, columns] - X[None, :60, columns][:, model.model_.samples]) ** 2).sum(axis=2)
        expected += model.kernel_weights_[0, a] * np.exp(-D / (2 * width**2)) @ model.model_.coef[:, 0]
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=1e-5, atol=1e-5)
    save_model(tmp_path / "model.zarr.zip", model.model_)
    kept = load_model(tmp_path / "model.zarr.zip")
    data = Dataset({"x": make_view("x", "features", new)})
    assert np.array_equal(kept.decision(data, Local(1))[:, 0], model.decision_function(new))


def test_a_run_trains_on_random_sets_of_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = three_classes(90)
    assert data.labels is not None
    np.savez(tmp_path / "data.npz", X_points=data.views["points"].values, y=data.labels.values)
    (tmp_path / "c.toml").write_text(
        '[data]\npath = "data.npz"\n[[kernels]]\nkernel = "rbf"\nwidth = ["1 median", "3 median"]\nsubsets = 10\n'
        '[formulation]\nname = "spicy"\nC = 1.0\n'
    )
    assert main(["train", str(tmp_path / "c.toml"), "-o", str(tmp_path / "run")]) == 0
    model = load_model(tmp_path / "run" / "model.zarr.zip")
    sets = random_subsets(5, 10)
    assert len(model.bank) == 2 * len(sets)
    assert [kernel.columns for kernel in model.bank.kernels[::2]] == sets
    assert "computed on the fly" in capsys.readouterr().out
