"""A run as one HTML file that opens offline: no script, nothing fetched, readable without colours.

The style sheet is light or dark by the reader's own choice, has one column on a phone, and can be printed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from markupsafe import Markup

from dmkl._util.files import write_atomically
from dmkl.report.markup import NOTHING, number, paragraph
from dmkl.report.parts import PARTS, Contents, metric_title, metric_value

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
        main=Markup("\n").join(
            Markup('<section id="{}"><h2>{}</h2>\n{}\n</section>').format(name, section.title, section.body)
            for name, section in shown.items()
        ),
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


STYLE = """
:root{color-scheme:light dark;--ground:#fff;--card:#f6f7f9;--ink:#1b1f24;--soft:#59636e;--line:#d8dde3;
--c1:#2f7fc4;--c2:#d9641a;--c3:#00875f;--c4:#b8508c;--c5:#8a929b;--c6:#957d00;--c7:#6a4fd8}
@media(prefers-color-scheme:dark){:root{--ground:#14171b;--card:#1d2127;--ink:#e6e9ed;--soft:#a0a9b4;--line:#353c45;
--c1:#62aef0;--c2:#f59a56;--c3:#3ecf9f;--c4:#e08fc0;--c5:#9aa3ad;--c6:#d8bd3a;--c7:#a593ff}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{font:16px/1.5 system-ui,sans-serif;background:var(--ground);color:var(--ink);max-width:64rem;margin:0 auto;
padding:1.25rem 1rem 4rem}
h1{font-size:1.7rem;line-height:1.25;margin:.25rem 0;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:0 0 .5rem}
h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{max-width:46rem;overflow-wrap:anywhere}
header p{color:var(--soft);margin:.25rem 0}
section{border-top:1px solid var(--line);margin-top:2rem;padding-top:1.25rem}
nav ul,.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;margin:.75rem 0}
nav{font-size:.9rem}
a{color:var(--c1)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1.25rem 0 .5rem;padding:0}
.facts div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.facts dt{color:var(--soft);font-size:.8rem}
.facts dd{margin:0;font-size:1.3rem;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:1rem 0;max-width:100%}
table{border-collapse:collapse;font-size:.9rem}
caption{text-align:left;color:var(--soft);font-size:.85rem;padding-bottom:.25rem}
th,td{text-align:left;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:400}
tbody th{max-width:22rem;overflow-wrap:anywhere;min-width:5rem}
thead th{color:var(--soft);font-size:.8rem;vertical-align:bottom}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
td.number{white-space:nowrap}
.bar{display:inline-block;position:relative;width:8rem;height:.7em;vertical-align:baseline}
.bar i{display:block;height:100%;border-radius:1px;min-width:1px}
.two{width:7rem;border-left:0;background:linear-gradient(var(--line),var(--line)) center/1px 100% no-repeat}
.two i{position:absolute;top:0}
i.c1{background:var(--c1)}i.c2{background:var(--c2)}i.c3{background:var(--c3)}i.c4{background:var(--c4)}
i.c5{background:var(--c5)}i.c6{background:var(--c6)}i.c7{background:var(--c7)}
.legend{font-size:.85rem;margin:.25rem 0}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
figure{margin:1rem 0;max-width:36rem}
figcaption{color:var(--soft);font-size:.85rem}
figure img{max-width:100%}
.drawing{background:#fff;border-radius:.5rem}
.chart{width:100%;height:auto;display:block}
.chart text{font-size:10px;fill:var(--soft)}
.chart .end{text-anchor:end}.chart .mid{text-anchor:middle}
.grid line{stroke:var(--line);stroke-width:.7}
.chart polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}
.chart .faint{stroke-width:.8;opacity:.55}
.chart .band{opacity:.22}
.chart .level{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}
polyline.c1{stroke:var(--c1)}polyline.c2{stroke:var(--c2)}polyline.c3{stroke:var(--c3)}polyline.c5{stroke:var(--c5)}
g.c1,rect.c1,.band.c1{fill:var(--c1)}g.c2{fill:var(--c2)}g.c3{fill:var(--c3)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(19rem,100%),1fr));gap:0 2rem}
.dots{display:block;width:100%;image-rendering:pixelated;background:var(--card)}
.stripes table{width:100%}
.stripes tbody th{width:1%;max-width:13rem;padding-right:.75rem;min-width:4rem;white-space:nowrap;overflow:hidden;
text-overflow:ellipsis}
.stripes td:nth-child(2){min-width:9rem}
.stripes td:nth-child(3){width:1%;white-space:nowrap}
.stripes td,.stripes tbody th{vertical-align:middle;border-bottom:0;padding-top:.12rem;padding-bottom:.12rem;
line-height:1.2}
.ruler{display:flex;gap:1px;font-size:.75rem;color:var(--soft)}
.ruler span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;border-top:3px solid var(--line);padding-top:2px;
flex-basis:0;min-width:0}
.confusion td,.confusion thead th{text-align:center;padding:.1rem}
.confusion tbody th{padding-right:.6rem}
.confusion td span{display:block;min-width:2.4rem;
padding:.35rem .3rem;border-radius:3px;font-variant-numeric:tabular-nums}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(22rem,100%),1fr));gap:1rem}
.card{background:var(--card);border-radius:.5rem;padding:.25rem .9rem;min-width:0}
.card table{width:100%;font-size:.82rem}
.card caption{color:var(--ink);font-size:.9rem}
.card .two{width:5rem}
.card td:last-child,.card th:last-child{padding-right:0}
details{margin:.75rem 0}
summary{cursor:pointer;color:var(--c1)}
code{overflow-wrap:anywhere}
@media(max-width:40rem){.bar{width:4.5rem}.card .two{width:4rem}th,td{padding-right:.6rem}tbody th{max-width:9rem}
.stripes tbody th{max-width:7rem}}
@media print{nav{display:none}section{break-inside:avoid}}
"""
