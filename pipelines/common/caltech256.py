"""Synthetic samples of Caltech-256's size: classes that overlap, four views, one better than the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES = 257
VIEWS = ((60, 0.5), (80, 0.4), (100, 0.35), (120, 0.3))  # dimensions, distance of class centres
WIDTHS = ("0.25 median", "0.5 median", "1 median", "2 median", "4 median")
KERNELS = len(VIEWS) * len(WIDTHS)
C, TOL = 10.0, 1e-3
CONFIG = f"""
[data]
path = "data.npz"
test = 0
[[kernels]]
kernel = "rbf"
width = {list(WIDTHS)}
[formulation]
name = "vskl"
q = inf
C = {C}
"""


def write_data(folder: Path, y: NDArray[np.int64], labels: NDArray[Any]) -> None:
    """data.npz with views of samples of classes `y`, to be trained on `labels`; and the configuration."""
    rng = np.random.default_rng(0)
    classes = int(y.max()) + 1
    views = {}
    for number, (dimensions, distance) in enumerate(VIEWS):
        centres = distance * rng.normal(size=(classes, dimensions))
        views[f"X_v{number}"] = (centres[y] + rng.normal(size=(len(y), dimensions))).astype(np.float32)
    np.savez(folder / "data.npz", y=labels, **views)
    (folder / "config.toml").write_text(CONFIG)


def write_shape(folder: Path, classes: int) -> None:
    """As the VSKL paper trains Caltech-256: 25 samples of every class."""
    y = np.repeat(np.arange(classes), 25)
    write_data(folder, y, y)
