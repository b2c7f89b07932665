"""The svmlight / libsvm text format: a label and the non-zero features, one line a sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dmkl._util.machine import require_free
from dmkl.data.readers.base import Arrays, Reader, as_csr
from dmkl.errors import DataError


def read_svmlight(path: Path) -> Arrays:
    """`X` (sparse) and `y`: a vector, or one 0/1 column a label when some line lists several."""
    from sklearn.datasets import load_svmlight_file

    several = _lists_labels(path)
    features, labels = load_svmlight_file(str(path), multilabel=several)
    if features.shape[0] == 0:
        raise DataError(f"{path} holds no samples", "expected lines like '+1 3:0.5 7:1'")
    if not several:
        return {"X": as_csr(features), "y": np.asarray(labels)}
    names = sorted({label for row in labels for label in row})
    require_free(len(labels) * len(names), f"the matrix of the labels of {path}")
    column = {label: place for place, label in enumerate(names)}
    indicator = np.zeros((len(labels), len(names)), dtype=np.uint8)
    for row, present in enumerate(labels):
        indicator[row, [column[label] for label in present]] = 1
    return {"X": as_csr(features), "y": indicator}


def _lists_labels(path: Path) -> bool:
    """Whether the label field of some line holds several labels, separated by commas."""
    with path.open("rb") as file:
        return any(b"," in line.split(b"#")[0].split(b":")[0].split(b" ")[0] for line in file)


SVMLIGHT = Reader(read_svmlight)
