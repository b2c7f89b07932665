"""The whole ground: shares solved, performance profiles, growth, and the worst."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pipelines.benchmarks.proving_ground.fits import (
    Limits,
    contradiction,
    default_of,
    fitted,
    ratio_of_default,
    seconds_of,
)
from pipelines.benchmarks.proving_ground.problems import Problem, choose, problems
from pipelines.benchmarks.proving_ground.profiles import FLOOR, profile, ratios, slope, within
from pipelines.benchmarks.proving_ground.worker import Crew
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

NAMED = ("problem", "formulation", "method", "axis", "value", "problems", "s", "m")  # columns that are not measured
ONE_AGAINST_REST = ("uniform", "vskl", "l1", "lp", "spicy", "mikl")
GROWTH = 2.2
COLOURS = 10
FORMATS = {"seconds": ".3g", "median s": ".2g", "largest s": ".3g", "ratio": ".3g", "gap": ".1e", "MB": ".0f"}


def run(context: Context) -> Outcome:
    settings = context.settings
    chosen = choose(largest=settings["largest"], most=settings["problems"])
    limits = Limits(*(settings[name] for name in ("limit", "rival", "times", "value", "most", "slow", "to_stop")))
    crew, rows = Crew(), []
    try:
        for problem in chosen:
            rows.append(context.cell(problem.name, lambda problem=problem: fitted(crew, problem, limits)))
            context.progress(f"{len(rows)}/{len(chosen)} {problem.name}: {in_words(rows[-1])}")
    finally:
        crew.close()
    tables = [
        table("Solved by the default", _formulations(rows, settings)),
        table("Methods", _methods(rows)),
        table("Not solved by the default", _unsolved(rows, ("late", "stalled", "killed", "failed", "died"))),
        table("Refused by the default", _unsolved(rows, ("refused",))),
        table("Where another method is faster", _slower(rows, settings)),
        table("The longest", _longest(rows, settings)),
        table("Seconds of the default with wrong labels, and the exponent of n over the larger half", _growth(rows)),
        table("What was spanned", _spans(chosen, rows)),
        table(
            "Every fit", [{"problem": row["name"], **_facts(row), "fits": in_words(row)} for row in rows], shown=False
        ),
    ]
    raced = raced_ratios(rows)
    figures: dict[str, Sequence[Panel]] = {
        "proving-ground": profiles(rows, settings["horizon"]),
        "proving-ground-growth": [_growth_panel(rows)],
    }
    return Outcome(tables, _goals(rows, raced, settings), _remarks(rows, raced, settings), figures)


def table(title: str, rows: list[Row], shown: bool = True) -> Table:
    columns = list(rows[0]) if rows else []
    measured = tuple(column for column in columns if column not in NAMED)
    return Table(title, rows, measured, {column: FORMATS.get(column, ".3g") for column in columns}, shown=shown)


def in_words(row: Row) -> str:
    """All fits of a problem in one line."""
    return "; ".join(f"{name} {_in_words(fit)}" for name, fit in row["fits"].items())


def _in_words(fit: Row) -> str:
    text = f"{fit['status']} {fit['seconds']:.3g} s"
    if fit.get("gap") is not None:
        text += f", gap {fit['gap']:.1e}, {fit['rounds']} rounds, {fit['passes']} passes, {fit['svm_calls']} SVMs"
    if "MB" in fit:
        text += f", {fit['MB']:.0f} MB"
    return ", ".join([text, *filter(None, [fit["note"]]), *fit.get("warnings", [])])


def _facts(row: Row) -> Row:
    return {"s": row["s"], "m": row["m"]}


def raced_ratios(rows: Sequence[Row]) -> list[float]:
    """The default's ratios on the problems that several methods were tried on, infinite if it did not solve one."""
    return [ratio_of_default(row) for row in rows if len(row["fits"]) > 1]


# --- tables


def _formulations(rows: Sequence[Row], settings: Row) -> list[Row]:
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in sorted({row["kind"] for row in rows})}
    found = []
    for kind, some in [*kinds.items(), ("all", list(rows))]:
        fits = [default_of(row) for row in some]
        seconds = [fit["seconds"] for fit in fits if fit["status"] == "solved"]
        raced = raced_ratios(some)
        solved = [ratio for ratio in raced if math.isfinite(ratio)]
        found.append(
            {
                "formulation": kind,
                "problems": len(some),
                "solved": len(seconds),
                "solved %": 100 * len(seconds) / len(some),
                "refused": sum(fit["status"] == "refused" for fit in fits),
                f"% within {settings['close']:g} x": 100 * within(raced, settings["close"]) if raced else None,
                "largest ratio": max(solved, default=None),
                "median s": statistics.median(seconds) if seconds else None,
                "largest s": max(seconds, default=None),
                "MB": max((fit["MB"] for fit in fits if "MB" in fit), default=None),
            }
        )
    return found


