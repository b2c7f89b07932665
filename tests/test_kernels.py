"""Every registered kernel by what defines a kernel, those of dmkl by their formulas, and the normalisers.

The first part runs over the table of kernels as it is: a kernel that is added goes through it without an edit here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse
from conftest import single, three_classes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_view
from dmkl.errors import ConfigError, DataError
from dmkl.kernels import KERNELS, Bank, plan_bank
from dmkl.kernels.distances import BASES, SMOOTHING
from dmkl.kernels.functions import Scales

X = np.random.default_rng(0).random((30, 6))
Z = np.random.default_rng(1).random((20, 6))


class Both:
    """Two blocks of one feature view; the same samples twice when they are the same array."""

    def __init__(self, left, right):
        self.left, self.right, self.same = left, right, left is right

    def sides(self, view):
        return self.left, self.right

    def matrix(self, view):
        return self.left


def bank_of(kernel, params, *, normalise=(), X=X):
    data = Dataset({"v": make_view("v", KERNELS[kernel].view_kind, X)})
    return plan_bank([KernelConfig(kernel, params=params, normalise=normalise)], data)


def values(bank: Bank, left, right) -> np.ndarray:
    return next(bank.values(Both(left, right)))[1]


EVERY = pytest.mark.parametrize("name", list(KERNELS))
OF_FEATURES = pytest.mark.parametrize("name", [name for name, cls in KERNELS.items() if cls.view_kind == "features"])


def samples_of(name):
    """Values for a kernel's view: features, Euclidean distances, or a semidefinite matrix."""
    return {"features": X, "distance": cdist(X, X), "kernel": X @ X.T}[KERNELS[name].view_kind]


def default(name, samples=None, **params):
    """A bank of one kernel with its default parameters."""
    return bank_of(name, params, X=samples_of(name) if samples is None else samples)


def rectangle(name, bank, samples, rows=slice(None), columns=slice(None)):
    """Values of some rows and columns of the training matrix."""
    if KERNELS[name].view_kind == "features":
        pair = Both(samples[rows], samples[columns])
        pair.same = rows == columns
        return next(bank.values(pair))[1]
    return next(bank.values(Both(samples[rows, columns], None)))[1]


@EVERY
def test_a_kernel_is_a_frozen_dataclass_that_says_what_it_computes(name: str) -> None:
    cls = KERNELS[name]
    assert dataclasses.is_dataclass(cls)
    assert cls.__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        cls().base = "other"


@EVERY
def test_values_are_finite_and_symmetric_where_the_kernel_claims_so(name: str) -> None:
    K = rectangle(name, default(name), samples_of(name))
    assert K.shape == (30, 30)
    assert np.isfinite(K).all()
    assert np.array_equal(K, K.T) or not KERNELS[name].symmetric


@EVERY
def test_tiles_are_parts_of_the_whole(name: str) -> None:
    bank, samples = default(name), samples_of(name)
    whole = rectangle(name, bank, samples)
    for rows in (slice(0, 12), slice(12, 30)):
        for columns in (slice(0, 12), slice(12, 30)):
            part = rectangle(name, bank, samples, rows, columns)
            np.testing.assert_allclose(part, whole[rows, columns], rtol=1e-6, atol=1e-7 * np.abs(whole).max())


@EVERY
def test_single_precision_is_close_to_double(name: str) -> None:
    bank, samples = default(name), samples_of(name)
    single = rectangle(name, bank, samples.astype(np.float32))
    exact = rectangle(name, bank, samples)
    np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


@EVERY
def test_a_kernel_survives_its_recipe(name: str) -> None:
    bank = default(name)
    assert Bank.from_recipes(json.loads(json.dumps(bank.recipes())), bank.n, str(bank.dtype)) == bank
    assert bank.fingerprint() == Bank.from_recipes(bank.recipes(), bank.n).fingerprint()


