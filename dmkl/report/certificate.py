"""The proof of optimality in plain words, with its numbers."""

from __future__ import annotations

import numpy as np

from dmkl.model import Model
from dmkl.report.contents import Contents, noun
from dmkl.report.markup import Figures, Raw, paragraph, percent, section, table

WORST = 10


def certificate(contents: Contents) -> Raw:
    model = contents.model
    if model is None:
        return section("certificate", "Certificate", paragraph("There is no model yet, so nothing is proved."))
    gap, primal, dual = (np.array(model.about[name], dtype=np.float64) for name in ("gap", "objective", "dual"))
    worst = int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))
    shared = len(gap) < len(model.outputs)
    return section(
        "certificate",
        "Certificate",
        _verdict(contents, model, float(gap[worst]), shared),
        _reason(model, worst, float(primal[worst]), float(dual[worst]), shared),
        paragraph(
            "This is about the training problem with these samples, kernels and constants. How well the model does on "
            "other samples is what the score says."
        ),
        _table(model, gap, primal, dual) if len(gap) > 1 else "",
    )


def _verdict(contents: Contents, model: Model, gap: float, shared: bool) -> Raw:
    each = "" if shared or len(model.outputs) == 1 else f", for any {noun(model)},"
    if not np.isfinite(gap):
        return paragraph("Nothing is proved yet: training was cut short before the first bound was known.")
    if gap <= contents.tol:
        return paragraph(
            Raw(f"<strong>No choice of kernel weights and coefficients{each} can have an objective"),
            Raw(f"more than {percent(gap)} below ours.</strong>"),
            f"The tolerance that was asked for is {percent(contents.tol)}.",
        )
    return paragraph(
        Raw("<strong>Not proved to the tolerance:</strong>"),
        f"another choice of kernel weights and coefficients{each} could have an objective up to {percent(gap)} below "
        f"ours. The tolerance that was asked for is {percent(contents.tol)}.",
    )


def _reason(model: Model, worst: int, primal: float, dual: float, shared: bool) -> Raw:
    if len(model.outputs) == 1:
        where = "Here"
    elif shared:
        where = f"Here all {noun(model, 2)} share one objective, and"
    else:
        where = f"Least is known of the {noun(model)} “{model.outputs[worst]}”: there"
    ours, bound = _apart(primal, dual)
    return paragraph(
        "Here is why. Training makes a number as small as it can, the objective: the price of errors on the training "
        "samples plus the price of a complicated answer. To that problem belongs another one, its dual, with a simple "
        "property: whatever is put into it, as long as it keeps the rules, the value that comes out is never larger "
        "than the smallest possible objective. So a pair of points is a proof.",
        f"{where} our objective is {ours}, over all {model.bank.n:,} training samples and "
        f"{len(model.bank):,} kernels, and we know a point of the dual with the value {bound}. The best possible "
        "objective lies between those two numbers.",
    )


def _apart(primal: float, dual: float) -> tuple[Figures, Figures]:
    """Two numbers with as many digits as it takes to see that they differ."""
    shown = [(f"{primal:#.{digits}g}", f"{dual:#.{digits}g}") for digits in range(5, 16)]
    one, other = next((pair for pair in shown if pair[0] != pair[1]), shown[0])
    return Figures(one), Figures(other if np.isfinite(dual) else "-")


def _table(model: Model, gap: np.ndarray, primal: np.ndarray, dual: np.ndarray) -> Raw:
    order = np.argsort(-np.where(np.isnan(gap), np.inf, gap), kind="stable")[:WORST]
    rows = [(model.outputs[k], *_apart(primal[k], dual[k]), float(gap[k])) for k in order]
    title = noun(model, 2)
    caption = f"The {len(rows)} {title} of which least is known" if len(gap) > len(rows) else f"All {title}"
    return table(caption, [noun(model), "objective (ours)", "bound (dual)", "relative gap"], rows)
