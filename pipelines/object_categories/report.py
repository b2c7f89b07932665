"""The table of a run: markdown for people, JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.object_categories.datasets import Collection
from pipelines.object_categories.journal import Journal
from pipelines.object_categories.kernels import Setting, kernel_name
from pipelines.object_categories.methods import METHODS, SINGLE, VSKLS

COLUMNS = (
    "method",
    "accuracy %",
    "in selection %",
    "SVM calls a class",
    "passes",
    "seconds",
    "active kernels",
    "worst gap",
    "paper",
)
BY_CV = "VSKL, q by cross-validation"
Cell = dict[str, Any]


def collect(collection: Collection, journal: Journal, splits: int) -> list[Cell]:
    """A row a method: means over splits, and what was chosen in each."""
    cells = {method: [journal.cells[f"final {i} {method}"] for i in range(splits)] for method in METHODS}
    best = [max(VSKLS, key=lambda method, i=i: cells[method][i]["choice"]["accuracy"]) for i in range(splits)]
    cells[BY_CV] = [cells[method][i] for i, method in enumerate(best)]
    order = [*VSKLS, BY_CV, *(method for method in METHODS if method not in VSKLS)]
    return [_row(collection, method, cells[method], best if method == BY_CV else None) for method in order]


def _row(collection: Collection, method: str, found: list[Cell], best: list[str] | None) -> Cell:
    row = {
        name: float(np.mean([cell[name] for cell in found])) for name in ("svm_calls", "passes", "seconds", "active")
    }
    chosen = [_chosen(collection, cell["choice"]) for cell in found]
    if best:
        chosen = [f"{name.removeprefix('VSKL ')}, {text}" for name, text in zip(best, chosen, strict=True)]
    accuracies = [cell["accuracy"] for cell in found]
    return row | {
        "method": method,
        "accuracy": float(np.mean(accuracies)),
        "std": float(np.std(accuracies, ddof=min(1, len(accuracies) - 1))),
        "accuracies": accuracies,
        "cv_accuracy": float(np.mean([cell["choice"]["accuracy"] for cell in found])),
        "chosen": chosen,
        "gap": max(cell["gap"] for cell in found),
        "shares": np.mean([cell["shares"] for cell in found], axis=0).tolist() if method != SINGLE else None,
        "paper": collection.paper.get(method, ""),
    }


def _chosen(collection: Collection, choice: Cell) -> str:
    setting = Setting(**choice["setting"])
    kernel = "" if choice["kernel"] is None else f"{kernel_name(collection.views, choice['kernel'], setting.scale)}, "
    return f"{kernel}{setting}, C = {choice['C']:g}"


def markdown(collection: Collection, rows: list[Cell], splits: int, quick: bool) -> str:
    lines = [
        f"# {collection.about}{' (quick: some of the classes)' if quick else ''}",
        "",
        f"{splits} splits, {len(rows[0]['shares'])} kernels of {len(collection.views)} views; mean accuracy a class.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for row in rows:
        lines.append(
            f"| {row['method']} | {100 * row['accuracy']:.2f} +- {100 * row['std']:.2f} "
            f"| {100 * row['cv_accuracy']:.2f} | {row['svm_calls']:.1f} | {row['passes']:.1f} | {row['seconds']:.1f} "
            f"| {row['active']:.1f} | {row['gap']:.1e} | {row['paper']} |"
        )
    lines += ["", "Chosen, split by split:", ""]
    lines += [f"* {row['method']}: {'; '.join(row['chosen'])}" for row in rows]
    if collection.paper:
        lines += ["", f"Paper: Table 1, accuracy % (SVM calls). {collection.differs}"]
    return "\n".join(lines) + "\n"


def write(collection: Collection, journal: Journal, splits: int, folder: Path, quick: bool) -> str:
    """`table.md` and `table.json` in the folder; the text of the former."""
    rows = collect(collection, journal, splits)
    text = markdown(collection, rows, splits, quick)
    (folder / "table.md").write_text(text)
    (folder / "table.json").write_text(json.dumps({"data": collection.name, "splits": splits, "rows": rows}, indent=1))
    return text
