"""The record of a whole run, `pipelines/results/NAME.json`. RESULTS.md is written from these files alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipelines.common.experiment import PIPELINES, Outcome, Row

RESULTS = PIPELINES / "results"


def path_of(name: str) -> Path:
    return RESULTS / f"{name.replace('/', '-')}.json"


def made(outcome: Outcome, settings: Row, machine: Row, date: str, seconds: float) -> Row:
    """The record of a run, as it is read back from a file."""
    record = {
        "date": date,
        "seconds": round(seconds, 1),
        "machine": machine,
        "settings": settings,
        "tables": [asdict(table) for table in outcome.tables],
        "goals": [asdict(goal) | {"met": goal.met} for goal in outcome.goals],
        "remarks": list(outcome.remarks),
        "figures": sorted(outcome.figures),
        "again": None,  # when a second run gave the same
    }
    return dict(json.loads(json.dumps(record)))


def differences(first: Row, second: Row) -> list[str]:
    """The differences of a second run from the first; every number that is not measured has to be the same."""
    if first["settings"] != second["settings"]:
        return ["the settings are others"]
    found = []
    tables = {"first": _numbers(first), "second": _numbers(second)}
    for place in sorted(set(tables["first"]) | set(tables["second"])):
        one, other = tables["first"].get(place, "nothing"), tables["second"].get(place, "nothing")
        if one != other:
            found.append(f"{place}: {one}, now {other}")
    return found


def changed_surroundings(first: Row, second: Row) -> list[str]:
    """The properties that change rounding and differ from the first run: processor, versions of packages."""
    before, now = ({"processor": run["machine"]["processor"], **run["machine"]["versions"]} for run in (first, second))
    return [f"{name} was {before.get(name)}, now {found}" for name, found in now.items() if before.get(name) != found]


def _numbers(record: Row) -> dict[str, Any]:
    """All numbers that a second run has to repeat, by the name of their place."""
    found = {}
    for table in record["tables"]:
        for number, row in enumerate(table["rows"], 1):
            for column, value in row.items():
                if column not in table["measured"]:
                    # repr keeps every digit, and makes nan equal to itself
                    found[f"{table['title']}, row {number}, {column}"] = repr(value)
    for goal in record["goals"]:
        if not goal["measured"]:
            found[f"goal: {goal['what']}"] = repr(goal["value"])
    return found


def write(record: Row, name: str) -> None:
    file = path_of(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    unfinished.replace(file)


def read(name: str) -> Row | None:
    file = path_of(name)
    return dict(json.loads(file.read_text())) if file.is_file() else None
