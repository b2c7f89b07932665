"""The papers' tables and figures, a line each: reproduced, not reproduced, or why that was not tested."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from pipelines.common.experiment import PIPELINES, Experiment, Row, known
from pipelines.common.record import read

FILE = PIPELINES / "claims.toml"


@dataclass(frozen=True)
class Claim:
    """What a table or figure says, and the goals of an experiment that test that."""

    where: str
    says: str
    experiment: str
    goals: tuple[str, ...] = ()  # how the words of each begin
    verdict: str = ""  # of a claim without goals
    because: str = ""

    def tested(self) -> list[Row]:
        """The goals in the experiment's record, in the order of their names; fewer where it has not been run."""
        record: dict[str, Any] = read(self.experiment) or {"goals": []}
        return [
            next(goal for goal in record["goals"] if goal["what"].startswith(name))
            for name in self.goals
            if any(goal["what"].startswith(name) for goal in record["goals"])
        ]

    def outcome(self) -> tuple[str, str]:
        """The verdict, and the numbers that it comes from."""
        found = self.tested()
        if not self.goals:
            return self.verdict, ""
        if len(found) < len(self.goals):
            return "not run yet", ""
        numbers = ", ".join(f"{goal['value']:.3g} ({goal['sign']} {goal['limit']:g})" for goal in found)
        met = sum(goal["met"] for goal in found)
        words = "reproduced" if met == len(found) else "not reproduced" if not met else "reproduced in part"
        return words, numbers


def claims() -> dict[str, list[Claim]]:
    """The claims of each paper."""
    papers = tomllib.loads(FILE.read_text(encoding="utf-8"))["paper"]
    return {
        paper["name"]: [Claim(**{**claim, "goals": tuple(claim.get("goals", ()))}) for claim in paper["claim"]]
        for paper in papers
    }


def rows(anchor: Any) -> list[Row]:
    """The lines of the table; `anchor` turns the title of an experiment into that of its chapter."""
    found = []
    for paper, theirs in claims().items():
        for claim in (claim for claim in theirs if claim.experiment in known()):
            verdict, numbers = claim.outcome()
            words = f"**{verdict}**" if claim.goals else verdict
            title = Experiment.load(claim.experiment).words["title"]
            found.append(
                {
                    "paper": paper,
                    "where": claim.where,
                    "the paper says": claim.says,
                    "here": f"{words}. {claim.because}".rstrip(" ."),
                    "number (goal)": numbers,
                    "experiment": f"[{claim.experiment}](#{anchor(title)})",
                }
            )
    return found
