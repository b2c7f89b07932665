"""The proving ground: what its table spans, that its problems can be built, and the arithmetic of profiles."""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dmkl
import dmkl.problems
from dmkl._util.machine import cores
from dmkl.problems.base import Formulation, WithLoss
from dmkl.problems.losses import LOSSES
from dmkl.problems.mikl import NORMS
from dmkl.problems.obscure import COLUMN_LOSS
from dmkl.solvers.methods import METHODS, methods_of
from pipelines.benchmarks.proving_ground import __main__ as command
from pipelines.benchmarks.proving_ground import experiment, fits, worker
from pipelines.benchmarks.proving_ground.kernels import BANKS, COLUMNS, array_of, most_samples, scales
from pipelines.benchmarks.proving_ground.problems import SHORT, Deck, OfLargest, Problem, choose, problems
from pipelines.benchmarks.proving_ground.profiles import FLOOR, profile, ratios, slope, within
from pipelines.benchmarks.proving_ground.samples import SOURCES, spoilt

FORMULATIONS = sorted(METHODS, key=lambda kind: kind.__name__)
MADE = ("ringnorm", "blobs5", "lowrank", "nothing", "copies", "unbalanced", "waves", "tails")  # without files


def of(kind: type[Formulation]) -> list[Problem]:
    return [problem for problem in problems() if problem.formulation is kind]


def values(kind: type[Formulation], constant: str) -> set[object]:
    return {problem.constants[constant] for problem in of(kind) if constant in problem.constants}


# --- what the table spans


def test_there_are_enough_problems_with_names_of_their_own() -> None:
    names = [problem.name for problem in problems()]
    assert len(names) >= 200
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_every_formulation_is_there() -> None:
    for module in pkgutil.iter_modules(dmkl.problems.__path__):
        importlib.import_module(f"dmkl.problems.{module.name}")
    assert set(SHORT) == {kind.__name__ for kind in FORMULATIONS}
    for kind in FORMULATIONS:
        assert len(of(kind)) >= 20, kind


def test_every_loss_norm_and_exponent_is_there() -> None:
    """Losses and norms are there when they are registered; a formulation, mode or exponent has to be added."""
    assert values(dmkl.SpicyMKL, "loss") == set(LOSSES)
    assert values(dmkl.UniformMKL, "loss") | {"hinge"} == set(LOSSES)  # its default needs no word
    taking = {kind for kind in FORMULATIONS if issubclass(kind, WithLoss)}
    assert taking == {dmkl.SpicyMKL, dmkl.UniformMKL, dmkl.Obscure}
    assert values(dmkl.MIKL, "norm") == set(NORMS)
    assert values(dmkl.Obscure, "loss") == {*COLUMN_LOSS, *LOSSES}
    assert values(dmkl.SharedMKL, "mode") == {"sum", "max"}
    for kind in (dmkl.SharedMKL, dmkl.UniformMKL):
        assert values(kind, "intercept") == {True, False}
    for kind, exponent in ((dmkl.VSKL, "q"), (dmkl.LpMKL, "p"), (dmkl.Obscure, "p")):
        assert set(kind.usual[exponent]) <= values(kind, exponent)
    assert any(problem.constants.get("ridge") and not problem.constants["C"] for problem in of(dmkl.SpicyMKL))


def test_every_loss_of_real_targets_has_some() -> None:
    for loss in LOSSES:
        for kind in (dmkl.SpicyMKL, dmkl.Obscure):
            tasks = {SOURCES[one.data].task for one in of(kind) if one.constants.get("loss") == loss}
            assert ("targets" in tasks) == LOSSES[loss].regression, loss


def test_every_method_takes_part() -> None:
    """Those of the papers on a cut, all others on every problem of their formulation."""
    names = {(kind, method.name) for kind, methods in METHODS.items() for method in methods}
    names.remove((dmkl.VSKL, "reweighted"))  # of a problem that is not convex: there is no gap to reach
    found: set[tuple[type[Formulation], str]] = set()
    for problem in problems():
        known = [method.name for method in methods_of(formulation(problem))]
        found |= {(problem.formulation, name) for name in fits.entered(problem, known, fits.Limits())}
    assert found == names


