"""What to cite: dmkl, and the paper of the formulation."""

from __future__ import annotations

from dmkl.problems import FORMULATIONS
from dmkl.report.contents import Contents
from dmkl.report.markup import NOTHING, Section, paragraph, section
from dmkl.version import __version__


def citations(contents: Contents) -> Section:
    paper = FORMULATIONS[contents.config["formulation"]["name"]].paper
    return section(
        "How to cite",
        paragraph(f"The dmkl developers. dmkl: multiple kernel learning with certificates. Version {__version__}."),
        paragraph("The formulation is described in:", paper) if paper else NOTHING,
    )
