"""A run as one HTML file that opens offline: no script, nothing fetched, readable without colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dmkl._util.files import write_atomically
from dmkl.report.certificate import certificate
from dmkl.report.citations import citations
from dmkl.report.confusion import confusion
from dmkl.report.contents import Contents, metric_title, metric_value
from dmkl.report.course import course, time
from dmkl.report.curves import curves
from dmkl.report.markup import Raw, number, paragraph, section, text
from dmkl.report.relevance import relevance
from dmkl.report.samples import samples
from dmkl.report.scores import outputs, scores
from dmkl.report.searched import searched
from dmkl.report.style import STYLE
from dmkl.report.weights import sparsity, weights
from dmkl.version import __version__

SECTIONS: tuple[Callable[[Contents], Raw], ...] = (
    scores,
    certificate,
    weights,
    samples,
    outputs,
    confusion,
    curves,
    relevance,
    sparsity,
    searched,
    course,
    time,
    citations,
)


def write_report(path: Path, contents: Contents) -> None:
    """Write the report, replacing an older one as a whole."""
    write_atomically(path, page(contents).encode())


def page(contents: Contents) -> str:
    parts = [part(contents) for part in SECTIONS] + [provenance(contents)]
    parts = [part for part in parts if part]
    title = text(f"dmkl: {_what(contents)}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<style>{STYLE}</style></head>\n<body>\n'
        f"{_header(contents)}\n{_contents_list(parts)}\n<main>\n" + "\n".join(parts) + "\n</main>\n</body></html>\n"
    )


def _what(contents: Contents) -> str:
    model = contents.model
    return str(model.about["formulation"]) if model else f"{contents.config['formulation']['name']}, not trained yet"


def _header(contents: Contents) -> str:
    model = contents.model
    facts: list[tuple[str, str]] = []
    for name, value in list(contents.score.get("metrics", {}).items())[:1]:
        facts.append((f"{metric_title(name)} on held-out samples", metric_value(name, value)))
    if model:
        gap = float(np.max(model.about["gap"]))
        used = int((np.abs(model.weights) > 0).any(axis=0).sum())
        facts += [("certified gap", number(gap)), ("kernels used", f"{used:,} of {len(model.bank):,}")]
        facts.append(("training samples", number(model.bank.n)))
    if "train" in contents.summary:
        facts.append(("training time", f"{number(float(contents.summary['train']['seconds']))} s"))
    cards = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts)
    state = "" if contents.finished else paragraph("This run is not finished: what follows is what there is so far.")
    name = f"<p>Run {text(contents.name)}</p>" if contents.name else ""
    listed = f'<dl class="facts">{cards}</dl>' if cards else ""
    return f"<header><h1>{text(_what(contents))}</h1>{name}{state}{listed}</header>"


def _contents_list(parts: list[Raw]) -> str:
    """Links to the sections, by their own headings."""
    found = [re.match(r'<section id="([a-z]+)"><h2>(.*?)</h2>', part) for part in parts]
    items = "".join(f'<li><a href="#{match[1]}">{match[2]}</a></li>' for match in found if match)
    return f'<nav aria-label="Sections"><ul>{items}</ul></nav>'


def provenance(contents: Contents) -> Raw:
    """Where all of this comes from."""
    words = []
    if "kernels" in contents.summary:
        facts = contents.summary["kernels"]
        size = "computed on the fly from the samples" if facts["computed"] else f"{facts['bytes'] / 1e6:,.0f} MB"
        words.append(
            paragraph(
                f"{facts['kernels']:,} kernels over {facts['n']:,} samples, {size} in",
                Raw(f"<code>{text(facts['store'])}</code>."),
            )
        )
    manifest = contents.manifest
    if manifest:
        versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
        words += [
            paragraph("Command", Raw(f"<code>{text(' '.join(manifest['command']))}</code>")),
            paragraph(f"Started {manifest['started']} on {manifest['host']}, Python {manifest['python']}, {versions}."),
            paragraph(
                "Digest of the data", Raw(f"<code>{text(manifest['data'])}</code>,"), f"seed {manifest['seed']}."
            ),
        ]
    words.append(paragraph(f"Configuration and events stand beside this file. Written by dmkl {__version__}."))
    return section("provenance", "Provenance", *words)
