"""Real data as kernels exp(-D / mean D), one a view, over training samples and test samples together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.common.data import data_file
from pipelines.object_categories.datasets import View, caltech101
from pipelines.object_categories.kernels import distances, kept_distances
from pipelines.shared_weights.results import progress

MULTILABEL = ("scene_ml", "yeast_ml", "emotions")


@dataclass(frozen=True)
class Bank:
    """Kernels (s, N, N) whose first `train` samples are trained on, and class membership (N, m) of 0 and 1."""

    name: str
    K: NDArray[np.float32]
    Y: NDArray[np.uint8]
    train: int

    @property
    def size(self) -> str:
        s, total, _ = self.K.shape
        return f"{self.Y.shape[1]} classes, {self.train:,} + {total - self.train:,} samples, {s} kernels"


def kernels(found: list[NDArray[np.float32]], train: int) -> NDArray[np.float32]:
    return np.stack([np.exp(D * np.float32(-1.0 / D[:train, :train].mean(dtype=np.float64))) for D in found])


def caltech(folder: Path, views: list[str], splits: int, classes: int) -> Iterator[Bank]:
    """30 training and up to 15 test images a class; distances are kept in the folder."""
    collection = caltech101(all_views=True)
    known = {view.name: view for view in collection.views}
    if unknown := set(views) - set(known):
        raise SystemExit(f"no view {', '.join(unknown)} of Caltech-101: take {', '.join(known)}")
    meta = np.load(data_file("caltech101_meta.npz", "labels and splits of Caltech-101 (see ../shared/DATA.md)"))
    kept = np.linspace(0, meta["train30_idx"].shape[1] - 1, classes).round().astype(int)
    for split in range(splits):
        parts = [meta[key][split][kept].ravel().astype(np.int64) for key in ("train30_idx", "test30_idx")]
        train, test = (part[part >= 0] for part in parts)  # -1 fills classes with fewer test images up
        samples = np.concatenate([train, test])
        progress(f"Caltech-101, split {split}: distances of {len(samples):,} images")
        place = folder / f"caltech101-{classes}"
        place.mkdir(parents=True, exist_ok=True)
        found = kept_distances([known[name] for name in views or known], samples, place, split)
        Y = (collection.y[samples][:, None] == np.unique(collection.y[train])).astype(np.uint8)
        yield Bank(f"caltech101-30-{split}", kernels(found, len(train)), Y, len(train))


def multilabel(name: str) -> Bank:
    """All views of a multilabel set: squared L2 after standardising every feature on the training samples."""
    found = np.load(data_file(f"{name}.npz", "views X_<name>, Y (n, L), is_train; see ../shared/DATA.md"))
    inside = found["is_train"]
    samples = np.concatenate([np.flatnonzero(inside), np.flatnonzero(~inside)])
    train, everyone = int(inside.sum()), np.arange(len(samples))
    views = []
    for key in (key for key in found if key.startswith("X_")):
        X = found[key][samples].astype(np.float64)
        X = (X - X[:train].mean(axis=0)) / np.maximum(X[:train].std(axis=0), 1e-12)
        views.append(distances(View(key, "sqeuclidean", X), everyone))
    return Bank(name, kernels(views, train), found["Y"][samples], train)


def banks(folder: Path, quick: bool, views: list[str], splits: int) -> Iterator[Bank]:
    """Everything that curves are drawn of."""
    yield from caltech(folder, views, 1 if quick else splits, 12 if quick else 102)
    for name in MULTILABEL[2:] if quick else MULTILABEL:
        yield multilabel(name)