def formulation(problem: Problem) -> Formulation:
    shares = {name: value.share for name, value in problem.constants.items() if isinstance(value, OfLargest)}
    return problem.formulation(**(dict(problem.constants) | shares))


def test_sizes_constants_and_kernels_span_what_they_should() -> None:
    found = problems()
    assert {0.0, 0.1, 0.3} <= {problem.noise for problem in found}
    assert min(problem.n for problem in found) <= 50
    assert max(problem.n for problem in found) >= 16_000
    assert {1e-6, 1.0, 1e6, "mixed"} <= {problem.scale for problem in found}
    assert {problem.dtype for problem in found} == {"float32", "float64"}
    assert {problem.held for problem in found} == {"memory", "disk", "computed", "features"}
    assert {problem.kernels for problem in found} == set(BANKS) | set(COLUMNS)
    assert {problem.data for problem in found} == set(SOURCES)
    assert {problem.tol for problem in found if problem.n <= 300 and problem.row not in ("core", "growth")} == {
        1e-3,
        1e-6,
    }
    for kind, constant in ((dmkl.VSKL, "C"), (dmkl.SpicyMKL, "C"), (dmkl.MIKL, "lam")):
        numbers = [one.share if isinstance(one, OfLargest) else one for one in values(kind, constant)]
        numbers = [number for number in numbers if number]
        assert max(numbers) / min(numbers) >= 0.9e5, kind


def test_words_choose_problems() -> None:
    assert {problem.row for problem in choose("growth")} == {"growth"}
    assert all("vskl" in problem.name and "n150" in problem.name.split() for problem in choose("vskl n150"))
    assert len(choose("vskl,l1")) == len(choose("vskl")) + len(choose("l1"))
    assert not choose("vskl", skip="vskl")
    assert not choose("n15")  # numbers are whole words
    assert {problem.name for problem in choose(most=5)} < {problem.name for problem in choose(most=9)}
    assert max(problem.n for problem in choose(largest=90)) == 90


def test_a_deck_deals_every_value_as_often() -> None:
    deck = Deck("abc", seed=1)
    dealt = [deck.deal() for _ in range(30)]
    assert Counter(dealt) == {"a": 10, "b": 10, "c": 10}
    assert dealt[:3] != dealt[3:6] or dealt[:3] != dealt[6:9]


# --- problems


@pytest.mark.parametrize("bank", [bank for bank in BANKS if not bank.startswith("subsets")] + ["subsets30"])
def test_banks_are_finite_and_of_the_kind_that_they_say(bank: str) -> None:
    problem = Problem("test", dmkl.MIKL, "ringnorm", 40, bank)
    K, groups = array_of(bank, problem.samples(), 1.0, "float64", seed=0)
    assert K.shape == (len(groups), 40, 40)
    assert np.isfinite(K).all()
    symmetric = all(np.allclose(k, k.T, atol=0, rtol=1e-12) for k in K)
    least = min(np.linalg.eigvalsh((k + k.T) / 2)[0] / max(np.abs(k).max(), 1e-300) for k in K)
    assert symmetric == (bank != "nonsymmetric")
    assert (least < -1e-3) == (bank in ("indefinite", "nonsymmetric"))


@pytest.mark.parametrize("name", MADE)
def test_made_data_have_what_was_asked(name: str) -> None:
    problem = Problem("test", dmkl.UniformMKL, name, 60, "one", noise=0.1)
    samples = problem.samples()
    assert samples.n == 60
    assert problem.labels(samples.y).task in ("binary", "multiclass", "regression")
    assert np.array_equal(samples.X, replace(problem, tol=1e-6).samples().X)


