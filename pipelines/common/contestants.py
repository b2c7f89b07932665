"""One fit by dmkl or another library, in a process of its own; a script for any Python that has the library.

    python contestants.py FOLDER ANSWER.npz '{"fit": "hand_loop", "C": 1.0, "steps": 100, "repeats": 1, "threads": 1}'

FOLDER has `K.npy` (s, n, n), `y.npy` (signs, class numbers or real targets; or a 0/1 matrix of labels) and perhaps
`test.npy` (s, t, n). Only the fit is timed: kernels are in memory, modules loaded, functions compiled. Each
fit is a function that takes (K, y, options) and gives `Found`. The environment sets the number of threads.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
GROW, CUT = 1.15, 0.5  # of a hand-written loop's step
APART = 1.15  # numbers of the steps whose weights are kept grow by this


@dataclass
class Found:
    """`weights` are those on the way, (number, s), the last ones final; empty where a method has none of its own."""

    predict: Callable[[Array], Array] | None = None
    weights: list[Array] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # when they were there
    steps: list[int] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)


def dmkl_(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """A formulation of dmkl to its certified tolerance."""
    import dmkl

    stack = dmkl.KernelStack.from_array(K, workers=o["threads"])
    fit = dmkl.solve(stack, y, getattr(dmkl, o["formulation"])(**o["constants"]), tol=o["tol"])

    def predict(test: Array) -> Array:
        coef = fit.coef_matrix.T
        weights = np.broadcast_to(np.atleast_2d(fit.weights), (len(coef), len(test)))
        scores = np.array([np.tensordot(w, test, 1) @ beta for w, beta in zip(weights, coef, strict=True)])
        return _labels(y, scores.T + fit.intercept)

    told = {"gap": fit.worst_gap, "objective": float(np.sum(fit.objective)), "SVM calls": fit.svm_calls}
    return Found(predict, _final(fit.weights), told=told)


def svc_average(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """scikit-learn's SVC on the average kernel."""
    average = K.mean(axis=0)
    machines = [_svc(o).fit(average, labels) for labels in _labellings(y)]
    return Found(_voted(machines, y, uniform := np.full(len(K), 1 / len(K))), _final(uniform))


