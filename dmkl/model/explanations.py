"""Explanations of predictions: what every kernel contributes to the score of the predicted output.

Together with the intercept the contributions add up to that score. With two classes the score is the distance from the
decision boundary on the side of the predicted class; with several labels the label with the highest score is explained;
in a regression, the prediction itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, Samples
from dmkl.data import Dataset
from dmkl.model.model import Model, kernel_values
from dmkl.runtime import Runtime


@dataclass(frozen=True)
class Explanations:
    """The contributions of the kernels for some of the held-out samples."""

    samples: Samples  # their numbers among the held-out samples, in the order of the arrays
    outputs: tuple[str, ...]  # the class, label or target that is explained
    contributions: Float64  # (number of samples, s)
    intercept: Float64  # (number of samples,)


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
