"""SpicyMKL: few of many kernels, any convex loss, the elastic net (FORMULATIONS section 2; Suzuki and Tomioka 2009).

    min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

A larger C is sparser. The penalty is on the norms themselves, not on their squares as in L1MKL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dmkl._util.machine import in_batches
from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, Candidates, Formulation, Values, WithLoss, grids_below_largest
from dmkl.problems.losses import Loss, LossLike
from dmkl.problems.targets import Targets
from dmkl.problems.uniform import UniformMKL
from dmkl.stack import KernelStack

AT_ONCE = 2**27  # slopes of the loss, one for each sample and class, that are in memory at once


@dataclass(frozen=True)
class SpicyMKL(WithLoss):
    """Few of many kernels, for classification or regression:

        min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

    Parameters
    ----------
    C : float
        Weight of the sparse regulariser: a larger C uses fewer kernels. It may be 0 where `ridge` is positive.
    loss : str, dict or Loss
        "hinge" or "logistic" for classes, "squared" for classes or real targets, "epsilon" for real targets.
        A dict states parameters: {"name": "epsilon", "epsilon": 0.2}.
    epsilon : float
        Half the width of the tube of the loss "epsilon".
    ridge : float
        Weight of the squared regulariser, at least 0.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2)), (1 + X @ X.T) ** 2])
    >>> stack = dmkl.KernelStack.from_array(K)
    >>> fit = dmkl.solve(stack, np.sin(X[:, 0]), dmkl.SpicyMKL(C=0.5, loss="squared"))
    >>> fit.task, fit.gap <= 1e-3
    ('regression', True)
    """

    paper: ClassVar[str] = (
        "T. Suzuki and R. Tomioka. SpicyMKL. Mathematical Engineering Technical Report METR 2009-45, The "
        "University of Tokyo, 2009."
    )

    C: float = 1.0
    loss: LossLike = "hinge"
    epsilon: float = field(default=0.1, metadata=MINOR)
    ridge: float = field(default=0.0, metadata=MINOR)

    usual: ClassVar[Candidates] = {"loss": ("hinge",)}
    usual_shares: ClassVar[Sequence[float]] = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)  # of the largest C, to try

    def __post_init__(self) -> None:
        if not (self.ridge >= 0 and np.isfinite(self.ridge)):
            raise ConfigError(f"ridge should be at least 0 and finite, not {self.ridge}")
        if not (np.isfinite(self.C) and (self.C > 0 or (self.C == 0 and self.ridge > 0))):
            raise ConfigError(f"C should be positive and finite (or 0 with a ridge), not {self.C}")
        super().__post_init__()

    @property
    def strength(self) -> float:
        return self.C

    @classmethod
    def usual_grids(cls, stack: KernelStack, labels: Labels, given: Candidates) -> list[Values]:
        """Unless C is given, shares of the smallest C at which no kernel is used; that takes one pass for each loss."""
        values = cls.usual_values(labels, given)
        return grids_below_largest(
            values, "C", "loss", lambda loss: cls(loss=loss).largest(stack, labels), cls.usual_shares
        )

    def largest(self, stack: KernelStack, labels: Labels) -> float:
        """The smallest C at which no class uses a kernel: where a path over C begins. One pass over the kernels."""
        return float(np.sqrt(null_forms(stack, self.own_loss(), self.targets(labels)).max()))

    def stretch(self, start: Formulation) -> float:
        return 1.0  # the coefficients are slopes of the loss, whatever C is

    def baseline(self, weights: Float64) -> UniformMKL:
        """The average kernel with the same total weight, which is the same C (FORMULATIONS section 2)."""
        total = float(np.mean(np.sum(np.atleast_2d(weights), axis=1)))
        return UniformMKL(C=max(total, 1e-6), loss=self.loss, epsilon=self.epsilon)


def null_forms(stack: KernelStack, loss: Loss, Y: Targets) -> Float64:
    """(m, s): the squared slope of the loss along every kernel at the model without kernels.

    One pass, unless the slopes of all classes take much memory.
    """
    n, m = Y.shape
    found = []
    for some in in_batches(range(m), len, AT_ONCE / n):
        null = np.stack([loss.null(Y.column(k)) for k in some], axis=1)
        forms = stack.apply(null, np.zeros(stack.s), forms=True).forms
        assert forms is not None
        found.append(np.maximum(forms, 0.0))
    return np.concatenate(found)
