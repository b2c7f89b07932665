"""Protein folds by twelve views: see experiment.toml."""

from __future__ import annotations

import numpy as np

from pipelines.common.categories.protocol import Collection
from pipelines.common.categories.tables import outcome
from pipelines.common.data import data_file
from pipelines.common.experiment import Context, Outcome
from pipelines.common.views import Split, View

TRAIN = 311  # the rows are sorted by class twice: those of the official training set, then 383 to test


def run(context: Context) -> Outcome:
    found = np.load(data_file("proteinfold.npz", "27 protein folds, 12 views of 694 proteins: X_0 to X_11, y"))
    y, rows = found["y"].astype(np.int64), np.arange(len(found["y"]))
    assert np.flatnonzero(np.diff(y) < 0).tolist() == [TRAIN - 1], "another order of rows than the official split's"
    views = [View(key[2:], "sqeuclidean", found[key].astype(np.float64)) for key in found if key.startswith("X_")]
    return outcome(context, Collection(y, views, [Split(rows[:TRAIN], rows[TRAIN:])]))
