"""Tables and sentences about the results of `protocol.compare`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.common.categories.methods import SINGLE, SUM, VSKLS
from pipelines.common.categories.protocol import Collection, Found, compare
from pipelines.common.differences import SURE, corrected_t
from pipelines.common.experiment import Context, Goal, Outcome, Row, Table
from pipelines.common.views import Split

BY_CV, TUNED = "VSKL, q by validation", "bank by validation"
EDGE = 2.0  # points above the SVM on the sum that issue 11 asks for
ALIKE, ALIKE_POINTS = "most accurate less least accurate way to combine all kernels, points", 1.0
Cells = list[dict[str, Row]]


def with_q(cells: Cells) -> Cells:
    """With VSKL at the q that did best in validation."""
    found = []
    for cell in cells:
        names = [name for name in VSKLS if name in cell]
        best = max(names, key=lambda name: cell[name]["validation"])
        found.append({name: cell[name] for name in names} | {BY_CV: cell[best]} | cell)
    return found


def mean(cells: Cells, method: str, what: str) -> float:
    return float(np.mean([cell[method][what] for cell in cells]))


def methods_table(title: str, cells: Cells, paper: dict[str, Any], note: str = "") -> Table:
    """A row a method, means over splits, beside the paper's."""
    rows, here = [], with_q(cells)
    even = all(abs(row["accuracy"] - row["overall"]) < 1e-9 for cell in here for row in cell.values())
    for method in here[0]:
        values = [cell[method]["accuracy"] for cell in here]
        row: Row = {"method": method, "accuracy %": float(np.mean(values)), "±": float(np.std(values))}
        row |= {} if even else {"of all samples %": mean(here, method, "overall")}
        if paper:
            row["paper %"], row["paper: SVM calls"] = paper.get(method, (None, None))
        row |= {"SVM calls": mean(here, method, "calls"), "passes": mean(here, method, "passes")}
        row |= {"seconds": mean(here, method, "seconds"), "kernels used": mean(here, method, "active")}
        row["C"] = ", ".join(f"{C:g}" for C in sorted({cell[method]["C"] for cell in here}))
        row["largest gap"] = max(cell[method]["gap"] for cell in here)
        rows.append(row)
    forms = dict.fromkeys(("accuracy %", "of all samples %", "paper %", "±", "seconds"), ".2f") | {"largest gap": ".1e"}
    forms |= dict.fromkeys(("SVM calls", "passes", "kernels used"), ".1f")
    said = (
        f"Means over {len(cells)} splits; accuracy is the mean over classes, ± its deviation; SVM calls are a class's."
    )
    return Table(title, rows, ("seconds",), forms, f"{said} {note}".strip())


def differences_table(title: str, cells: Cells, split: Split) -> Table:
    """VSKL, q chosen by validation, against the others, split by split."""
    held_out = len(split.test) / (len(split.train) + len(split.test))
    rows: list[Row] = []
    for method, less in margins(cells).items():
        p = corrected_t(less, held_out)
        verdict = "no difference" if p >= SURE else "better" if less.mean() > 0 else "worse"
        rows.append({"against": method, "points more": less.mean(), "±": less.std(), "p": p, "VSKL is": verdict})
    note = f"{BY_CV}. p is that of the corrected t test of Nadeau and Bengio (2003) over {len(cells)} splits."
    return Table(title, rows, (), {"points more": ".2f", "±": ".2f", "p": ".3f"}, note)


def margins(cells: Cells) -> dict[str, NDArray[np.float64]]:
    """By how many points VSKL, q chosen by validation, is more accurate than each of the others, split by split."""
    here = with_q(cells)
    others = [method for method in here[0] if method != BY_CV and method not in VSKLS]
    return {
        method: np.array([cell[BY_CV]["accuracy"] - cell[method]["accuracy"] for cell in here]) for method in others
    }


def spread(cells: Cells) -> float:
    """Points between the most and the least accurate way to combine all kernels."""
    means = [mean(cells, method, "accuracy") for method in cells[0] if method != SINGLE]
    return max(means) - min(means)


