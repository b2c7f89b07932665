"""Any number of kernels on any number of real samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.benchmarks.race.problems import spambase
from pipelines.common.data import data_file
from pipelines.common.uci import gaussian, standardised

VIEWS = ("shape", "margin", "texture")
NARROW, WIDE = 0.5, 20.0
LEAF_WIDTHS = (0.5, 2.0)  # times the square root of the number of features
Array = NDArray[Any]


def spam(n: int, s: int) -> tuple[Array, Array]:
    """s Gaussians (s, n, n) of widths from 0.5 to 20, half of them on logarithms; signs."""
    X, logs, y = spambase()
    widths = np.geomspace(NARROW, WIDE, -(-s // 2))
    kernels = [gaussian(view[:n], width) for width in widths for view in (X, logs)]
    return np.array(kernels[:s]), y[:n]


def leaves(n: int, m: int) -> tuple[Array, Array]:
    """Six Gaussians on a seeded choice of n leaves; (n, m) memberships of the first m species."""
    data = np.load(data_file("leaves100.npz", "one-hundred plant species leaves, see ../shared/DATA.md"))
    views, labels = [np.asarray(data[f"X_{name}"], np.float64) for name in VIEWS], np.asarray(data["y"])
    keep = np.sort(_balanced(labels, n))
    kernels = []
    for view in views:
        X = standardised(view[keep])
        kernels += [gaussian(X, width * np.sqrt(X.shape[1])) for width in LEAF_WIDTHS]
    species = np.unique(labels)[:m]
    return np.array(kernels), (labels[keep][:, None] == species).astype(np.uint8)


def _balanced(labels: Array, n: int) -> Array:
    """Some samples of every class: the first of each in turn, until there are n."""
    turn = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        turn[members] = np.arange(len(members))
    return np.argsort(turn, kind="stable")[:n]
