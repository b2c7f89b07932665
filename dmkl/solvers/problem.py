"""What a solver is given, and what it must be able to do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmkl.events import Observer, ignore
from dmkl.runtime import Runtime
from dmkl.solvers.state import State
from dmkl.stack import KernelStack


@dataclass(frozen=True)
class Problem:
    """One-vs-rest problems over one stack: column k of Y holds the -1/+1 labels of class k."""

    stack: KernelStack
    Y: NDArray[np.float64]  # (n, m)
    tol: float
    oracle: str
    runtime: Runtime  # where the classes' tasks run
    method: str = ""  # how a compact problem is solved; the formulation's own choice unless named
    seed: int = 0
    start: State | None = None  # where a neighbouring problem ended, its coefficients feasible here
    observer: Observer = ignore

    @property
    def n(self) -> int:
        return int(self.Y.shape[0])

    @property
    def m(self) -> int:
        return int(self.Y.shape[1])


class Solver(Protocol):
    """An algorithm as `init` and `step` over explicit state; the loop does everything else."""

    def init(self, problem: Problem) -> State:
        """The state before the first round."""

    def step(self, problem: Problem, state: State) -> State:
        """One round: improve the classes whose gap is above the tolerance, and certify them over all samples."""

    def leave(self, problem: Problem, state: State) -> State:
        """The state to make a model of when the loop ends early: no class without coefficients."""


MINOR: Any = {"minor": True}  # metadata of a formulation's fields that are only worth a word when not as by default


def describe(formulation: Any) -> str:
    """'VSKL q=2 C=10': the name, then its constants."""
    words = [type(formulation).__name__]
    for field in dataclasses.fields(formulation):
        value = getattr(formulation, field.name)
        if not field.metadata.get("minor") or value != field.default:
            words.append(f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}")
    return " ".join(words)


class Formulation(Protocol):
    """An optimisation problem with its constants; it knows the solver that takes it."""

    def solver(self, problem: Problem) -> Solver:
        """Check that this problem can be solved, before any work, and say by whom."""
