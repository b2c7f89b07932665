"""Folds of a cross-validation: every sample is held out once a repeat, classes in the same shares everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Samples
from dmkl.data.labels import Labels
from dmkl.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Fold:
    """Ascending numbers of the samples to fit on and of those held out."""

    kept: Samples
    held: Samples


def make_folds(labels: Labels, count: int, *, repeats: int = 1, seed: int = 0) -> list[Fold]:
    """`count` folds for each repeat, in order; each repeat deals the samples anew."""
    check_folds(labels, count, repeats)
    folds = []
    for rng in np.random.default_rng(seed).spawn(repeats):
        place = _dealt_by_label(labels, count, rng) if labels.task == "multilabel" else _dealt(labels, count, rng)
        folds += [Fold(np.flatnonzero(place != fold), np.flatnonzero(place == fold)) for fold in range(count)]
    return folds


def check_folds(labels: Labels, count: int, repeats: int) -> None:
    """Every class should be met in every fold; of several labels a sample, also what is without one."""
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
    """The fold of every sample: shuffled inside its class, then dealt in turn over all classes."""
    codes = np.zeros(len(labels), np.int64) if labels.task == "regression" else labels.values
    shuffled = rng.permutation(len(labels))
    place = np.empty(len(labels), np.int64)
    place[shuffled[np.argsort(codes[shuffled], kind="stable")]] = np.arange(len(labels)) % count
    return place


def _dealt_by_label(labels: Labels, count: int, rng: np.random.Generator) -> Samples:
    """Iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011): the rarest label first, each of its samples
    to the fold that lacks it most; among those to the one with most room, then to any."""
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
