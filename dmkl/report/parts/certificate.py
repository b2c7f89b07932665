"""The certificate in plain words, the origin of the run, and the papers to cite."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dmkl._util.types import Float64
from dmkl.model import Model
from dmkl.problems import FORMULATIONS
from dmkl.report.markup import NOTHING, Figures, Section, code, paragraph, percent, section, table
from dmkl.report.parts import Contents, noun
from dmkl.version import __version__

WORST = 10  # outputs in the table


def certificate(contents: Contents) -> Section:
    model = contents.model
    if model is None:
        return section("Certificate", paragraph("There is no model yet, so nothing is proved."))
    gap, primal, dual = (np.array(model.about[name], dtype=np.float64) for name in ("gap", "objective", "dual"))
    worst = int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))
    shared = len(gap) < len(model.outputs)
    return section(
        "Certificate",
        _verdict(contents, model, float(gap[worst]), shared),
        _reason(model, worst, float(primal[worst]), float(dual[worst]), shared),
        paragraph(
            "The certificate is about the training problem: these samples, these kernels and these constants. How well "
            "the model predicts other samples is measured by the score."
        ),
        _table(model, gap, primal, dual) if len(gap) > 1 else NOTHING,
    )


def _verdict(contents: Contents, model: Model, gap: float, shared: bool) -> Markup:
    several = not shared and len(model.outputs) > 1
    each = f" of any {noun(model)}" if several else ""
    tolerance = f"The requested tolerance is {percent(contents.tol)}."
    if not np.isfinite(gap):
        return paragraph("Nothing is proved yet: training was interrupted before the first lower bound was computed.")
    if gap <= contents.tol:
        return paragraph(
            Markup(
                "<strong>No other choice of kernel weights and coefficients can lower the objective{} by more than "
                "{}.</strong>"
            ).format(each, percent(gap)),
            tolerance,
        )
    rule = str(model.about.get("rule", ""))
    ended = f"Ended by {rule}:" if rule else "Not certified to the tolerance:"
    return paragraph(
        Markup("<strong>{}</strong>").format(ended),
        f"another choice of kernel weights and coefficients could lower the objective{each} by up to {percent(gap)}.",
        tolerance,
    )


def _reason(model: Model, worst: int, primal: float, dual: float, shared: bool) -> Markup:
    objective, bound = _apart(primal, dual)
    over = f"over all {model.bank.n:,} training samples and {len(model.bank):,} kernels"
    if shared:
        numbers = f"All {noun(model, 2)} share one objective. Its value is {objective}, {over},"
    elif len(model.outputs) == 1:
        numbers = f"The objective of this model is {objective}, {over},"
    else:
        which = f"{noun(model)} “{model.outputs[worst]}”"
        numbers = f"The loosest bound is for {which}, where the objective of this model is {objective}, {over},"
    return paragraph(
        "The reason is duality. Training minimises an objective: the losses of the training samples plus a penalty for "
        "complex models. This problem has a dual problem, and the dual value of every feasible point is at most the "
        "smallest possible objective. A model and a feasible dual point together are therefore a proof.",
        f"{numbers} and a feasible dual point has the value {bound}. The smallest possible objective lies between "
        "these two numbers.",
    )


def _apart(primal: float, dual: float) -> tuple[Figures, Figures]:
    """Two numbers with as many digits as it takes to see that they differ."""
    shown = [(f"{primal:#.{digits}g}", f"{dual:#.{digits}g}") for digits in range(5, 16)]
    one, other = next((pair for pair in shown if pair[0] != pair[1]), shown[0])
    return Figures(one), Figures(other if np.isfinite(dual) else "-")


def _table(model: Model, gap: Float64, primal: Float64, dual: Float64) -> Markup:
    order = np.argsort(-np.where(np.isnan(gap), np.inf, gap), kind="stable")[:WORST]
    rows = [(model.outputs[k], *_apart(primal[k], dual[k]), float(gap[k])) for k in order]
    title = noun(model, 2)
    caption = f"The {len(rows)} {title} with the largest relative gap" if len(gap) > len(rows) else f"All {title}"
    return table(caption, [noun(model), "objective", "lower bound (dual)", "relative gap"], rows)


def provenance(contents: Contents) -> Section:
    pieces = []
    if "kernels" in contents.summary:
        facts = contents.summary["kernels"]
        where = (
            "computed when needed from the samples in" if facts["computed"] else f"{facts['bytes'] / 1e6:,.0f} MB in"
        )
        pieces.append(
            paragraph(f"{facts['kernels']:,} kernels of {facts['n']:,} samples, {where}", code(facts["store"]) + ".")
        )
    manifest = contents.manifest
    if manifest:
        versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
        pieces += [
            paragraph("Command:", code(" ".join(manifest["command"]))),
            paragraph(f"Started {manifest['started']} on {manifest['host']}, Python {manifest['python']}, {versions}."),
            paragraph("Digest of the data:", code(manifest["data"]) + ";", f"random seed: {manifest['seed']}."),
        ]
    pieces.append(
        paragraph(f"The configuration and the events of the run are in its directory. Written by dmkl {__version__}.")
    )
    return section("Provenance", *pieces)


def citations(contents: Contents) -> Section:
    paper = FORMULATIONS[contents.config["formulation"]["name"]].paper
    return section(
        "How to cite",
        paragraph(f"The dmkl developers. dmkl: multiple kernel learning with certificates. Version {__version__}."),
        paragraph("The formulation is described in:", paper) if paper else NOTHING,
    )