def _methods(rows: Sequence[Row]) -> list[Row]:
    """Of each method, among the methods of its formulation: how often it took part, solved, was the fastest."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        compared = ratios(seconds_of(row), row["fits"])
        for name, fit in row["fits"].items():
            key = row["kind"].split()[0], name
            kept = found.setdefault(
                key,
                {"formulation": key[0], "method": name, "problems": 0, "solved": 0, "fastest": 0}
                | {"refused": 0, "failed": 0, "killed": 0},
            )
            kept["problems"] += 1
            kept["fastest"] += compared[name] == 1.0
            kept["solved"] += fit["status"] == "solved"
            for status in ("refused", "failed", "killed"):
                kept[status] += fit["status"] == status
    return list(found.values())


def _unsolved(rows: Sequence[Row], states: Iterable[str]) -> list[Row]:
    found = []
    for row in rows:
        fit = default_of(row)
        if fit["status"] in states:
            solved = seconds_of(row)
            best = min(solved, key=solved.__getitem__, default=None)
            found.append(
                {"problem": row["name"], **_facts(row), "default": fit["status"], "gap": fit.get("gap")}
                | {"seconds": fit["seconds"], "solved by": best, "in s": solved.get(best or ""), "error": fit["note"]}
            )
    return found


def _slower(rows: Sequence[Row], settings: Row) -> list[Row]:
    found = []
    for row in rows:
        solved, ratio = seconds_of(row), ratio_of_default(row)
        if settings["close"] < ratio < math.inf:
            best = min(solved, key=solved.__getitem__)
            found.append(
                {"problem": row["name"], **_facts(row), "seconds": default_of(row)["seconds"], "best": best}
                | {"in s": solved[best], "ratio": ratio}
            )
    return sorted(found, key=lambda row: -row["ratio"])[: settings["shown"]]


def _longest(rows: Sequence[Row], settings: Row) -> list[Row]:
    solved = [row for row in rows if default_of(row)["status"] == "solved"]
    longest = sorted(solved, key=lambda row: -default_of(row)["seconds"])[: settings["shown"]]
    return [
        {"problem": row["name"], **_facts(row)}
        | {key: default_of(row)[key] for key in ("seconds", "gap", "MB", "rounds", "passes", "svm_calls")}
        for row in longest
    ]


def _grown(rows: Sequence[Row]) -> dict[str, dict[int, float | None]]:
    """Seconds of the default by formulation and number of samples."""
    found: dict[str, dict[int, float | None]] = {}
    for row in rows:
        if row["row"] == "growth":
            fit = default_of(row)
            found.setdefault(row["kind"], {})[row["n"]] = fit["seconds"] if fit["status"] == "solved" else None
    return found


def _growth(rows: Sequence[Row]) -> list[Row]:
    grown = _grown(rows)
    sizes = sorted({n for times in grown.values() for n in times})
    return [
        {"formulation": kind} | {f"n = {n}": times.get(n) for n in sizes} | {"exponent": _exponent(times)}
        for kind, times in grown.items()
    ]


def _exponent(times: dict[int, float | None]) -> float | None:
    """None where one of the sizes was not solved."""
    known = {n: seconds for n, seconds in times.items() if seconds is not None}
    return slope(list(known), list(known.values())) if len(known) == len(times) else None


def _spans(chosen: Sequence[Problem], rows: Sequence[Row]) -> list[Row]:
    """How many problems there are with each value of an axis, and how many of them the default solved."""
    axes: dict[str, Callable[[Problem, Row], Any]] = {
        "tolerance": lambda problem, row: problem.tol,
        "samples, up to": lambda problem, row: _power_of_ten(row["n"]),
        "kernels, up to": lambda problem, row: _power_of_ten(row["s"]),
        "classes, up to": lambda problem, row: _power_of_ten(row["m"]),
        "share of wrong answers": lambda problem, row: problem.noise,
        "kernels": lambda problem, row: problem.kernels,
        "scale": lambda problem, row: problem.scale,
        "values": lambda problem, row: problem.dtype,
        "held in": lambda problem, row: problem.held,
        "data": lambda problem, row: problem.data,
    }
    found = []
    for axis, of in axes.items():
        solved: dict[Any, list[bool]] = {}
        for problem, row in zip(chosen, rows, strict=True):
            solved.setdefault(of(problem, row), []).append(default_of(row)["status"] == "solved")
        for value, each in sorted(solved.items(), key=lambda pair: (isinstance(pair[0], str), pair[0])):
            found.append({"axis": axis, "value": value, "problems": len(each), "solved": sum(each)})
    return found


def _power_of_ten(number: int) -> int:
    """The least one that is not smaller."""
    return int(10 ** math.ceil(math.log10(number)))


# --- figures


def profiles(rows: Sequence[Row], horizon: float) -> list[Panel]:
    """The default on all problems, a formulation a line; then the methods of each formulation that has several."""
    shorts = list(dict.fromkeys(row["kind"].split()[0] for row in rows))
    of = {short: [row for row in rows if row["kind"].split()[0] == short] for short in shorts}
    panels = [
        _panel("the default", {short: [ratio_of_default(row) for row in some] for short, some in of.items()}, horizon)
    ]
    for short, some in of.items():
        names = list(dict.fromkeys(name for row in some for name in row["fits"]))
        if max(len(row["fits"]) for row in some) > 1:
            lines = {
                name: [ratios(seconds_of(row), row["fits"])[name] for row in some if name in row["fits"]]
                for name in names
            }
            panels.append(_panel(short, lines, horizon))
    return panels


def _panel(title: str, found: dict[str, list[float]], horizon: float) -> Panel:
    lines = [
        Line(f"{label} ({len(values)})", *profile(values, horizon), style="-", colour=f"C{number}")
        for number, (label, values) in enumerate(found.items())
    ]
    return Panel(title, "times the best method's seconds", "share of problems", lines, ("log", "linear"))


def _growth_panel(rows: Sequence[Row]) -> Panel:
    lines = []
    for number, (kind, times) in enumerate(_grown(rows).items()):
        known = {n: seconds for n, seconds in times.items() if seconds is not None}
        if known:
            style = "o-" if number < COLOURS else "s--"
            lines.append(Line(kind, list(known), list(known.values()), style, f"C{number % COLOURS}"))
    return Panel("wrong labels, 10 kernels", "n", "seconds", lines)


# --- what is said


def _goals(rows: Sequence[Row], raced: list[float], settings: Row) -> list[Goal]:
    fits = [default_of(row) for row in rows]
    solved = 100 * sum(fit["status"] == "solved" for fit in fits) / len(fits)
    finite = [ratio for ratio in raced if math.isfinite(ratio)]
    grown = {kind: times for kind, times in _grown(rows).items() if len(times) > 1}
    exponents = [_exponent(times) for kind, times in grown.items() if kind.split()[0] in ONE_AGAINST_REST]
    growing = max((math.inf if exponent is None else exponent for exponent in exponents), default=None)
    near = 100 * within(raced, settings["close"]) if raced else 100.0
    raced_in_words = (
        f"share of those with several methods on which it is within {settings['close']:g} times the best, %"
    )
    goals = [
        Goal("share of the problems that the default solves, %", solved, ">=", 100, measured=True),
        Goal(raced_in_words, near, ">=", 95, measured=True),
        Goal("the largest ratio, where it solves the problem", max(finite, default=1.0), "<=", 2, measured=True),
        Goal("problems on which bounds contradict each other", _contradictions(rows), "<=", 0, measured=True),
    ]
    growth = "the largest exponent of n, one class against the rest"
    return goals if growing is None else [*goals, Goal(growth, growing, "<=", GROWTH, measured=True)]


def _contradictions(rows: Sequence[Row]) -> int:
    return sum(bool(contradiction(row)) for row in rows)


def _remarks(rows: Sequence[Row], raced: list[float], settings: Row) -> list[str]:
    known = {row["name"]: contradiction(row) for row in rows}
    wrong = [f"**{name}: {text}.**" for name, text in known.items() if text]
    warned = sum(bool(default_of(row).get("warnings")) for row in rows)
    shares = (
        f"{100 * within(raced, factor):.0f} % within {factor:g}" for factor in (settings["close"], settings["far"])
    )
    said = (
        f"{len(problems())} problems in the table, {len(rows)} of them here. On {len(raced)} several methods were "
        f"tried; the default: {', '.join(shares)} times the best (floor {FLOOR:g} s). It warned on {warned}."
    )
    return [said, *wrong]
