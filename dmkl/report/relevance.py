"""Relevance maps: which coefficients of which kernels a model uses, as in figure 2 of the MIKL paper."""

from __future__ import annotations

import html

import numpy as np

from dmkl.model import Model

MAPS = 6  # outputs that are drawn
ACROSS = 300  # cells in a row; more samples share cells, each showing its largest
KERNELS = 40  # rows: those with the largest coefficients
CELL, HEIGHT, TEXT = 2, 14, 220  # pixels; TEXT for the kernels' names


def relevance_maps(model: Model) -> str:
    """A section with one map an output; nothing for models whose coefficients all kernels share."""
    if not model.per_kernel or not len(model.coef):
        return ""
    maps = "".join(
        f"<h3>{html.escape(name)}</h3>{_map(model, k)}" for k, name in enumerate(model.outputs[:MAPS]) if name
    )
    more = f"<p>{len(model.outputs) - MAPS} more are in the model.</p>" if len(model.outputs) > MAPS else ""
    return (
        "<h2>Relevance</h2><p>Support samples from left to right, kernels from top to bottom; the darker, the larger "
        f"the coefficient.</p>{maps}{more}"
    )


def _map(model: Model, k: int) -> str:
    sizes = np.abs(model.relevance(k)).T
    largest = sizes.max(axis=1)
    shown = np.sort(np.argsort(-largest, kind="stable")[:KERNELS])
    step = -(-sizes.shape[1] // ACROSS)
    starts = np.arange(0, sizes.shape[1], step)
    shades = np.maximum.reduceat(sizes[shown], starts, axis=1) / max(float(largest.max()), 1e-300)
    cells = "".join(
        f'<rect x="{TEXT + CELL * x}" y="{HEIGHT * row}" width="{CELL}" height="{HEIGHT - 2}" '
        f'fill-opacity="{shades[row, x]:.2f}"/>'
        for row, x in np.argwhere(shades >= 0.005)
    )
    names = "".join(
        f'<text x="{TEXT - 6}" y="{HEIGHT * row + 10}">{html.escape(model.bank.kernels[a].name[:36])}</text>'
        for row, a in enumerate(shown)
    )
    size = f'width="{TEXT + CELL * len(starts)}" height="{HEIGHT * len(shown)}"'
    return (
        f'<svg {size} role="img" style="max-width:100%"><g fill="currentColor" font-size="10" text-anchor="end">'
        f'{names}</g><g fill="var(--bar)">{cells}</g></svg>'
    )
