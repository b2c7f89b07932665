"""How training went: gap and objective over passes, where time went, which worker did what when."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmkl.report.charts import Series, around, line_chart
from dmkl.report.contents import Contents
from dmkl.report.images import SERIES, picture
from dmkl.report.markup import BARS, Raw, bar, details, legend, number, paragraph, percent, section, table
from dmkl.runtime.timeline import OTHERS, TimelineOptions

NAMED = len(BARS) - 1  # functions with a colour of their own
ROWS = 32  # workers with a row
LAST = 60  # rounds listed
REACH = 1.0  # bounds this many times the objective away from it are drawn at the edge


def course(contents: Contents) -> Raw:
    rounds = contents.rounds
    if not rounds:
        return section("course", "Course", paragraph("No round is finished yet."))
    gaps = [(entry["passes"], entry["gap"]) for entry in rounds if entry["gap"] is not None]
    x = around("passes over the kernels", [0.0, *(float(entry["passes"]) for entry in rounds)], whole=True)
    charts = []
    if gaps:
        y = around("worst gap", [*(gap for _, gap in gaps), contents.tol], log=True)
        caption = "The worst certified gap; the dashed line is the tolerance"
        charts.append(line_chart(caption, [Series("gap", gaps)], x, y, level=contents.tol))
    charts.append(_objective(rounds, x))
    heads = ["round", "passes", "SVM calls", "proved", "of", "kernels used", "worst gap", "seconds"]
    keys = ("round", "passes", "svm_calls", "finished", "classes", "kernels", "gap", "seconds")
    rows = [tuple(entry[key] for key in keys) for entry in rounds[-LAST:]]
    listed = table("Rounds" if len(rounds) <= LAST else f"The last {LAST} of {len(rounds):,} rounds", heads, rows)
    return section(
        "course",
        "Gap and objective",
        Raw(f'<div class="pair">{"".join(charts)}</div>'),
        details(f"Rounds ({len(rounds):,})", listed),
    )


def _objective(rounds: list[dict[str, Any]], x: Any) -> Raw:
    """Objective and bound, all outputs' together; what is far off stays out of the range of the axis."""
    lines = {
        name: [(r["passes"], r[name]) for r in rounds if r.get(name) is not None] for name in ("objective", "dual")
    }
    if not all(lines.values()):
        return Raw("")
    last = lines["objective"][-1][1]
    near = [value for points in lines.values() for _, value in points if abs(value - last) <= REACH * abs(last)]
    y = around("objective", near or [last])
    series = [Series("objective", lines["objective"]), Series("bound (dual)", lines["dual"], "c2")]
    return line_chart("Objective and what is proved to be below it", series, x, y)


def time(contents: Contents) -> Raw:
    """Seconds of every stage, and counts of what costs them."""
    summary = contents.summary
    stages = [
        (words, float(summary[name]["seconds"]))
        for name, words in (("kernels", "reading data, kernels"), ("train", "training"), ("score", "scoring"))
        if "seconds" in summary.get(name, {})
    ]
    parts = []
    if stages:
        longest = max(seconds for _, seconds in stages) or 1.0
        rows = [(words, seconds, bar(seconds / longest)) for words, seconds in stages]
        parts.append(table("How long each stage took", ["stage", "seconds", ""], rows))
    if "train" in summary:
        facts = summary["train"]
        words = [
            f"{facts['passes']:,} passes over the kernels, {facts['rounds']:,} rounds",
            f"{facts['svm_calls']:,} SVM calls" if facts["svm_calls"] else "",
            f"peak memory {facts['peak_bytes'] / 1e6:,.0f} MB",
        ]
        parts.append(paragraph(", ".join(word for word in words if word) + "."))
    return section("time", "Time", *parts, _timeline(contents.timeline))


def _timeline(told: dict[str, Any]) -> Raw:
    """A stripe a worker: from left to right the time, the colour what it did most, the strength how busy it was."""
    if not told or not told["rows"]:
        return Raw("")
    rows, bins = told["rows"], max(1, int(told["bins"]))
    if bins > (most := TimelineOptions().bins):
        raise ValueError(f"a timeline has at most {most} bins")
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row["function"]] = seconds.get(row["function"], 0.0) + row["seconds"]
    functions = sorted(seconds, key=lambda name: -seconds[name])
    colour = {name: min(place, NAMED) for place, name in enumerate(functions)}
    busy: dict[str, Any] = {}
    for row in rows:
        shares = busy.setdefault(row["worker"], np.zeros((len(BARS), bins)))
        shares[colour[row["function"]], row["bins"]] += row["shares"]
    workers = sorted(busy, key=_natural)
    shown = [(name, _stripe(name, busy[name]), percent(min(1.0, busy[name].sum() / bins))) for name in workers[:ROWS]]
    if len(workers) > ROWS:
        rest = sum(busy[name] for name in workers[ROWS:]) / (len(workers) - ROWS)
        shown.append(
            (f"{len(workers) - ROWS} more, their mean", _stripe("the others", rest), percent(rest.sum() / bins))
        )
    whole = bins * told["width"]
    caption = f"Workers in the last turn of the run: {number(whole)} s from left to right"
    names = [
        (BARS[place], f"{name.strip('_')} {number(seconds[name])} s") for name, place in colour.items() if place < NAMED
    ]
    if len(functions) > NAMED:
        names.append((BARS[NAMED], f"{len(functions) - NAMED} others"))
    return Raw(f'<div class="stripes">{table(caption, ["worker", "busy with", "busy"], shown)}</div>{legend(names)}')


def _stripe(name: str, shares: Any) -> Raw:
    """Sixteen strengths of each colour."""
    most = shares.argmax(axis=0)
    strength = np.rint(15 * np.clip(shares.sum(axis=0), 0.0, 1.0)).astype(np.uint8)
    palette = [(*part, round(255 * level / 15)) for part in SERIES for level in range(16)]
    places = (16 * most + strength).astype(np.uint8)
    return picture(places[None], palette, f"when {name} was busy", height=16)


def _natural(name: str) -> tuple[Any, ...]:
    """Thread 10 after thread 9, and the others last."""
    words = name.replace(":", " ").replace(".", " ").split()
    return name == OTHERS, [int(word) if word.isdecimal() else 0 for word in words], name
