"""The race: what is said of its numbers, how weights are judged, and README's table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmkl
from pipelines.benchmarks.race import readme
from pipelines.benchmarks.race.words import remarks
from pipelines.common import contest, record
from pipelines.common.contest import Answer, Ring, hand_over, reached, value


def test_the_readme_has_the_table_of_the_record() -> None:
    text = readme.FILE.read_text()
    assert readme.drawn(text, record.read(readme.NAME)) == text, "python -m pipelines.benchmarks.race.readme"


def test_the_table_of_a_record() -> None:
    row = {"contestant": "dmkl, 1 thread", "seconds": 0.5, "off": 1e-6, "accuracy": 0.95}
    tables = [{"title": "Problem B: 2000 samples", "rows": [row]}, {"title": "Ridge: diabetes", "rows": [{"R2": 0.4}]}]
    text = readme.table({"tables": tables, "remarks": ["Problem B: nobody.", "Peers' environment: x"]})
    assert "| B | dmkl, 1 thread | 0.50 |  | 1e-06 | 0.950 |  |  |" in text
    assert "* Problem B: nobody." in text
    assert "environment" not in text


def test_who_is_faster_or_better_is_said() -> None:
    ours = {"contestant": "dmkl", "seconds": 1.0, "s to goal": 1.0, "off": 1e-5, "accuracy": 0.9}
    quick = {"contestant": "quick", "seconds": 0.5, "s to goal": None, "off": 0.3, "accuracy": 0.95}
    good = {"contestant": "good", "seconds": 9.0, "s to goal": 0.7, "off": 1e-6, "accuracy": None}
    failed = {"contestant": "failed", "seconds": None, "off": None, "accuracy": None}
    slow = {"contestant": "slow", "seconds": 5.0, "s to goal": None, "off": 0.3, "accuracy": 0.8}
    (said,) = remarks("A", [ours, quick, good, failed, slow], "dmkl", "accuracy")
    assert "**quick is faster than dmkl**, 0.5 s against 1 s (ends 3.0e-01 off where dmkl is 1.0e-05 off" in said
    assert "**good is faster than dmkl**, 0.7 s against 1 s, and within the same distance of the optimum" in said
    assert "quick has the better accuracy, 0.9500 against 0.9000" in said
    assert "good ends nearer to the optimum, 1.0e-06 off" in said
    assert "slow" not in said
    assert "failed" not in said
    assert remarks("A", [ours, slow], "dmkl", "accuracy") == ["A: nobody here is faster or better than dmkl."]


@pytest.fixture
def problem() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 60, 2))
    y = np.where(X[0, :, 0] + X[1, :, 0] + 0.3 * rng.normal(size=60) > 0, 1.0, -1.0)
    squares = ((X[:, :, None] - X[:, None]) ** 2).sum(axis=-1)
    return np.exp(-squares / 4), y


def test_weights_are_judged_by_the_objective_at_them(problem: tuple[Any, Any]) -> None:
    K, y = problem
    fit = dmkl.solve(dmkl.KernelStack.from_array(K), y, dmkl.L1MKL(C=1.0), tol=1e-7)
    assert value(K, y, 1.0, 3.0 * fit.weights.ravel()) == pytest.approx(fit.objective, rel=1e-5)
    on_the_way = np.array([np.ones(3), fit.weights.ravel(), np.array([0.0, 0.0, 1.0])])
    answer = Answer({}, on_the_way, np.array([0.1, 0.2, 0.3]), np.array([1, 2, 3]), np.empty(0))
    found = reached(K, y, 1.0, answer, fit.objective, 1e-4)
    assert found["first"] == {"seconds": 0.2, "steps": 2}
    assert found["off"] > 0.1


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fit", ["dmkl", "svc_average", "hand_loop"])
def test_contestants_run_in_processes_of_their_own(
    problem: tuple[Any, Any], tmp_path: Any, fit: str, classes: int
) -> None:
    K, y = problem
    y = y if classes == 2 else np.arange(60) % 3
    place = hand_over(tmp_path / "problem", K, y, K)
    options = {"fit": fit, "C": 100.0, "steps": 5, "tol": 1e-3}
    options |= {"formulation": "SharedMKL", "constants": {"C": 100.0}}
    answer = Ring(tmp_path, [], 1).fit(place, options)
    assert answer is not None
    assert answer.weights[-1].sum() == pytest.approx(1.0)
    assert np.mean(answer.predicted == y) > 0.6
    assert answer.told["peak MB"] > 50
    assert answer.told["seconds"] > 0


def test_a_failure_says_what_failed(problem: tuple[Any, Any], tmp_path: Any) -> None:
    K, y = problem
    options = {"fit": "dmkl", "formulation": "Nothing", "constants": {}, "tol": 1e-3}
    with pytest.raises(RuntimeError, match=r"dmkl: AttributeError.*Nothing"):
        Ring(tmp_path, [], 1).fit(hand_over(tmp_path / "problem", K, y), options)


def test_peers_that_cannot_be_had_are_missed_in_one_line(
    problem: tuple[Any, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failed:
        returncode, stdout, stderr = 1, "", "noise\nERROR: no network\n"

    monkeypatch.setattr(contest.subprocess, "run", lambda *arguments, **options: Failed())
    ring = Ring(tmp_path, ["MKLpy==0.6"], 1)
    assert ring.fit(tmp_path, {"fit": "mklpy"}) is None
    assert ring.missing == "Peers from PyPI did not take part: ERROR: no network"
    ring.close()
