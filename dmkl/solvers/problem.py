"""The problem of all classes over one stack, and the interface of a solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dmkl._util.types import Float64
from dmkl.events import Observer, ignore
from dmkl.problems.targets import Targets
from dmkl.runtime import Runtime
from dmkl.solvers.state import MethodState, State
from dmkl.stack import KernelStack


@dataclass(frozen=True)
class Problem:
    """The problems of all classes over one stack."""

    stack: KernelStack
    Y: Targets  # (n, m): of class k a column of -1/+1, or real targets
    tol: float
    oracle: str  # solves the SVMs
    runtime: Runtime  # where the tasks of the classes run
    method: str = ""  # the method's name in `dmkl.solvers.methods`
    seed: int = 0
    start: State | None = None  # the last state of a neighbouring problem, with coefficients feasible in this one
    sample_weight: Float64 | None = None  # (n,) how many times each sample counts, once if None
    observer: Observer = ignore

    @property
    def counts(self) -> Float64:
        """(n,): the factor of each sample's loss, and so of its bound on alpha."""
        return np.ones(self.n) if self.sample_weight is None else self.sample_weight

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.Y.shape[0]

    @property
    def m(self) -> int:
        """The number of classes, 1 for two classes or a regression."""
        return self.Y.shape[1]


class Solver(Protocol):
    """An algorithm as `init` and `step` over an explicit state; the outer loop does everything else."""

    @property
    def own_type(self) -> type[MethodState]:
        """The type of `State.own` in this solver's states."""

    def init(self, problem: Problem) -> State:
        """The state before the first round."""

    def step(self, problem: Problem, state: State) -> State:
        """One round: improve the classes whose gap is above the tolerance, and certify them over all samples."""

    def leave(self, problem: Problem, state: State) -> State:
        """The state to make a model of when the loop ends early; every class has coefficients in it."""
