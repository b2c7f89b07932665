"""Where the run comes from: kernels, command, versions, data, and the papers to cite."""

from __future__ import annotations

from dmkl.problems import FORMULATIONS
from dmkl.report.contents import Contents
from dmkl.report.markup import NOTHING, Section, code, paragraph, section
from dmkl.version import __version__


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
