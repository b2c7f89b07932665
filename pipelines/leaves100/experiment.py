"""100 plant species by their leaves: see experiment.toml."""

from __future__ import annotations

import numpy as np

from pipelines.common.categories.protocol import Collection, random_splits
from pipelines.common.categories.tables import outcome
from pipelines.common.data import data_file
from pipelines.common.experiment import Context, Outcome
from pipelines.common.views import View

KINDS = {"shape": "sqeuclidean", "margin": "chi2", "texture": "chi2"}  # a curve of distances, and two histograms


def run(context: Context) -> Outcome:
    found = np.load(data_file("leaves100.npz", "UCI One-hundred plant species leaves: X_shape, X_margin, X_texture, y"))
    y = found["y"].astype(np.int64)
    views = [View(name, kind, found[f"X_{name}"].astype(np.float64)) for name, kind in KINDS.items()]
    return outcome(context, Collection(y, views, random_splits(y, 3, context.settings["each"])))
