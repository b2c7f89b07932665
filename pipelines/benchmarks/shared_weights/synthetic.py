"""Synthetic classes from a seed: samples with hidden features, seen by four views, labelled by many classes.

A class is a direction in the hidden features plus noise of its own size, and its positive samples are the top share. So
the number of samples, of positive ones and of kernels stays the same while the number of classes grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.kernels.distances import BASES

HIDDEN = 20  # features that decide on classes
DIMENSIONS = 40  # of a view
VIEW_NOISE = (0.5, 1.0, 1.5, 2.0)  # one view better than the next
WIDTHS = (0.5, 1.0, 2.0)  # of the Gaussian kernels, as multiples of the median distance
DIFFICULTY = (0.1, 0.8)  # noise of a class, as a share of what decides on it: the easiest and the hardest
POSITIVE = 0.05


@dataclass(frozen=True)
class Synthetic:
    """Views (n, d) and class membership (n, m) of 0 and 1."""

    views: list[NDArray[np.float32]]
    Y: NDArray[np.uint8]


def synthetic(n: int, m: int, seed: int) -> Synthetic:
    """n samples of m classes; views and samples do not depend on m."""
    samples, classes = (np.random.default_rng([seed, part]) for part in range(2))
    hidden = samples.normal(size=(n, HIDDEN))
    views = []
    for noise in VIEW_NOISE:
        seen = hidden @ samples.normal(size=(HIDDEN, DIMENSIONS)) / np.sqrt(HIDDEN)
        views.append((seen + noise * samples.normal(size=seen.shape)).astype(np.float32))
    Y = np.empty((n, m), np.uint8)
    for k in range(m):
        direction = classes.normal(size=HIDDEN)
        noise = classes.uniform(*DIFFICULTY) * np.linalg.norm(direction) * classes.normal(size=n)
        value = hidden @ direction + noise
        Y[:, k] = value > np.quantile(value, 1 - POSITIVE)
    return Synthetic(views, Y)


def gaussian_kernels(views: list[NDArray[Any]]) -> NDArray[np.float32]:
    """Kernels (s, n, n), three widths a view."""
    n = len(views[0])
    K = np.empty((len(views) * len(WIDTHS), n, n), np.float32)
    for v, X in enumerate(views):
        D = BASES["sqeuclidean"].tile(X, X)
        median = np.median(D[np.triu_indices(n, 1)])
        for w, width in enumerate(WIDTHS):
            np.exp(D * np.float32(-0.5 / (width**2 * median)), out=K[v * len(WIDTHS) + w])
    return K
