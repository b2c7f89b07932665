"""UniformMKL: the SVM on the average kernel, one-vs-rest.

    min  1/2 ||w||^2 + C sum_i [1 - y_i (<w, phi(x_i)> + b)]+      with the kernel  1/s sum_a K_a

The baseline every learnt combination has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dmkl.errors import ConfigError
from dmkl.solvers.fixed_weights import FixedWeights
from dmkl.solvers.problem import MINOR, Problem, Solver


@dataclass(frozen=True)
class UniformMKL:
    """The SVM on the average kernel; C bounds every alpha, `intercept` adds a free bias."""

    C: float = 1.0
    intercept: bool = field(default=True, metadata=MINOR)

    def __post_init__(self) -> None:
        check_C(self.C)

    def solver(self, problem: Problem) -> Solver:
        problem.stack.require_semidefinite("UniformMKL")
        return FixedWeights(self.C, self.intercept).solver(problem, np.full(problem.stack.s, 1.0 / problem.stack.s))


def check_C(C: float) -> None:
    if not (C > 0 and np.isfinite(C)):
        raise ConfigError(f"C should be positive and finite, not {C}")
