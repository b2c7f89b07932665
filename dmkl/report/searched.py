"""What `dmkl tune` left in the run directory: the table of what it tried, and its drawing."""

from __future__ import annotations

import base64
from typing import Any

from dmkl.report.contents import Contents, metric_title
from dmkl.report.markup import Raw, figure, paragraph, section, table

SHOWN = 100  # points, the best first


def searched(contents: Contents) -> Raw:
    """Nothing for a run whose constants were given."""
    found = contents.tuning
    if not found:
        return Raw("")
    words = paragraph(
        f"{len(found['table']):,} points, {found['folds']} folds, {metric_title(found['metric'])}, chosen by the "
        f"rule “{found['rule']}”: {found['table'][found['chosen']]['point']}."
    )
    drawn = _drawing(contents.tuning_drawing) if contents.tuning_drawing else ""
    return section("tuning", "Tuning", words, drawn, _table(found))


def _table(found: dict[str, Any]) -> Raw:
    sign = 1.0 if found.get("larger_is_better", True) else -1.0  # older runs do not have it: larger was better
    rows = sorted(enumerate(found["table"]), key=lambda entry: -sign * (entry[1]["mean"] or 0.0))[:SHOWN]
    names = [name for name in found["table"][0] if all(isinstance(row[name], int | float | None) for _, row in rows)]
    listed = [
        (row["point"], *(row[name] for name in names), "chosen" if place == found["chosen"] else "")
        for place, row in rows
    ]
    caption = "What was tried" if len(found["table"]) <= SHOWN else f"The best {SHOWN} of what was tried"
    return table(caption, ["point", *(name.replace("_", " ") for name in names), ""], listed)


def _drawing(svg: str) -> Raw:
    """As a picture: whatever is in the file, nothing of it runs or is fetched."""
    source = base64.b64encode(svg.encode()).decode()
    alt = "scores of the points that were tried, with their standard errors"
    return figure(
        "Scores by cross-validation", Raw(f'<img class="drawing" alt="{alt}" src="data:image/svg+xml;base64,{source}">')
    )
