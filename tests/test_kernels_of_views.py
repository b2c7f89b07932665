"""Kernels of several views: products and weighted means, from the table to tiles, stores, models and messages."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import flip_a_bit, save_npz, single, three_classes, whole
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

import dmkl
from dmkl._util.types import Array, Float64
from dmkl.cli.main import main
from dmkl.config import KernelConfig, construct, parse_config
from dmkl.data import Dataset, View, make_labels, make_view
from dmkl.errors import ConfigError, StoreError
from dmkl.kernels import KERNELS, Bank, plan_bank
from dmkl.kernels.plan import computing_ns
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.store import KernelStore, build_store

N = 30
EVERY = pytest.mark.parametrize("name", list(KERNELS))
FEATURES = [name for name, cls in KERNELS.items() if cls.view_kind == "features"]
DEFINITE = [name for name in FEATURES if not KERNELS[name].indefinite]


class Whole:
    """All samples against all, or some against some."""

    def __init__(self, data: Dataset, rows: slice = slice(None), columns: slice = slice(None)) -> None:
        self._views, self._rows, self._columns = data.views, rows, columns
        self.same = rows == columns

    def sides(self, view: str) -> tuple[Any, Any]:
        values = self._views[view].values
        return values[self._rows], values[self._columns]

    def matrix(self, view: str) -> Array:
        return np.asarray(self._views[view].values[self._rows, self._columns])


def samples_for(name: str, views: int = 3, seed: int = 0, n: int = N) -> Dataset:
    """Views a, b, c ... of the kind that a kernel takes, of different widths and scales."""
    rng = np.random.default_rng(seed)
    found: dict[str, View] = {}
    for number, view in enumerate("abcdef"[:views]):
        X = (1 + number) * rng.random((n, 3 + number))
        values = {"features": X, "distance": cdist(X, X), "kernel": X @ X.T}[KERNELS[name].view_kind]
        found[view] = make_view(view, KERNELS[name].view_kind, values)
    return Dataset(found, make_labels(np.arange(n) % 2))


def matrix(bank: Bank, data: Dataset, a: int = 0, **of: slice) -> Float64:
    return np.asarray(dict(bank.values(Whole(data, **of)))[a], dtype=np.float64)


def combined(name: str, how: str, views: tuple[str, ...] = ("a", "b", "c"), **more: Any) -> KernelConfig:
    return KernelConfig(name, views=views, combine=how, **more)


def alone(name: str, data: Dataset, view: str, **params: Any) -> Float64:
    """The kernel of one view, as a table without `combine` gives it."""
    return matrix(plan_bank([KernelConfig(name, views=(view,), params=params)], data), data)


# --- values


@EVERY
def test_a_product_multiplies_and_a_mean_averages_what_every_view_gives_alone(name: str) -> None:
    data = samples_for(name)
    a, b, c = (alone(name, data, view) for view in "abc")
    for config, expected in (
        (combined(name, "product"), a * b * c),
        (combined(name, "mean"), (a + b + c) / 3),
        (combined(name, "mean", weights=(1.0, 1.0, 2.0)), (a + b + 2 * c) / 4),
        (combined(name, "mean", ("c", "a", "b"), weights=(2.0, 1.0, 1.0)), (a + b + 2 * c) / 4),
    ):
        bank = plan_bank([config], data)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(matrix(bank, data), expected, rtol=1e-12, atol=1e-13 * scale)
        np.testing.assert_allclose(matrix(single(bank), data), expected, rtol=1e-5, atol=1e-6 * scale)
        part = matrix(bank, data, rows=slice(3, 9), columns=slice(0, 20))
        np.testing.assert_allclose(part, expected[3:9, :20], rtol=1e-9, atol=1e-12 * scale)


def test_widths_are_measured_in_every_view() -> None:
    data = samples_for("rbf")
    product, numbers = plan_bank(
        [combined("rbf", "product", params={"width": "0.5 median"}), combined("rbf", "mean", params={"width": 2.0})],
        data,
    ).kernels
    medians = [np.median(cdist(view.values, view.values)[np.triu_indices(N, 1)]) for view in data.views.values()]
    widths = [product.function.width, *(part.function.width for part in product.others)]
    np.testing.assert_allclose(widths, 0.5 * np.array(medians))
    assert [part.function.width for part in numbers.others] == [2.0, 2.0]
    squares = sum(
        cdist(data.views[v].values, data.views[v].values, "sqeuclidean") / w**2
        for v, w in zip("abc", widths, strict=True)
    )
    bank = plan_bank([combined("rbf", "product", params={"width": "0.5 median"})], data)
    np.testing.assert_allclose(matrix(bank, data), np.exp(-squares / 2), rtol=1e-10)


@pytest.mark.parametrize("name", ["linear", "rbf", "poly", "intersection"])
@pytest.mark.parametrize("how", ["product", "mean"])
def test_normalisers_apply_to_the_result(name: str, how: str) -> None:
    data, nothing, everything = samples_for(name), np.zeros((1, N)), slice(0, N)

    def finished(*normalise: str, means: Float64 = nothing) -> Float64:
        bank = plan_bank([combined(name, how, normalise=normalise)], data)
        return np.asarray(next(bank.tiles(Whole(data), everything, everything, means))[1], dtype=np.float64)

    raw = matrix(plan_bank([combined(name, how)], data), data)
    own = np.sqrt(np.diagonal(raw))
    np.testing.assert_allclose(finished("unit-diagonal"), raw / np.outer(own, own), rtol=1e-9)
    np.testing.assert_allclose(finished("unit-mean"), raw * N / np.trace(raw), rtol=1e-9)
    centred = raw - raw.mean(axis=0) - raw.mean(axis=1)[:, None] + raw.mean()
    found = finished("centre", "unit-trace", means=raw.mean(axis=1)[None])
    np.testing.assert_allclose(found, centred / np.trace(centred), rtol=1e-6, atol=1e-9)


def test_a_similarity_that_is_not_symmetric_in_one_view_makes_the_product_so() -> None:
    rng = np.random.default_rng(0)
    data = samples_for("precomputed", 2)
    skew = View("b", "kernel", rng.normal(size=(N, N)), symmetric=False)
    bank = plan_bank([combined("precomputed", "product", ("*",))], Dataset({"a": data.views["a"], "b": skew}))
    assert not bank.symmetric
    assert bank.indefinite == ["a*b/precomputed()"]
    product = matrix(bank, Dataset({"a": data.views["a"], "b": skew}))
    np.testing.assert_allclose(product, data.views["a"].values * skew.values)


@pytest.mark.parametrize("name", DEFINITE)
@pytest.mark.parametrize("how", ["product", "mean"])
@given(
    arrays(np.float64, (8, 3), elements=st.floats(0.125, 10.0, width=32)),
    arrays(np.float64, (8, 2), elements=st.floats(0.125, 10.0, width=32)),
    st.permutations(["a", "b", "c"]),
)
def test_products_and_means_are_semidefinite_whatever_the_order_of_the_views(
    name: str, how: str, first: Float64, second: Float64, order: list[str]
) -> None:
    views = {"a": first, "b": second, "c": first[:, :2] + second}
    data = Dataset({view: make_view(view, "features", values) for view, values in views.items()})
    params = {"width": 1.0} if "width" in KERNELS[name].__dataclass_fields__ else {}
    one, other = (
        matrix(plan_bank([combined(name, how, tuple(names), params=params)], data), data) for names in ("abc", order)
    )
    assert np.array_equal(one, other)
    assert np.array_equal(one, one.T)
    assert np.linalg.eigvalsh(one).min() >= -1e-9 * max(1.0, np.trace(one))


# --- the bank


def test_names_groups_and_grids() -> None:
    configs = [
        combined("rbf", "product", ("*",), params={"width": ["0.5 median", "1 median"]}),
        combined("intersection", "mean", ("a", "c"), weights=(1.0, 2.5), group="pyramid"),
        KernelConfig("rbf", views=("a",)),
    ]
    bank = plan_bank(configs, samples_for("rbf"))
    assert [kernel.name for kernel in bank.kernels] == [
        "a*b*c/rbf(width=0.5 median)",
        "a*b*c/rbf(width=1 median)",
        "a+c/intersection(weights=1:2.5)",
        "a/rbf()",
    ]
    assert [kernel.group for kernel in bank.kernels] == ["a*b*c", "a*b*c", "pyramid", "a"]
    assert bank.view_kinds == dict.fromkeys("abc", "features")
    assert bank.kernels[0].of == bank.kernels[1].of != bank.kernels[3].of


@EVERY
def test_recipes_bring_the_kernels_back(name: str) -> None:
    configs = [combined(name, "product"), combined(name, "mean", weights=(1.0, 2.0, 5.0)), combined(name, "mean")]
    bank = plan_bank([configs[0], configs[1]], samples_for(name))
    recipes = json.loads(json.dumps(bank.recipes()))
    assert Bank.from_recipes(recipes, bank.n, str(bank.dtype)) == bank
    assert len({plan_bank([config], samples_for(name)).fingerprint() for config in configs}) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [0.5, 0.5]},
        {"weights": [0.5, 0.5, -1.0]},
        {"weights": [0.5, 0.5, np.inf]},
        {"others": []},
        {"others": [{"view": 3, "params": {"width": 1.0}}, {"view": "c", "params": {"width": 1.0}}]},
        {"others": [{"view": "b", "params": {"width": "1 median"}}, {"view": "c", "params": {"width": 1.0}}]},
        {"others": [{"view": "b", "params": {"depth": 1.0}}, {"view": "c", "params": {"width": 1.0}}]},
        {"columns": [0, 1]},
    ],
)
def test_recipes_of_no_fitted_kernel_are_refused(change: dict[str, Any]) -> None:
    recipe = plan_bank([combined("rbf", "mean")], samples_for("rbf")).recipes()[0]
    assert Bank.from_recipes([recipe], N).recipes() == [recipe]
    with pytest.raises(ConfigError):
        Bank.from_recipes([{**recipe, **change}], N)


def test_a_recipe_needs_all_its_views() -> None:
    bank = plan_bank([combined("rbf", "product")], samples_for("rbf"))
    kinds = dict.fromkeys("abc", "features")
    bank.check_views(kinds, {})
    with pytest.raises(ConfigError, match="has no features view 'c'"):
        bank.check_views({"a": "features", "b": "features"}, {})


def test_the_cost_of_computing_counts_every_view() -> None:
    data = samples_for("linear", 2)
    together = plan_bank([combined("linear", "product", ("a", "b"))], data)
    apart = plan_bank([KernelConfig("linear")], data)
    assert computing_ns(together, data.views, 1024) == pytest.approx(2 * computing_ns(apart, data.views, 1024))


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ({"combine": "product", "views": ["a"]}, "the product is of two views or more, not of 'a' alone", "name more"),
        ({"combine": "mean", "views": ["a*"]}, "the mean is of two views or more, not of 'a' alone", "name more"),
        ({"combine": "product", "subsets": 3}, "combines views: it has no subsets", "make views of columns"),
        ({"combine": "product", "weights": [1, 2, 3]}, "a product has no weights", 'combine = "mean"'),
        ({"weights": [1, 2, 3]}, "has weights of views", 'combine = "mean"'),
        ({"combine": "mean", "weights": [1, 2]}, "has 2 weights for the views a, b, c", "name all views"),
        (
            {"combine": "mean", "views": ["a", "b"], "weights": [1, 2, 3]},
            "has 3 weights for the views a, b",
            "name all views",
        ),
        ({"combine": "mean", "views": ["a", "b"], "weights": [1, 0]}, "weights should be positive, not", None),
        ({"combine": "sum"}, "combine can't be 'sum'", "product"),
        ({"combine": "product", "views": ["a", "d"]}, "no view 'd'", "known: a, b, c"),
    ],
)
def test_wrong_tables_are_refused_with_a_hint(table: dict[str, Any], message: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_bank([construct(KernelConfig, {"kernel": "rbf", **table}, "kernel")], samples_for("rbf"))
    assert message in refused.value.message
    assert "\n" not in refused.value.message
    assert hint is None or hint in (refused.value.hint or refused.value.message)


# --- stores, models and commands


TABLES: list[dict[str, Any]] = [
    {"kernel": "rbf", "combine": "product", "width": ["1 median", "2 median"]},
    {"kernel": "intersection", "views": ["a", "b"], "combine": "mean", "weights": [1, 3], "normalise": ["unit-mean"]},
    {"kernel": "linear", "combine": "product", "normalise": ["unit-diagonal", "centre", "unit-trace"]},
    {"kernel": "rbf", "views": ["a"]},
]


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Three classes in two views of histograms."""
    found = three_classes(110)
    points = np.abs(np.asarray(found.views["points"].values))
    views = {"a": make_view("a", "features", points), "b": make_view("b", "features", found.views["words"].values)}
    return Dataset(views, found.labels)