def test_banks_have_room() -> None:
    """Made sets have no more features than they say; a bank of every feature has few samples then."""
    for name in MADE:
        assert Problem("test", dmkl.VSKL, name, 60, "one").samples().X.shape[1] <= SOURCES[name].features
    assert most_samples("linear-feature", 784) == 480
    assert most_samples("gauss-view", 784) > 60_000
    samples = Problem("test", dmkl.VSKL, "ringnorm", 60, "one").samples()
    with pytest.raises(ValueError, match="name fewer samples"):
        array_of("subsets30", replace(samples, y=np.zeros(20_000)), 1.0, "float32", 0)


def test_so_many_answers_are_wrong() -> None:
    rng = np.random.default_rng(0)
    classes = np.arange(1000) % 4
    assert (spoilt(classes, 0.3, "classes", rng) != classes).mean() == pytest.approx(0.3, abs=0.05)
    targets = rng.normal(size=1000)
    assert (spoilt(targets, 0.3, "targets", rng) != targets).mean() == pytest.approx(0.3, abs=0.05)
    labels = rng.integers(0, 2, (1000, 5))
    assert (spoilt(labels, 0.3, "labels", rng).sum(axis=0) > 0).all()
    assert spoilt(classes, 0.0, "classes", rng) is classes


def test_scales_leave_the_problem_the_same_but_for_plain_ones() -> None:
    """Kernels times c with C / c have the objective over c."""
    problem = Problem("test", dmkl.L1MKL, "blobs5", 50, "gauss-view", {"C": 1.0})
    fitted = {scale: solved(replace(problem, scale=scale)) for scale in (1.0, 1e6)}
    assert fitted[1e6] * 1e6 == pytest.approx(fitted[1.0], rel=2e-6)
    assert sorted(scales("mixed", 4)) == pytest.approx([1e-6, 1e-2, 1e2, 1e6])


def solved(problem: Problem) -> float:
    samples = problem.samples()
    K, groups = array_of(problem.kernels, samples, problem.scale, problem.dtype, problem.seed)
    stack, labels = dmkl.KernelStack.from_array(K, groups=groups, workers=1), problem.labels(samples.y)
    return float(np.sum(dmkl.solve(stack, labels, problem.formulated(stack, labels), tol=1e-6).objective))


def test_constants_are_shares_of_the_largest() -> None:
    for kind, constants in (
        (dmkl.SpicyMKL, {"loss": "squared", "C": OfLargest(1.01)}),
        (dmkl.MIKL, {"lam": OfLargest(1.01), "norm": "1"}),
    ):
        problem = Problem("test", kind, "ringnorm", 30, "gauss-view", constants)
        samples = problem.samples()
        stack = dmkl.KernelStack.from_array(array_of("gauss-view", samples, 1.0, "float64", 0)[0], workers=1)
        labels = problem.labels(samples.y)
        fit = dmkl.solve(stack, labels, problem.formulated(stack, labels), tol=1e-6)
        assert not fit.weights.any()


