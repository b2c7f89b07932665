"""Folds are disjoint and complete, and classes have the same share in each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmkl.data import Labels, make_folds, make_labels
from dmkl.errors import ConfigError, DataError

TASKS = ("binary", "multiclass", "multilabel", "regression")


def labels_of(task: str, n: int, seed: int) -> Labels:
    rng = np.random.default_rng(seed)
    if task == "regression":
        return make_labels(rng.normal(size=n), task)
    if task == "multilabel":
        indicator = rng.random((n, 3)) < [0.5, 0.7, 0.3]
        indicator[:10], indicator[10:20] = True, False
        return make_labels(indicator.astype(int))
    return make_labels(np.concatenate([np.repeat(range(2 + (task == "multiclass")), 10), rng.integers(0, 2, n - 30)]))


@given(task=st.sampled_from(TASKS), n=st.integers(31, 90), count=st.integers(2, 5), seed=st.integers(0, 99))
def test_every_sample_is_held_out_once_a_repeat(task: str, n: int, count: int, seed: int) -> None:
    labels = labels_of(task, n, seed)
    folds = make_folds(labels, count, repeats=2, seed=seed)
    assert len(folds) == 2 * count
    for repeat in (folds[:count], folds[count:]):
        assert np.array_equal(np.sort(np.concatenate([fold.held for fold in repeat])), np.arange(len(labels)))
    for fold in folds:
        assert np.array_equal(np.union1d(fold.kept, fold.held), np.arange(len(labels)))
        assert not len(np.intersect1d(fold.kept, fold.held))
        if task != "regression":
            signs = labels.signs()
            share, whole = (signs[fold.held] > 0).sum(axis=0), (signs > 0).sum(axis=0) / count
            certain = whole.argmin() if task == "multilabel" else slice(None)  # the rarest label is dealt first
            assert (abs(share - whole)[certain] < 1).all()
        if task != "multilabel":
            assert abs(len(fold.held) - len(labels) / count) < 1


def test_the_seed_decides_and_repeats_differ() -> None:
    labels = labels_of("multiclass", 60, 0)
    once, again, other = (make_folds(labels, 3, repeats=2, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a.held, b.held) for a, b in zip(once, again, strict=True))
    assert not np.array_equal(once[0].held, other[0].held)
    assert not np.array_equal(once[0].held, once[3].held)


def test_more_folds_than_samples_of_a_class_are_refused() -> None:
    with pytest.raises(DataError, match="5 folds, but only 3 training samples of class 'b'; use at most 3 folds"):
        make_folds(make_labels(list("aaaaaabbb")), 5)
    with pytest.raises(DataError, match="only 1 training sample without label '1'"):
        make_folds(make_labels(np.array([[0, 1], [1, 1], [0, 1], [1, 0]])), 2)
    with pytest.raises(DataError, match="only 4 training samples"):
        make_folds(make_labels([0.1, 0.2, 0.3, 0.4]), 5)
    with pytest.raises(ConfigError, match="at least 2 folds"):
        make_folds(make_labels([0.1, 0.2, 0.3, 0.4]), 1)