@pytest.fixture(scope="module")
def store(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    configs = [construct(KernelConfig, table, "kernel") for table in TABLES]
    path = tmp_path_factory.mktemp("views") / "k.zarr"
    return build_store(path, single(plan_bank(configs, data)), data, Local(2), largest_tile=40)


def test_a_store_has_the_values_of_numpy(store: KernelStore, data: Dataset) -> None:
    a, b = (np.asarray(data.views[view].values, dtype=np.float64) for view in "ab")
    K = whole(store)
    widths = [np.median(cdist(X, X)[np.triu_indices(len(X), 1)]) for X in (a, b)]
    squares = sum(cdist(X, X, "sqeuclidean") / width**2 for X, width in zip((a, b), widths, strict=True))
    np.testing.assert_allclose(K[0], np.exp(-squares / 2), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(K[1], np.exp(-squares / 8), rtol=1e-4, atol=1e-6)
    mean = sum(w * np.minimum(X[:, None], X).sum(axis=2) for w, X in ((0.25, a), (0.75, b)))
    np.testing.assert_allclose(K[2], mean * len(a) / np.trace(mean), rtol=1e-5)
    product = (a @ a.T) * (b @ b.T)
    product = product / np.sqrt(np.outer(np.diagonal(product), np.diagonal(product)))
    product = product - product.mean(axis=0) - product.mean(axis=1)[:, None] + product.mean()
    np.testing.assert_allclose(K[3], product / np.trace(product), atol=1e-7)


def test_computed_kernels_have_the_bits_of_stored_ones(
    store: KernelStore, data: Dataset, tmp_path: Path, two_workers: Any
) -> None:
    computed = build_store(tmp_path / "k.zarr", store.bank, data, Local(2), largest_tile=40, computed=True)
    weights = np.linspace(1, 2, store.s)
    expected = open_stack(store.path, backend="disk").combine(weights)
    assert np.array_equal(open_stack(computed.path, backend="computed").combine(weights), expected)
    far = open_stack(computed.path, backend="computed", runtime=two_workers)
    assert np.array_equal(far.combine(weights), expected)


def test_some_samples_against_others_are_parts_of_the_whole(store: KernelStore, data: Dataset, tmp_path: Path) -> None:
    computed = build_store(tmp_path / "k.zarr", store.bank, data, Local(2), largest_tile=40, computed=True)
    rows, columns = np.array([3, 50, 51]), np.array([0, 7, 90, 109])
    source = open_stack(computed.path, backend="computed").source
    K = whole(store)
    np.testing.assert_allclose(source.cross(rows, columns), K[:, rows][:, :, columns], rtol=1e-5, atol=1e-6)
    diagonal = np.array([np.diagonal(kernel) for kernel in K])
    np.testing.assert_allclose(source.diagonal(rows), diagonal[:, rows], rtol=1e-5, atol=1e-6)


def test_a_damaged_tile_is_computed_again(store: KernelStore, tmp_path: Path) -> None:
    mine = KernelStore(Path(shutil.copytree(store.path, tmp_path / "copy.zarr")))
    flip_a_bit(mine.tile_path(0, 1), 50)
    stack = open_stack(mine.path, backend="disk")
    assert np.array_equal(stack.combine(np.ones(mine.s)), open_stack(store.path).combine(np.ones(mine.s)))
    assert len(stack.news()) == 1


def test_a_tile_of_which_one_views_samples_are_lost_too_is_named(store: KernelStore, tmp_path: Path) -> None:
    mine = KernelStore(Path(shutil.copytree(store.path, tmp_path / "copy.zarr")))
    flip_a_bit(mine.tile_path(0, 1), 50)
    flip_a_bit(mine.path / "views/1/values/c/0/0", 50)
    with pytest.raises(StoreError, match="the samples that it was computed from are lost too"):
        open_stack(mine.path, backend="disk").combine(np.ones(mine.s))


def test_new_samples_are_predicted_by_the_same_kernels(data: Dataset) -> None:
    """Training samples in the place of new ones get the values and scores of training."""
    views = {name: np.asarray(view.values) for name, view in data.views.items()}
    assert data.labels is not None
    bank = dmkl.KernelBank(kernels=TABLES).fit(views)
    K = bank.transform(views)
    model = dmkl.L1MKLClassifier(C=10.0, kernels=TABLES, tol=1e-4).fit(views, data.labels.values)
    assert model.kernel_names_ == bank.kernel_names_
    assert model.kernel_names_[:2] == ["a*b/rbf(width=1 median)", "a*b/rbf(width=2 median)"]
    scores = model.decision_function(views)
    stack = dmkl.KernelStack.from_array(np.moveaxis(K, 2, 0))
    fit = dmkl.solve(stack, data.labels.values, dmkl.L1MKL(C=10.0), tol=1e-6)
    expected = np.stack(
        [np.tensordot(w, np.moveaxis(K, 2, 0) @ fit.coef[:, k], 1) for k, w in enumerate(fit.weights)], axis=1
    )
    np.testing.assert_allclose(scores, expected + fit.intercept, atol=0.02 * np.ptp(expected))
    assert np.array_equal(model.predict(views)[:5], data.labels.values[:5])


@pytest.mark.parametrize("where", ["store", "compute"])
def test_from_toml_to_predictions(
    data: Dataset, tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_npz(tmp_path / "d.npz", data)
    (tmp_path / "c.toml").write_text(
        '[data]\npath = "d.npz"\ntest = 0.3\n'
        '[[kernels]]\nkernel = "rbf"\ncombine = "product"\nwidth = ["1 median", "2 median"]\n'
        '[[kernels]]\nkernel = "intersection"\nviews = ["b", "a"]\ncombine = "mean"\nweights = [1, 3]\n'
        '[formulation]\nname = "vskl"\nC = 10\n'
        f'[run]\nkernels = "{where}"\n'
    )
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "c.toml"), "-o", str(run), "-q"]) == 0
    score = json.loads((run / "scores.json").read_text())["score"]["metrics"]["accuracy"]
    assert main(["evaluate", str(run), str(tmp_path / "d.npz"), "-q", "--json"]) == 0
    assert score > 0.6
    assert main(["predict", str(run), str(tmp_path / "d.npz"), "-q", "-o", str(tmp_path / "p.csv"), "--explain"]) == 0
    with (tmp_path / "p.csv").open() as file:
        header = next(csv.reader(file))
    assert any("a*b/rbf(width=1 median)" in column or "a+b/intersection" in column for column in header)
    capsys.readouterr()
    if where == "store":
        assert main(["info", str(run / "kernels.zarr")]) == 0
        text = capsys.readouterr().out
        assert "a*b/rbf(width=2 median)" in text
        assert "a+b/intersection(weights=3:1)" in text
    lacking = Dataset({"a": data.views["a"]}, data.labels)
    save_npz(tmp_path / "lacking.npz", lacking)
    assert main(["predict", str(run), str(tmp_path / "lacking.npz"), "-q", "-o", str(tmp_path / "q.csv")]) == 4
    assert "'b'" in capsys.readouterr().err


def test_a_configuration_keeps_what_it_says() -> None:
    table = {"kernel": "rbf", "views": ["a", "b"], "combine": "mean", "weights": [1, 2], "width": 1.0}
    config = parse_config({"data": {"path": "d.npz"}, "kernels": [table]})
    again = parse_config(config.to_dict()).kernels[0]
    assert (again.combine, again.weights, again.params) == ("mean", (1.0, 2.0), {"width": 1.0})
