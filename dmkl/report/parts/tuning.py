"""The search of `dmkl tune`: the points that were tried, and their drawing."""

from __future__ import annotations

import base64

from markupsafe import Markup

from dmkl._util.types import Table
from dmkl.report.contents import Contents, metric_title
from dmkl.report.markup import NOTHING, Section, figure, paragraph, section, table

SHOWN = 100  # points, the best first


def tuning(contents: Contents) -> Section | None:
    found = contents.tuning
    if not found:
        return None
    words = (
        f"{len(found['table']):,} points were compared by {metric_title(found['metric'])} in {found['folds']}-fold "
        f"cross-validation. The rule “{found['rule']}” chose {found['table'][found['chosen']]['point']}."
    )
    drawn = _drawing(contents.tuning_drawing) if contents.tuning_drawing else NOTHING
    return section("Tuning", paragraph(words), drawn, _table(found))


def _table(found: Table) -> Markup:
    sign = 1.0 if found.get("larger_is_better", True) else -1.0  # runs of older versions lack it: larger was better
    rows = sorted(enumerate(found["table"]), key=lambda entry: _rank(entry[1]["mean"], sign))[:SHOWN]
    names = [name for name in found["table"][0] if all(isinstance(row[name], int | float | None) for _, row in rows)]
    listed = [
        (row["point"], *(row[name] for name in names), "chosen" if place == found["chosen"] else "")
        for place, row in rows
    ]
    points = len(found["table"])
    caption = "All points" if points <= SHOWN else f"The best {SHOWN} of {points:,} points"
    return table(caption, ["point", *(name.replace("_", " ") for name in names), ""], listed)


def _rank(mean: float | None, sign: float) -> tuple[bool, float]:
    """The best mean first, points without one last."""
    return mean is None, -sign * (mean or 0.0)


def _drawing(svg: str) -> Markup:
    """The drawing as an image, so that nothing inside the file runs or is fetched."""
    source = base64.b64encode(svg.encode()).decode()
    alt = "mean scores of the points with their standard errors"
    image = Markup('<img class="drawing" alt="{}" src="data:image/svg+xml;base64,{}">').format(alt, source)
    return figure("Mean scores in cross-validation", image)