@EVERY
def test_parameters_are_checked(name: str) -> None:
    """An unknown one and one of another type are refused by name; out of range, they are refused or do no harm."""
    with pytest.raises(ConfigError, match="unknown key 'nonsense'"):
        default(name, nonsense=1.0)
    for field in dataclasses.fields(KERNELS[name]):
        with pytest.raises(ConfigError, match=field.name):
            default(name, **{field.name: {"a": "table"}})
        for number in (0, -1, 10**4, 0.0, -1.0, 1e300, 1e-300, np.inf, np.nan):
            with contextlib.suppress(ConfigError, DataError), np.errstate(all="ignore"):
                bank = default(name, **{field.name: number})
                samples = samples_of(name)
                pair = Both(samples, samples)
                tile = next(bank.tiles(pair, slice(0, 30), slice(0, 30), np.zeros((1, 30))))[1]
                assert np.isfinite(tile).all()


@OF_FEATURES
def test_sparse_features_give_the_same_values(name: str) -> None:
    features = np.where(X > 0.5, X, 0.0)
    bank = default(name, features)
    left, right = scipy.sparse.csr_array(features[:20]), scipy.sparse.csr_array(features[10:])
    expected = values(bank, features[:20], features[10:])
    np.testing.assert_allclose(values(bank, left, right), expected, rtol=1e-6, atol=1e-12)


@OF_FEATURES
def test_a_diagonal_tile_agrees_with_the_diagonal(name: str) -> None:
    bank = default(name)
    tile = values(bank, X, X)
    function = bank.kernels[0].function
    diagonal = function.evaluate(BASES[function.base].diagonal(X))
    np.testing.assert_allclose(np.diagonal(tile), diagonal, rtol=1e-6)


@EVERY
@given(arrays(np.float64, (8, 3), elements=st.floats(0.0, 10.0, width=32)))
def test_definite_kernels_have_no_negative_eigenvalue(name: str, points: np.ndarray) -> None:
    cls = KERNELS[name]
    if cls.indefinite or cls.unproven:
        return
    scales = Scales(1.0, 1.0, 1.0)
    values = BASES[cls.base].tile(points, points) if cls.view_kind == "features" else cdist(points, points)
    K = np.asarray(cls().fit(scales).evaluate(values), dtype=np.float64)
    assert np.linalg.eigvalsh((K + K.T) / 2).min() >= -1e-5 * max(1.0, np.trace(K))


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


@pytest.mark.parametrize("name", list(FORMULAS))
def test_values_follow_the_formula(name: str) -> None:
    params, formula = FORMULAS[name]
    features = X if KERNELS[name].view_kind == "features" else cdist(X, X)
    bank = bank_of(name, params, X=features)
    left, right = (X, Z) if features is X else (features, features)
    np.testing.assert_allclose(values(bank, left, right), formula(left, right), rtol=2e-6, atol=2e-7)


@given(arrays(np.float64, (8, 3), elements=st.floats(0.0, 10.0, width=32)))
def test_definite_formulas_have_no_negative_eigenvalue(points: np.ndarray) -> None:
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
    assert Bank.from_recipes(bank.recipes(), bank.n, "float64") == bank
    assert Bank.from_recipes(bank.recipes(), bank.n) == single(bank)
    with pytest.raises(ConfigError, match="float16"):
        Bank.from_recipes(bank.recipes(), bank.n, "float16")
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


@pytest.mark.parametrize("name", ["poly", "sigmoid"])
def test_equal_features_have_no_scale_and_take_a_number(name: str) -> None:
    equal = np.ones((5, 2))
    assert np.ptp(values(bank_of(name, {"gamma": 1.0}, X=equal), equal, equal)) == 0
    with pytest.raises(ConfigError, match="gamma 'scale': the scale is inf"):
        bank_of(name, {"gamma": "scale"}, X=equal)


def test_an_overflowing_kernel_is_named() -> None:
    bank = single(bank_of("poly", {"degree": 30, "gamma": 100.0}))
    with pytest.raises(DataError, match="overflows"), np.errstate(over="ignore"):
        training_matrix(bank, np.zeros((1, 30)))
