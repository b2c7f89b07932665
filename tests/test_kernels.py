"""Every kernel against its formula, and what defines a kernel and a normaliser."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from conftest import three_classes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_view
from dmkl.errors import ConfigError, DataError
from dmkl.kernels import KERNELS, Bank, plan_bank
from dmkl.kernels.bases import BASES, SMOOTHING

X = np.random.default_rng(0).random((30, 6))
Z = np.random.default_rng(1).random((20, 6))


class Both:
    """Two blocks of one feature view; the same samples twice when they are the same array."""

    def __init__(self, left, right):
        self.left, self.right, self.same = left, right, left is right

    def sides(self, view):
        return self.left, self.right

    def given(self, view):
        return self.left


def additive_chi2(left, right):
    return sum(2 * left[:, None, k] * right[None, :, k] / (left[:, None, k] + right[None, :, k]) for k in range(6))


def chi2_distance(left, right):
    difference = left[:, None] - right[None]
    return (difference**2 / (left[:, None] + right[None])).sum(2)


def divergence(left, right):
    A, B = ((1 - SMOOTHING) * H / H.sum(1, keepdims=True) + SMOOTHING / H.shape[1] for H in (left, right))
    return (A[:, None] * np.log(A[:, None] / B[None])).sum(2)


FORMULAS = {
    "linear": ({}, lambda A, B: A @ B.T),
    "poly": ({"degree": 3, "gamma": 0.5, "coef0": 2.0}, lambda A, B: (0.5 * A @ B.T + 2) ** 3),
    "rbf": ({"width": 0.7}, lambda A, B: np.exp(-cdist(A, B, "sqeuclidean") / (2 * 0.7**2))),
    "laplacian": ({"width": 0.7}, lambda A, B: np.exp(-cdist(A, B, "cityblock") / 0.7)),
    "chi2": ({"width": 0.7}, lambda A, B: np.exp(-chi2_distance(A, B) / 0.7)),
    "additive_chi2": ({}, additive_chi2),
    "intersection": ({}, lambda A, B: np.minimum(A[:, None], B[None]).sum(2)),
    "sigmoid": ({"gamma": 0.3, "coef0": 0.1}, lambda A, B: np.tanh(0.3 * A @ B.T + 0.1)),
    "distance": ({"width": 0.7}, lambda A, B: np.exp(-A / 0.7)),
    "precomputed": ({}, lambda A, B: A),
    "kl": ({"width": 0.7}, lambda A, B: np.exp(-divergence(A, B) / 0.7)),
    "similarity": ({}, lambda A, B: A),
}


def bank_of(kernel, params, *, normalise=(), X=X):
    data = Dataset({"v": make_view("v", KERNELS[kernel].view_kind, X)})
    return plan_bank([KernelConfig(kernel, params=params, normalise=normalise)], data)


def values(bank: Bank, left, right) -> np.ndarray:
    return next(bank.values(Both(left, right)))[1]


def test_every_kernel_has_a_formula_here() -> None:
    assert set(FORMULAS) == set(KERNELS)


@pytest.mark.parametrize("name", list(FORMULAS))
def test_values_follow_the_formula(name: str) -> None:
    params, formula = FORMULAS[name]
    features = X if KERNELS[name].view_kind == "features" else cdist(X, X)
    bank = bank_of(name, params, X=features)
    left, right = (X, Z) if features is X else (features, features)
    np.testing.assert_allclose(values(bank, left, right), formula(left, right), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", [n for n in FORMULAS if KERNELS[n].view_kind == "features"])
def test_sparse_features_give_the_same_values(name: str) -> None:
    sparse = np.where(X > 0.5, X, 0.0)
    bank = bank_of(name, FORMULAS[name][0], X=sparse)
    left, right = scipy.sparse.csr_array(sparse[:20]), scipy.sparse.csr_array(sparse[10:])
    np.testing.assert_allclose(values(bank, left, right), values(bank, sparse[:20], sparse[10:]), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in FORMULAS if KERNELS[n].view_kind == "features"])
def test_a_diagonal_tile_is_exactly_symmetric_and_agrees_with_the_diagonal(name: str) -> None:
    bank = bank_of(name, FORMULAS[name][0])
    tile = values(bank, X, X)
    assert np.array_equal(tile, tile.T) == KERNELS[name].symmetric
    function = bank.kernels[0].function
    diagonal = function.evaluate(BASES[function.base].diagonal(X))
    np.testing.assert_allclose(np.diagonal(tile), diagonal, rtol=1e-6)


@given(arrays(np.float64, (8, 3), elements=st.floats(0.0, 10.0, width=32)))
def test_definite_kernels_have_no_negative_eigenvalue(points: np.ndarray) -> None:
    for name, (params, _) in FORMULAS.items():
        if KERNELS[name].view_kind == "features" and not KERNELS[name].indefinite:
            function = KERNELS[name](**params)
            K = np.asarray(function.evaluate(BASES[function.base].tile(points, points)), dtype=np.float64)
            assert np.linalg.eigvalsh((K + K.T) / 2).min() >= -1e-5 * max(1.0, np.trace(K))


def training_matrix(bank: Bank, row_means: np.ndarray) -> np.ndarray:
    everything = slice(0, bank.n)
    return next(bank.tiles(Both(X, X), everything, everything, row_means))[1].astype(np.float64)


@pytest.mark.parametrize("name", ["linear", "rbf", "poly", "intersection"])
def test_normalisers_do_what_their_names_say(name: str) -> None:
    params = FORMULAS[name][0]
    nothing = np.zeros((1, 30))
    assert np.trace(training_matrix(bank_of(name, params, normalise=("unit-trace",)), nothing)) == pytest.approx(1)
    assert np.trace(training_matrix(bank_of(name, params, normalise=("unit-mean",)), nothing)) == pytest.approx(30)
    unit = training_matrix(bank_of(name, params, normalise=("unit-diagonal",)), nothing)
    np.testing.assert_allclose(np.diagonal(unit), 1.0, rtol=1e-6)
    means = values(bank_of(name, params), X, X).mean(axis=1, dtype=np.float64)[None]
    centred = training_matrix(bank_of(name, params, normalise=("centre", "unit-trace")), means)
    np.testing.assert_allclose(centred.sum(axis=0), 0.0, atol=1e-5)
    assert np.trace(centred) == pytest.approx(1)


def test_widths_are_multiples_of_measured_distances() -> None:
    distances = cdist(X, X)[np.triu_indices(30, 1)]
    widths = [k.function.width for k in bank_of("rbf", {"width": ["median", "0.5 mean", "2 scale", 3]}).kernels]
    spread = (6 * X.var() / 2) ** 0.5
    np.testing.assert_allclose(widths, [np.median(distances), 0.5 * distances.mean(), 2 * spread, 3.0])


def test_scale_is_scikit_learns_gamma_scale() -> None:
    from sklearn.metrics.pairwise import rbf_kernel

    K = values(bank_of("rbf", {"width": "scale"}), X, Z)
    np.testing.assert_allclose(K, rbf_kernel(X, Z, gamma=1 / (6 * X.var())), rtol=1e-6)


def test_a_bank_survives_its_recipes() -> None:
    bank = plan_bank([KernelConfig("rbf"), KernelConfig("poly", normalise=("unit-trace",))], three_classes())
    assert Bank.from_recipes(bank.recipes(), bank.n) == bank
    assert bank.groups.tolist() == [0, 1, 0, 1]


def test_a_named_group_overrides_the_view() -> None:
    bank = plan_bank([KernelConfig("rbf"), KernelConfig("linear", group="lines")], three_classes())
    assert [kernel.group for kernel in bank.kernels] == ["points", "words", "lines", "lines"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (KernelConfig("rbv"), "unknown kernel 'rbv'; did you mean 'rbf'"),
        (KernelConfig("rbf", params={"widht": 1.0}), "unknown key 'widht'.*did you mean 'width'"),
        (KernelConfig("rbf", params={"width": "1 medium"}), "width '1 medium' is not understood"),
        (KernelConfig("rbf", params={"width": -1.0}), "width should be positive"),
        (KernelConfig("laplacian", params={"width": "1 scale"}), "width '1 scale' is not understood"),
        (KernelConfig("rbf", views=("pionts",)), "no view 'pionts'; did you mean 'points'"),
        (KernelConfig("distance"), "needs a distance view and the data have none"),
        (KernelConfig("precomputed", views=("points",)), "needs a kernel view, 'points' is a features view"),
        (KernelConfig("rbf", normalise=("unit-norm",)), "unknown normaliser 'unit-norm'"),
        (KernelConfig("rbf", normalise=("centre", "unit-diagonal")), "not in the order they apply"),
        (KernelConfig("rbf", params={"width": [1.0, 1.0]}), "is listed twice"),
    ],
)
def test_wrong_tables_are_refused(config: KernelConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_bank([config], three_classes())


def test_histogram_kernels_refuse_negative_features() -> None:
    with pytest.raises(DataError, match="needs features >= 0, view 'points' has negative ones"):
        plan_bank([KernelConfig("chi2")], three_classes())


def test_unit_diagonal_refuses_an_empty_sample() -> None:
    empty = X.copy()
    empty[4] = 0.0
    with pytest.raises(DataError, match="sample 4 has k"):
        bank_of("linear", {}, normalise=("unit-diagonal",), X=empty)


def test_an_overflowing_kernel_is_named() -> None:
    bank = bank_of("poly", {"degree": 30, "gamma": 100.0})
    with pytest.raises(DataError, match="overflows"), np.errstate(over="ignore"):
        training_matrix(bank, np.zeros((1, 30)))


def test_kernels_are_frozen_recipes() -> None:
    for cls in KERNELS.values():
        assert dataclasses.is_dataclass(cls)
        assert cls.__doc__