def hand_loop(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """A loop of thirty lines: mirror descent over the weights, an SVC for every class at every step."""
    started, found = time.perf_counter(), Found()
    weights, eta, last, due = np.full(len(K), 1 / len(K)), 1.0, np.inf, 1.0
    for step in range(1, o["steps"] + 1):
        combined = np.tensordot(weights, K, 1)
        machines = [_svc(o).fit(combined, signs) for signs in _signs(y)]
        forms, value = np.zeros(len(K)), 0.0
        for machine in machines:
            support, beta = machine.support_, machine.dual_coef_[0]
            own = np.array([beta @ kernel[np.ix_(support, support)] @ beta for kernel in K])
            forms, value = forms + own, value + np.abs(beta).sum() - 0.5 * weights @ own
        if step >= due or step == o["steps"]:
            found.weights.append(weights)
            found.seconds.append(time.perf_counter() - started)
            found.steps.append(step)
            due = max(step + 1, step * APART)
        eta, last = eta * (CUT if value > last else GROW), value
        used = weights
        weights = weights * np.exp(eta * (forms / forms.max() - 1.0))
        weights /= weights.sum()
    found.predict = _voted(machines, y, used)
    return found


def mklpy(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """An algorithm of MKLpy, as its own documentation calls it; those that end in an SVM get our C."""
    import torch
    from MKLpy import algorithms
    from sklearn.svm import SVC

    options = {"learner": SVC(C=o["C"])} if o["algorithm"] != "EasyMKL" else {"lam": o["lam"]}
    model = getattr(algorithms, o["algorithm"])(**options)
    model.fit([torch.from_numpy(kernel) for kernel in K], torch.from_numpy(y))
    weights = [] if isinstance(model.solution, dict) else _final(np.asarray(model.solution.weights, dtype=np.float64))
    return Found(lambda test: np.asarray(model.predict([torch.from_numpy(part) for part in test])), weights)


def dmkl_ridge(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """Multiple kernel ridge of dmkl, C by cross-validation."""
    import dmkl
    from dmkl.data import make_labels

    stack = dmkl.KernelStack.from_array(K, workers=o["threads"])
    formulation, labels = getattr(dmkl, o["formulation"]), make_labels(y, "regression")
    most = formulation(loss="squared").largest(stack, labels) if o["relative"] else 1.0
    points = dmkl.grid(formulation, loss=("squared",), C=[most * share for share in o["shares"]])
    chosen = dmkl.tune(stack, labels, points, folds=o["folds"], rule="best", tol=o["tol"]).formulation
    fit = dmkl.solve(stack, labels, chosen, tol=o["tol"])
    return Found(lambda test: np.tensordot(fit.weights.ravel(), test, 1) @ fit.coef + fit.intercept)


def sklearn_ridge(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """scikit-learn's KernelRidge on the average kernel, alpha by cross-validation."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.model_selection import GridSearchCV

    mean, grid = y.mean(), {"alpha": o["alphas"]}
    model = GridSearchCV(KernelRidge(kernel="precomputed"), grid, cv=o["folds"]).fit(K.mean(axis=0), y - mean)
    return Found(lambda test: model.predict(test.mean(axis=0)) + mean)


def himalaya(K: Array, y: Array, o: dict[str, Any]) -> Found:
    """Multiple kernel ridge of himalaya: weights and alpha by cross-validation, at random or along gradients."""
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    mean = y.mean()
    params = {"progress_bar": False} | o["params"]
    if o["solver"] == "random_search":
        params["alphas"] = np.array(o["alphas"])
    model = MultipleKernelRidgeCV(
        "precomputed", solver=o["solver"], solver_params=params, cv=o["folds"], random_state=0
    )
    model.fit(K, y - mean)
    return Found(lambda test: np.ravel(model.predict(test)) + mean)


FITS = {
    "dmkl": dmkl_,
    "svc_average": svc_average,
    "hand_loop": hand_loop,
    "mklpy": mklpy,
    "dmkl_ridge": dmkl_ridge,
    "sklearn_ridge": sklearn_ridge,
    "himalaya": himalaya,
}


def _svc(o: dict[str, Any]) -> Any:
    from sklearn.svm import SVC

    return SVC(kernel="precomputed", C=o["C"], tol=o.get("svc_tol", 1e-3))


def _signs(y: Array) -> list[Array]:
    """One class against the rest; only one of two."""
    if y.ndim == 2:
        return [np.where(column > 0, 1.0, -1.0) for column in y.T]
    classes = np.unique(y)
    return [np.where(y == k, 1.0, -1.0) for k in (classes[1:] if len(classes) == 2 else classes)]


def _labellings(y: Array) -> list[Array]:
    """The label vectors for SVC: classes as they are (one against one), labels one by one."""
    return _signs(y) if y.ndim == 2 else [y]


def _labels(y: Array, scores: Array) -> Array:
    classes = np.unique(y)
    return classes[(scores[:, 0] > 0).astype(int)] if len(classes) == 2 else classes[scores.argmax(axis=1)]


def _voted(machines: list[Any], y: Array, weights: Array) -> Callable[[Array], Array]:
    """SVC's own prediction if it was trained on all classes, else the class with the highest score."""

    def predict(test: Array) -> Array:
        combined = np.tensordot(weights, test, 1)
        if len(machines) == 1:
            return np.asarray(machines[0].predict(combined))
        return _labels(y, np.column_stack([machine.decision_function(combined) for machine in machines]))

    return predict


def _final(weights: Array) -> list[Array]:
    """Weights that all classes share; None if every class has its own."""
    rows = np.atleast_2d(weights)
    return [rows[0]] if len(rows) == 1 else []


def peak() -> float:
    """MB of this process. Not `getrusage`, which begins with what the parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def main(folder: Path, answer: Path, o: dict[str, Any]) -> None:
    K, y = np.load(folder / "K.npy"), np.load(folder / "y.npy")
    fit, least, least_cpu = FITS[o["fit"]], np.inf, np.inf
    if o["warm"]:  # a fit of two kernels first: imports, compiled functions
        fit(K[:2], y, o | {"steps": 1})
    for _ in range(o["repeats"]):
        started, cpu = time.perf_counter(), time.process_time()
        found = fit(K, y, o)
        seconds, least_cpu = time.perf_counter() - started, min(least_cpu, time.process_time() - cpu)
        least = min(least, seconds)
    test = folder / "test.npy"
    predicted = found.predict(np.load(test)) if found.predict and test.is_file() and y.ndim == 1 else np.empty(0)
    weights = np.array(found.weights).reshape(-1, len(K))
    times = found.seconds or [least] * len(weights)
    np.savez(answer, weights=weights, seconds=times, steps=found.steps or [0] * len(weights), predicted=predicted)
    print(json.dumps({"seconds": least, "CPU s": least_cpu, "peak MB": peak(), **found.told}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
