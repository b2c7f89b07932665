"""The list of the papers' tables and figures: a line leads to an experiment, and its verdict follows from numbers."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.common import claims
from pipelines.common.claims import Claim
from pipelines.common.experiment import known

PAPERS = claims.claims()
EVERY = [(paper, claim) for paper, theirs in PAPERS.items() for claim in theirs]


def test_all_five_papers_are_there() -> None:
    assert len(PAPERS) == 5
    assert all(PAPERS.values())


@pytest.mark.parametrize(("paper", "claim"), EVERY, ids=[f"{paper}: {claim.where}" for paper, claim in EVERY])
def test_a_claim_has_goals_of_an_experiment_or_a_reason(paper: str, claim: Claim) -> None:
    assert claim.experiment in known()
    assert bool(claim.goals) != bool(claim.verdict)


def goal(what: str, met: bool) -> dict[str, Any]:
    return {"what": what, "value": 1.0, "sign": ">=", "limit": 0.5 if met else 2.0, "met": met}


@pytest.mark.parametrize(
    ("met", "verdict"),
    [((True, True), "reproduced"), ((True, False), "reproduced in part"), ((False,) * 2, "not reproduced")],
)
def test_a_verdict_follows_from_the_goals(
    met: tuple[bool, bool], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"goals": [goal("accuracy, points", met[0]), goal("seconds, times", met[1])]}
    monkeypatch.setattr(claims, "read", lambda name: found)
    words, numbers = Claim("table 1", "better and faster", "mnist", ("accuracy", "seconds")).outcome()
    assert words == verdict
    assert numbers.count("1 (>= ") == 2
    assert Claim("table 1", "better", "mnist", ("something else",)).outcome() == ("not run yet", "")
    assert Claim("table 2", "better", "mnist", (), "not testable").outcome() == ("not testable", "")
