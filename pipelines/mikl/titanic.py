"""The data and the three kernels, and tables of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dmkl
from pipelines.common.data import data_file

NORMS = ("1", "2", "21;1", "21;2", "12;1", "12;2")
KERNELS = ("Good: linear", "Bad: Gaussian, width 0.1", "Ugly: Gaussian, width 100")


@dataclass(frozen=True)
class Titanic:
    X: np.ndarray
    y: np.ndarray
    splits: np.ndarray  # rows of training samples


def titanic() -> Titanic:
    found = np.load(data_file("titanic.npz", "the IDA benchmark's; see ../shared/DATA.md"))
    return Titanic(found["X"].astype(np.float64), found["y"].astype(np.int64), found["train_idx"])


def kernels(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """(3, len(X), len(Z)): the Good, the Bad and the Ugly."""
    inner = X @ Z.T
    distances = np.maximum((X**2).sum(1)[:, None] + (Z**2).sum(1) - 2 * inner, 0.0)
    return np.stack([inner, np.exp(-distances / (2 * 0.1**2)), np.exp(-distances / (2 * 100.0**2))])


def error(K: np.ndarray, alpha: np.ndarray, y: np.ndarray) -> float:
    """Percent of wrong signs: K (s, training, new), alpha (training, s)."""
    scores = np.einsum("aij,ia->j", K, alpha)
    return 100.0 * float(((scores > 0) != (y > 0)).mean())


def path(K: np.ndarray, y: np.ndarray, norm: str, lams: np.ndarray, tol: float) -> list[dmkl.Fit]:
    """Fits for every lam, from the largest on."""
    stack = dmkl.KernelStack.from_array(K, workers=1)
    return list(dmkl.solve_path(stack, y, [dmkl.MIKL(norm=norm, lam=float(lam)) for lam in lams], tol=tol))


def table(file: Path, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table and keep it."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    top = "| " + " | ".join(cell.ljust(width) for cell, width in zip(heads, widths, strict=True)) + " |"
    text = "\n".join([top, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines])
    print(text, flush=True)
    file.write_text(text + "\n")
