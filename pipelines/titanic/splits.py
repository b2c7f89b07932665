"""The results of one split: the test errors of the six norms, and of one kernel alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmkl.data import make_folds, make_labels
from pipelines.titanic.samples import THREE, Float64, error, kernels, path, scores, titanic

FOLDS = 5
ZERO = 1e-9  # scores below it have no sign: the class is not decided


def together(split: int, norms: Sequence[str], lams: Sequence[float], tol: float) -> dict[str, Any]:
    """For every norm the test errors with lam by cross-validation and with the best lam, and its coefficients.

    `dmkl.tune` does the same, but its scores cost more than these fits of 120 samples do.
    """
    data = titanic()
    train, test = data.parts(split)
    X, y = data.X[train], data.y[train]
    K, new = kernels(THREE, X, X), kernels(THREE, X, data.X[test])
    folds = make_folds(make_labels(y), FOLDS, seed=split)
    found = {}
    for norm in norms:
        wrong = np.zeros(len(lams))
        for fold in folds:
            inner = K[:, fold.kept]
            fits = path(inner[:, :, fold.kept], y[fold.kept], norm, np.array(lams), tol)
            wrong += [error(scores(inner[:, :, fold.held], fit), y[fold.held]) for fit in fits]
        fits = path(K, y, norm, np.array(lams), tol)
        errors = [error(scores(new, fit), data.y[test]) for fit in fits]
        best = int(np.argmin(np.round(wrong, 9)))  # the largest lam of those as good
        used = fits[best].coef != 0
        found[norm] = {
            "error": errors[best],
            "lam": lams[best],
            "lowest": min(errors),
            "samples": int(used.any(axis=1).sum()),
            "kernels": int(used.any(axis=0).sum()),
        }
    return found


def alone(split: int, names: Sequence[str], lams: Sequence[float], tol: float) -> dict[str, float]:
    """Lowest and highest test error of any lam with the norm "2"; and the lowest where no sign counts as wrong."""
    data = titanic()
    train, test = data.parts(split)
    X, y = data.X[train], data.y[train]
    fits = path(kernels(names, X, X), y, "2", np.array(lams), tol)
    new = kernels(names, X, data.X[test])
    found = [scores(new, fit) for fit in fits]
    errors = [error(f, data.y[test]) for f in found]
    return {
        "error": min(errors),
        "highest": max(errors),
        "undecided wrong": min(error(decided(f, data.y[test]), data.y[test]) for f in found),
    }


def decided(found: Float64, y: Any) -> Float64:
    """Scores, those that are zero but for rounding turned against the sample."""
    return np.where(np.abs(found) > ZERO * np.abs(found).max(), found, -y)
