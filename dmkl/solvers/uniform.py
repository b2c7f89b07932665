"""UniformMKL: the SVM, or another loss's machine, on the average kernel, one-vs-rest.

    min  1/2 ||w||^2 + C sum_i l(y_i, <w, phi(x_i)> + b)      with the kernel  1/s sum_a K_a and l the hinge

The baseline every learnt combination has to beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.problems.losses import LossLike
from dmkl.solvers.fixed_loss import FixedLoss
from dmkl.solvers.fixed_weights import FixedWeights
from dmkl.solvers.problem import MINOR, Formulation, Problem, Solver
from dmkl.solvers.rounds import Rounds
from dmkl.solvers.targets import WithLoss


class BoundedByC(Formulation):
    """Formulations whose C bounds every alpha."""

    C: float

    usual: ClassVar[Mapping[str, Sequence[Any]]] = {"C": (0.1, 1.0, 10.0, 100.0)}

    @property
    def strength(self) -> float:
        return 1.0 / self.C

    def stretch(self, start: Any) -> float:
        return float(self.C / start.C)

    def baseline(self, weights: Float64) -> Formulation:
        return UniformMKL(C=self.C)


@dataclass(frozen=True)
class UniformMKL(WithLoss, BoundedByC):
    """The average kernel with a loss; C is the loss's share, `intercept` adds a free bias."""

    C: float = 1.0
    intercept: bool = field(default=True, metadata=MINOR)
    loss: LossLike = field(default="hinge", metadata=MINOR)
    epsilon: float = field(default=0.1, metadata=MINOR)

    def __post_init__(self) -> None:
        check_C(self.C)
        super().__post_init__()
        if not (self.intercept or self.loss == "hinge"):
            raise ConfigError("only the hinge loss can do without an intercept")

    def baseline(self, weights: Float64) -> UniformMKL:
        return self

    def solver(self, problem: Problem) -> Solver:
        problem.stack.require_semidefinite("UniformMKL")
        weights = np.full(problem.stack.s, 1.0 / problem.stack.s)
        if self.loss == "hinge":
            return FixedWeights(self.C, self.intercept).solver(problem, weights)
        return Rounds(FixedLoss(self.own_loss(), self.C, weights), problem.stack.dtype)


def check_C(C: float) -> None:
    if not (C > 0 and np.isfinite(C)):
        raise ConfigError(f"C should be positive and finite, not {C}")
