"""Test errors of the six norms."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from pipelines.mikl.titanic import KERNELS, NORMS, Titanic, error, kernels, path, table, titanic

LAMS = np.geomspace(1e5, 1.0, 11)
FOLDS = 5
TOL = 1e-3
PAPER = {norm: 22.92 if norm == "21;1" else 21.84 for norm in NORMS}
ALONE = (21.84, 25.89, 32.57)
GOAL = 1.5  # points above the paper's, whose split is not known


def run(folder: Path, splits: int) -> bool:
    """Print the tables; whether the goal is missed."""
    data = titanic()
    started = time.perf_counter()
    found = {norm: np.array([chosen(data, split, norm) for split in range(splits)]) for norm in NORMS}
    rows = []
    for norm in NORMS:
        wrong, lam, samples, used, least = found[norm].T
        rows.append(
            [
                norm,
                f"{wrong.mean():.2f} +- {wrong.std():.2f}",
                f"{wrong.min():.2f}",
                f"{least.mean():.2f}",
                f"{PAPER[norm]:.2f}",
                f"{np.median(lam):g}",
                f"{samples.mean():.0f}",
                f"{used.mean():.1f}",
            ]
        )
    heads = [
        "norm",
        f"error % ({splits} splits)",
        "best split",
        "best lam",
        "paper",
        "median lam",
        "samples",
        "kernels",
    ]
    table(folder / "errors.md", heads, rows)
    single = []
    for a, name in enumerate(KERNELS):
        errors = np.array([[lowest(data, split, a, bias) for bias in (False, True)] for split in range(splits)])
        cells = [f"{column.mean():.2f} +- {column.std():.2f}" for column in errors.T]
        single.append([name, *cells, f"{ALONE[a]:.2f}"])
    table(folder / "alone.md", ["alone, norm 2, lowest error", "error %", "with a constant kernel", "paper"], single)
    print(f"{time.perf_counter() - started:.0f} s")
    return any(found[norm][:, 0].mean() > PAPER[norm] + GOAL for norm in NORMS)


def parts(data: Titanic, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test samples."""
    train = data.splits[split]
    test = np.setdiff1d(np.arange(len(data.y)), train)
    return train, test


def chosen(data: Titanic, split: int, norm: str) -> tuple[float, float, float, float, float]:
    """Test error with the lam that cross-validation chose, that lam, how many samples and kernels have coefficients,
    and the lowest test error of any lam."""
    train, test = parts(data, split)
    X, y = data.X[train], data.y[train]
    K = kernels(X, X)
    folds = np.random.default_rng(split).permutation(len(train)) % FOLDS
    wrong = np.zeros(len(LAMS))
    for fold in range(FOLDS):
        kept, out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        fits = path(K[:, kept][:, :, kept], y[kept], norm, LAMS, TOL)
        wrong += [error(K[:, kept][:, :, out], fit.coef, y[out]) for fit in fits]
    best = int(np.argmin(np.round(wrong, 9)))  # the largest lam of those as good
    fits = path(K, y, norm, LAMS, TOL)
    new = kernels(X, data.X[test])
    errors = [error(new, fit.coef, data.y[test]) for fit in fits]
    alpha = fits[best].coef
    return errors[best], float(LAMS[best]), alpha.any(axis=1).sum(), alpha.any(axis=0).sum(), min(errors)


def lowest(data: Titanic, split: int, a: int, bias: bool) -> float:
    """The lowest test error of one kernel alone, as the paper has it, or with a constant one as its bias."""
    train, test = parts(data, split)
    X, y = data.X[train], data.y[train]
    K, new = (kernels(X, Z)[[a, 2]] for Z in (X, data.X[test]))
    K[1], new[1] = float(bias), float(bias)
    fits = path(K, y, "2", LAMS, TOL)
    return min(error(new, fit.coef, data.y[test]) for fit in fits)
