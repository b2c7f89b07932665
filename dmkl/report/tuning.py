"""What `dmkl tune` left in the run directory: the combinations it tried, and its drawing."""

from __future__ import annotations

import base64
from typing import Any

from dmkl.report.contents import Contents
from dmkl.report.markup import Raw, figure, section, table

SHOWN = 100


def tuning(contents: Contents) -> Raw:
    drawn = _drawing(contents.tuning_drawing) if contents.tuning_drawing else ""
    return section("tuning", "Tuning", _listed(_rows(contents.tuning)), drawn)


def _listed(rows: list[dict[str, Any]]) -> Raw:
    if not rows:
        return Raw("")
    names = list(dict.fromkeys(name for row in rows for name in row))
    caption = "Combinations tried" if len(rows) <= SHOWN else f"The first {SHOWN} of {len(rows):,} combinations tried"
    return table(caption, names, [[row.get(name, "") for name in names] for row in rows[:SHOWN]])


def _rows(found: Any) -> list[dict[str, Any]]:
    """The longest list of tables in it, each with its plain values; tables inside tables become columns."""
    if isinstance(found, dict):
        return max((_rows(value) for value in found.values()), key=len, default=[])
    if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
        return [_flat(row) for row in found]
    return []


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            plain |= {f"{name}.{key}": item for key, item in _flat(value).items()}
        elif isinstance(value, str | int | float):
            plain[name] = value
    return plain


def _drawing(svg: str) -> Raw:
    """As a picture: whatever is in the file, nothing of it runs or is fetched."""
    source = base64.b64encode(svg.encode()).decode()
    return figure(
        "Tuning", Raw(f'<img alt="scores of the combinations tried" src="data:image/svg+xml;base64,{source}">')
    )
