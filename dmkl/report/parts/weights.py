"""The kernel weights: by group, the largest, output by output, their sparsity; coefficients kernel by kernel."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Float64, Samples
from dmkl.model import Model, support_per_class
from dmkl.report.charts import BLUE, Axis, Series, histogram, levels, line_chart, picture, shades, shrink
from dmkl.report.markup import (
    NOTHING,
    Cell,
    Section,
    bar,
    block,
    details,
    figure,
    heading,
    paragraph,
    percent,
    section,
    table,
)
from dmkl.report.parts import Contents, noun

GROUPS, KERNELS = 20, 20  # with a row of their own; the others are summed in one
LISTED = 400  # kernels in the part that is closed at first
STRIPES = 40  # outputs with a row of their own in the heat map
ACROSS, DOWN = 600, 300  # the largest number of dots of a heat map
ENOUGH = 10  # outputs or kernels from which on a distribution is drawn
MAPS = 6  # outputs that are drawn
DOTS_ACROSS = 300  # dots in a row; where samples share a dot, it shows the largest coefficient
KERNEL_ROWS = 40  # rows, for the kernels with the largest coefficients


def weights(contents: Contents) -> Section | None:
    model = contents.model
    if model is None:
        return None
    mean = np.abs(model.weights).mean(axis=0)
    share = mean / (mean.sum() or 1.0)
    return section(
        "Kernel weights",
        _words(model),
        _by_group(model, share),
        _largest(model, share),
        _heat_map(model) if len(model.weights) > 1 and not _alike(model) else NOTHING,
    )


def _words(model: Model) -> Markup:
    if model.per_kernel:
        return paragraph("Every kernel has coefficients of its own; the weight of a kernel is its share of them.")
    if _alike(model):
        return paragraph(f"All {noun(model, 2)} use the same kernel weights.")
    if len(model.weights) == 1:
        return NOTHING
    return paragraph(
        f"Each {noun(model)} has its own kernel weights. The shares are those of the mean weights over all "
        f"{noun(model, 2)}."
    )


def _alike(model: Model) -> bool:
    return len(model.weights) > 1 and bool((model.weights == model.weights[0]).all())


def _by_group(model: Model, share: Float64) -> Markup:
    groups = model.bank.groups
    names = list(dict.fromkeys(kernel.group for kernel in model.bank.kernels))
    if len(names) < 2:
        return NOTHING
    total = np.bincount(groups, weights=share)
    used, size = np.bincount(groups, weights=share > 0), np.bincount(groups)
    order = np.argsort(-total, kind="stable")
    rows: list[tuple[Cell, ...]] = [
        (names[g], int(used[g]), int(size[g]), percent(total[g]), bar(total[g] / total.max() if total.max() else 0))
        for g in order[:GROUPS]
    ]
    rest = order[GROUPS:]
    if len(rest):
        words = f"the other {len(rest):,} groups"
        rows.append((words, int(used[rest].sum()), int(size[rest].sum()), percent(float(total[rest].sum())), NOTHING))
    return table("Weight by group", ["group", "kernels used", "of", "share", ""], rows)


def _largest(model: Model, share: Float64) -> Markup:
    order = np.argsort(-share, kind="stable")
    rows = _kernel_rows(model, share, order[:KERNELS])
    rest = order[KERNELS:]
    if len(rest):
        counted = int((share[rest] > 0).sum())
        words = f"the other {len(rest):,} kernels ({counted:,} with non-zero weight)"
        rows.append((words, "", percent(float(share[rest].sum())), NOTHING, *([""] if len(model.weights) > 1 else [])))
    heads = ["kernel", "group", "share", "", *([f"{noun(model, 2)} that use it"] if len(model.weights) > 1 else [])]
    shown = table("The kernels with the largest weights", heads, rows)
    more = rest[:LISTED][share[rest[:LISTED]] > 0]
    if not len(more):
        return shown
    return shown + details(
        f"{len(more):,} more kernels", table("More kernels", heads, _kernel_rows(model, share, more))
    )


def _kernel_rows(model: Model, share: Float64, chosen: Samples) -> list[tuple[Cell, ...]]:
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


def _heat_map(model: Model) -> Markup:
    """Outputs from top to bottom, kernels from left to right in the order of their groups."""
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
        return heading(title) + block("stripes", shown)
    dots = shrink(shares, DOWN, ACROSS)
    words = (
        f"{title}: {len(sizes):,} {noun(model, 2)} from top to bottom, {across}; "
        "a stronger colour means a larger weight"
    )
    image = picture(levels(dots), shades(BLUE), words, height=max(200, min(2 * len(sizes), 500)))
    return heading(title) + figure(words + ".", image, _ruler(model, order))


def _ruler(model: Model, order: Samples) -> Markup:
    """The groups of kernels below a heat map."""
    names = [model.bank.kernels[a].group for a in order]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    if len(counts) > GROUPS:
        return NOTHING
    spans = (
        Markup('<span style="flex:{0}" title="{1}">{1}</span>').format(count, name) for name, count in counts.items()
    )
    return Markup('<span class="ruler">{}</span>').format(NOTHING.join(spans))


def sparsity(contents: Contents) -> Section | None:
    model = contents.model
    if model is None:
        return None
    used = (np.abs(model.weights) > 0).sum(axis=1)
    support = np.array(list(support_per_class(model)))
    rows = [
        (
            "kernels with non-zero weight",
            int((np.abs(model.weights) > 0).any(axis=0).sum()),
            len(model.bank),
            *_spread(used),
        ),
        ("support samples", int(np.any(model.coef, axis=1).sum()), model.bank.n, *_spread(support)),
    ]
    heads = ["", "total", "of", *(f"{word} per {noun(model)}" for word in ("fewest", "median", "most"))]
    shown = len(heads) if len(used) > 1 else 3
    charts = []
    share = np.sort(np.abs(model.weights).mean(axis=0))[::-1]
    if len(share) >= ENOUGH and share.sum() > 0:
        total = np.concatenate([[0.0], np.cumsum(share) / share.sum()])
        picked = np.unique(np.linspace(0, len(share), 121).astype(int))
        curve = Series("", [(float(k), float(total[k])) for k in picked])
        axes = Axis("kernels, the largest weight first", 0, len(share)), Axis("share of the total weight", 0, 1)
        charts.append(line_chart("Cumulative share of the kernels with the largest weights", [curve], *axes))
    if len(support) >= ENOUGH and support.min() < support.max():
        counts, edges = np.histogram(support, bins=min(20, len(np.unique(support))))
        caption = f"Distribution of the number of support samples per {noun(model)}"
        charts.append(histogram(caption, "support samples", noun(model, 2), counts.tolist(), edges.tolist()))
    shown_rows = [row[:shown] for row in rows]
    return section(
        "Sparsity",
        table("Kernels and samples that the model uses", heads[:shown], shown_rows),
        block("pair", *charts) if charts else NOTHING,
    )


def _spread(counts: Samples) -> tuple[int, float, int]:
    return int(counts.min()), float(np.median(counts)), int(counts.max())


def relevance(contents: Contents) -> Section | None:
    """One map for each output; None for models whose kernels share their coefficients."""
    model = contents.model
    if model is None or not model.per_kernel or not len(model.coef):
        return None
    maps = [_map(model, k) for k in range(min(MAPS, len(model.outputs)))]
    more = len(model.outputs) - MAPS
    words = paragraph(f"The model has {more:,} more {noun(model, more)}.") if more > 0 else NOTHING
    return section(
        "Relevance",
        paragraph(
            "Support samples from left to right, kernels from top to bottom; "
            "a stronger colour means a larger coefficient."
        ),
        block("stripes", *maps),
        words,
    )


def _map(model: Model, k: int) -> Markup:
    sizes = np.abs(model.relevance(k)).T
    largest = sizes.max(axis=1)
    shown = np.sort(np.argsort(-largest, kind="stable")[:KERNEL_ROWS])
    shares = shrink(sizes[shown] / max(float(largest.max()), 1e-300), KERNEL_ROWS, DOTS_ACROSS)
    rows = [
        (name, picture(levels(row[None]), shades(BLUE), f"coefficients of {name}", height=14))
        for name, row in zip((model.bank.kernels[a].name for a in shown), shares, strict=True)
    ]
    return table(f"Coefficients of {model.outputs[k]}", ["kernel", "support samples"], rows)
