"""The table of the race in README.md, written from the record of its whole run.

python -m pipelines.benchmarks.race.readme
"""

from __future__ import annotations

from pathlib import Path

from pipelines.common.experiment import PIPELINES, Row
from pipelines.common.record import read
from pipelines.common.results import table_text

FILE = PIPELINES.parent / "README.md"
BEGIN, END = "<!-- race -->", "<!-- /race -->"
NAME = "benchmarks/race"
COLUMNS = ("contestant", "seconds", "s to goal", "off", "accuracy", "peak MB")
FORMATS = {"seconds": ".2f", "s to goal": ".2f", "off": ".0e", "accuracy": ".3f", "peak MB": ".0f", "R2": ".3f"}
WORDS = """Seconds of the fit alone, one thread, on the machine RESULTS.md names; `s to goal`: when a contestant's
weights were as near to the optimum as dmkl *proves* to be (A and B 1e-4, C 1e-2); `off`: how far its last ones are."""


def table(record: Row | None) -> str:
    """The text between the two comments."""
    if record is None:
        return f"Not run yet: `python -m pipelines.run {NAME}`."
    rows = [
        {"problem": _short(part["title"])} | {name: row.get(name) for name in (*COLUMNS, "R2")}
        for part in record["tables"]
        for row in part["rows"]
    ]
    return f"{WORDS}\n\n{table_text(rows, FORMATS)}\n\n" + "\n".join(f"* {text}" for text in _said(record))


def drawn(text: str, record: Row | None) -> str:
    """README with the table of the record."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(record)}\n{END}{after}"


def main(file: Path = FILE) -> None:
    file.write_text(drawn(file.read_text(), read(NAME)))


def _short(title: str) -> str:
    """ "Problem A: 351 samples, ..." is A, "Ridge: ..." is ridge."""
    return title.split(":")[0].removeprefix("Problem ").replace("Ridge", "ridge")


def _said(record: Row) -> list[str]:
    return [text for text in record["remarks"] if text.startswith(("Problem", "Ridge"))]


if __name__ == "__main__":
    main()
