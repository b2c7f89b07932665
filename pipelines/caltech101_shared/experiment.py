"""Shared weights on Caltech-101: see experiment.toml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dmkl
from pipelines.caltech101_shared import walks
from pipelines.caltech101_shared.data import folds, loader
from pipelines.caltech101_shared.methods import AVERAGE, FORMULATIONS, L1, LP, MAX, SA, SUM, VSKL, trained
from pipelines.common.banks import Bank
from pipelines.common.drawing import Line, Panel
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table

Load = Callable[[int], Bank]
SHOWN = ("mAP", "accuracy", "SVM calls", "gap", "seconds")
OWN = (L1, LP, VSKL)  # weights of every class's own


def run(context: Context) -> Outcome:
    load = loader(context)
    chosen, searched = tuned(context, load)
    curve = curves(context, load, chosen)
    walked = studied(context, load)
    found = {method: over_splits(context, load, method, C) for method, C in chosen.items()}
    formats = dict.fromkeys(("mAP", "paper's mAP", "+-"), ".3f") | {"SVM calls": ".0f", "accuracy": ".3f"}
    last = max(row["round"] for row in walked)
    tables = (
        Table("Table 1: mean AUC-PR", compared(context, chosen, found), ("seconds",), formats),
        Table(
            "Kernel weights, mean over classes and splits", weights(context, found), formats=dict.fromkeys(found, ".3f")
        ),
        Table("C by cross-validation: mAP of the held-out images", searched, formats=dict.fromkeys(searched[0], ".3f")),
        Table("mAP at fixed gaps, first split", curve, ("seconds",), formats | {"mAP": ".4f"}),
        Table(
            f"delta and eta (0: scale-free) of SA's walk after {last} rounds, first split",
            [row for row in walked if row["round"] == last],
            formats={"mAP": ".4f", "objective": ".6g"},
            note="`moves`: how much the last step changed the average of the weights; the paper stops below 0.01.",
        ),
    )
    return Outcome(tables, goals(found), (remark(found, curve),), figures(context, curve, walked))


def tuned(context: Context, load: Load) -> tuple[dict[str, float], list[Row]]:
    """C of every method: the best of the grid by folds of the first split's training images."""
    settings = context.settings
    how: dict[str, Any] = {"folds": settings["folds"], "tol": settings["cv_tol"], "rule": "best"}

    def search(method: str) -> list[float]:
        bank = load(0)
        context.progress(f"C of {method}")
        if method == SA:  # it is stopped in its own way
            parts = list(folds(bank, settings["folds"]))
            return [mean([trained(part, SA, C, settings["cv_tol"]) for part in parts]) for C in settings["Cs"]]
        points = [FORMULATIONS[method](C=C) for C in settings["Cs"]]
        return [row.mean for row in dmkl.tune(bank.stack, bank.labels, points, **how).rows]

    chosen, rows = {}, []
    for method in FORMULATIONS:
        means = context.cell(f"C of {method}", lambda method=method: search(method))
        chosen[method] = settings["Cs"][int(np.argmax(means))]
        named = {f"C = {C:g}": mean for C, mean in zip(settings["Cs"], means, strict=True)}
        rows.append({"method": method} | named | {"chosen": f"{chosen[method]:g}"})
    return chosen, rows


def point(context: Context, load: Load, split: int, method: str, C: float, tol: float) -> Row:
    """One training."""

    def compute() -> Row:
        bank = load(split)
        context.progress(f"split {split}: {method}, C = {C:g}, to {tol:g}")
        return trained(bank, method, C, tol)

    return dict(context.cell(f"split {split} {method} {C} {tol}", compute))


def over_splits(context: Context, load: Load, method: str, C: float) -> list[Row]:
    return [
        point(context, load, split, method, C, context.settings["tol"]) for split in range(context.settings["splits"])
    ]


def compared(context: Context, chosen: dict[str, float], found: dict[str, list[Row]]) -> list[Row]:
    """Means over splits beside the paper's."""
    rows = []
    for method, C in chosen.items():
        means = {key: float(np.mean([row[key] for row in found[method]])) for key in SHOWN}
        paper = {f"paper's {key}": context.paper[key].get(method) for key in ("mAP", "seconds")}
        row = {
            "method": method,
            "C": C,
            "mAP": means.pop("mAP"),
            "+-": float(np.std([r["mAP"] for r in found[method]])),
        }
        rows.append(row | {"paper's mAP": paper.pop("paper's mAP")} | means | paper)
    return rows


