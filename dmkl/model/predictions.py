"""The predictions for the held-out samples, kept beside the model: scores, truth, and explanations of a few samples."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmkl._util.files import write_atomically
from dmkl._util.types import Float64, Mask, Samples
from dmkl.data import Dataset, Labels, read_arrays
from dmkl.errors import DataError, StoreError, one_line
from dmkl.model.explanations import Explanations, explain
from dmkl.model.model import Model
from dmkl.runtime import Runtime


@dataclass(frozen=True)
class Predictions:
    """Scores (n, m) of the held-out samples, kept as float32, their true labels, and their rows in the data."""

    scores: Float64
    truth: Labels
    rows: Samples
    explained: Explanations


def held_out_predictions(model: Model, test: Dataset, scores: Float64, runtime: Runtime) -> Predictions:
    """The scores (n, m) of the held-out samples with explanations of the most instructive ones."""
    assert test.labels is not None
    rows = np.arange(test.n) if test.rows is None else test.rows
    chosen = instructive_samples(model, scores, test.labels)
    return Predictions(scores, test.labels, rows, explain(model, test, scores, chosen, runtime))


def instructive_samples(model: Model, scores: Float64, truth: Labels, count: int = 3) -> list[int]:
    """The `count` most confident correct predictions, the most confident errors and the least confident predictions; in
    a regression the best, the worst and average predictions."""
    if model.task == "regression":
        order = np.argsort(np.abs(scores[:, 0] - truth.values), kind="stable")
        middle = len(order) // 2
        chosen = [*order[:count], *order[::-1][:count], *order[middle : middle + count]]
    else:
        wrong = mistakes(model, scores, truth)
        order = np.argsort(-confidence(model, scores), kind="stable")
        correct, missed = order[~wrong[order]], order[wrong[order]]
        chosen = [*correct[:count], *missed[:count], *order[::-1][:count]]
    return list(dict.fromkeys(int(i) for i in chosen))


def mistakes(model: Model, scores: Float64, truth: Labels) -> Mask:
    """(n,): which samples have a wrong class, or at least one wrong label; none in a regression."""
    if model.task == "regression":
        return np.zeros(len(truth), dtype=bool)
    wrong = model.predict(scores).values != truth.values
    return np.asarray(wrong.any(axis=1) if wrong.ndim == 2 else wrong)


def confidence(model: Model, scores: Float64) -> Float64:
    """(n,): how far the scores are from another prediction."""
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
        opened=kept.explained.samples,
        winners=np.array(kept.explained.outputs, dtype=np.str_),
        added=kept.explained.contributions,
        intercept=kept.explained.intercept,
    )
    write_atomically(path, buffer.getvalue())


def load_predictions(path: Path, model: Model) -> Predictions:
    """Read what `save_predictions` wrote for this model.

    Raises
    ------
    StoreError
        If the file is damaged or belongs to another model.
    """
    try:
        arrays = read_arrays(path)
        truth = Labels(str(arrays["task"]), arrays["truth"], tuple(arrays["classes"].tolist()))
        n, explained, s = len(truth), len(arrays["opened"]), len(model.bank)
        shapes = {"scores": (n, len(model.outputs)), "rows": (n,), "added": (explained, s), "intercept": (explained,)}
        same = (truth.task, truth.classes) == (model.task, model.classes)
        if not same or any(arrays[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("they belong to another model")
        outputs = tuple(arrays["winners"].tolist())
        explanations = Explanations(arrays["opened"], outputs, arrays["added"], arrays["intercept"])
        return Predictions(arrays["scores"].astype(np.float64), truth, arrays["rows"], explanations)
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path} is not readable ({type(error).__name__}: {one_line(error)})") from error
