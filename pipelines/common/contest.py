"""A comparison of libraries: a temporary environment for the others, a process for every fit, one evaluation for all.

Kernels are passed as .npy files; every fit is a process of its own with the same number of threads (`contestants.py`).
dmkl evaluates all weights: `value` is their certified SVM objective.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from dmkl.data import make_labels

SCRIPT = Path(__file__).with_name("contestants.py")
OURS = ("dmkl", "dmkl_ridge", "svc_average", "hand_loop", "sklearn_ridge")  # what this environment has
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """The result of a contestant, and its evaluation."""

    told: dict[str, Any]  # seconds, CPU s, peak MB, and what the method says of itself
    weights: Float64  # (number, s) on the way
    seconds: Float64  # (number,)
    steps: NDArray[np.int64]
    predicted: NDArray[Any]


class Ring:
    """The place of a comparison: its folder and environment."""

    def __init__(self, folder: Path, packages: Sequence[str], threads: int) -> None:
        self._folder, self._packages, self._threads = folder, packages, threads
        self._environment: Path | None = None
        self.missing = ""  # why there are no peers from elsewhere
        self.versions = ""

    def python(self) -> str | None:
        """The interpreter of the other libraries' environment, made when first needed; None if that fails."""
        if self._environment is None and not self.missing:
            self._environment = Path(tempfile.mkdtemp(prefix="dmkl-peers-"))
            subprocess.run([sys.executable, "-m", "venv", str(self._environment)], check=True)
            pip = [str(self._environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
            installed = subprocess.run([*pip, "install", "-q", *self._packages], **CAPTURED)
            if installed.returncode:
                lines = installed.stderr.strip().splitlines() or ["pip failed"]
                self.missing = f"Peers from PyPI did not take part: {lines[-1]}"
            self.versions = ", ".join(subprocess.run([*pip, "freeze"], **CAPTURED).stdout.split())
        return None if self.missing or not self._environment else str(self._environment / "bin" / "python")

    def close(self) -> None:
        if self._environment is not None:
            shutil.rmtree(self._environment, ignore_errors=True)

    def fit(self, place: Path, options: Mapping[str, Any]) -> Answer | None:
        """One contestant on the problem at `place`; None if its library is not available. A failure has a message."""
        python = sys.executable if options["fit"] in OURS else self.python()
        if python is None:
            return None
        threads = options.get("threads", self._threads)
        asked = {"repeats": 1, "warm": True} | dict(options) | {"threads": threads}
        answer = self._folder / "answer.npz"
        environment = os.environ | {name: str(threads) for name in THREAD_VARIABLES}
        command = [python, "-W", "ignore", str(SCRIPT), str(place), str(answer), json.dumps(asked)]
        run = subprocess.run(command, env=environment, cwd=Path(dmkl.__file__).parents[1], **CAPTURED)
        if run.returncode:
            raise RuntimeError(f"{options['fit']}: {(run.stderr.strip().splitlines() or ['killed'])[-1]}")
        with np.load(answer) as found:
            parts = [found[name] for name in ("weights", "seconds", "steps", "predicted")]
        return Answer(json.loads(run.stdout.splitlines()[-1]), *parts)


@contextmanager
def ring(folder: Path, packages: Sequence[str], threads: int) -> Iterator[Ring]:
    folder.mkdir(parents=True, exist_ok=True)
    found = Ring(folder, packages, threads)
    try:
        yield found
    finally:
        found.close()


def hand_over(place: Path, K: NDArray[Any], y: NDArray[Any], test: NDArray[Any] | None = None) -> Path:
    """Write the files of a problem."""
    place.mkdir(parents=True, exist_ok=True)
    np.save(place / "K.npy", np.ascontiguousarray(K))
    np.save(place / "y.npy", y)
    if test is not None:
        np.save(place / "test.npy", np.ascontiguousarray(test))
    return place


def value(K: NDArray[Any], y: NDArray[Any], C: float, weights: Float64, tol: float = 1e-6) -> float:
    """The objective at these weights, scaled to sum 1: of the SVM on the weighted sum, over all classes."""
    combined = np.tensordot(weights / weights.sum(), K, 1)
    stack = dmkl.KernelStack.from_array(combined[None], workers=1)
    labels = make_labels(y, "multilabel") if y.ndim == 2 else y
    return float(np.sum(dmkl.solve(stack, labels, dmkl.UniformMKL(C=C), tol=tol).objective))


def reached(
    K: NDArray[Any], y: NDArray[Any], C: float, answer: Answer, optimum: float, within: float
) -> dict[str, Any]:
    """How far the last weights are off, and when the first were within `within` of the optimum."""
    off, first = None, None
    for weights, seconds, step in zip(answer.weights, answer.seconds, answer.steps, strict=True):
        off = value(K, y, C, weights) / optimum - 1.0 if (weights >= 0).all() and weights.any() else None
        if first is None and off is not None and off <= within:
            first = {"seconds": float(seconds), "steps": int(step)}
    return {"off": off, "first": first}
