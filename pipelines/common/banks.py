"""A problem of many classes or labels: training kernels, test kernels, and the metrics of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from dmkl.data import Labels, make_labels
from dmkl.model import measure

Float32 = NDArray[np.float32]
Members = NDArray[np.uint8]
WORKERS, MEMORY = 2, 8 * 10**9


@dataclass(frozen=True)
class Bank:
    """`K` is (s, n, n), `test` (s, n_test, n); `Y` (n, m) and `truth` (n_test, m) are 0/1 memberships."""

    K: Float32
    test: Float32
    Y: Members
    truth: Members
    groups: Any = None

    @cached_property
    def stack(self) -> dmkl.KernelStack:
        """Threads and memory are fixed, because batches, and so last digits, may depend on them."""
        return dmkl.KernelStack.from_array(self.K, groups=self.groups, workers=WORKERS, memory=MEMORY)

    @property
    def labels(self) -> Labels:
        """Of the training samples; indicators, so that whatever is tuned is judged by mean average precision."""
        return make_labels(self.Y, "multilabel")

    @property
    def tested(self) -> Labels:
        """Of the test samples; labels that none of them has are allowed."""
        return Labels("multilabel", self.truth, self.labels.classes)

    def scores(self, fit: dmkl.Fit) -> NDArray[np.float64]:
        """(n_test, m)."""
        return scores_of(fit, self.test)

    def metrics(self, scores: NDArray[np.float64]) -> dict[str, float]:
        """Mean average precision over the labels that occur among the test samples, micro F1."""
        return measure(scores, self.tested)

    def combined(self, weights: NDArray[Any]) -> Bank:
        """The same with one kernel, the weighted sum."""
        K, test = (np.tensordot(weights.astype(np.float32), part, 1)[None] for part in (self.K, self.test))
        return Bank(K, test, self.Y, self.truth)


def bank(K: Float32, train: int, Y: Members, groups: Any = None) -> Bank:
    """Of kernels (s, N, N) whose first `train` samples are trained on, the others tested on."""
    inside, across = (np.ascontiguousarray(K[:, rows, :train]) for rows in (slice(train), slice(train, None)))
    return Bank(inside, across, Y[:train], Y[train:], groups)


def scores_of(fit: dmkl.Fit, kernels: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Decision values (n_new, m) from kernels (n_new, n) between new and training samples; unused ones are not read."""
    coef = fit.coef_matrix
    classes = coef.shape[1]
    weights = np.broadcast_to(np.atleast_2d(fit.weights), (classes, len(kernels)))
    found = np.tile(np.broadcast_to(np.asarray(fit.intercept, np.float64), (classes,)), (len(kernels[0]), 1))
    for a, kernel in enumerate(kernels):
        users = np.flatnonzero(weights[:, a])
        if len(users):
            found[:, users] += kernel @ (coef[:, users] * weights[users, a])
    return found
