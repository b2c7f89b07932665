"""SVM calls and time while the bank grows: see experiment.toml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.fitting import exponent, grouped, held_out
from pipelines.common.uci import DEGREES, Kernel, Split, kernels, parts, stacked
from pipelines.uci_scaling.methods import DEFAULT, MIRROR, SIMPLE, default, mirror, simple

NARROWEST, WIDEST = 0.5, 20.0
SLOPE_GOAL, FASTER_GOAL = 0.25, 8.0
BESIDE = (MIRROR, SIMPLE)


def run(context: Context) -> Outcome:
    settings = context.settings
    warm_up()
    rows = context.splits(settings["splits"], course)
    table, slopes = averaged(rows), growth(rows, settings["loose"])
    largest = max(settings["sizes"])
    beside = [some for (name,), some in grouped(rows, "data").items() if name in settings["beside"]]
    faster = {
        method: {some[0]["data"]: times(some, largest, method) for some in beside} for method in (DEFAULT, MIRROR)
    }
    worst = max(row["gap"] for row in rows if row["method"] == DEFAULT)
    goals = [
        Goal("the largest gap", worst, "<=", settings["tol"]),
        Goal("exponent of SVM calls", max(row["SVM calls"] for row in slopes), "<=", SLOPE_GOAL),
    ]
    if not context.quick:  # small banks are not what it is about
        most = max(faster[DEFAULT].values())
        goals.append(Goal("times as fast as SimpleMKL, largest bank, best set", most, ">=", FASTER_GOAL, True))
    took = [column for column in table[0] if column.endswith("seconds")] + ["±"]
    formats = {"accuracy %": ".1f", "SVM calls": ".1f", "steps": ".1f", "used": ".1f"} | dict.fromkeys(took, ".2f")
    grown = tuple(column for column in slopes[0] if column.endswith("seconds"))
    tables = (
        Table("Means over splits; ± is the deviation of seconds", table, tuple(took), formats),
        Table("Exponents of the growth with kernels", slopes, grown, dict.fromkeys(slopes[0], ".2f")),
        claimed(context.paper, slopes, faster, largest),
    )
    return Outcome(tables, goals, cut_off(rows, settings["loose"]), {"uci_scaling": drawn(rows)})


def warm_up() -> None:
    """Compile."""
    K, y = np.ones((2, 10, 10)) + np.eye(10), np.tile([1.0, -1.0], 5)
    default(K, y, 1.0, 1e-2), mirror(K, y, 1.0, 1e-2, 2), simple(K, y, 1.0, 1e-2, 2)


def bank(features: int, count: int, rng: np.random.Generator) -> list[Kernel]:
    """`count` kernels in random order; any first part of them is a smaller bank."""
    each = math.ceil(count / len(parts(features))) - len(DEGREES)
    known = kernels(features, np.geomspace(NARROWEST, WIDEST, max(each, 1)).tolist())
    return [known[number] for number in rng.permutation(len(known))[:count]]


def course(name: str, number: int, settings: dict[str, Any]) -> list[Row]:
    """All methods at all sizes of one split."""
    rng = np.random.default_rng(number)
    split = Split.draw(name, settings["share"], rng)
    known = bank(split.X.shape[1], max(settings["sizes"]), rng)
    whole, C, loose = stacked(known, split.X), settings["C"], settings["loose"]
    rows = []
    for size in settings["sizes"]:
        K, found = whole[:size], []
        row, fit = default(K, split.y, C, settings["tol"])
        row["accuracy %"] = held_out(fit, lambda a: known[a].between(split.test_X, split.X), split.test_y)
        found.append(row)
        for method, way in (("mirror", mirror), ("simple", simple)):
            if name in settings["beside"] and number < settings[method]["splits"]:
                found.append(way(K, split.y, C, loose, settings[method]["calls"]))
        rows += [{"data": name, "n": len(split.y), "kernels": size} | row for row in found]
    return rows


def mean(rows: Sequence[Row], column: str) -> float | None:
    return float(np.mean([row[column] for row in rows])) if rows else None


def averaged(rows: list[Row]) -> list[Row]:
    """A row a data set and size, with all methods."""
    found = []
    for (name, n, size), some in grouped(rows, "data", "n", "kernels").items():
        methods = {method: [row for row in some if row["method"] == method] for method in (DEFAULT, *BESIDE)}
        ours = methods[DEFAULT]
        row: Row = {"data": name, "n": n, "splits": len(ours), "kernels": size, "SVM calls": mean(ours, "calls")}
        row |= {column: mean(ours, column) for column in ("steps", "used", "accuracy %", "seconds")}
        row["±"] = float(np.std([one["seconds"] for one in ours]))
        for method in BESIDE:
            row |= {f"{method}: {words}": mean(methods[method], words) for words in ("calls", "gap", "seconds")}
        found.append(row)
    return found


def growth(rows: list[Row], loose: float) -> list[Row]:
    """Exponents; none of a method that was cut off."""
    columns = [(DEFAULT, "calls", "SVM calls"), (DEFAULT, "steps", "steps"), (DEFAULT, "seconds", "seconds")]
    columns += [(method, what, f"{method}: {what}") for method in BESIDE for what in ("calls", "seconds")]
    found = []
    for (name,), some in grouped(rows, "data").items():
        row: Row = {"data": name}
        for method, what, words in columns:
            mine = [one for one in some if one["method"] == method]
            whole = mine and all(one["gap"] <= loose for one in mine)
            row[words] = exponent(means_of(mine, what), "kernels", what) if whole else None
        found.append(row)
    return found


def means_of(rows: Sequence[Row], what: str) -> list[Row]:
    """Of one data set and method, a row a size."""
    return [{"kernels": size, what: mean(some, what)} for (size,), some in grouped(rows, "kernels").items()]


def times(rows: list[Row], size: int, method: str) -> float:
    """How many times the seconds of a method SimpleMKL takes, on the splits it ran on."""
    here = grouped([row for row in rows if row["kernels"] == size], "method")
    theirs = [row["seconds"] for row in here[SIMPLE,]]
    ours = [row["seconds"] for row in here[method,]][: len(theirs)]
    return float(np.sum(theirs) / np.sum(ours))


def claimed(paper: Row, slopes: list[Row], faster: dict[str, dict[str, float]], largest: int) -> Table:
    """The statements of the paper and our results."""
    calls = (
        ("exponent of SVM calls, mirror descent", "a low value", f"{MIRROR}: calls"),
        ("exponent of SVM calls, SimpleMKL", "shoots up steeply", f"{SIMPLE}: calls"),
        ("exponent of SVM calls, dmkl", "", "SVM calls"),
    )
    rows: list[Row] = [
        {"what": what, "paper": told} | {row["data"]: row[of] for row in slopes} for what, told, of in calls
    ]
    for method in (MIRROR, DEFAULT):
        told = f"up to {paper['times_simple']:g}" if method == MIRROR else ""
        what = f"{method} is so many times as fast as SimpleMKL, {largest} kernels"
        rows.append({"what": what, "paper": told} | faster[method])
    names = tuple(row["data"] for row in slopes)
    return Table("Beside the paper", rows, names, dict.fromkeys(names, ".2f"))


def cut_off(rows: list[Row], loose: float) -> list[str]:
    """The methods that were cut off."""
    found = []
    for method in BESIDE:
        mine = [row for row in rows if row["method"] == method]
        late = sum(row["gap"] > loose for row in mine)
        found.append(f"{method} was cut off before a gap of {loose:g} in {late} of {len(mine)} problems.")
    return found


def drawn(rows: list[Row]) -> list[Panel]:
    """The paper's figure 2 on the left, its figure 1 on the right."""
    panels = []
    for (name,), some in grouped(rows, "data").items():
        for what, up in (("calls", "SVM calls"), ("seconds", "seconds")):
            lines = []
            for number, method in enumerate((DEFAULT, *BESIDE)):
                mine = grouped([row for row in some if row["method"] == method], "kernels")
                if not mine:
                    continue
                ys = [[row[what] for row in same] for same in mine.values()]
                spread = [float(np.std(values)) for values in ys]
                sizes = [size for (size,) in mine]
                lines.append(
                    Line(method, sizes, [float(np.mean(y)) for y in ys], "os^"[number] + "-", f"C{number}", spread)
                )
            panels.append(Panel(name, "kernels", up, lines))
    return panels