def banks_table(title: str, found: Found, banks: dict[str, Row]) -> Table:
    """All banks, one a row: accuracies of all methods, and the best VSKL less the SVM on the sum."""
    rows: list[Row] = []
    shared = min(len(cells) for cells in found.values())
    for name, cells in [*found.items(), (TUNED, tuned(found, shared))]:
        here = with_q(cells)
        row: Row = {"bank": name, "widths": _widths(banks.get(name)), "splits": len(cells)}
        row |= {method: mean(here, method, "accuracy") for method in here[0]}
        rows.append(row | {"best VSKL less sum": edge(cells)})
    forms = dict.fromkeys([column for column in rows[0] if column not in ("bank", "widths", "splits")], ".1f")
    note = f"'{TUNED}' takes, in each split and for each method, the bank that did best in its validation."
    return Table(title, rows, (), forms, note)


def _widths(bank: Row | None) -> str:
    return " ".join(f"{width:g}" for width in bank["widths"]) if bank else ""


def tuned(found: Found, splits: int) -> Cells:
    """For every split and method, the bank with the best validation; of equal ones the best for all methods."""
    cells = []
    for number in range(splits):
        banks = [cells[number] for cells in found.values()]
        overall = [np.mean([row["validation"] for row in bank.values()]) for bank in banks]
        ranked = {
            method: max(range(len(banks)), key=lambda b, m=method: (round(banks[b][m]["validation"], 9), overall[b]))
            for method in banks[0]
        }
        cells.append({method: banks[best][method] for method, best in ranked.items()})
    return cells


def edge(cells: Cells) -> float:
    """Points that VSKL with the best q is above the SVM on the sum, in the mean over splits."""
    best = max(mean(cells, method, "accuracy") for method in VSKLS if method in cells[0])
    return best - mean(cells, SUM, "accuracy")


def sentences(found: Found) -> list[str]:
    """Under which banks VSKL is two points above the SVM on the sum, and under which not."""
    shared = min(len(cells) for cells in found.values())
    edges = {name: edge(cells) for name, cells in [*found.items(), (TUNED, tuned(found, shared))]}
    above = [f"{name} ({value:+.1f})" for name, value in edges.items() if value >= EDGE]
    level = [f"{name} ({value:+.1f})" for name, value in edges.items() if abs(value) < EDGE]
    below = [f"{name} ({value:+.1f})" for name, value in edges.items() if value <= -EDGE]
    kinds = (
        ("is two points or more above", above),
        ("is within two points of", level),
        ("is two or more below", below),
    )
    best, bank = max((mean(cells, m, "accuracy"), f"{m}, {name}") for name, cells in found.items() for m in cells[0])
    parts = [
        f"VSKL with the best q {words} the SVM on the sum of the same kernels: {', '.join(k)}."
        for words, k in kinds
        if k
    ]
    single = max(mean(cells, SINGLE, "accuracy") for cells in found.values())
    return [
        *parts,
        f"The best of all: {best:.1f} % ({bank}); the best single kernel, bank by bank, reaches {single:.1f} %.",
    ]


def outcome(context: Context, collection: Collection) -> Outcome:
    """The usual one: `main` is the bank of the first table, or 'bank by validation'."""
    settings, whole = context.settings, not context.settings["classes"]
    banks = {name: bank | ({"splits": 1} if context.quick else {}) for name, bank in settings["banks"].items()}
    found = compare(context, collection.fewer(settings["classes"]), banks)
    main = settings["main"]
    cells = tuned(found, min(len(cells) for cells in found.values())) if main == TUNED else found[main]
    tables = (
        methods_table(f"Widths: {main}", cells, context.paper if whole else {}),
        differences_table("VSKL against the others", cells, collection.splits[0]),
        banks_table("Every bank of widths", found, banks),
    )
    goals = []
    if context.paper:
        theirs = [value[0] for value in context.paper.values()]
        what = f"{ALIKE} (the paper's: {max(theirs) - min(theirs):.2f})"
        goals = [Goal(what, spread(cells), "<=", ALIKE_POINTS)]
    return Outcome(tables, goals, sentences(found))
