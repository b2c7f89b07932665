"""Views of samples, the distances that suit them, and Gaussian kernels of these distances."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dmkl._util.jit import jit
from dmkl.kernels.distances import BASES
from pipelines.common.data import data_file

Samples = NDArray[np.int64]
Float32 = NDArray[np.float32]
PAPER_VIEWS = ("gblur", "phow_gray", "phow_color", "ssim")  # the four descriptors of VSKL's table 1
OTHER_VIEWS = ("phog180", "lbp", "recov", "gist", "hsv")
CALTECH = "views of Caltech-101, computed from its images (see ../shared/DATA.md)"
ROWS = 256  # of a tile of distances: one task of a thread
THREADS = 2


@dataclass(frozen=True)
class View:
    """Features with the distance that suits them, or a whole matrix of distances ("given")."""

    name: str
    distance: str  # chi2 | sqeuclidean | given
    values: Any


@dataclass(frozen=True)
class Split:
    """Samples of a collection to train and to test on; `validation` are those of `train` kept for selection."""

    train: Samples
    test: Samples
    validation: Samples | None = None


def caltech101(names: Sequence[str] = PAPER_VIEWS + OTHER_VIEWS) -> tuple[Samples, list[View]]:
    """Labels (class 0 is the background) and views of all 9,144 images.

    Histograms of visual words: chi2 after scaling to sum 1, as the software the VSKL paper used does. `phog180`, `lbp`,
    `hsv` are stored as square roots of histograms, where squared L2 is Hellinger's distance; `recov` is in the tangent
    space of covariance matrices and `gist` a vector of filter energies: squared L2 is theirs.
    """
    views = []
    for name in names:
        found = np.load(data_file(f"caltech101_{name}.npz", CALTECH))
        if name in PAPER_VIEWS:
            parts = found["data"].astype(np.float64), found["indices"].astype(np.int64), found["indptr"]
            words = sparse.csr_array(parts, shape=tuple(found["shape"]))
            views.append(View(name, "chi2", sparse.diags_array(1.0 / np.maximum(words.sum(axis=1), 1)) @ words))
        else:
            scale = float(found["scale"]) if "scale" in found else 1.0
            views.append(View(name, "sqeuclidean", found["X"].astype(np.float32) * scale))
    return np.load(data_file("caltech101_meta.npz", CALTECH))["y"].astype(np.int64), views


def caltech101_splits(each: int) -> list[Split]:
    """The ten splits with 15 or 30 training images a class and (up to) 15 test images."""
    meta = np.load(data_file("caltech101_meta.npz", CALTECH))
    parts = zip(meta[f"train{each}_idx"], meta[f"test{each}_idx"], strict=True)
    flat = ((train.ravel().astype(np.int64), test.ravel().astype(np.int64)) for train, test in parts)
    return [Split(train, test[test >= 0]) for train, test in flat]  # -1 fills classes with fewer test images up


def distances(view: View, samples: Samples) -> Float32:
    """Distances (N, N) between samples of a view."""
    if view.distance == "given":
        return np.ascontiguousarray(view.values[np.ix_(samples, samples)], dtype=np.float32)
    X = view.values[samples]
    tile = sparse_chi2 if sparse.issparse(X) and view.distance == "chi2" else BASES[view.distance].tile
    D = np.zeros((len(samples), len(samples)), np.float32)

    def fill(start: int) -> None:
        stop = start + ROWS
        D[start:stop, start:] = tile(X[start:stop], X[start:])
        D[start:, start:stop] = D[start:stop, start:].T

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(fill, range(0, len(samples), ROWS)))
    np.fill_diagonal(D, 0.0)
    return D


def sparse_chi2(X: Any, Z: Any) -> Float32:
    """sum (x - z)^2 / (x + z) = sum (x + z) - 4 sum x z / (x + z), whose last sum needs words of x alone: a twelfth."""
    blocks = []
    for start in range(0, Z.shape[0], ROWS):
        words = np.ascontiguousarray(Z[start : start + ROWS].toarray().T, dtype=np.float32)
        blocks.append(np.zeros((X.shape[0], words.shape[1]), np.float32))
        _add_harmonic(X.data.astype(np.float32), X.indices, X.indptr, words, blocks[-1])
    return np.maximum(X.sum(axis=1)[:, None] + Z.sum(axis=1) - 4.0 * np.hstack(blocks), 0.0).astype(np.float32)


@jit(error_model="numpy")  # without a check of every division: x > 0
def _add_harmonic(data: Float32, indices: Samples, indptr: Samples, Zt: Float32, tile: Float32) -> None:
    for i in range(tile.shape[0]):
        row = tile[i]
        for place in range(indptr[i], indptr[i + 1]):
            x, words = data[place], Zt[indices[place]]
            for j in range(len(row)):
                row[j] += x * words[j] / (x + words[j])


def kept_distances(views: Sequence[View], samples: Samples, folder: Path, key: str) -> list[Float32]:
    """Distances of all views, from files of the folder where an earlier run left them under this key."""
    found = []
    for view in views:
        file = folder / f"distances-{key}-{view.name}.npy"
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_suffix(".part.npy")
            np.save(unfinished, distances(view, samples))
            unfinished.replace(file)
        found.append(np.load(file))
    return found


def gaussian_kernels(found: Sequence[Float32], widths: Sequence[float], train: int) -> Float32:
    """exp(-D / (width * mean D)) of every distance (slowest) at every width: (s, N, N), or as many columns as D has.

    Means are those of the first `train` samples.
    """
    K = np.empty((len(found) * len(widths), *found[0].shape), np.float32)
    for a, kernel in enumerate(K):
        D, width = found[a // len(widths)], widths[a % len(widths)]
        np.multiply(D, -1.0 / (width * D[:train, :train].mean(dtype=np.float64)), out=kernel)
        np.exp(kernel, out=kernel)
    return K


def centre(K: Float32, train: int) -> None:
    """Every kernel centred in feature space and scaled to mean diagonal 1, both over the first `train` samples.

    (s, N, N) or (s, N, train), whose columns are the samples trained on.
    """
    for kernel in K:
        means = kernel[:, :train].mean(axis=1, dtype=np.float64)
        overall = means[:train].mean()
        diagonal = kernel.diagonal()[:train].mean(dtype=np.float64) - overall
        kernel -= (means[:, None] + (means[: kernel.shape[1]] - overall)).astype(np.float32)
        kernel /= np.float32(diagonal)