def weights(context: Context, found: dict[str, list[Row]]) -> list[Row]:
    shares = {method: np.mean([row["shares"] for row in rows], axis=0) for method, rows in found.items()}
    return [
        {"kernel": view} | {method: float(share[a]) for method, share in shares.items()}
        for a, view in enumerate(context.settings["views"])
    ]


def curves(context: Context, load: Load, chosen: dict[str, float]) -> list[Row]:
    """Every point is a training from a cold start."""
    rows = []
    for method in (MAX, SUM, L1, VSKL, AVERAGE):
        for tol in context.settings["tols"]:
            found = point(context, load, 0, method, chosen[method], tol)
            rows.append({"method": method, "tol": tol} | {key: found[key] for key in SHOWN})
    return rows


def studied(context: Context, load: Load) -> list[Row]:
    """delta and eta, a cell each."""
    settings, rows = context.settings, []
    points = {(delta, 0.0) for delta in settings["deltas"]} | {(0.2, eta) for eta in settings["etas"]}
    for delta, eta in sorted(points):

        def compute(delta: float = delta, eta: float = eta) -> list[Row]:
            bank = load(0)
            context.progress(f"delta {delta:g}, eta {eta:g}")
            return walks.course(bank, settings["walk_C"], delta, eta, settings["walk_rounds"])

        rows += context.cell(f"walk {delta} {eta}", compute)
    return rows


def mean(rows: list[Row], key: str = "mAP") -> float:
    return float(np.mean([row[key] for row in rows]))


def goals(found: dict[str, list[Row]]) -> tuple[Goal, ...]:
    own = max(mean(found[method]) for method in OWN)
    return tuple(
        Goal(f"mean AUC-PR of {method} less {what}", mean(found[method]) - other, ">=", 0.0)
        for method in (SA, SUM)
        for what, other in (("the average kernel's", mean(found[AVERAGE])), ("the best with weights a class", own))
    )


def remark(found: dict[str, list[Row]], curve: list[Row]) -> str:
    """Times and SVM calls of SA and Sum, and what closing the gap for the worst class does."""
    seconds, calls = ({m: mean(found[m], key) for m in (SA, SUM, L1)} for key in ("seconds", "SVM calls"))
    ends = [row for row in curve if row["method"] == MAX]
    walked = [f"{row['steps']} calls, gap {row['gap']:.2g}" for row in found[SA]]
    text = (
        f"SA takes {seconds[SA]:.1f} s and {calls[SA]:.0f} SVM calls, Sum {seconds[SUM]:.1f} s and {calls[SUM]:.0f}, "
        f"L1MKL of every class {seconds[L1]:.1f} s. The paper's rule stopped SA's walks after {'; '.join(walked)}. "
        f"Closing the gap for the worst class takes mAP from {ends[0]['mAP']:.3f} (gap {ends[0]['gap']:.2g}) to "
        f"{ends[-1]['mAP']:.3f} (gap {ends[-1]['gap']:.2g})"
    )
    outlier = "the worst class is an outlier, and weights that serve it best serve the others less"
    return f"{text}: {outlier}." if ends[-1]["mAP"] < ends[0]["mAP"] else f"{text}."


def figures(context: Context, curve: list[Row], walked: list[Row]) -> dict[str, list[Panel]]:
    panels = []
    for key, across in (("seconds", "seconds of training"), ("SVM calls", "SVM calls")):
        lines = []
        for number, method in enumerate(dict.fromkeys(row["method"] for row in curve)):
            mine = sorted((row for row in curve if row["method"] == method), key=lambda row: row[key])
            lines.append(Line(method, [r[key] for r in mine], [r["mAP"] for r in mine], colour=f"C{number}"))
        panels.append(Panel("Caltech-101 30/15, first split", across, "mean AUC-PR", lines, ("log", "linear")))
    delta = walks.panels([row for row in walked if row["eta"] == 0.0], "delta")
    eta = walks.panels([row for row in walked if row["delta"] == 0.2], "eta")
    return {"caltech101-shared-time": panels, "caltech101-shared-walk": delta + eta}
