"""Where the time went: seconds of every stage, and what each worker did when."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Float64, Table
from dmkl.report.contents import Contents
from dmkl.report.images import SERIES, picture
from dmkl.report.markup import BARS, NOTHING, Section, bar, block, legend, number, paragraph, percent, section, table
from dmkl.runtime.timeline import OTHERS, TimelineOptions

NAMED = len(BARS) - 1  # functions with a colour of their own
ROWS = 32  # workers with a row
STRENGTHS = 16  # of each colour


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
