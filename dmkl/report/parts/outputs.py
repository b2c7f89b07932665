"""One row for every class, label or target: how well it is predicted and how far it is solved."""

from __future__ import annotations

import numpy as np

from dmkl.model import Model, Predictions, support_per_class
from dmkl.report.contents import Contents, noun
from dmkl.report.markup import Cell, Section, bar, details, section, table

SHOWN = 20  # with more outputs only the worst are visible at first
WORST = 10


def outputs(contents: Contents) -> Section | None:
    model = contents.model
    if model is None:
        return None
    heads, rows, order = _rows(contents, model)
    ranking = "lowest average precision" if "average precision" in heads else "largest certified gap"
    words = noun(model, len(rows))
    if len(rows) <= SHOWN:
        return section(words.capitalize(), table(f"All {words}" if len(rows) > 1 else f"The {words}", heads, rows))
    worst = [rows[k] for k in order[:WORST]]
    every = f"All {len(rows):,} {words}"
    return section(
        f"{len(rows):,} {words}",
        table(f"The {WORST} {words} with the {ranking}", heads, worst),
        details(every, table(every, heads, rows)),
    )


def _rows(contents: Contents, model: Model) -> tuple[list[str], list[tuple[Cell, ...]], list[int]]:
    """Heads, rows, and the rows' numbers from the worst to the best."""
    names, about = model.outputs, model.about
    columns: dict[str, list[Cell]] = {}
    precision = {row["class"]: row["average_precision"] for row in contents.score.get("per_class", [])}
    if precision:
        columns["average precision"] = [precision.get(name) for name in names]
        columns[""] = [bar(precision[name]) if precision.get(name) is not None else "" for name in names]
    if contents.predictions is not None and model.task != "regression":
        columns |= _counts(model, contents.predictions)
    columns["support samples"] = list(support_per_class(model))
    columns["kernels used"] = (np.abs(model.weights) > 0).sum(axis=1).tolist()
    if len(about["objective"]) == len(names):  # otherwise the outputs share one objective
        columns |= {"objective": about["objective"], "certified gap": about["gap"]}
    rows = [(name, *(column[k] for column in columns.values())) for k, name in enumerate(names)]
    ranked = [precision.get(name, 2.0) for name in names] if precision else [-gap for gap in about["gap"]]
    return ["", *columns], rows, [int(k) for k in np.argsort(ranked, kind="stable")]


def _counts(model: Model, kept: Predictions) -> dict[str, list[Cell]]:
    """Held-out samples of each output, recall and precision."""
    truth = kept.truth.signs() > 0
    predicted = model.predict(kept.scores).signs() > 0
    right, real, claimed = ((truth & predicted).sum(axis=0), truth.sum(axis=0), predicted.sum(axis=0))
    return {
        "held-out samples": real.tolist(),
        "recall": [float(r / n) if n else None for r, n in zip(right, real, strict=True)],
        "precision": [float(r / n) if n else None for r, n in zip(right, claimed, strict=True)],
    }
