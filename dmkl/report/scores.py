"""How good the model is: against the baselines, and for every class, label or target."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmkl.model import Model, Predictions, support_per_class
from dmkl.report.contents import Contents, metric_title, metric_value, noun
from dmkl.report.markup import Figures, Raw, bar, details, paragraph, section, table

SHOWN = 20  # outputs in sight; of more the worst, all of them behind a click
WORST = 10


def scores(contents: Contents) -> Raw:
    found = contents.score
    if not found:
        nothing = "No samples were held out" if contents.finished else "Nothing has been scored yet"
        return section("score", "Score", paragraph(f"{nothing}, so there is no score."))
    rows = [("this model", *_values(found["metrics"]))]
    if "best_single" in found:
        best = found["best_single"]
        rows.append(("average kernel", *_values(found["average"]["metrics"])))
        rows.append((f"best single kernel: {best['kernel']}", *_values(best["metrics"])))
    names = [metric_title(name) for name in found["metrics"]]
    shown = table("This model and simpler answers", ["", *names], rows)
    note = ""
    if "best_single" in found:
        note = paragraph("The best single kernel was chosen on these very samples, which flatters it.")
    return section("score", f"Score on {found['n']:,} held-out samples", shown, note)


def _values(metrics: dict[str, float | None]) -> list[Figures]:
    return [metric_value(name, value) for name, value in metrics.items()]


def outputs(contents: Contents) -> Raw:
    """One row for every class, label or target: how well it is told, how well it is solved."""
    model = contents.model
    if model is None:
        return Raw("")
    heads, rows, order = _rows(contents, model)
    title = noun(model, len(rows)).capitalize()
    if len(rows) <= SHOWN:
        return section("outputs", title, table(f"{title} one by one", heads, rows))
    worst = [rows[k] for k in order[:WORST]]
    return section(
        "outputs",
        f"{len(rows):,} {title.lower()}",
        table(f"The {WORST} worst {title.lower()}", heads, worst),
        details(f"All {len(rows):,} {title.lower()}", table(f"All {title.lower()}", heads, rows)),
    )


def _rows(contents: Contents, model: Model) -> tuple[list[str], list[tuple[Any, ...]], list[int]]:
    names, about = model.outputs, model.about
    columns: dict[str, Any] = {}
    precision = {row["class"]: row["average_precision"] for row in contents.score.get("per_class", [])}
    if precision:
        columns["average precision"] = [precision.get(name) for name in names]
        columns[""] = [bar(value) if value is not None else "" for value in columns["average precision"]]
    if contents.predictions is not None and model.task != "regression":
        columns |= _counts(model, contents.predictions)
    columns["support samples"] = list(support_per_class(model))
    columns["kernels used"] = (np.abs(model.weights) > 0).sum(axis=1).tolist()
    if len(about["objective"]) == len(names):  # else they share one
        columns |= {"objective": about["objective"], "certified gap": about["gap"]}
    rows = [(name, *(column[k] for column in columns.values())) for k, name in enumerate(names)]
    ranked = [precision.get(name, 2.0) for name in names] if precision else [-gap for gap in about["gap"]]
    return ["", *columns], rows, [int(k) for k in np.argsort(ranked, kind="stable")]


def _counts(model: Model, kept: Predictions) -> dict[str, list[Any]]:
    """Held-out samples of each output, and how many of them are found, and found rightly."""
    truth = kept.truth.signs() > 0
    said = model.predict(kept.scores).signs() > 0
    right, real, claimed = ((truth & said).sum(axis=0), truth.sum(axis=0), said.sum(axis=0))
    return {
        "held-out samples": real.tolist(),
        "recall": [float(r / n) if n else None for r, n in zip(right, real, strict=True)],
        "precision": [float(r / n) if n else None for r, n in zip(right, claimed, strict=True)],
    }
