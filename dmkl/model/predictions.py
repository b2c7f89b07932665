"""What a model said of the held-out samples, kept beside it: scores, truth, and a few samples with their reasons."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.files import write_atomically
from dmkl._util.types import Float64
from dmkl.data import Dataset, Labels, read_arrays
from dmkl.errors import DataError, StoreError, one_line
from dmkl.model.contributions import contributions, winner_names
from dmkl.model.model import Model
from dmkl.runtime import Runtime

OPENED = 3  # samples of each sort: right, wrong, uncertain


@dataclass(frozen=True)
class Opened:
    """Some of the held-out samples, and what made up the scores of the classes that won them."""

    which: NDArray[np.int64]  # among the held-out samples
    winners: tuple[str, ...]
    added: Float64  # (opened, s) by each kernel
    intercept: Float64  # (opened,)


@dataclass(frozen=True)
class Predictions:
    """Scores (n, m) of the held-out samples as float32, their true labels, their rows in the data."""

    scores: Float64
    truth: Labels
    rows: NDArray[np.int64]
    opened: Opened


def predictions(model: Model, test: Dataset, scores: Float64, runtime: Runtime) -> Predictions:
    """Everything of the held-out samples that is kept."""
    assert test.labels is not None
    rows = np.arange(test.n) if test.rows is None else test.rows
    chosen = worth_opening(model, scores, test.labels)
    return Predictions(scores, test.labels, rows, open_samples(model, test, scores, chosen, runtime))


def open_samples(model: Model, test: Dataset, scores: Float64, which: Sequence[int], runtime: Runtime) -> Opened:
    """The reasons for what was said of some samples."""
    index = np.asarray(which, dtype=np.int64)
    added, intercept = contributions(model, test.take(index), scores[index], runtime)
    return Opened(index, tuple(winner_names(model, scores[index])), added, intercept)


def worth_opening(model: Model, scores: Float64, truth: Labels) -> list[int]:
    """The surest of the right and of the wrong ones, and the least sure; of a regression the best, worst and middle."""
    wrong, sure = mistakes(model, scores, truth), certainty(model, scores)
    if model.task == "regression":
        order = np.argsort(np.abs(scores[:, 0] - truth.values), kind="stable")
        middle = len(order) // 2
        chosen = [*order[:OPENED], *order[::-1][:OPENED], *order[middle : middle + OPENED]]
    else:
        order = np.argsort(-sure, kind="stable")
        right, missed = order[~wrong[order]], order[wrong[order]]
        chosen = [*right[:OPENED], *missed[:OPENED], *order[::-1][:OPENED]]
    return list(dict.fromkeys(int(i) for i in chosen))


def mistakes(model: Model, scores: Float64, truth: Labels) -> NDArray[np.bool_]:
    """Samples with a wrong label, of several with at least one; a regression makes none."""
    if model.task == "regression":
        return np.zeros(len(truth), dtype=bool)
    wrong = model.predict(scores).values != truth.values
    return np.asarray(wrong.any(axis=1) if wrong.ndim == 2 else wrong)


def certainty(model: Model, scores: Float64) -> Float64:
    """How far the scores are from another answer."""
    if model.task == "multiclass":
        best = np.sort(scores, axis=1)
        return np.asarray(best[:, -1] - best[:, -2])
    return np.asarray(np.abs(scores).min(axis=1))


def save_predictions(path: Path, kept: Predictions) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        scores=kept.scores.astype(np.float32),
        truth=kept.truth.values,
        task=np.array(kept.truth.task),
        classes=np.array(kept.truth.classes, dtype=np.str_),
        rows=kept.rows,
        opened=kept.opened.which,
        winners=np.array(kept.opened.winners, dtype=np.str_),
        added=kept.opened.added,
        intercept=kept.opened.intercept,
    )
    write_atomically(path, buffer.getvalue())


def load_predictions(path: Path, model: Model) -> Predictions:
    """What `save_predictions` wrote of this model, or anybody."""
    try:
        arrays: dict[str, Any] = read_arrays(path)
        truth = Labels(str(arrays["task"]), arrays["truth"], tuple(arrays["classes"].tolist()))
        n, opened_n, s = len(truth), len(arrays["opened"]), len(model.bank)
        shapes = {"scores": (n, len(model.outputs)), "rows": (n,), "added": (opened_n, s), "intercept": (opened_n,)}
        same = (truth.task, truth.classes) == (model.task, model.classes)
        if not same or any(arrays[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("they are of another model")
        winners = tuple(arrays["winners"].tolist())
        opened = Opened(arrays["opened"], winners, arrays["added"], arrays["intercept"])
        return Predictions(arrays["scores"].astype(np.float64), truth, arrays["rows"], opened)
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path} is not readable ({type(error).__name__}: {one_line(error)})") from error
