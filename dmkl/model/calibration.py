"""Probabilities from scores: one sigmoid an output, fitted on held-out samples (Platt 2000, as Lin, Lin and Weng 2007).

    P(k | x) = 1 / (1 + exp(-(slope_k f_k(x) + offset_k))),  over all classes divided by their sum

An output with fewer than two held-out samples on either side, or whose sigmoid would fall, takes the one that is fitted
to the scores of all outputs together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmkl._util.files import read_json, write_json
from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.errors import ConfigError, StoreError, one_line

FEWEST = 2  # held-out samples on either side for a sigmoid of an output's own
RIDGE = 1e-12
STEPS = 100


@dataclass(frozen=True)
class Calibration:
    """The sigmoids of a model's outputs, and on how many held-out samples they were fitted."""

    task: str
    samples: int
    slope: list[float]
    offset: list[float]

    def probabilities(self, scores: Float64) -> Float64:
        """(n, classes): of both classes when there are two; of several labels each on its own."""
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
        enough = FEWEST <= side.sum() <= len(side) - FEWEST
        own = _fit(column, side) if enough else pooled
        found.append(own if own[0] > 0 else pooled)
    slope, offset = zip(*found, strict=True)
    return Calibration(truth.task, len(truth), list(slope), list(offset))


def load_calibration(path: Path, task: str, outputs: int) -> Calibration:
    """The calibration of a run, whose model has so many outputs; refused where none was made."""
    if not path.exists():
        hint = "probabilities need classes and held-out samples: train with [data] test or split"
        raise ConfigError(f"{path} is missing", hint)
    try:
        found = Calibration(**read_json(path))
        sizes = {np.asarray(values, dtype=np.float64).shape for values in (found.slope, found.offset)}
        if found.task != task or sizes != {(outputs,)} or not isinstance(found.samples, int):
            raise ValueError("it is of another model")
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({one_line(error)})", "train again") from error
    return found


def _fit(scores: Float64, inside: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset by Newton's method with a line search; targets stay off 0 and 1 as few samples demand."""
    positive, negative = int(inside.sum()), int((~inside).sum())
    wanted = np.where(inside, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    scale = max(float(np.abs(scores).max()), 1e-300)
    features = np.column_stack([scores / scale, np.ones(len(scores))])
    point = np.array([0.0, np.log((positive + 1.0) / (negative + 1.0))])
    value = _loss(features @ point, wanted)
    for _ in range(STEPS):
        chance = _sigmoid(features @ point)
        gradient = features.T @ (chance - wanted)
        curvature = (features.T * (chance * (1.0 - chance))) @ features + RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        decrement, length = float(gradient @ step), 1.0
        if decrement <= 1e-10 * (1.0 + value):
            break
        while length > 1e-10 and _loss(features @ (point - length * step), wanted) > value - 1e-4 * length * decrement:
            length /= 2.0
        point = point - length * step
        value = _loss(features @ point, wanted)
    return float(point[0]) / scale, float(point[1])


def _sigmoid(values: Float64) -> Float64:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))  # never overflows


def _loss(values: Float64, wanted: Float64) -> float:
    return float(np.sum(np.logaddexp(0.0, values) - wanted * values))
