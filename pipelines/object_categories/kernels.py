"""Distances of a split, computed once and kept, and the Gaussian kernels on them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.kernels.bases import BASES
from pipelines.object_categories.datasets import Samples, View

Float32 = NDArray[np.float32]
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
ROWS = 256  # of a tile of distances: one task of a thread
THREADS = 2


@dataclass(frozen=True)
class Setting:
    """What the kernels of a bank have in common: `scale` multiplies all widths, `centred` is with mean diagonal 1.

    Uncentred Gaussian kernels have a unit diagonal already, so 'none' and 'unit-mean' are the same. 'unit-trace' is
    'unit-mean' with C divided by n, which the grid of C makes up for.
    """

    scale: float
    centred: bool

    def __str__(self) -> str:
        return f"widths x {self.scale:g}, {'centred' if self.centred else 'plain'}"


def distances(view: View, samples: Samples) -> Float32:
    """Distances between samples of a view, whole."""
    if view.distance == "given":
        return np.ascontiguousarray(view.values[np.ix_(samples, samples)], dtype=np.float32)
    X, tile = view.values[samples], BASES[view.distance].tile
    D = np.zeros((len(samples), len(samples)), np.float32)

    def fill(start: int) -> None:
        stop = start + ROWS
        D[start:stop, start:] = tile(X[start:stop], X[start:])
        D[start:, start:stop] = D[start:stop, start:].T

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(fill, range(0, len(samples), ROWS)))
    np.fill_diagonal(D, 0.0)
    return D


def kept_distances(views: list[View], samples: Samples, folder: Path, split: int) -> list[Float32]:
    """Distances of all views, from files of the folder where an earlier run left them."""
    found = []
    for view in views:
        file = folder / f"distances-{split}-{view.name}.npy"
        if not file.is_file():
            unfinished = file.with_suffix(".part.npy")
            np.save(unfinished, distances(view, samples))
            unfinished.replace(file)
        found.append(np.load(file))
    return found


def gaussian_kernels(distances: list[Float32], setting: Setting, train: int) -> Float32:
    """Kernels (s, N, N) of all views and widths; the first `train` samples say what a mean is."""
    K = np.empty((len(distances) * len(WIDTHS), *distances[0].shape), np.float32)
    for a, kernel in enumerate(K):
        D, width = distances[a // len(WIDTHS)], setting.scale * WIDTHS[a % len(WIDTHS)]
        np.multiply(D, -1.0 / (width * D[:train, :train].mean(dtype=np.float64)), out=kernel)
        np.exp(kernel, out=kernel)
        if setting.centred:
            _centre(kernel, train)
    return K


def _centre(kernel: Float32, train: int) -> None:
    means = kernel[:train].mean(axis=0, dtype=np.float64)
    overall = means[:train].mean()
    diagonal = 1.0 - 2.0 * means[:train].mean() + overall
    kernel -= (means[:, None] + (means - overall)).astype(np.float32)
    kernel /= np.float32(diagonal)


def groups(views: int) -> NDArray[Any]:
    """The view of every kernel."""
    return np.repeat(np.arange(views), len(WIDTHS))


def kernel_name(views: list[View], a: int, scale: float) -> str:
    return f"{views[a // len(WIDTHS)].name} x {scale * WIDTHS[a % len(WIDTHS)]:g}"
