"""Pendigits with its four representations, and the paper's kernel on each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmkl.kernels.distances import BASES
from pipelines.common.banks import Bank
from pipelines.common.data import data_file

REPRESENTATIONS = ("dyn", "sta16", "sta8", "sta4")
CLASSES = 10
tile = BASES["sqeuclidean"].tile

Labels = NDArray[np.int64]


def pendigits(every: int) -> tuple[Bank, Labels, Labels]:
    """Kernels on every so many of the samples, digits of the training and of the test samples.

    exp(-|x - z|^2 / gamma) on each representation, gamma the average squared distance between training samples.
    """
    found = np.load(data_file("pendigits.npz", "UCI pendigits, X_dyn, X_sta16, X_sta8, X_sta4; see ../shared/DATA.md"))
    train, test = (np.flatnonzero(chosen)[::every] for chosen in (found["is_train"], ~found["is_train"]))
    K = np.empty((len(REPRESENTATIONS), len(train), len(train)), np.float32)
    new = np.empty((len(REPRESENTATIONS), len(test), len(train)), np.float32)
    for a, name in enumerate(REPRESENTATIONS):
        X, Z = (found[f"X_{name}"][rows].astype(np.float32) for rows in (train, test))
        K[a], new[a] = tile(X, X), tile(Z, X)
        gamma = np.float32(K[a].mean(dtype=np.float64))
        for kernels in (K[a], new[a]):
            np.exp(np.divide(kernels, -gamma, out=kernels), out=kernels)
    y, truth = (found["y"][rows].astype(np.int64) for rows in (train, test))
    members = np.eye(CLASSES, dtype=np.uint8)
    return Bank(K, new, members[y], members[truth], np.arange(len(K))), y, truth
