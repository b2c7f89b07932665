"""A method whose first round lasts until it has to stop; as a program, the command line with this method.

It stands in for any round that lasts: real ones get faster.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from dmkl._util.stopping import must_stop
from dmkl.problems.uniform import UniformMKL
from dmkl.solvers import fixed_weights, methods
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import MethodState, State


@dataclass(frozen=True)
class Waiting:
    """Another solver, which begins when there is no time left."""

    solver: Solver

    @property
    def own_type(self) -> type[MethodState]:
        return self.solver.own_type

    def init(self, problem: Problem) -> State:
        return self.solver.init(problem)

    def step(self, problem: Problem, state: State) -> State:
        while not must_stop():
            time.sleep(0.005)
        return self.solver.step(problem, state)

    def leave(self, problem: Problem, state: State) -> State:
        return self.solver.leave(problem, state)


def build(formulation: UniformMKL, problem: Problem) -> Solver:
    return Waiting(fixed_weights.build(formulation, problem))


def register() -> None:
    """Add the method to those of UniformMKL."""
    if "waiting" not in {method.name for method in methods.METHODS[UniformMKL]}:
        methods.register(UniformMKL, "waiting", build)


if __name__ == "__main__":
    from dmkl.cli.main import main

    register()
    sys.exit(main(sys.argv[1:]))
