"""How good the model is on held-out samples, beside the baselines."""

from __future__ import annotations

from dmkl.report.contents import Contents, metric_title, metric_value
from dmkl.report.markup import NOTHING, Figures, Section, paragraph, section, table


def score(contents: Contents) -> Section:
    found = contents.score
    if not found:
        if contents.finished:
            return section("Score", paragraph("No samples were held out, so there is no score."))
        return section("Score", paragraph("The model has not been scored yet."))
    rows = [("this model", *_values(found["metrics"]))]
    note = NOTHING
    if "best_single" in found:
        best = found["best_single"]
        rows.append(("average kernel", *_values(found["average"]["metrics"])))
        rows.append((f"best single kernel: {best['kernel']}", *_values(best["metrics"])))
        note = paragraph(
            "The best single kernel was selected on these same held-out samples, so its score is optimistic."
        )
    heads = ["", *(metric_title(name) for name in found["metrics"])]
    return section(
        f"Score on {found['n']:,} held-out samples", table("This model and simpler models", heads, rows), note
    )


def _values(metrics: dict[str, float | None]) -> list[Figures]:
    return [metric_value(name, value) for name, value in metrics.items()]
