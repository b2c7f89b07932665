"""Dividing samples: into training and test samples, and into the folds of a cross-validation.

All divisions keep the shares of the classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Array, Block, Mask, Samples
from dmkl.config import DataConfig
from dmkl.data.dataset import Dataset
from dmkl.data.labels import Labels
from dmkl.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Fold:
    """Numbers of the samples to fit on and of those held out, both ascending."""

    kept: Samples
    held: Samples


def make_folds(labels: Labels, count: int, *, repeats: int = 1, seed: int = 0) -> list[Fold]:
    """Folds of a cross-validation.

    Parameters
    ----------
    labels : of all samples. The folds have the same shares of every class or label.
    count : folds of one repeat, at least 2.
    repeats : times that the samples are dealt into folds.
    seed : of the random numbers.

    Returns
    -------
    list of `repeats` x `count` folds, repeat by repeat. Every sample is held out once a repeat.

    Raises
    ------
    DataError
        A class has fewer samples than there are folds.
    """
    check_folds(labels, count, repeats)
    folds = []
    for rng in np.random.default_rng(seed).spawn(repeats):
        place = _dealt_by_label(labels, count, rng) if labels.task == "multilabel" else _dealt(labels, count, rng)
        folds += [Fold(np.flatnonzero(place != fold), np.flatnonzero(place == fold)) for fold in range(count)]
    return folds


def check_folds(labels: Labels, count: int, repeats: int) -> None:
    """Refuse more folds than the rarest class has samples; with several labels a sample, also than samples without one
    of the labels."""
    if count < 2 or repeats < 1:
        raise ConfigError(f"{count} folds and {repeats} repeats are too few", "use at least 2 folds and 1 repeat")
    fewest, whose = len(labels), ""
    if labels.task == "multilabel":
        members = labels.values.sum(axis=0, dtype=np.int64)
        k = int(np.minimum(members, len(labels) - members).argmin())
        fewest = int(min(members[k], len(labels) - members[k]))
        whose = f" {'with' if members[k] == fewest else 'without'} label '{labels.classes[k]}'"
    elif labels.task != "regression":
        members = np.bincount(labels.values, minlength=len(labels.classes))
        fewest, whose = int(members.min()), f" of class '{labels.classes[int(members.argmin())]}'"
    if fewest < count:
        hint = f"use at most {fewest} folds" if fewest > 1 else "leave it out, or add samples"
        raise DataError(f"{count} folds, but only {fewest} training sample{'s' * (fewest != 1)}{whose}", hint)


def _dealt(labels: Labels, count: int, rng: np.random.Generator) -> Samples:
    """The fold of every sample: shuffled inside its class, then dealt in turn, class after class."""
    codes = np.zeros(len(labels), np.int64) if labels.task == "regression" else labels.values
    shuffled = rng.permutation(len(labels))
    place = np.empty(len(labels), np.int64)
    place[shuffled[np.argsort(codes[shuffled], kind="stable")]] = np.arange(len(labels)) % count
    return place


def _dealt_by_label(labels: Labels, count: int, rng: np.random.Generator) -> Samples:
    """The fold of every sample, by iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011).

    The rarest label comes first. Each of its samples goes to the fold that lacks the label most, then to the one with
    most room, then to a random one.
    """
    Y = labels.values != 0
    wanted = np.tile(Y.sum(axis=0) / count, (count, 1))
    room = np.full(count, len(Y) / count)
    place = np.full(len(Y), -1)
    while (left := place < 0).any():
        remaining = Y[left].sum(axis=0)
        if remaining.any():
            label = int(np.where(remaining > 0, remaining, len(Y) + 1).argmin())
            samples, lack = np.flatnonzero(left & Y[:, label]), wanted[:, label]
        else:
            samples, lack = np.flatnonzero(left), room
        for i in rng.permutation(samples):
            fold = int(np.lexsort((rng.random(count), room, lack))[-1])
            place[i] = fold
            wanted[fold] -= Y[i]
            room[fold] -= 1
    return place


def split(dataset: Dataset, data: DataConfig, seed: int, marks: Block | None = None) -> tuple[Dataset, Dataset | None]:
    """Divide into training and test samples.

    Parameters
    ----------
    dataset : all samples.
    data : the [data] table; `data.test` is the share of each class that is held out at random.
    seed : of the random numbers.
    marks : instead, an array with 1 for training samples and 0 for test samples.

    Returns
    -------
    Training samples, and test samples or None if none are held out.
    """
    dataset.check_symmetric()
    if marks is not None:
        test = ~_as_mask(marks, data.split, dataset.n)
    elif data.test == 0:
        return dataset, None
    else:
        test = _random_test(dataset, data.test, np.random.default_rng(seed))
    _refuse_one_sided(dataset.labels, ~test)
    return dataset.train_test(~test, test)


def _as_mask(marks: Block, name: str, n: int) -> Mask:
    """True for training samples."""
    values = np.asarray(marks.toarray() if hasattr(marks, "toarray") else marks)
    values = values.reshape(-1) if values.ndim == 2 and 1 in values.shape else values
    if values.shape != (n,):
        raise DataError(f"split '{name}' has shape {values.shape} for {n} samples", "give one 0/1 value a sample")
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise DataError(f"split '{name}' holds values other than 0 and 1", "1 marks a training sample, 0 a test one")
    mask: Mask = values != 0
    if mask.all() or not mask.any():
        raise DataError(f"split '{name}' marks {mask.sum()} of {n} samples for training", "mark some, but not all")
    return mask


def _random_test(dataset: Dataset, fraction: float, rng: np.random.Generator) -> Mask:
    if not 0 < fraction < 1:
        raise ConfigError(f"[data] test should be a fraction in [0, 1), not {fraction:g}")
    labels, n = dataset.labels, dataset.n
    if labels is not None and labels.task in ("binary", "multiclass"):
        test = _stratified(labels, fraction, rng)
    else:
        test = np.zeros(n, dtype=np.bool_)
        test[rng.permutation(n)[: min(round(fraction * n), n - 1)]] = True
        if labels is not None and labels.task == "multilabel":
            _bring_back(labels.values, test, rng)
    if not test.any():
        raise DataError(
            f"a test fraction of {fraction:g} leaves none of {n} samples to test", "raise it or set it to 0"
        )
    return test


def _stratified(labels: Labels, fraction: float, rng: np.random.Generator) -> Mask:
    """Hold out the same share of each class, by largest remainders, but never all of a class."""
    counts = np.bincount(labels.values, minlength=len(labels.classes))
    quota = fraction * counts
    take = np.floor(quota + 1e-9).astype(np.int64)
    extra = max(round(fraction * len(labels)) - int(take.sum()), 0)
    by_remainder = np.lexsort((rng.random(len(counts)), take - quota))
    take[by_remainder[:extra]] += 1
    take = np.minimum(take, np.maximum(counts - 1, 0))
    test = np.zeros(len(labels), dtype=np.bool_)
    for code, share in enumerate(take):
        test[rng.permutation(np.flatnonzero(labels.values == code))[:share]] = True
    return test


def _bring_back(indicator: Array, test: Mask, rng: np.random.Generator) -> None:
    """Return one sample of every label, and one without it, to training if none is left there."""
    for column in indicator.T:
        for side in (column == 1, column == 0):
            if not (side & ~test).any():
                test[rng.choice(np.flatnonzero(side))] = False


def _refuse_one_sided(labels: Labels | None, train: Mask) -> None:
    """Refuse training samples of which none, or all, have some class or label."""
    if labels is None or labels.task == "regression":
        return
    values = labels.values[train]
    if labels.task == "multilabel":
        inside = values.sum(axis=0, dtype=np.int64)
    else:
        inside = np.bincount(values, minlength=len(labels.classes))
    for counts, what in (
        (inside, "no training sample"),
        (len(values) - inside, "no negative training sample"),
    ):
        for code in np.flatnonzero(counts == 0):
            name = labels.classes[code]
            raise DataError(f"class '{name}' has {what} in the split", "use another split or leave the class out")
