"""Why a sample got its label: what every kernel adds to the score of the winning output.

With the intercept they add up to that score. The winner of two classes is the one that the sign names, and its score is
the distance from zero; several labels are explained by the one of highest score, a regression by its prediction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.data import Dataset
from dmkl.model.model import Model, kernel_values
from dmkl.runtime import Runtime


def winners(model: Model, scores: Float64) -> tuple[NDArray[np.int64], Float64]:
    """The output each sample is explained by, and the sign that makes its score speak for the winning class."""
    outputs = scores.argmax(axis=1)
    binary = model.task == "binary"
    return outputs, np.where(binary & (scores[np.arange(len(scores)), outputs] <= 0), -1.0, 1.0)


def winner_names(model: Model, scores: Float64) -> list[str]:
    """What is explained: a class, a label or the target."""
    outputs, signs = winners(model, scores)
    if model.task == "binary":
        return [model.classes[int(sign > 0)] for sign in signs]
    return [model.outputs[k] for k in outputs]


def contributions(model: Model, data: Dataset, scores: Float64, runtime: Runtime) -> tuple[Float64, Float64]:
    """(n, s) what each kernel adds to the winners' scores, and (n,) what the intercept does."""
    outputs, signs = winners(model, scores)
    tasks = ((model, data.take(np.arange(data.n)[span]), outputs[span]) for span in model.spans(data.n))
    added = np.concatenate(list(runtime.map(_added, tasks)))
    return added * signs[:, None], model.intercept[outputs] * signs


def _added(model: Model, data: Dataset, outputs: NDArray[np.int64]) -> Float64:
    added = np.zeros((data.n, len(model.bank)))
    for a, values in kernel_values(model, data):
        added[:, a] = np.einsum("ij,ji->i", values, model.of_kernel(a)[:, outputs])
    return added
