"""Held-out predictions: the most instructive samples, explained kernel by kernel; kept in a file beside the model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmkl._util.files import write_atomically
from dmkl._util.types import Float64, Mask, Samples
from dmkl.data import Dataset, Labels, read_arrays
from dmkl.errors import DataError, StoreError, one_line
from dmkl.model.model import Model, kernel_values
from dmkl.runtime import Runtime


@dataclass(frozen=True)
class Predictions:
    """Scores (n, m) of the held-out samples, kept as float32, their true labels, and their rows in the data."""

    scores: Float64
    truth: Labels
    rows: Samples
    explained: Explanations


@dataclass(frozen=True)
class Explanations:
    """The contributions of the kernels for some of the held-out samples."""

    samples: Samples  # their numbers among the held-out samples, in the order of the arrays
    outputs: tuple[str, ...]  # the class, label or target that is explained
    contributions: Float64  # (number of samples, s)
    intercept: Float64  # (number of samples,)


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


def explain(model: Model, test: Dataset, scores: Float64, samples: Sequence[int], runtime: Runtime) -> Explanations:
    """Explanations of some of the held-out samples, whose scores are (n, m)."""
    index = np.asarray(samples, dtype=np.int64)
    added, intercept = contributions(model, test.take(index), scores[index], runtime)
    return Explanations(index, tuple(explained_names(model, scores[index])), added, intercept)


def explained_outputs(model: Model, scores: Float64) -> tuple[Samples, Float64]:
    """The column of scores (n, m) that is explained for each sample, and the sign that makes it the score of the
    predicted class: -1 for the first of two classes."""
    outputs = scores.argmax(axis=1)
    binary = model.task == "binary"
    return outputs, np.where(binary & (scores[np.arange(len(scores)), outputs] <= 0), -1.0, 1.0)


def explained_names(model: Model, scores: Float64) -> list[str]:
    """The class, label or target that is explained for each sample."""
    outputs, signs = explained_outputs(model, scores)
    if model.task == "binary":
        return [model.classes[int(sign > 0)] for sign in signs]
    return [model.outputs[k] for k in outputs]


def contributions(model: Model, data: Dataset, scores: Float64, runtime: Runtime) -> tuple[Float64, Float64]:
    """What each kernel (n, s) and the intercept (n,) contribute to the scores of the explained outputs."""
    outputs, signs = explained_outputs(model, scores)
    tasks = ((model, data.take(np.arange(data.n)[span]), outputs[span]) for span in model.spans(data.n))
    added = np.concatenate(list(runtime.map(_contributions, tasks)))
    return added * signs[:, None], model.intercept[outputs] * signs


def _contributions(model: Model, data: Dataset, outputs: Samples) -> Float64:
    added = np.zeros((data.n, len(model.bank)))
    for a, values in kernel_values(model, data):
        added[:, a] = np.einsum("ij,ji->i", values, model.of_kernel(a)[:, outputs])
    return added


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
