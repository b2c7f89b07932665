"""Kernels exp(-D / mean D) of the views of Caltech-101, a bank for each split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

import dmkl
from dmkl.data import make_folds
from pipelines.common.banks import Bank, bank
from pipelines.common.experiment import Context
from pipelines.common.views import caltech101, caltech101_splits, distances, gaussian_kernels

TRAINING = 30  # images a class


def loader(context: Context) -> Callable[[int], Bank]:
    """The bank of a split, computed when needed; the last one is kept."""

    @lru_cache(maxsize=1)
    def load(number: int) -> Bank:
        context.progress(f"split {number}: distances")
        settings = context.settings
        y, views = caltech101(settings["views"])
        classes = np.unique(y)[np.linspace(0, y.max(), settings["classes"]).round().astype(int)]
        split = caltech101_splits(TRAINING)[number]
        train, test = (part[np.isin(y[part], classes)] for part in (split.train, split.test))
        samples = np.concatenate([train, test])
        K = gaussian_kernels([distances(view, samples) for view in views], (1.0,), len(train))
        Y = (y[samples][:, None] == classes).astype(np.uint8)
        found = bank(K, len(train), Y, groups=np.arange(len(K)))  # VSKL: every kernel is a group of its own
        dmkl.solve(found.stack, Y[: len(train), 0], dmkl.UniformMKL(), tol=0.5)  # kernels looked at: not timed later
        return found

    return load


def folds(bank: Bank, count: int) -> Iterator[Bank]:
    """The training images again and again as training and test images."""
    for fold in make_folds(bank.labels, count):
        kept, held = fold.kept, fold.held
        inside, across = (np.ascontiguousarray(bank.K[:, rows[:, None], kept]) for rows in (kept, held))
        yield Bank(inside, across, bank.Y[kept], bank.Y[held], bank.groups)
