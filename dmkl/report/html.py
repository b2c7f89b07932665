"""A run as one HTML file that opens offline: scores, the certificate in words, kernel weights, rounds, provenance."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmkl.files import write_atomically
from dmkl.model import Model, support_per_class
from dmkl.report.relevance import relevance_maps
from dmkl.solvers import Fit, describe
from dmkl.version import __version__

STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #3b82c4; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem .75rem; border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: inline-block; height: .8em; background: var(--bar); }
code { overflow-wrap: anywhere; }
"""
TITLES = {"multilabel": "Labels", "regression": "Target"}  # what outputs are, when they are no classes


def write_report(path: Path, model: Model, fit: Fit, summary: dict[str, Any]) -> None:
    """Write the report, replacing an older one as a whole."""
    sections = [
        _scores(summary.get("score")),
        _certificate(fit, summary["train"]),
        _weights(model),
        relevance_maps(model),
        _outputs(model, fit, summary.get("score")),
        _rounds(fit),
        _provenance(summary),
    ]
    title = f"dmkl: {html.escape(describe(fit.formulation))}"
    page = (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )
    write_atomically(path, page.encode())


def _scores(scores: dict[str, Any] | None) -> str:
    if scores is None:
        return "<p>No samples were held out, so there is no score.</p>"
    rows = [("this model", *scores["metrics"].values())]
    if "best_single" in scores:
        best = scores["best_single"]
        rows.append(("average kernel", *scores["average"]["metrics"].values()))
        rows.append((f"best single kernel, chosen on these samples: {best['kernel']}", *best["metrics"].values()))
    names = [name.replace("_", " ") for name in scores["metrics"]]
    return f"<h2>Score on {scores['n']:,} held-out samples</h2>" + _table(["", *names], rows)


def _certificate(fit: Fit, train: dict[str, Any]) -> str:
    if fit.converged:
        verdict = f"Every objective is proved to be within {fit.worst_gap:.1e} (relative) of the best possible value."
    else:
        verdict = (
            f"Not proved: the worst objective may be {fit.worst_gap:.1e} (relative) above the best possible value."
        )
    svms = f", {fit.svm_calls} SVM calls ({fit.block_steps:.1f} for each maximisation over alpha and gamma)"
    return (
        f"<h2>Certificate</h2><p>{verdict} The proof of each is a pair of numbers, an objective that a real point "
        "reaches and a lower bound from the dual problem, both computed over all training samples.</p>"
        f"<p>{fit.rounds} rounds, {fit.passes} passes over the kernels{svms if fit.svm_calls else ''}, "
        f"{train['seconds']:.1f} s, peak memory {train['peak_bytes'] / 1e6:,.0f} MB.</p>"
    )


def _weights(model: Model) -> str:
    shared = model.weights.mean(axis=0)
    largest = shared.max() or 1.0
    rows = [
        (
            kernel.name,
            kernel.group,
            weight,
            _Raw(f'<span class="bar" style="width:{8 * weight / largest:.2f}rem"></span>'),
        )
        for kernel, weight in zip(model.bank.kernels, shared, strict=True)
    ]
    return "<h2>Kernel weights</h2>" + _table(["kernel", "group", "mean weight", ""], rows)


def _outputs(model: Model, fit: Fit, scores: dict[str, Any] | None) -> str:
    """One row a class, label or target, with its average precision where there is such a thing."""
    names, found = model.outputs, scores["per_class"] if scores else []
    objective, gap = np.broadcast_to(fit.objective, len(names)), np.broadcast_to(fit.gap, len(names))
    precision = {row["class"]: row["average_precision"] for row in found}
    rows = [
        (name, objective[k], gap[k], count, *([precision.get(name, "-")] if found else []))
        for k, (name, count) in enumerate(zip(names, support_per_class(model), strict=True))
    ]
    title = TITLES.get(model.task, "Classes")
    heads = ["", "objective", "certified gap", "support samples", *(["average precision"] if found else [])]
    return f"<h2>{title}</h2>" + _table(heads, rows)


def _rounds(fit: Fit) -> str:
    keys = ("round", "passes", "svm_calls", "finished", "kernels", "gap", "seconds")
    rows = [tuple(entry[key] for key in keys) for entry in fit.history]
    heads = ["round", "passes", "SVM calls", "finished", "kernels used", "worst gap", "seconds"]
    return "<h2>Rounds</h2>" + _table(heads, rows)


def _provenance(summary: dict[str, Any]) -> str:
    kernels = summary["kernels"]
    size = "computed on the fly from the samples" if kernels["computed"] else f"{kernels['bytes'] / 1e6:,.0f} MB"
    return (
        "<h2>Provenance</h2>"
        f"<p>{kernels['kernels']} kernels over {kernels['n']:,} samples, {size} in "
        f"<code>{html.escape(kernels['store'])}</code>. Configuration, versions and hashes stand beside this file in "
        f"<code>config.json</code> and <code>manifest.json</code>. Written by dmkl {__version__}.</p>"
    )


class _Raw(str):
    """Markup of our own."""


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, _Raw):
        return f"<td>{value}</td>"
    if isinstance(value, float | np.floating):
        return f'<td class="number">{value:.4g}</td>'
    if isinstance(value, int | np.integer):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{html.escape(str(value))}</td>"
