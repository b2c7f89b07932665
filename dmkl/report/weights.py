"""Which kernels count: by group, the largest, class by class, and how few they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.model import Model, support_per_class
from dmkl.report.charts import Axis, Series, histogram, line_chart
from dmkl.report.contents import Contents, noun
from dmkl.report.images import BLUE, levels, picture, shades, shrink
from dmkl.report.markup import Raw, bar, details, figure, heading, paragraph, percent, section, table, text

GROUPS, KERNELS = 20, 20  # in sight; what more there are is summed in one row
LISTED = 400  # kernels behind a click
STRIPES = 40  # classes with a row of their own in the heat map
ACROSS, DOWN = 600, 300  # dots of a heat map at most
ENOUGH = 10  # outputs or kernels from which a distribution says something


def weights(contents: Contents) -> Raw:
    model = contents.model
    if model is None:
        return Raw("")
    mean = np.abs(model.weights).mean(axis=0)
    share = mean / (mean.sum() or 1.0)
    return section(
        "weights",
        "Kernel weights",
        paragraph(_words(model)),
        _by_group(model, share),
        _largest(model, share),
        _heat_map(model) if len(model.weights) > 1 and not _alike(model) else "",
    )


def sparsity(contents: Contents) -> Raw:
    """How few kernels and samples the model needs."""
    model = contents.model
    if model is None:
        return Raw("")
    used = (np.abs(model.weights) > 0).sum(axis=1)
    support = np.array(list(support_per_class(model)))
    rows = [
        ("kernels with weight", int((np.abs(model.weights) > 0).any(axis=0).sum()), len(model.bank), *_spread(used)),
        ("samples with a coefficient", int(np.any(model.coef, axis=1).sum()), model.bank.n, *_spread(support)),
    ]
    heads = ["", "in all", "of", *(f"{word} a {noun(model)}" for word in ("fewest", "median", "most"))]
    shown = len(heads) if len(used) > 1 else 3
    parts = [table("What the model needs", heads[:shown], [row[:shown] for row in rows])]
    share = np.sort(np.abs(model.weights).mean(axis=0))[::-1]
    if len(share) >= ENOUGH and share.sum() > 0:
        total = np.concatenate([[0.0], np.cumsum(share) / share.sum()])
        picked = np.unique(np.linspace(0, len(share), 121).astype(int))
        curve = Series("", [(float(k), float(total[k])) for k in picked])
        axes = Axis("kernels, the heaviest first", 0, len(share)), Axis("share of all weight", 0, 1)
        parts.append(line_chart("How much of all weight the heaviest kernels have together", [curve], *axes))
    if len(support) >= ENOUGH and support.min() < support.max():
        counts, edges = np.histogram(support, bins=min(20, len(np.unique(support))))
        caption = f"Samples with a coefficient: how many {noun(model, 2)} need how many"
        parts.append(histogram(caption, "samples with a coefficient", counts.tolist(), edges.tolist()))
    charts = Raw(f'<div class="pair">{"".join(parts[1:])}</div>') if len(parts) > 1 else Raw("")
    return section("sparsity", "Sparsity", parts[0], charts)


def _words(model: Model) -> str:
    if model.per_kernel:
        return "Every sample has a coefficient for every kernel; a kernel's weight is its share of them."
    if _alike(model):
        return f"One combination of kernels serves all {noun(model, 2)}."
    several = len(model.weights) > 1
    return f"Each {noun(model)} has weights of its own; the shares are of their means." if several else ""


def _alike(model: Model) -> bool:
    return len(model.weights) > 1 and bool((model.weights == model.weights[0]).all())


def _spread(counts: NDArray[Any]) -> tuple[int, float, int]:
    return int(counts.min()), float(np.median(counts)), int(counts.max())


def _by_group(model: Model, share: Float64) -> Raw:
    groups = model.bank.groups
    names = list(dict.fromkeys(kernel.group for kernel in model.bank.kernels))
    if len(names) < 2:
        return Raw("")
    total = np.bincount(groups, weights=share)
    used, size = np.bincount(groups, weights=share > 0), np.bincount(groups)
    order = np.argsort(-total, kind="stable")
    rows = [
        (names[g], int(used[g]), int(size[g]), percent(total[g]), bar(total[g] / total.max() if total.max() else 0))
        for g in order[:GROUPS]
    ]
    rest = order[GROUPS:]
    if len(rest):
        words = f"the other {len(rest):,} groups"
        rows.append((words, int(used[rest].sum()), int(size[rest].sum()), percent(float(total[rest].sum())), Raw("")))
    return table("Weight by group", ["group", "kernels used", "of", "share", ""], rows)


def _largest(model: Model, share: Float64) -> Raw:
    order = np.argsort(-share, kind="stable")
    rows = _kernel_rows(model, share, order[:KERNELS])
    rest = order[KERNELS:]
    if len(rest):
        counted = int((share[rest] > 0).sum())
        words = f"the other {len(rest):,} ({counted:,} with weight)"
        rows.append((words, "", percent(float(share[rest].sum())), Raw(""), *([""] if len(model.weights) > 1 else [])))
    heads = ["kernel", "group", "share", "", *([f"{noun(model, 2)} that use it"] if len(model.weights) > 1 else [])]
    shown = table("The heaviest kernels", heads, rows)
    more = rest[:LISTED][share[rest[:LISTED]] > 0]
    if not len(more):
        return shown
    return Raw(shown + details(f"{len(more):,} more kernels", table("More", heads, _kernel_rows(model, share, more))))


def _kernel_rows(model: Model, share: Float64, chosen: NDArray[np.int64]) -> list[tuple[Any, ...]]:
    using = (np.abs(model.weights) > 0).sum(axis=0)
    largest = share.max() or 1.0
    several = len(model.weights) > 1
    return [
        (
            model.bank.kernels[a].name,
            model.bank.kernels[a].group,
            percent(share[a]),
            bar(share[a] / largest),
            *([int(using[a])] if several else []),
        )
        for a in chosen
    ]


def _heat_map(model: Model) -> Raw:
    """Classes from top to bottom, kernels from left to right, in the order of their groups."""
    order = np.argsort(model.bank.groups, kind="stable")
    sizes = np.abs(model.weights)[:, order]
    shares = sizes / np.maximum(sizes.max(axis=1, keepdims=True), 1e-300)
    title = f"Weights by {noun(model)} and kernel"
    across = f"the {len(order):,} kernels from left to right by group"
    if len(sizes) <= STRIPES:
        dots = shrink(shares, STRIPES, ACROSS)
        rows = [
            (name, picture(levels(row[None]), shades(BLUE), f"weights of {name}", height=16))
            for name, row in zip(model.outputs, dots, strict=True)
        ]
        shown = table(f"{title}: {across}", [noun(model), "weights"], [*rows, ("group", _ruler(model, order))])
        return Raw(heading(title) + f'<div class="stripes">{shown}</div>')
    dots = shrink(shares, DOWN, ACROSS)
    words = f"{title}: {len(sizes):,} {noun(model, 2)} from top to bottom, {across}; the darker, the heavier"
    image = picture(levels(dots), shades(BLUE), words, height=max(200, min(2 * len(sizes), 500)))
    return Raw(heading(title) + figure(words + ".", image, _ruler(model, order)))


def _ruler(model: Model, order: NDArray[np.int64]) -> Raw:
    """Where the groups lie below a heat map."""
    names = [model.bank.kernels[a].group for a in order]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    if len(counts) > GROUPS:
        return Raw("")
    parts = (f'<span style="flex:{count}" title="{text(name)}">{text(name)}</span>' for name, count in counts.items())
    return Raw(f'<span class="ruler">{"".join(parts)}</span>')
