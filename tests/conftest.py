"""Shared small data. Tests leave nothing behind: Hypothesis keeps its examples in memory, not in a folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import configuration, settings

from dmkl._util.types import SINGLE
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.kernels import Bank, plan_bank
from dmkl.model import load_model
from dmkl.runtime import Local, open_runtime
from dmkl.solvers import working_sets
from dmkl.store import KernelStore, build_store

settings.register_profile("dmkl", database=None, deadline=None, max_examples=50)
settings.load_profile("dmkl")


unsolved = pytest.mark.filterwarnings("ignore:.*the certified gap is.*above tol")  # for tests that cut solvers short


@pytest.fixture(scope="session", autouse=True)
def _hypothesis_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    configuration.set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def three_classes(n: int = 150, seed: int = 3) -> Dataset:
    """Three overlapping classes in two feature views, one of them histograms."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    points = rng.normal(size=(n, 5)) + 1.5 * np.eye(5)[y]
    histograms = rng.dirichlet(np.ones(8), size=n) + 0.3 * np.eye(8)[y]
    views = {"points": make_view("points", "features", points), "words": make_view("words", "features", histograms)}
    return Dataset(views, make_labels(y))


def with_options(patch: pytest.MonkeyPatch, module: Any, **changes: Any) -> None:
    """Change constants of an algorithm for a while: fields of its module's OPTIONS."""
    patch.setattr(module, "OPTIONS", dataclasses.replace(module.OPTIONS, **changes))


def small_working_sets(patch: pytest.MonkeyPatch, *, start: int, least_growth: int) -> None:
    """Several rounds on few samples."""
    with_options(patch, working_sets, whole_up_to=20, start=start, least_growth=least_growth)


def save_npz(path: Path, data: Dataset) -> None:
    """A data set as a file that a configuration can name."""
    assert data.labels is not None
    arrays = {f"X_{name}": np.asarray(view.values) for name, view in data.views.items()}
    np.savez(path, y=data.labels.values, **arrays)


KERNELS = [
    KernelConfig("rbf", views=("*",), params={"width": ["0.5 median", "1 median"]}),
    KernelConfig("linear", views=("points",), normalise=("unit-diagonal", "centre", "unit-trace")),
    KernelConfig("intersection", views=("words",), normalise=("unit-mean",)),
]


def single(bank: Bank) -> Bank:
    """The same kernels in float32, as those of many samples are."""
    return dataclasses.replace(bank, dtype=SINGLE)


@pytest.fixture(scope="session")
def data() -> Dataset:
    return three_classes()


@pytest.fixture(scope="session")
def store(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    """A finished store of six kernels in 4 x 4 blocks; tests must not change it."""
    path = tmp_path_factory.mktemp("shared") / "kernels.zarr"
    return build_store(path, single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=40)


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Any]:
    """A Dask cluster of two worker processes, for all tests: starting one takes seconds."""
    with open_runtime("local:2") as runtime:
        yield runtime


def whole(store: KernelStore) -> np.ndarray:
    """All kernels of a store as one array (s, n, n)."""
    K = np.empty((store.s, store.n, store.n), store.bank.dtype)
    for a in range(store.s):
        for i, j in store.grid.pairs():
            rows, columns = store.grid.span(i), store.grid.span(j)
            tile = store.read_tile(a, i, j)
            K[a, rows, columns], K[a, columns, rows] = tile, tile.T
    return K


def assert_same_model(one: Path, other: Path) -> None:
    """Two runs ended with the same model, bit for bit."""
    models = [load_model(run / "model.zarr.zip") for run in (one, other)]
    for name in ("samples", "coef", "weights", "intercept"):
        assert np.array_equal(*(getattr(model, name) for model in models)), name


def flip_a_bit(path: Path, position: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 4
    path.write_bytes(raw)
