"""The samples of the proving ground: real sets and made ones, with label noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from dmkl.data.examples import EXAMPLES
from pipelines.benchmarks.race.problems import spambase
from pipelines.common.data import data_file
from pipelines.common.random_kernels import ringnorm
from pipelines.mnist.digits import BLOCKS, HALF, images

Array = NDArray[Any]
Views = dict[str, Array]
Task = Literal["classes", "labels", "targets"]

HOW = "see ../shared/DATA.md"
OUTLIER = 5.0  # deviations by which noise moves a target
COPIES = 5  # of each sample of "copies"


@dataclass(frozen=True)
class Samples:
    """Views of features (n, d), or of distances (n, n); classes (n,), targets (n,) or a 0/1 matrix of labels (n, L)."""

    views: Views
    y: Array
    distances: bool = False

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def X(self) -> Array:
        """The features of all views side by side."""
        return np.concatenate(list(self.views.values()), axis=1)


@dataclass(frozen=True)
class Source:
    """A set to draw samples from: `read(n, rng)` gives views and answers of at least n samples, or of all there are."""

    read: Callable[[int, np.random.Generator], tuple[Views, Array]]
    most: int  # samples
    task: Task = "classes"
    distances: bool = False
    scaled: bool = False  # features are comparable as they come
    features: int = 100  # at most


def draw(name: str, n: int, noise: float, seed: int) -> Samples:
    """Random n samples with standardised features; a share of the answers is wrong."""
    source, rng = SOURCES[name], np.random.default_rng(seed)
    views, y = source.read(n, rng)
    kept = rng.permutation(len(y))[:n]
    views = {key: (X[kept][:, kept] if source.distances else X[kept]).astype(np.float64) for key, X in views.items()}
    if not (source.distances or source.scaled):
        views = {key: standardised(X) for key, X in views.items()}
    return Samples(views, spoilt(y[kept], noise, source.task, rng), source.distances)


def standardised(X: Array) -> Array:
    """Mean 0 and deviation 1; a constant feature is 0."""
    spread = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def spoilt(y: Array, noise: float, task: Task, rng: np.random.Generator) -> Array:
    """The answers with this share of them wrong: another class, flipped labels, targets some deviations away."""
    if not noise:
        return y
    wrong = rng.random(len(y)) < noise
    if task == "targets":
        return np.asarray(y + OUTLIER * y.std() * wrong * rng.normal(size=len(y)))
    if task == "labels":  # as many labels as before, but those of another sample
        return np.where(wrong[:, None], y[rng.permutation(len(y))], y)
    classes, number = np.unique(y, return_inverse=True)
    return np.asarray(classes[np.where(wrong, number + rng.integers(1, len(classes), len(y)), number) % len(classes)])


# --- real sets


def _of_sklearn(load: Callable[..., Any]) -> Callable[[int, np.random.Generator], tuple[Views, Array]]:
    def read(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
        X, y = load(return_X_y=True)
        return {"x": X}, y

    return read


def _binary(name: str) -> Source:
    def read(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
        found = _file(name)
        return {"x": found["X"]}, found["y"]

    return Source(read, {"sonar": 208, "ionosphere": 351, "liver": 345, "pima": 768, "wpbc": 194}.get(name, 2000))


def _of_views(name: str, answers: str = "y") -> Callable[[int, np.random.Generator], tuple[Views, Array]]:
    def read(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
        found = _file(name)
        return {key[2:]: X for key, X in found.items() if key.startswith("X_")}, found[answers]

    return read


def _flowers(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    found = _file("flowers17")
    y = found["y"]
    views = {}
    for key in (key for key in found if key.startswith("D_")):
        D = np.zeros((len(y), len(y)))
        D[np.triu_indices(len(y), 1)] = found[key]
        views[key[2:]] = D + D.T
    return views, y


def _digits(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    arrays = EXAMPLES["digits"]()
    return {key[2:]: X for key, X in arrays.items() if key != "y"}, arrays["y"]


def _diabetes(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    X, y = datasets.load_diabetes(return_X_y=True)
    return {"x": X}, standardised(y)


def _spambase(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    X, logs, y = spambase()
    return {"counts": X, "logs": logs}, y


def _mnist(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    pixels, digits = images("train")
    chosen = np.sort(rng.permutation(len(digits))[:n])
    pixels = pixels[chosen] / 255
    views = {f"quarter{k}": pixels[:, i : i + HALF, j : j + HALF] for k, (i, j) in enumerate(BLOCKS)}
    return {key: X.reshape(len(X), -1) for key, X in views.items()}, digits[chosen]


def _parity(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    views, digits = _mnist(n, rng)
    return views, digits % 2


@cache
def _file(name: str) -> dict[str, Array]:
    with np.load(data_file(f"{name}.npz", HOW)) as found:
        return dict(found)


# --- made sets


def _ringnorm(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    X, y = ringnorm(n, rng)
    return {"x": X}, y


def _blobs(classes: int) -> Callable[[int, np.random.Generator], tuple[Views, Array]]:
    def read(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
        centres = 3.0 * rng.normal(size=(classes, 8))
        y = np.arange(max(n, 2 * classes)) % classes
        X = centres[y] + rng.normal(size=(len(y), 8))
        return {"one": X[:, :4], "other": X[:, 4:], "useless": rng.normal(size=(len(y), 4))}, y

    return read


def _lowrank(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    """Forty features that three numbers determine."""
    hidden = rng.normal(size=(n, 3))
    return {"x": hidden @ rng.normal(size=(3, 40))}, np.where(hidden[:, 0] + 0.3 * hidden[:, 1] ** 2 > 0.2, 1, -1)


def _nothing(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    """Labels that have nothing to do with the features."""
    return {"x": rng.normal(size=(n, 12))}, rng.choice([-1, 1], n)


def _copies(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    """Every sample several times, exactly."""
    which = np.arange(n) // COPIES
    X, y = ringnorm(int(which[-1]) + 1, rng)
    return {"x": X[which]}, y[which]


def _unbalanced(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    """Two of a hundred are of the second class, at least two of all."""
    rare = np.arange(n) < max(2, n // 50)
    X = rng.normal(size=(n, 6)) + 1.5 * rare[:, None]
    return {"x": X}, np.where(rare, 1, -1)


def _waves(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    X = rng.uniform(-3, 3, size=(n, 4))
    return {"x": X}, np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=n)


def _tails(n: int, rng: np.random.Generator) -> tuple[Views, Array]:
    """Targets with heavy tails, far from zero."""
    X = rng.normal(size=(n, 10))
    return {"x": X}, 100.0 + X[:, 0] - X[:, 1] * X[:, 2] + rng.standard_t(1.5, size=n)


ANY = 1_000_000  # made sets have as many samples as wanted
SOURCES: dict[str, Source] = {
    "iris": Source(_of_sklearn(datasets.load_iris), 150),
    "wine": Source(_of_sklearn(datasets.load_wine), 178),
    "breast_cancer": Source(_of_sklearn(datasets.load_breast_cancer), 569),
    "digits": Source(_digits, 1797, features=240),
    "sonar": _binary("sonar"),
    "ionosphere": _binary("ionosphere"),
    "liver": _binary("liver"),
    "pima": _binary("pima"),
    "wpbc": _binary("wpbc"),
    "splice": Source(_binary("splice").read, 3175),
    "titanic": Source(_binary("titanic").read, 2201),
    "spambase": Source(_spambase, 4597, features=114),
    "pendigits": Source(_of_views("pendigits"), 10992, features=352),
    "flowers17": Source(_flowers, 1360, distances=True),
    "proteinfold": Source(_of_views("proteinfold"), 694, features=324),
    "leaves100": Source(_of_views("leaves100"), 1600, features=192),
    "parity": Source(_parity, 60000, scaled=True, features=784),
    "mnist": Source(_mnist, 60000, scaled=True, features=784),
    "emotions": Source(_of_views("emotions", "Y"), 593, "labels"),
    "scene": Source(_of_views("scene_ml", "Y"), 2407, "labels", features=294),
    "yeast": Source(_of_views("yeast_ml", "Y"), 2417, "labels", features=103),
    "diabetes": Source(_diabetes, 442, "targets"),
    "waves": Source(_waves, ANY, "targets"),
    "tails": Source(_tails, ANY, "targets"),
    "ringnorm": Source(_ringnorm, ANY, features=20),
    "blobs5": Source(_blobs(5), ANY, features=12),
    "blobs40": Source(_blobs(40), ANY, features=12),
    "lowrank": Source(_lowrank, ANY, features=40),
    "nothing": Source(_nothing, ANY, features=12),
    "copies": Source(_copies, ANY, features=20),
    "unbalanced": Source(_unbalanced, ANY, features=6),
}
