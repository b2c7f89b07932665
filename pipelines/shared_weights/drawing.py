"""SVG drawings of the curves; matplotlib is imported here and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.shared_weights.results import Row


@contextmanager
def _figure(path: Path, panels: int) -> Iterator[Any]:
    """Axes to draw on; None, and a line that says so, where there is no matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print(f"{path} is not drawn: matplotlib is missing (pip install matplotlib)", file=sys.stderr)
        yield None
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, panels, figsize=(6.4 * panels, 4.4), squeeze=False, layout="constrained")
    yield axes[0]
    figure.savefig(path)
    pyplot.close(figure)


def _groups(rows: Iterable[Row], key: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def curves(path: Path, title: str, rows: list[Row]) -> None:
    """Mean average precision over seconds of training, a line a method."""
    with _figure(path, 1) as axes:
        if axes is None:
            return
        for method, points in _groups(rows, "method").items():
            points = sorted(points, key=lambda row: row["seconds"])
            axes[0].plot([p["seconds"] for p in points], [p["mAP"] for p in points], marker="o", label=method)
        axes[0].set(title=title, xscale="log", xlabel="seconds of training", ylabel="mean average precision (test)")
        axes[0].legend(fontsize="small")


def sensitivity(path: Path, what: str, rows: list[Row]) -> None:
    """Mean average precision and certified gap over SVM calls, a line a value of the parameter."""
    with _figure(path, 2) as axes:
        if axes is None:
            return
        for value, points in _groups(rows, what).items():
            label = "eta scale-free" if (what, value) == ("eta", 0.0) else f"{what} = {value:g}"
            for axis, measure in zip(axes, ("mAP", "gap"), strict=True):
                axis.plot([p["SVM calls"] for p in points], [p[measure] for p in points], marker="o", label=label)
        axes[0].set(xlabel="SVM calls", ylabel="mean average precision (test)")
        axes[1].set(xlabel="SVM calls", ylabel="certified gap", yscale="log")
        axes[0].legend(fontsize="small")
