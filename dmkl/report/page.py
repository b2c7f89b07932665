"""A run as one HTML file that opens offline: no script, nothing fetched, readable without colours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from markupsafe import Markup

from dmkl._util.files import write_atomically
from dmkl.report.contents import Contents, metric_title, metric_value
from dmkl.report.markup import NOTHING, Section, number, paragraph
from dmkl.report.parts import PARTS
from dmkl.report.style import STYLE

PAGE = Markup("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>dmkl: {title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>{style}</style></head>
<body>
{header}
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{main}
</main>
</body></html>
""")


def write_report(path: Path, contents: Contents) -> None:
    """Write the report of a run to `path`; an older file is replaced as a whole."""
    write_atomically(path, page(contents).encode())


def page(contents: Contents) -> str:
    """The HTML of a report: a header, links to the sections, and one section for each part that has something to
    show."""
    found = {name: part(contents) for name, part in PARTS.items()}
    shown = {name: section for name, section in found.items() if section and section.body}
    return PAGE.format(
        title=_title(contents),
        style=Markup(STYLE),
        header=_header(contents),
        links=NOTHING.join(
            Markup('<li><a href="#{}">{}</a></li>').format(name, section.title) for name, section in shown.items()
        ),
        main=_main(shown),
    )


def _main(shown: Mapping[str, Section]) -> Markup:
    return Markup("\n").join(
        Markup('<section id="{}"><h2>{}</h2>\n{}\n</section>').format(name, section.title, section.body)
        for name, section in shown.items()
    )


def _title(contents: Contents) -> str:
    model = contents.model
    return str(model.about["formulation"]) if model else f"{contents.config['formulation']['name']}, not trained yet"


def _header(contents: Contents) -> Markup:
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
    cards = NOTHING.join(Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*fact) for fact in facts)
    return Markup("<header><h1>{}</h1>{}{}{}</header>").format(
        _title(contents),
        paragraph(f"Run {contents.name}") if contents.name else NOTHING,
        NOTHING if contents.finished else paragraph("This run is not finished. The report shows the results so far."),
        Markup('<dl class="facts">{}</dl>').format(cards) if cards else NOTHING,
    )
