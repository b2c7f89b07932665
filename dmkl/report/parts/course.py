"""How training went: gap and objective over the passes."""

from __future__ import annotations

from markupsafe import Markup

from dmkl._util.types import Table
from dmkl.report.charts import Axis, Series, around, line_chart
from dmkl.report.contents import Contents
from dmkl.report.markup import NOTHING, Section, block, details, paragraph, section, table

LAST = 60  # rounds listed
REACH = 1.0  # values further from the last objective, relative to it, do not widen the axis


def course(contents: Contents) -> Section:
    rounds = contents.rounds
    if not rounds:
        return section("Gap and objective", paragraph("No round is finished yet."))
    gaps = [(entry["passes"], entry["gap"]) for entry in rounds if entry["gap"] is not None]
    x = around("passes over the kernels", [0.0, *(float(entry["passes"]) for entry in rounds)], whole=True)
    charts = []
    if gaps:
        y = around("largest gap", [*(gap for _, gap in gaps), contents.tol], log=True)
        caption = "Largest certified relative gap; the dashed line is the tolerance"
        charts.append(line_chart(caption, [Series("gap", gaps)], x, y, level=contents.tol))
    charts.append(_objective(rounds, x))
    heads = ["round", "passes", "SVM calls", "certified", "of", "kernels used", "largest gap", "seconds"]
    keys = ("round", "passes", "svm_calls", "finished", "classes", "kernels", "gap", "seconds")
    rows = [tuple(entry[key] for key in keys) for entry in rounds[-LAST:]]
    listed = table("Rounds" if len(rounds) <= LAST else f"The last {LAST} of {len(rounds):,} rounds", heads, rows)
    return section(
        "Gap and objective",
        block("pair", *charts),
        details(f"Rounds ({len(rounds):,})", listed),
    )


def _objective(rounds: list[Table], x: Axis) -> Markup:
    """Objective and lower bound, summed over the outputs; early bounds may lie outside the chart."""
    lines = {
        name: [(r["passes"], r[name]) for r in rounds if r.get(name) is not None] for name in ("objective", "dual")
    }
    if not all(lines.values()):
        return NOTHING
    last = lines["objective"][-1][1]
    near = [value for points in lines.values() for _, value in points if abs(value - last) <= REACH * abs(last)]
    y = around("objective", near or [last])
    series = [Series("objective", lines["objective"]), Series("lower bound (dual)", lines["dual"], "c2")]
    return line_chart("Objective and its certified lower bound", series, x, y)
