"""The bundled digits with few training samples: see experiment.toml."""

from __future__ import annotations

from dmkl.data.examples import digits
from pipelines.common.categories.protocol import Collection, random_splits
from pipelines.common.categories.tables import outcome
from pipelines.common.experiment import Context, Outcome
from pipelines.common.views import View


def run(context: Context) -> Outcome:
    found = digits()
    y = found.pop("y")
    views = [View(name[2:], "sqeuclidean", values) for name, values in found.items()]
    return outcome(context, Collection(y, views, random_splits(y, 5, context.settings["each"])))
