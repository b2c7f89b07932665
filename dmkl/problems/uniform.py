"""UniformMKL: one loss on the average kernel, one class against the rest or regression.

    min  1/2 ||w||^2 + C sum_i l(y_i, <w, phi(x_i)> + b)      with the kernel  1/s sum_a K_a

It is the baseline that every learnt combination has to beat, so the formulations whose C means the same stand on
`BoundedByC` in this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, Candidates, Formulation, WithLoss, WithoutKernels, require_positive_C
from dmkl.problems.losses import LossLike, loss_of
from dmkl.problems.targets import Targets


class BoundedByC(Formulation):
    """Formulations with 0 <= alpha <= C."""

    C: float

    usual: ClassVar[Candidates] = {"C": (0.1, 1.0, 10.0, 100.0)}

    @property
    def strength(self) -> float:
        return 1.0 / self.C

    def stretch(self, start: Formulation) -> float:
        return self.C / start.C if isinstance(start, BoundedByC) else 1.0

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        return WithoutKernels.of(loss_of("hinge").counting(self.C * counts), Y)

    def baseline(self, weights: Float64) -> Formulation:
        return UniformMKL(C=self.C)


@dataclass(frozen=True)
class UniformMKL(WithLoss, BoundedByC):
    """The average kernel with a fixed loss:

        min  1/2 ||w||^2 + C sum_i l(y_i, <w, phi(x_i)> + b)      with the kernel  1/s sum_a K_a

    Parameters
    ----------
    C : float
        How much the loss counts against the regulariser, positive.
    intercept : bool
        Whether there is a free intercept b; the hinge loss alone can do without.
    loss : str, dict or Loss
        "hinge", "logistic", "squared" or "epsilon"; the last two also fit real targets.
        A dict states parameters: {"name": "epsilon", "epsilon": 0.2}.
    epsilon : float
        Half the width of the tube of the loss "epsilon".

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
    >>> dmkl.solve(stack, X[:, 0] > 0, dmkl.UniformMKL(C=10.0)).converged
    True
    >>> dmkl.solve(stack, X[:, 0], dmkl.UniformMKL(C=10.0, loss="squared")).task
    'regression'
    """

    paper: ClassVar[str] = "V. Vapnik. Statistical Learning Theory. Wiley-Interscience, 1998."

    C: float = 1.0
    intercept: bool = field(default=True, metadata=MINOR)
    loss: LossLike = field(default="hinge", metadata=MINOR)
    epsilon: float = field(default=0.1, metadata=MINOR)

    def __post_init__(self) -> None:
        require_positive_C(self.C)
        super().__post_init__()
        if not (self.intercept or self.loss == "hinge"):
            raise ConfigError("only the hinge loss can do without an intercept")

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        return WithoutKernels.of(self.own_loss().counting(self.C * counts), Y, intercept=self.intercept)

    def baseline(self, weights: Float64) -> UniformMKL:
        return self
