"""The four collections: their views with a distance each, their splits, and how parameters are selected on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dmkl.data.examples import digits as digits_views
from pipelines.common.data import data_file

Samples = NDArray[np.int64]
PAPER_VIEWS = ("gblur", "phow_gray", "phow_color", "ssim")
OTHER_VIEWS = ("phog180", "lbp", "recov", "gist", "hsv")


@dataclass(frozen=True)
class View:
    """Features with the distance that fits them, or a whole matrix of distances ("given")."""

    name: str
    distance: str  # chi2 | sqeuclidean | given
    values: Any


@dataclass(frozen=True)
class Split:
    """Samples of the collection to train and to test on; `validation` are those of `train` kept for selection."""

    train: Samples
    test: Samples
    validation: Samples | None = None


@dataclass(frozen=True)
class Collection:
    """How many classes give the samples that parameters are selected on, and those of a quick run."""

    name: str
    y: NDArray[np.int64]
    views: list[View]
    splits: list[Split]
    cv_classes: int
    about: str
    paper: dict[str, str] = field(default_factory=dict)  # Table 1: accuracy % (SVM calls)
    differs: str = ""
    quick_classes: int = 20

    def fewer(self, classes: int) -> Collection:
        """The same with samples of every so-and-so-manieth class only."""
        kept = every_nth(np.unique(self.y), classes)
        splits = [
            Split(*(None if part is None else part[np.isin(self.y[part], kept)] for part in vars(split).values()))
            for split in self.splits
        ]
        return Collection(**(vars(self) | {"splits": splits, "paper": {}}))  # its numbers are for all classes


def every_nth(classes: NDArray[Any], count: int) -> NDArray[Any]:
    """`count` of the classes, evenly spaced."""
    return classes[np.linspace(0, len(classes) - 1, min(count, len(classes))).round().astype(int)]


def caltech101(all_views: bool) -> Collection:
    """Histograms of visual words: chi2 after scaling to sum 1, as the paper's authors' software does. `phog180`, `lbp`,
    `hsv` are stored as square roots of histograms, where squared L2 is Hellinger's distance; `recov` is in the tangent
    space of covariance matrices and `gist` a vector of filter energies: squared L2 is theirs."""
    how = "all views of Caltech-101, computed from its images (see ../shared/DATA.md)"
    meta = np.load(data_file("caltech101_meta.npz", how))
    views = []
    for name in PAPER_VIEWS + (OTHER_VIEWS if all_views else ()):
        found = np.load(data_file(f"caltech101_{name}.npz", how))
        if name in PAPER_VIEWS:
            parts = found["data"].astype(np.float64), found["indices"].astype(np.int64), found["indptr"]
            words = sparse.csr_array(parts, shape=tuple(found["shape"]))
            views.append(View(name, "chi2", sparse.diags_array(1.0 / np.maximum(words.sum(axis=1), 1)) @ words))
        else:
            scale = float(found["scale"]) if "scale" in found else 1.0
            views.append(View(name, "sqeuclidean", found["X"].astype(np.float32) * scale))
    return Collection(
        "caltech101",
        meta["y"].astype(np.int64),
        views,
        [
            Split(train.ravel().astype(np.int64), test.ravel().astype(np.int64))
            for train, test in zip(meta["train15_idx"], meta["test15_idx"], strict=True)
        ],
        cv_classes=34,
        about="Caltech-101, 102 classes, 15 training and 15 test images a class",
        paper={
            "VSKL q=1": "66.44 (50)",
            "VSKL q=2": "67.03 (79)",
            "VSKL q=3": "67.06 (70)",
            "VSKL q=inf": "67.07 (65)",
            "L1MKL": "54.05 (24)",
            "average kernel": "64.61 (1)",
        },
        differs="The paper's splits are not known (10 random ones), its geometric blur is the mean distance of nearest "
        "descriptors where ours is histograms of blur words, and its widths are 1e-4 to 1 without a unit.",
    )


def flowers17(all_views: bool) -> Collection:
    """Distances as they come (chi2 between histograms); training with `trn` and `val`, selection on `val`."""
    found = np.load(data_file("flowers17.npz", "distances between the 1,360 images of Oxford Flowers 17, own splits"))
    y = found["y"].astype(np.int64)
    views = []
    for key in (key for key in found if key.startswith("D_")):
        D = np.zeros((len(y), len(y)), np.float32)
        D[np.triu_indices(len(y), 1)] = found[key]
        views.append(View(key[2:], "given", D + D.T))
    splits = []
    for number in "123":
        train, validation, test = (found[part + number].astype(np.int64) for part in ("trn", "val", "tst"))
        splits.append(Split(np.concatenate([train, validation]), test, validation))
    return Collection(
        "flowers17",
        y,
        views,
        splits,
        cv_classes=17,
        about="Oxford Flowers 17, 60 training and 20 test images a class",
        paper={
            "VSKL q=1": "85.59 (41)",
            "VSKL q=2": "85.69 (70)",
            "VSKL q=3": "85.69 (68)",
            "VSKL q=inf": "85.29 (64)",
            "L1MKL": "85.49 (121)",
            "average kernel": "85.98 (1)",
        },
        differs="The images are the paper's; the 7 distance matrices were recomputed and the 3 splits are our own.",
        quick_classes=8,
    )


def leaves100(all_views: bool) -> Collection:
    """`margin` and `texture` are histograms (chi2); `shape` is a curve of distances to the centre (squared L2)."""
    found = np.load(data_file("leaves100.npz", "UCI One-hundred plant species leaves: X_shape, X_margin, X_texture, y"))
    y = found["y"].astype(np.int64)
    kinds = {"shape": "sqeuclidean", "margin": "chi2", "texture": "chi2"}
    views = [View(name, kind, found[f"X_{name}"].astype(np.float64)) for name, kind in kinds.items()]
    about = "100 plant species leaves, 8 training and 8 test leaves a class"
    return Collection("leaves100", y, views, list(_random_splits(y, 3, 8)), cv_classes=50, about=about)


def digits(all_views: bool) -> Collection:
    """The bundled example; with half of the digits to train on every method is right in 99.5 % of cases, hence 20."""
    found = digits_views()
    y = found.pop("y")
    views = [View(name[2:], "sqeuclidean", values) for name, values in found.items()]
    about = "8 x 8 digits in four views, 20 training digits a class, the others to test"
    return Collection("digits", y, views, list(_random_splits(y, 5, 20)), cv_classes=10, about=about)


def _random_splits(y: NDArray[np.int64], count: int, each: int) -> Iterator[Split]:
    """`each` random samples of every class to train on, the others to test on."""
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(y))
        train = np.concatenate([order[y[order] == label][:each] for label in np.unique(y)])
        yield Split(train, np.setdiff1d(order, train))


COLLECTIONS: dict[str, Callable[[bool], Collection]] = {
    "caltech101": caltech101,
    "flowers17": flowers17,
    "leaves100": leaves100,
    "digits": digits,
}
