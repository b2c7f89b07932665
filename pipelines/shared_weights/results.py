"""What a run leaves behind: markdown for people, JSON for programs, and lines on the way."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def progress(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A markdown table of these columns of the rows."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(_text(row.get(column, '')) for column in columns)} |" for row in rows]
    return "\n".join(lines)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show(parts: Sequence[str]) -> None:
    print("\n\n".join(parts) + "\n", flush=True)


def write(folder: Path, name: str, parts: Sequence[str], facts: Row) -> None:
    """`name.md` and `name.json` in the folder; replaced when the run knows more."""
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=1))


def goal(what: str, reached: float, sign: str, wanted: float) -> tuple[str, bool]:
    """A line on a goal, and whether it is missed; `sign` is '<' or '>='."""
    met = reached < wanted if sign == "<" else reached >= wanted
    return f"Goal: {what} {sign} {wanted:g}: {reached:.3g}, {'met' if met else 'MISSED'}.", not met
