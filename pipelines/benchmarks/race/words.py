"""Sentences about contestants that are faster or better than dmkl, from the numbers."""

from __future__ import annotations

from pipelines.common.experiment import Row


def remarks(where: str, rows: list[Row], ours: str, quality: str) -> list[str]:
    """Sentences about the rows that beat dmkl in time or quality, or one that there are none."""
    own = next(row for row in rows if row["contestant"] == ours)
    others = [row for row in rows if not row["contestant"].startswith("dmkl, ")]
    others = [row for row in others if row is not own and row["seconds"] is not None]
    found = [_faster(row, own, quality) for row in others if _time(row) < _time(own)]
    better = [row for row in others if row.get(quality) is not None and row[quality] > own[quality]]
    found += [
        f"{row['contestant']} has the better {quality}, {row[quality]:.4f} against {own[quality]:.4f}" for row in better
    ]
    nearer = [row for row in others if row.get("off") is not None and row["off"] < own["off"]]
    found += [f"{row['contestant']} ends nearer to the optimum, {row['off']:.1e} off" for row in nearer]
    if not found:
        return [f"{where}: nobody here is faster or better than dmkl."]
    return [f"{where}: " + "; ".join(found) + "."]


def _time(row: Row) -> float:
    """Seconds to the goal if it was reached, else to the contestant's end."""
    goal = row.get("s to goal")
    return float(row["seconds"] if goal is None else goal)


def _faster(row: Row, own: Row, quality: str) -> str:
    """The contestants that are faster, and their results."""
    what = f"**{row['contestant']} is faster than dmkl**, {_time(row):.3g} s against {_time(own):.3g} s"
    if row.get("s to goal") is not None:
        return f"{what}, and within the same distance of the optimum"
    notes = []
    if row.get("off") is not None:
        notes.append(f"ends {row['off']:.1e} off where dmkl is {own['off']:.1e} off")
    if row.get(quality) is not None:
        notes.append(f"{quality} {row[quality]:.4f} against {own[quality]:.4f}")
    return f"{what} ({', '.join(notes)})" if notes else what
