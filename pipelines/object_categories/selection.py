"""Cross-validation on training samples: setting, C and, for the single kernel, which one; then the final fit.

Every method sees the same folds and the same grid. On collections of many classes parameters are selected on the
training samples of some of the classes (`cv_classes`): one-vs-rest problems of fewer samples, the same kernels.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

import dmkl
from pipelines.object_categories.datasets import Collection, Split, every_nth
from pipelines.object_categories.journal import Journal
from pipelines.object_categories.kernels import WIDTHS, Float32, Setting, gaussian_kernels
from pipelines.object_categories.methods import METHODS, SINGLE, active_kernels, class_accuracy, fits, predict

Numbers = NDArray[np.int64]
Fold = tuple[Numbers, Numbers]  # positions to fit on and to check on
SELECTION_TOL, FINAL_TOL = 1e-2, 1e-3
MEMORY = 6_000_000_000
WORKERS = 2


@dataclass(frozen=True)
class Plan:
    """The grid every method is given."""

    settings: list[Setting]
    Cs: tuple[float, ...]
    folds: int
    cv_classes: int


@dataclass(frozen=True)
class Choice:
    """A point of the grid and its accuracy; `kernel` is the single kernel, None for all."""

    setting: Setting
    C: float
    kernel: int | None
    accuracy: float


def run_split(
    collection: Collection, split: Split, number: int, distances: list[Float32], plan: Plan, journal: Journal
) -> None:
    """All cells of a split: accuracies of the grid by cross-validation, then every method's fit at its choice."""
    y, train = collection.y[split.train], len(split.train)
    some = np.flatnonzero(np.isin(y, every_nth(np.unique(y), plan.cv_classes)))
    cuts = folds(split, y, some, plan)
    for setting in plan.settings:
        keys = {(method, i): f"cv {number} {setting} fold {i} {method}" for method in METHODS for i in range(len(cuts))}
        if all(key in journal for key in keys.values()):
            continue
        progress(f"selection, split {number}: {setting}")
        K = gaussian_kernels([D[np.ix_(some, some)] for D in distances], setting, len(some))
        for (method, i), key in keys.items():
            journal.cell(key, lambda K=K, method=method, i=i: grid_accuracies(K, y[some], cuts[i], method, plan))
    truth = np.searchsorted(np.unique(y), collection.y[split.test])
    choices = {method: choose(journal, number, method, plan, len(cuts)) for method in METHODS}
    for setting in plan.settings:
        methods = [method for method in METHODS if choices[method].setting == setting]
        if all(f"final {number} {method}" in journal for method in methods):
            continue
        K = gaussian_kernels(distances, setting, train)
        for method in methods:
            key, choice = f"final {number} {method}", choices[method]
            progress(f"{key}: {setting}, C = {choice.C:g}, {100 * choice.accuracy:.1f} % in selection")
            journal.cell(key, lambda K=K, method=method, choice=choice: final(K, y, truth, method, choice))


def folds(split: Split, y: Numbers, some: Numbers, plan: Plan) -> list[Fold]:
    """Folds as positions in `some`, positions of training samples; the split's own validation where it has one."""
    if split.validation is not None:
        check = np.isin(split.train[some], split.validation)
        return [(np.flatnonzero(~check), np.flatnonzero(check))]
    return list(StratifiedKFold(plan.folds, shuffle=True, random_state=0).split(some, y[some]))


def stack_of(K: Float32, kernels: list[int], samples: Numbers) -> dmkl.KernelStack:
    """Some kernels over some samples, grouped by view."""
    part = np.stack([K[a][np.ix_(samples, samples)] for a in kernels])
    views = [a // len(WIDTHS) for a in kernels]
    return dmkl.KernelStack.from_array(part, groups=views, workers=WORKERS, memory=MEMORY)


def grid_accuracies(K: Float32, y: Numbers, fold: Fold, method: str, plan: Plan) -> list[list[float]]:
    """Accuracy on the samples to check: for the single kernel a row a kernel, else one row; a column a C."""
    fit_on, check = fold
    truth = np.searchsorted(np.unique(y), y[check])
    rows = []
    for kernels in [[a] for a in range(len(K))] if method == SINGLE else [list(range(len(K)))]:
        found = fits(stack_of(K, kernels, fit_on), y[fit_on], method, plan.Cs, SELECTION_TOL)
        rows.append([class_accuracy(predict(fit, K[kernels], check, fit_on), truth) for fit in found])
    return rows


def choose(journal: Journal, number: int, method: str, plan: Plan, cuts: int) -> Choice:
    """The best of the grid in the mean over folds; of equals the one whose setting does well at other C too.

    Few samples make many equals, and the first of them would be the narrowest widths.
    """
    found = []
    for setting in plan.settings:
        cells = [journal.cells[f"cv {number} {setting} fold {i} {method}"] for i in range(cuts)]
        for a, row in enumerate(np.mean(cells, axis=0)):
            kernel = a if method == SINGLE else None
            for C, accuracy in zip(plan.Cs, row, strict=True):
                found.append(((round(accuracy, 9), row.mean()), Choice(setting, C, kernel, float(accuracy))))
    return max(found, key=lambda pair: pair[0])[1]


def final(K: Float32, y: Numbers, truth: Numbers, method: str, choice: Choice) -> dict[str, Any]:
    """The fit at the chosen parameters on all training samples, and how it does on the test samples."""
    n = len(y)
    kernels = list(range(len(K))) if choice.kernel is None else [choice.kernel]
    stack = stack_of(K, kernels, np.arange(n))
    started = time.perf_counter()
    fit = dmkl.solve(stack, y, METHODS[method](C=choice.C), tol=FINAL_TOL)
    seconds = time.perf_counter() - started
    predicted = predict(fit, K[kernels], np.arange(n, n + len(truth)), np.arange(n))
    weights = np.atleast_2d(fit.weights)
    shares = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
    return {
        "accuracy": class_accuracy(predicted, truth),
        "choice": asdict(choice),
        "seconds": seconds,
        "svm_calls": fit.svm_calls / fit.coef_matrix.shape[1],
        "passes": fit.passes,
        "active": active_kernels(fit),
        "gap": fit.worst_gap,
        "converged": fit.converged,
        "shares": [round(float(share), 4) for share in shares],
    }


def progress(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)
