"""MIKL: any kernels, symmetric or not, semidefinite or not, with mixed norms (FORMULATIONS section 5; Kowalski,
Szafranski and Ralaivola 2009).

    min  sum_i [1 - y_i f(x_i)]+^2 + lam/Q ||alpha||_{PQ;r}^Q,      f(x) = sum_a sum_i alpha[i, a] k_a(x_i, x)

Every sample has a coefficient for every kernel. The norm says what is sparse: "1" single coefficients, "21;1" samples,
"21;2" kernels, "12;1" the kernels of each sample, "12;2" the samples of each kernel, "2" nothing. There is no
intercept: a constant kernel is one. Classes are apart, one against the rest.

A round solves a compact problem over the coefficients that may matter (`sets.py`), against all samples, by
forward-backward steps (`descent.py`) and an exact end (`newton.py`); one pass then certifies it over all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.data import Labels, make_labels
from dmkl.errors import ConfigError, did_you_mean
from dmkl.problems.base import Formulation, grids_below_largest
from dmkl.problems.proxes import GroupNorm
from dmkl.solvers.mikl.rounds import Shape, SparseRounds
from dmkl.solvers.problem import Problem, Solver
from dmkl.stack import KernelStack

NORMS = {"1": (1, 1, 1), "2": (2, 2, 1), "21;1": (2, 1, 1), "21;2": (2, 1, 2), "12;1": (1, 2, 1), "12;2": (1, 2, 2)}
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)  # of the largest lam, that are worth trying
ROUNDED_UP = 1.0 + 1e-10
LEAST = 0.01  # of the objective that a norm without a largest lam should still explain at it


@dataclass(frozen=True)
class MIKL(Formulation):
    """Kernels of any kind, sparse by sample or by kernel; `norm` is one of 1, 2, 21;1, 21;2, 12;1, 12;2."""

    norm: str = "21;2"
    lam: float = 1.0

    per_kernel: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Sequence[Any]]] = {"norm": ("1", "21;1", "21;2")}

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise ConfigError(f"unknown norm '{self.norm}'", did_you_mean(self.norm, list(NORMS)))
        if not (self.lam > 0 and np.isfinite(self.lam)):
            raise ConfigError(f"lam should be positive and finite, not {self.lam}")

    @classmethod
    def largest(cls, stack: KernelStack, y: Any, norm: str = "21;2") -> float:
        """The smallest lam at which every coefficient of every class is zero: where a path over lam begins.

        A little more than that: sums that come out in another order must not leave a coefficient.
        For "2", "12;1" and "12;2" no finite lam does that. There it is the lam at which the objective is at least 99 %
        of what it is without a model. One pass.
        """
        labels = y if isinstance(y, Labels) else make_labels(y, "auto")
        Y = cls(norm).targets(labels)
        V = stack.correlate(2.0 * Y)
        penalty = cls(norm)._shape().norm(np.ones(V.shape[:2], dtype=bool), 1.0)
        return ROUNDED_UP * max(_largest(penalty, V[:, :, k].ravel(), len(Y)) for k in range(Y.shape[1]))

    @classmethod
    def path(
        cls, stack: KernelStack, y: Any, norm: str = "21;2", *, count: int = 20, ratio: float = 1e-3
    ) -> list[MIKL]:
        """For `solve_path`: from the largest lam down to `ratio` times it, in equal steps of its logarithm."""
        lams = cls.largest(stack, y, norm) * np.geomspace(1.0, ratio, count)
        return [cls(norm, float(lam)) for lam in lams]

    @property
    def strength(self) -> float:
        return self.lam

    @classmethod
    def usual_grids(
        cls, stack: KernelStack, labels: Labels, given: Mapping[str, Sequence[Any]]
    ) -> list[dict[str, Sequence[Any]]]:
        """Unless lam is given, from half the largest one of each norm down, which takes a pass a norm."""
        values = cls.usual_values(labels, given)
        return grids_below_largest(values, "lam", "norm", lambda norm: cls.largest(stack, labels, norm), SHARES)

    def stretch(self, start: Formulation) -> float:
        return 1.0

    def baseline(self, weights: Float64) -> MIKL:
        """The norm that chooses neither samples nor kernels."""
        return MIKL("2", self.lam)

    def _shape(self) -> Shape:
        return Shape(*NORMS[self.norm])


def build(formulation: MIKL, problem: Problem) -> Solver:
    """Rounds over the coefficients that may matter."""
    return SparseRounds(formulation._shape(), formulation.lam)


def _largest(penalty: GroupNorm, V: Float64, n: int) -> float:
    """V at u = 2, `penalty` with lam = 1. For Q = 2: n / (1 + pen*(V)/n) is the best bound along this u."""
    if penalty.outer == 1:
        return penalty.largest(V)
    return penalty.conjugate(V) / n * (1.0 - LEAST) / LEAST
