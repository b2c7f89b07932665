"""All methods on one problem, and what is said of the results."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from dmkl._util.machine import cores
from pipelines.benchmarks.proving_ground.problems import TOL, Problem
from pipelines.benchmarks.proving_ground.profiles import ratios
from pipelines.benchmarks.proving_ground.worker import Crew
from pipelines.common.experiment import Row

# the papers' own algorithms, which need minutes; they run on some small problems
SLOW = ("mirror-paper", "sa-paper", "stochastic", "online", "pegasos", "plain")
REMATCH = 1.1  # ratio of the default's time to the best one's from which both fit once more
MOST_BUSY = 5.0  # times its limit that a method may take on a busy machine
ROUNDING = 0.01  # of the tolerance, by which bounds may contradict each other


@dataclass(frozen=True)
class Limits:
    """How long a method may take.

    Attributes
    ----------
    least : seconds of a method while none has solved the problem
    rival : seconds of a method when another one has solved it, or
    times : so many times the seconds of the best one so far, if that is more
    value : seconds per kernel value and class while none has solved it, if that is more than `least`
    most : seconds that no method may exceed
    slow : seconds of the papers' own algorithms
    to_stop : seconds after its time in which a method has to end
    slow_samples, slow_share : the cut on which they run: this share of the problems with at most so many samples
    """

    least: float = 20.0
    rival: float = 10.0
    times: float = 20.0
    value: float = 5e-8
    most: float = 60.0
    slow: float = 5.0
    to_stop: float = 10.0
    slow_samples: int = 200
    slow_share: float = 0.2

    def of(self, method: str, best: float, values: float) -> float:
        """The seconds of a method, where the best one so far took `best`, and infinite ones if there is none."""
        if method in SLOW:
            return self.slow
        solved = math.isfinite(best)
        allowed = max(self.rival, self.times * best) if solved else max(self.least, self.value * values)
        return min(allowed, self.most)

    def slow_cut(self, problem: Problem) -> bool:
        chance = zlib.crc32(problem.name.encode()) / 2**32
        return problem.n <= self.slow_samples and problem.tol == TOL and chance < self.slow_share


def fitted(crew: Crew, problem: Problem, limits: Limits, chosen: Sequence[str] = (), default_only: bool = False) -> Row:
    """Facts about a problem, and the results of its methods, the default first."""
    facts = crew.build(problem)
    names: list[str] = facts.pop("methods")
    if default_only:
        names = names[:1]
    names = [name for name in names if name in chosen] if chosen else entered(problem, names, limits)
    best, results = math.inf, {}
    for name in names:
        values = float(facts["n"]) ** 2 * facts["s"] * facts["m"]
        results[name] = crew.fit(problem, name, limits.of(name, best, values) * busyness(), limits.to_stop)
        if results[name]["status"] == "solved":
            best = min(best, results[name]["seconds"])
    words = {"name": problem.name, "row": problem.row, "kind": problem.kind, "tol": problem.tol}
    row = {**words, **facts, "fits": results}
    if results and REMATCH < ratio_of_default(row) < math.inf:
        _rematch(crew, problem, limits, row)
    return row


def _rematch(crew: Crew, problem: Problem, limits: Limits, row: Row) -> None:
    """The default and the fastest method once more: a race between two fits of seconds is not decided by one run."""
    solved = seconds_of(row)
    for name in (next(iter(row["fits"])), min(solved, key=solved.__getitem__)):
        again = crew.fit(problem, name, limits.most * busyness(), limits.to_stop)
        if again["status"] == "solved":
            row["fits"][name] |= {key: min(row["fits"][name][key], again[key]) for key in ("seconds", "cpu")}


def busyness() -> float:
    """How much longer everything takes than on a quiet machine, from 1 to 5, by the load a core."""
    return min(max(os.getloadavg()[0] / cores(), 1.0), MOST_BUSY)


def entered(problem: Problem, names: Sequence[str], limits: Limits) -> list[str]:
    """The methods that take part on a problem."""
    return [name for name in names if name not in SLOW or limits.slow_cut(problem)]


def seconds_of(row: Row) -> dict[str, float]:
    """Seconds of the methods that solved the problem."""
    return {name: fit["seconds"] for name, fit in row["fits"].items() if fit["status"] == "solved"}


def default_of(row: Row) -> Row:
    return dict(next(iter(row["fits"].values())))


def ratio_of_default(row: Row) -> float:
    """The default's time over the best one's, infinite if it did not solve the problem."""
    name = next(iter(row["fits"]))
    return ratios(seconds_of(row), [name])[name]


def contradiction(row: Row) -> str:
    """Two methods whose bounds exclude each other, or one whose own do: then one of the certificates is wrong."""
    known = {name: fit for name, fit in row["fits"].items() if fit.get("primal") is not None}
    for above, one in known.items():
        for below, other in known.items():
            if other["dual"] > one["primal"] + ROUNDING * row["tol"] * abs(one["primal"]):
                return f"{below} proves at least {other['dual']:.9g}, {above} has {one['primal']:.9g}"
    return ""
