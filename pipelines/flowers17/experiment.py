"""VSKL's table 1 on Oxford Flowers 17: see experiment.toml."""

from __future__ import annotations

import numpy as np

from pipelines.common.categories.protocol import Collection
from pipelines.common.categories.tables import outcome
from pipelines.common.data import data_file
from pipelines.common.experiment import Context, Outcome
from pipelines.common.views import Split, View


def run(context: Context) -> Outcome:
    return outcome(context, flowers())


def flowers() -> Collection:
    """Distances as they come (chi2 between histograms); training with `trn` and `val`, selection on `val`."""
    found = np.load(data_file("flowers17.npz", "distances between the 1,360 images of Oxford Flowers 17, own splits"))
    y = found["y"].astype(np.int64)
    views, splits = [], []
    for key in (key for key in found if key.startswith("D_")):
        D = np.zeros((len(y), len(y)), np.float32)
        D[np.triu_indices(len(y), 1)] = found[key]
        views.append(View(key[2:], "given", D + D.T))
    for number in "123":
        train, validation, test = (found[part + number].astype(np.int64) for part in ("trn", "val", "tst"))
        splits.append(Split(np.concatenate([train, validation]), test, validation))
    return Collection(y, views, splits)
