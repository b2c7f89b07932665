"""Multilabel sets as banks: kernels of their views, widths and traces measured on the training samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from pipelines.common.banks import WORKERS, Bank, Float32
from pipelines.common.data import data_file
from pipelines.common.experiment import Context, Row

Samples = NDArray[np.int64]


def loader(context: Context) -> Callable[[str], Bank]:
    """The bank of a set, computed when needed; the last one is kept."""

    @lru_cache(maxsize=1)
    def load(name: str) -> Bank:
        context.progress(f"{name}: kernels")
        return read(name, context.settings["sets"][name])

    return load


def read(name: str, settings: Row) -> Bank:
    """Read a set without the labels that no training sample has."""
    found = np.load(data_file(f"{name}.npz", "views X_<name>, Y (n, L), is_train; see ../shared/DATA.md"))
    train, test = np.flatnonzero(found["is_train"]), np.flatnonzero(~found["is_train"])
    train = train[:: settings.get("every", 1)]
    views = {key: found[key].astype(np.float64) for key in found if key.startswith("X_")}
    if settings["standardise"]:
        views = {key: standardised(X, train) for key, X in views.items()}
    maker = dmkl.KernelBank(kernels=settings["kernels"], n_jobs=WORKERS)
    maker.fit(rows(views, train))
    K, across = (kernels_first(maker, rows(views, part)) for part in (train, test))
    groups = np.empty(len(K), np.int64)
    for number, members in enumerate(maker.groups_.values()):
        groups[members] = number  # a group a view
    Y = found["Y"][:, found["Y"][train].any(axis=0)]
    bank = Bank(K, across, Y[train], Y[test], groups)
    dmkl.solve(bank.stack, bank.Y[:, :1], dmkl.UniformMKL(), tol=0.5)  # kernels looked at: not timed later
    return bank


def standardised(X: NDArray[Any], train: Samples) -> NDArray[Any]:
    """Every feature, by its mean and deviation over the training samples."""
    return np.asarray((X - X[train].mean(axis=0)) / np.maximum(X[train].std(axis=0), 1e-12))


def rows(views: dict[str, NDArray[Any]], some: Samples) -> dict[str, NDArray[Any]]:
    return {key: X[some] for key, X in views.items()}


def kernels_first(maker: dmkl.KernelBank, views: dict[str, NDArray[Any]]) -> Float32:
    """(s, n_new, n)."""
    return np.ascontiguousarray(np.moveaxis(maker.transform(views), 2, 0))
