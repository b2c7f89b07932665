"""RESULTS.md, written from the records of all experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.common import claims
from pipelines.common.experiment import PIPELINES, Experiment, Row, known
from pipelines.common.record import path_of, read

FILE = PIPELINES / "RESULTS.md"
HEAD = """# Results

Written by `python -m pipelines.run`, never by hand, from the records in `pipelines/results/`, which hold the numbers
of the whole run of each experiment. `python -m pipelines.run NAME` repeats one, `--again` repeats it and compares: all
numbers except times and memory must be the same to the last digit. That holds on one model of processor: another
rounds sums in another order, so that last digits differ, and occasionally a count that depends on them. Data:
`../shared/DATA.md`.
"""

CLAIMS = """
## The papers' tables and figures

Each line is a claim of a paper, and the outcome of the experiment here that tests it. A number is that of the goal in
the experiment's chapter, with the limit in brackets.
"""


def markdown() -> str:
    """The page."""
    parts = [HEAD, CLAIMS, table_text(claims.rows(_anchor), {}), "## The experiments", _overview()]
    for name in known():
        experiment, record = Experiment.load(name), read(name)
        parts.append(_chapter(experiment, record))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def write() -> None:
    FILE.write_text(markdown())


def shown(title: str, record: Row, figures: str = "results") -> str:
    """The results of one run, below a heading."""
    parts = [f"## {title}"]
    for table in (table for table in record["tables"] if table["rows"] and table.get("shown", True)):
        parts += [f"**{table['title']}**", table_text(table["rows"], table["formats"]), table["note"]]
    parts += [f"![{figure}]({figures}/{figure}.svg)" for figure in record["figures"]]
    parts.append("\n".join(_goal(goal) for goal in record["goals"]))
    parts += record["remarks"]
    return "\n\n".join(part for part in parts if part)


def table_text(rows: Sequence[Row], formats: dict[str, str]) -> str:
    """A markdown table."""
    if not rows:
        return ""
    columns = list(rows[0])
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(_cell(row.get(column), formats.get(column, '.4g')) for column in columns)} |")
    return "\n".join(lines)


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    return f"{value:{form}}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _goal(goal: Row) -> str:
    met = "met" if goal["met"] else "**MISSED**"
    return f"* {goal['what']}: {goal['value']:.4g} {goal['sign']} {goal['limit']:g}, {met}"


def _overview() -> str:
    rows = []
    for name in known():
        record = read(name)
        if record is None:
            rows.append({"experiment": name, "run": "not yet", "minutes": None, "again": "", "goals": "", "commit": ""})
            continue
        met = sum(goal["met"] for goal in record["goals"])
        rows.append(
            {
                "experiment": f"[{name}](#{_anchor(Experiment.load(name).words['title'])})",
                "run": record["date"],
                "minutes": record["seconds"] / 60,
                "again": f"the same, {record['again']}" if record["again"] else "not yet",
                "goals": f"{met} of {len(record['goals'])} met" if record["goals"] else "",
                "commit": record["machine"]["commit"],
            }
        )
    return table_text(rows, {"minutes": ".1f"})


def _chapter(experiment: Experiment, record: Row | None) -> str:
    words = experiment.words
    about = "\n\n".join(words[key].strip() for key in ("about", "differs") if key in words)
    if record is None:
        return f"## {words['title']}\n\n{about}\n\nNot run yet: `python -m pipelines.run {experiment.name}`."
    heading, rest = shown(words["title"], record).split("\n\n", 1)
    return "\n\n".join([heading, about, rest, _origin(experiment.name, record)])


def _origin(name: str, record: Row) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items())
    return (
        f"<sub>`python -m pipelines.run {name}` on {record['date']}: {record['seconds'] / 60:.1f} minutes, "
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory GB']} GB, load {machine['load']} before; "
        f"commit {machine['commit']}; {versions}. Settings and seeds: "
        f"[experiment.toml]({name}/experiment.toml), [record](results/{path_of(name).name}).</sub>"
    )


def _anchor(title: str) -> str:
    """The anchor that GitHub gives to a heading."""
    kept = [c for c in title.lower() if c.isalnum() or c in " -_"]
    return "".join(kept).replace(" ", "-")
