"""One split, one bank of kernels, all methods: C by validation on training samples, then the fit and its test accuracy.

Every method sees the same kernels, the same validation samples and the same C. On collections of many classes C is
selected on the training samples of some of them (`cv_classes`): one-vs-rest problems of fewer samples, same kernels.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

import dmkl
from pipelines.common.categories.methods import METHODS, SINGLE, SUM, active_kernels, class_accuracy, fits, predict
from pipelines.common.experiment import Context, Row
from pipelines.common.views import Float32, Samples, Split, View, centre, gaussian_kernels, kept_distances

WORKERS, MEMORY = 2, 4 * 10**9  # fixed, because batches, and so last digits, may depend on them
Cut = tuple[Samples, Samples]  # training samples to fit on and to check on, by their places
Found = dict[str, list[dict[str, Row]]]  # by bank: for every split, what each method gave


@dataclass(frozen=True)
class Collection:
    y: Samples
    views: Sequence[View]
    splits: Sequence[Split]

    def fewer(self, count: int) -> Collection:
        """The same with samples of `count` classes, evenly spaced, or of all for 0."""
        if not count:
            return self
        parts = [[_of_classes(self.y, part, count) for part in vars(split).values()] for split in self.splits]
        return replace(self, splits=[Split(*three) for three in parts])


def _of_classes(y: Samples, part: Samples | None, count: int) -> Samples | None:
    return None if part is None else part[np.isin(y[part], every_nth(np.unique(y), count))]


def every_nth(classes: NDArray[Any], count: int) -> NDArray[Any]:
    """`count` of the classes, evenly spaced."""
    return classes[np.linspace(0, len(classes) - 1, min(count, len(classes))).round().astype(int)]


def random_splits(y: Samples, count: int, each: int) -> list[Split]:
    """`each` random samples of every class to train on, the others to test on."""
    found = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(y))
        train = np.concatenate([order[y[order] == label][:each] for label in np.unique(y)])
        found.append(Split(train, np.setdiff1d(order, train)))
    return found


def compare(context: Context, collection: Collection, banks: dict[str, Row], key: str = "") -> Found:
    """Every bank `{widths, centred, splits}` on the first so many splits; all methods, or its own `methods`."""
    found: Found = {name: [] for name in banks}
    for number in range(max(bank["splits"] for bank in banks.values())):
        here = {name: bank for name, bank in banks.items() if number < bank["splits"]}
        for name, cell in split_cells(context, collection, number, here, key).items():
            found[name].append(cell)
    return found


def split_cells(
    context: Context, collection: Collection, number: int, banks: dict[str, Row], key: str
) -> dict[str, dict[str, Row]]:
    """The cells of a split; distances are kept in files only while the split needs them."""
    split, kept = collection.splits[number], context.folder / f"{key}distances"
    samples = np.concatenate([split.train, split.test])
    cells = {}
    for name, bank in banks.items():

        def cell(bank: Row = bank) -> dict[str, Row]:
            distances = kept_distances(collection.views, samples, kept, str(number))
            return all_methods(collection.y, split, kernels(distances, bank, len(split.train)), bank, context.settings)

        cells[name] = context.cell(f"{key}split {number}, {name}", cell)
        context.progress(f"{key}split {number}, {name}: done")
    for file in kept.glob(f"distances-{number}-*"):
        file.unlink()
    return cells


def kernels(distances: Sequence[Float32], bank: Row, train: int) -> Float32:
    """(s, N, train): every view's distance at every width."""
    K = gaussian_kernels([D[:, :train] for D in distances], bank["widths"], train)
    if bank["centred"]:
        centre(K, train)
    return K


def all_methods(y: Samples, split: Split, K: Float32, bank: Row, settings: Row) -> dict[str, Row]:
    """C, and which single kernel, by validation; then the fit on all training samples."""
    classes = np.unique(y[split.train])
    train, test = np.searchsorted(classes, y[split.train]), np.searchsorted(classes, y[split.test])
    some = np.flatnonzero(np.isin(train, every_nth(np.arange(len(classes)), settings["cv_classes"])))
    cuts, groups, found = cuts_of(split, train, some, settings["cuts"]), len(bank["widths"]), {}
    for method in bank.get("methods", settings["methods"]):
        alone = [[a] for a in range(len(K))] if method == SINGLE else [list(range(len(K)))]
        grid = np.array([validated(K, chosen, train, cuts, method, settings, groups) for chosen in alone])
        # of equal ones that whose neighbours do well too
        best = max(np.ndindex(grid.shape), key=lambda at: (round(grid[at], 9), grid[at[0]].mean()))
        C = settings["C"][best[1]]
        found[method] = {"validation": float(grid[best]), "C": C} | final(
            K[alone[best[0]]] if method == SINGLE else K,
            train,
            test,
            method,
            C,
            tol_of(method, settings, "tol"),
            groups,
        )
    return found


def tol_of(method: str, settings: Row, which: str) -> float:
    """SVMs get a finer tolerance: they end just at it, methods that learn weights well below."""
    return float(settings["svm_tol"] if method in (SUM, SINGLE) else settings[which])


def cuts_of(split: Split, y: Samples, some: Samples, count: int) -> list[Cut]:
    """The split's own validation samples where it has some, else `count` of three folds."""
    if split.validation is not None:
        check = np.isin(split.train[some], split.validation)
        return [(some[~check], some[check])]
    folds = StratifiedKFold(3, shuffle=True, random_state=0).split(some, y[some])
    return [(some[fit_on], some[check]) for fit_on, check in folds][:count]


def stack_of(K: Float32, each: int) -> dmkl.KernelStack:
    """Grouped by view; a view has `each` kernels."""
    return dmkl.KernelStack.from_array(K, groups=[a // each for a in range(len(K))], workers=WORKERS, memory=MEMORY)


def validated(
    K: Float32, chosen: list[int], y: Samples, cuts: list[Cut], method: str, settings: Row, each: int
) -> list[float]:
    """Validation accuracy for every C, averaged over divisions."""
    found = []
    for fit_on, check in cuts:
        stack = stack_of(np.stack([K[a][np.ix_(fit_on, fit_on)] for a in chosen]), each)
        new = [K[a][np.ix_(check, fit_on)] for a in chosen]
        truth = np.searchsorted(np.unique(y[fit_on]), y[check])
        path = fits(stack, y[fit_on], method, settings["C"], tol_of(method, settings, "cv_tol"))
        found.append([class_accuracy(predict(fit, new), truth) for fit in path])
    return [float(mean) for mean in np.mean(found, axis=0)]


def final(K: Float32, y: Samples, test: Samples, method: str, C: float, tol: float, each: int) -> Row:
    """The fit on all training samples, and its accuracy on the test samples."""
    n = len(y)
    stack = stack_of(np.ascontiguousarray(K[:, :n]), each)
    started = time.perf_counter()
    fit = dmkl.solve(stack, y, METHODS[method](C=C), tol=tol)
    seconds = time.perf_counter() - started
    predicted = predict(fit, [kernel[n:] for kernel in K])
    return {
        "accuracy": class_accuracy(predicted, test),
        "overall": 100.0 * float(np.mean(predicted == test)),
        "calls": fit.svm_calls / fit.coef_matrix.shape[1],
        "passes": fit.passes,
        "active": active_kernels(fit),
        "gap": fit.worst_gap,
        "seconds": seconds,
    }