def test_what_a_fit_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In this process, as a worker does it: solved, out of time, refused, failed."""
    monkeypatch.setattr(worker, "_watch_compiler", lambda clock: None)
    bench = worker._Bench([0.0, 0.0, 0.0], tmp_path)
    problem = Problem("test", dmkl.VSKL, "blobs5", 50, "gauss-view", {"q": 2.0, "C": 1.0})
    facts = bench.build(problem)
    assert (facts["n"], facts["s"], facts["m"], facts["methods"][0]) == (50, 9, 5, methods_of(dmkl.VSKL())[0].name)
    told = bench.fit(problem, "mirror", 20.0)
    assert told["status"] == "solved"
    assert told["gap"] <= 1e-3
    assert told["seconds"] > 0
    assert told["dual"] <= told["primal"]
    short = bench._once(replace(problem, tol=1e-14), "mirror-paper", 0.0)
    assert short["status"] == "late"
    indefinite = replace(problem, kernels="indefinite")
    bench.build(indefinite)
    refused = bench._once(indefinite, "interior", 20.0)
    assert refused["status"] == "refused"
    assert "needs positive semidefinite kernels" in refused["note"]
    told = worker._told(
        SimpleNamespace(objective=1e-14, dual=0.0, converged=True, out_of_time=False, rounds=1, passes=1, svm_calls=1),
        1e-3,
    )
    assert (told["status"], told["note"]) == ("stalled", "says that it converged")
    monkeypatch.setattr(dmkl, "solve", lambda *_, **__: 1 / 0)
    assert bench._once(indefinite, "interior", 20.0)["status"] == "failed"


def test_a_worker_that_does_not_end_is_killed() -> None:
    """And the next one goes on; also on a problem that the killed one had built."""
    crew = worker.Crew()
    try:
        slow = Problem(
            "test", dmkl.MIKL, "ringnorm", 600, "gauss-view", {"norm": "1", "lam": OfLargest(1e-4)}, tol=1e-9
        )
        crew.build(slow)
        assert crew.fit(slow, "plain", 0.0, -10.0)["status"] == "killed"
        fast = Problem("test", dmkl.UniformMKL, "blobs5", 30, "one")
        assert crew.fit(fast, "svm", 20.0, 1.0)["status"] == "solved"
    finally:
        crew.close()


class Scripted:
    """A crew whose fits take these seconds, one after the other; None is a fit that does not end."""

    def __init__(self, **seconds: list[float | None]) -> None:
        self.seconds, self.limits = seconds, []

    def build(self, problem: Problem) -> dict[str, object]:
        return {"n": problem.n, "s": 2, "m": 1, "methods": list(self.seconds)}

    def fit(self, problem: Problem, name: str, limit: float, to_stop: float) -> dict[str, object]:
        self.limits.append((name, round(limit, 9)))
        taken = self.seconds[name].pop(0)
        if taken is None:
            return {"status": "killed", "seconds": limit + to_stop, "note": ""}
        return {"status": "solved", "seconds": taken, "cpu": taken, "note": ""}


def test_the_default_comes_first_and_rivals_have_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    problem = Problem("test", dmkl.VSKL, "ringnorm", 4000, "one")  # 32 million values
    limits = fits.Limits(least=1.0, rival=0.5, times=20.0, value=5e-8, most=60.0)
    crew = Scripted(first=[0.01], second=[None], third=[4.0], plain=[])  # none of the slow ones where n is large
    row = fits.fitted(crew, problem, limits)
    assert crew.limits == [("first", 1.6), ("second", 0.5), ("third", 0.5)]
    assert fits.seconds_of(row) == {"first": 0.01, "third": 4.0}
    crew = Scripted(first=[None], second=[4.0], third=[3.0])
    assert fits.ratio_of_default(fits.fitted(crew, problem, limits)) == math.inf
    assert crew.limits == [("first", 1.6), ("second", 1.6), ("third", 60.0)]


def test_limits_are_longer_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for load, times in ((0.5, 1.0), (3.0, 3.0), (100.0, 5.0)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load * cores(), 0.0, 0.0))
        assert fits.busyness() == times


def test_where_the_default_is_behind_both_run_again() -> None:
    problem = Problem("test", dmkl.VSKL, "ringnorm", 100, "one")
    crew = Scripted(first=[2.0, 1.0], second=[1.5], third=[0.9, 1.4])
    row = fits.fitted(crew, problem, fits.Limits())
    assert fits.seconds_of(row) == {"first": 1.0, "second": 1.5, "third": 0.9}
    assert fits.ratio_of_default(row) == pytest.approx(1 / 0.9)
    assert fits.fitted(Scripted(first=[2.0]), problem, fits.Limits(), default_only=True)["fits"].keys() == {"first"}


# --- the experiment


def grown(kind: str, n: int, **seconds: float | None) -> dict[str, object]:
    """A problem of the growth rows, with the seconds of its methods; None is a fit that did not end."""
    told = {
        name: {"status": "killed" if taken is None else "solved", "seconds": taken or 30.0, "note": ""}
        for name, taken in seconds.items()
    }
    facts = {"name": f"{kind} n{n}", "row": "growth", "kind": kind, "tol": 1e-3, "n": n, "s": 10, "m": 1}
    return facts | {"fits": told}


def test_goals_count_what_is_not_solved() -> None:
    rows = [grown("l1", 1000, a=1.0, b=2.0), grown("l1", 2000, a=4.0, b=3.0), grown("uniform hinge", 1000, svm=0.1)]
    words = {"close": 1.2, "far": 2.0}
    goals = experiment._goals(rows, experiment.raced_ratios(rows), words)
    assert [goal.value for goal in goals] == [100.0, 50.0, pytest.approx(4 / 3), 0, pytest.approx(2.0)]
    rows.append(grown("l1", 4000, a=None, b=7.0))
    goals = experiment._goals(rows, experiment.raced_ratios(rows), words)
    assert [goal.value for goal in goals] == [75.0, pytest.approx(100 / 3), pytest.approx(4 / 3), 0, math.inf]
    assert [goal.met for goal in goals] == [False, False, True, True, False]


def test_profiles_end_at_the_share_that_is_solved() -> None:
    rows = [grown("l1", 1000, a=1.0, b=2.0), grown("l1", 2000, a=4.0, b=None), grown("uniform hinge", 1000, svm=None)]
    first, second = experiment.profiles(rows, horizon=20.0)  # none of the formulation with one method
    assert [(line.label, line.y[-1]) for line in first.lines] == [("l1 (2)", 1.0), ("uniform (1)", 0.0)]
    assert [(line.label, line.y[0], line.y[-1]) for line in second.lines] == [("a (2)", 1.0, 1.0), ("b (2)", 0.0, 0.5)]


def test_tables_have_the_same_columns_in_every_row() -> None:
    rows = [grown("l1", 1000, a=None, b=2.0), grown("l1", 2000, a=4.0, b=3.0), grown("mikl 21;2", 250, c=None)]
    fit = {"gap": 1e-4, "MB": 3.0, "rounds": 1, "passes": 2, "svm_calls": 3}
    rows[1]["fits"]["a"] |= fit
    words = {"close": 1.2, "shown": 5}
    solved = experiment._formulations(rows, words)
    assert [(row["formulation"], row["problems"], row["solved"]) for row in solved] == [
        ("l1", 2, 1),
        ("mikl 21;2", 1, 0),
        ("all", 3, 1),
    ]
    unsolved = experiment._unsolved(rows, ("killed",))
    assert [(row["problem"], row["solved by"], row["in s"]) for row in unsolved] == [
        ("l1 n1000", "b", 2.0),
        ("mikl 21;2 n250", None, None),
    ]
    assert [(row["best"], row["ratio"]) for row in experiment._slower(rows, words)] == [("b", pytest.approx(4 / 3))]
    assert "solved 4 s, gap 1.0e-04, 1 rounds, 2 passes, 3 SVMs, 3 MB" in experiment.in_words(rows[1])
    for table in (solved, experiment._methods(rows), experiment._growth(rows), unsolved):
        assert len({tuple(row) for row in table}) == 1


# --- the command


class Idle:
    """A crew without work."""

    def close(self) -> None:
        pass


def test_the_command_prints_a_line_a_problem_and_the_worst(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {"iris": 0.5, "wine": 0.1}
    states = {"breast_cancer": "late"}

    def fitted(crew: Idle, problem: Problem, *_: object) -> dict[str, object]:
        status = states.get(problem.data, "solved")
        fit = {"status": status, "seconds": seconds.get(problem.data, 20.0), "note": "", "gap": 0.5, "warnings": []}
        rival = {"status": "solved", "seconds": 0.1, "note": "", "warnings": ["RuntimeWarning: overflow"]}
        facts = {"name": problem.name, "row": problem.row, "kind": problem.kind, "s": 4, "m": 3, "n": problem.n}
        return facts | {"fits": {"first": fit, "second": rival}}

    monkeypatch.setattr(command, "Crew", Idle)
    monkeypatch.setattr(command, "fitted", fitted)
    file = tmp_path / "before.jsonl"
    assert command.main(["--only", "core q2 linear", "--save", str(file)]) == 1
    told = capsys.readouterr().out
    assert "   1/3 vskl q2 C1 iris n150 linear-feature tol1e-06 core" in told
    assert "first 0.500  second 0.100*" in told
    assert "first LATE 20.0 gap 5.0e-01" in told
    assert "second: RuntimeWarning: overflow" in told
    assert "default: 3 problems, 1 late, 2 solved" in told
    assert "default within 1.2 of the best: 33 % of 3" in told
    assert "     5.0 x  vskl q2 C1 iris" in told
    seconds["iris"], states["breast_cancer"], states["wine"] = 0.25, "solved", "killed"
    command.main(["--only", "core q2 linear", "--against", str(file)])
    told = capsys.readouterr().out
    assert "solved -> killed  vskl q2 C1 wine" in told
    assert "late -> solved  vskl q2 C1 breast_cancer" in told
    assert "0.50 x the time  vskl q2 C1 iris" in told
    assert command.main(["--list", "--failed", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"vskl q2 C1 breast_cancer n569 linear-feature tol1e-06 core\n1 of {len(problems())} problems\n"
    )
    assert command.main(["--list", "--only", "core q2 linear"]) == 0
    assert capsys.readouterr().out.endswith(f"3 of {len(problems())} problems\n")


# --- arithmetic


def test_ratios_and_profiles_of_an_example() -> None:
    assert FLOOR == 0.02
    first = ratios({"a": 1.0, "b": 3.0}, ["a", "b", "c"])
    assert first == {"a": 1.0, "b": 3.0, "c": math.inf}
    below = ratios({"a": 0.019, "b": 0.0001}, ["a", "b"])
    assert below == {"a": 1.0, "b": 1.0}
    half = ratios({"a": 0.06, "b": 0.001}, ["a", "b"])
    assert half == pytest.approx({"a": 3.0, "b": 1.0})
    assert ratios({}, ["a"]) == {"a": math.inf}
    found = [1.0, 3.0, 1.1, math.inf]
    assert within(found, 1.0) == 0.25
    assert within(found, 1.2) == 0.5
    assert within(found, 1e9) == 0.75
    assert math.isnan(within([], 2.0))
    assert profile(found, 10.0) == ([1.0, 1.1, 1.1, 3.0, 3.0, 10.0], [0.25, 0.25, 0.5, 0.5, 0.75, 0.75])


def test_slopes_are_of_the_larger_half() -> None:
    assert slope([1, 2, 4, 8], [9.0, 9.0, 16.0, 64.0]) == pytest.approx(2.0)
    assert slope([4, 2], [16.0, 2.0]) == pytest.approx(3.0)
    assert slope([4], [16.0]) is None


def test_bounds_that_exclude_each_other_are_told() -> None:
    def row(**fits_: tuple[float, float]) -> dict[str, object]:
        told = {name: {"status": "solved", "primal": p, "dual": d} for name, (p, d) in fits_.items()}
        return {"tol": 1e-3, "fits": told}

    assert fits.contradiction(row(a=(10.0, 9.0), b=(11.0, 9.9))) == ""
    assert fits.contradiction(row(a=(10.0, 9.0), b=(11.0, 10.5))) == "b proves at least 10.5, a has 10"
    assert fits.contradiction(row(a=(10.0, 9.0), b=(11.0, 10.0 + 1e-5))) == ""
