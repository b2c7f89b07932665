"""SVG drawings; matplotlib is imported here and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "o-"
    colour: str = "C0"
    error: Sequence[float] | None = None  # half the height of bars


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    across: str
    up: str
    lines: Sequence[Line]
    scales: tuple[str, str] = ("log", "log")


def draw(path: Path, panels: Sequence[Panel], columns: int = 2) -> bool:
    """Draw the panels in rows of two; without matplotlib, print a line instead."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print(f"{path} is not drawn: matplotlib is missing (pip install 'dmkl[plot]')", file=sys.stderr)
        return False
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = path.name  # the same bytes for the same figures
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (6.4 * columns, 4.4 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes.flat, panels, strict=False):
        for line in panel.lines:
            options = {"color": line.colour, "label": line.label, "markersize": 4}
            if line.error is None:
                axis.plot(line.x, line.y, line.style, **options)
            else:
                axis.errorbar(line.x, line.y, line.error, fmt=line.style, capsize=3, **options)
        across, up = panel.scales
        axis.set(title=panel.title, xlabel=panel.across, ylabel=panel.up, xscale=across, yscale=up)
        axis.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
