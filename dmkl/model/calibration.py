"""Probabilities from scores: a sigmoid for each output, fitted on held-out samples (Platt 2000; Lin, Lin, Weng 2007).

    P(k | x) = 1 / (1 + exp(-(slope_k f_k(x) + offset_k))),    with several classes divided by the sum over the classes

An output with too few held-out samples on either side, or with a falling sigmoid, uses a sigmoid that is fitted to the
scores of all outputs together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dmkl._util.files import read_json, write_json
from dmkl._util.types import Float64, Mask
from dmkl.data import Labels
from dmkl.errors import ConfigError, StoreError, one_line


@dataclass(frozen=True)
class CalibrationOptions:
    """Constants of Newton's method for one sigmoid."""

    fewest: int = 2  # held-out samples that an output needs on either side for a sigmoid of its own
    ridge: float = 1e-12  # added to the diagonal of the Hessian
    steps: int = 100
    decrement: float = 1e-10  # Newton decrement to stop at, relative to 1 + loss
    shortest: float = 1e-10  # step length of the line search
    armijo: float = 1e-4  # share of the predicted decrease that a step has to achieve


OPTIONS = CalibrationOptions()


@dataclass(frozen=True)
class Calibration:
    """The sigmoids of a model's outputs, fitted on a number of held-out samples."""

    task: str
    samples: int
    slope: list[float]
    offset: list[float]

    def probabilities(self, scores: Float64) -> Float64:
        """(n, classes): probabilities of all classes, or of each label on its own; `scores` are (n, m)."""
        inside = _sigmoid(scores * self.slope + self.offset)
        if self.task == "binary":
            return np.column_stack([1.0 - inside[:, 0], inside[:, 0]])
        return inside / inside.sum(axis=1, keepdims=True) if self.task == "multiclass" else inside

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))


def calibrate(scores: Float64, truth: Labels) -> Calibration:
    """Fit the sigmoids to the scores (n, m) of held-out samples."""
    inside = truth.signs() > 0
    pooled = _fit(scores.ravel(), inside.ravel())
    found = []
    for column, side in zip(scores.T, inside.T, strict=True):
        enough = OPTIONS.fewest <= side.sum() <= len(side) - OPTIONS.fewest
        own = _fit(column, side) if enough else pooled
        found.append(own if own[0] > 0 else pooled)
    slope, offset = zip(*found, strict=True)
    return Calibration(truth.task, len(truth), list(slope), list(offset))


def load_calibration(path: Path, task: str, outputs: int) -> Calibration:
    """The calibration of a run whose model has this task and number of outputs.

    Raises
    ------
    ConfigError
        If there is none: it needs classes and held-out samples.
    StoreError
        If the file is damaged or belongs to another model.
    """
    if not path.exists():
        hint = "probabilities need classes and held-out samples: train with [data] test or split"
        raise ConfigError(f"{path} is missing", hint)
    try:
        found = Calibration(**read_json(path))
        sizes = {np.asarray(values, dtype=np.float64).shape for values in (found.slope, found.offset)}
        if found.task != task or sizes != {(outputs,)} or not isinstance(found.samples, int):
            raise ValueError("it belongs to another model")
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({one_line(error)})", "train again") from error
    return found


def _fit(scores: Float64, inside: Mask) -> tuple[float, float]:
    """Slope and offset by Newton's method with a line search; Platt's targets replace 0 and 1 to avoid overfitting."""
    positive, negative = int(inside.sum()), int((~inside).sum())
    wanted = np.where(inside, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    scale = max(float(np.abs(scores).max()), 1e-300)
    features = np.column_stack([scores / scale, np.ones(len(scores))])
    point = np.array([0.0, np.log((positive + 1.0) / (negative + 1.0))])
    value = _loss(features @ point, wanted)
    for _ in range(OPTIONS.steps):
        chance = _sigmoid(features @ point)
        gradient = features.T @ (chance - wanted)
        curvature = (features.T * (chance * (1.0 - chance))) @ features + OPTIONS.ridge * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        decrement, length = float(gradient @ step), 1.0
        if decrement <= OPTIONS.decrement * (1.0 + value):
            break
        while length > OPTIONS.shortest and _loss(features @ (point - length * step), wanted) > (
            value - OPTIONS.armijo * length * decrement
        ):
            length /= 2.0
        point = point - length * step
        value = _loss(features @ point, wanted)
    return float(point[0]) / scale, float(point[1])


def _sigmoid(values: Float64) -> Float64:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))  # never overflows


def _loss(values: Float64, wanted: Float64) -> float:
    return float(np.sum(np.logaddexp(0.0, values) - wanted * values))
