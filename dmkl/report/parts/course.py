"""The course of training: gap and objective over the passes, and where the time went."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Float64, Table
from dmkl.report.charts import SERIES, Axis, Series, around, line_chart, picture
from dmkl.report.markup import (
    BARS,
    NOTHING,
    Section,
    bar,
    block,
    details,
    legend,
    number,
    paragraph,
    percent,
    section,
    table,
)
from dmkl.report.parts import Contents
from dmkl.runtime.timeline import OTHERS, TimelineOptions

LAST = 60  # rounds listed
REACH = 1.0  # values further from the last objective, relative to it, do not widen the axis
NAMED = len(BARS) - 1  # functions with a colour of their own
ROWS = 32  # workers with a row
STRENGTHS = 16  # of each colour


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


def durations(contents: Contents) -> Section:
    """Seconds of every stage, and the counts that explain them."""
    summary = contents.summary
    stages = [
        (words, float(summary[name]["seconds"]))
        for name, words in (("kernels", "reading data, computing kernels"), ("train", "training"), ("score", "scoring"))
        if "seconds" in summary.get(name, {})
    ]
    pieces = []
    if stages:
        longest = max(seconds for _, seconds in stages) or 1.0
        rows = [(words, seconds, bar(seconds / longest)) for words, seconds in stages]
        pieces.append(table("Duration of each stage", ["stage", "seconds", ""], rows))
    if "train" in summary:
        facts = summary["train"]
        words = [
            f"{facts['passes']:,} passes over the kernels, {facts['rounds']:,} rounds",
            f"{facts['svm_calls']:,} SVM calls" if facts["svm_calls"] else "",
            f"peak memory {facts['peak_bytes'] / 1e6:,.0f} MB",
        ]
        pieces.append(paragraph(", ".join(word for word in words if word) + "."))
    return section("Time", *pieces, _timeline(contents.timeline))


def _timeline(timeline: Table) -> Markup:
    """One stripe a worker over time: the colour shows what it did most, the strength how busy it was."""
    if not timeline or not timeline["rows"]:
        return NOTHING
    rows, bins = timeline["rows"], max(1, int(timeline["bins"]))
    if bins > (most := TimelineOptions().bins):
        raise ValueError(f"a timeline has at most {most} bins")
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row["function"]] = seconds.get(row["function"], 0.0) + row["seconds"]
    functions = sorted(seconds, key=lambda name: -seconds[name])
    colour = {name: min(place, NAMED) for place, name in enumerate(functions)}
    busy: dict[str, Float64] = {}
    for row in rows:
        shares = busy.setdefault(row["worker"], np.zeros((len(BARS), bins)))
        shares[colour[row["function"]], row["bins"]] += row["shares"]
    workers = sorted(busy, key=_natural)
    shown = [(name, _stripe(name, busy[name]), percent(min(1.0, busy[name].sum() / bins))) for name in workers[:ROWS]]
    if len(workers) > ROWS:
        rest = np.asarray(sum(busy[name] for name in workers[ROWS:])) / (len(workers) - ROWS)
        shown.append(
            (
                f"mean of {len(workers) - ROWS} more workers",
                _stripe("the other workers", rest),
                percent(rest.sum() / bins),
            )
        )
    whole = bins * timeline["width"]
    caption = f"Activity of the workers since the run was last started: {number(whole)} s from left to right"
    names = [
        (BARS[place], f"{name.strip('_')} {number(seconds[name])} s") for name, place in colour.items() if place < NAMED
    ]
    if len(functions) > NAMED:
        names.append((BARS[NAMED], f"{len(functions) - NAMED} other functions"))
    return block("stripes", table(caption, ["worker", "activity", "busy"], shown)) + legend(names)


def _stripe(name: str, shares: Float64) -> Markup:
    most = shares.argmax(axis=0)
    strength = np.rint((STRENGTHS - 1) * np.clip(shares.sum(axis=0), 0.0, 1.0)).astype(np.uint8)
    palette = [(*part, round(255 * level / (STRENGTHS - 1))) for part in SERIES for level in range(STRENGTHS)]
    places = (STRENGTHS * most + strength).astype(np.uint8)
    return picture(places[None], palette, f"when {name} was busy", height=16)


def _natural(name: str) -> tuple[bool, list[int], str]:
    """A key that sorts thread 10 after thread 9, and the summed others last."""
    words = name.replace(":", " ").replace(".", " ").split()
    return name == OTHERS, [int(word) if word.isdecimal() else 0 for word in words], name
