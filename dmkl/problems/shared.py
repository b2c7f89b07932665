"""SharedMKL: one combination of kernels for all classes or labels (FORMULATIONS section 3; Bucak, Jin and Jain 2010).

    H_k(p) = min_f  1/2 sum_a ||w_ka||^2 / p_a + C sum_i [1 - y_ik f_k(x_i)]+,    p >= 0, sum(p) = 1

    sum    min_p sum_k H_k(p) = min 1/2 (sum_a sqrt(sum_k ||w_ka||^2))^2 + C sum_k sum_i [...]+
    max    min_p max_k H_k(p)

Both are convex in p, which has one entry for each kernel, and every SVM gives a cut and a curvature in p. So both are
solved by bundle methods (`dmkl/solvers/shared_sum.py` and `shared_max.py`). The paper's own steps, along the gradients
of all classes or of sampled ones, are there too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, WithoutKernels, require_positive_C
from dmkl.problems.losses import loss_of
from dmkl.problems.targets import Targets
from dmkl.problems.uniform import BoundedByC


@dataclass(frozen=True)
class SharedMKL(BoundedByC):
    """One combination of kernels for all classes, learnt from the sum of their objectives or from the worst one.

        min_p  sum_k H_k(p)   or   min_p  max_k H_k(p),      p >= 0, sum(p) = 1
        H_k(p) = min_f  1/2 sum_a ||w_ka||^2 / p_a + C sum_i [1 - y_ik f_k(x_i)]+

    Parameters
    ----------
    C : float
        How much the loss counts against the regulariser, positive.
    mode : {"sum", "max"}
        Whether the sum of the classes' objectives is minimised, or the largest of them.
    intercept : bool
        Whether every class has a free intercept.
    delta : float
        For the mode "max": classes are sampled by (1 - delta) gamma + delta / m, delta in [0, 1].
    eta : float
        For the mode "max" and the method "mirror-paper": the constant size of the paper's steps; 0 takes scale-free
        steps.
    batch : int
        For the mode "max": the number of classes that are sampled at once.
    stop : {"gap", "paper"}
        What ends a run: the gap at the tolerance; or, if it comes first, the paper's rule, that a step changes the
        average of the weights by less than 1 %. The rule is for the paper's methods, "sa-paper" and "mirror-paper". The
        gap is certified either way.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2))])
    >>> fit = dmkl.solve(dmkl.KernelStack.from_array(K), y, dmkl.SharedMKL(C=1.0, mode="max"))
    >>> fit.weights.shape, fit.coef.shape, bool(fit.gap <= 1e-3)
    ((2,), (60, 3), True)
    """

    paper: ClassVar[str] = (
        "S. S. Bucak, R. Jin and A. K. Jain. Multi-label Multiple Kernel Learning by Stochastic "
        "Approximation: Application to Visual Object Recognition. Neural Information Processing Systems, "
        "2010."
    )

    C: float = 1.0
    mode: str = "sum"
    intercept: bool = field(default=True, metadata=MINOR)
    delta: float = field(default=0.2, metadata=MINOR)
    eta: float = field(default=0.0, metadata=MINOR)
    batch: int = field(default=1, metadata=MINOR)
    stop: str = field(default="gap", metadata=MINOR)

    def __post_init__(self) -> None:
        require_positive_C(self.C)
        if self.mode not in ("sum", "max"):
            raise ConfigError(f"mode should be sum or max, not '{self.mode}'")
        if not 0 <= self.delta <= 1:
            raise ConfigError(f"delta should be in [0, 1], not {self.delta}")
        if not (self.eta >= 0 and np.isfinite(self.eta)):
            raise ConfigError(f"eta should be positive, or 0 for scale-free steps, not {self.eta}")
        if not (isinstance(self.batch, int) and self.batch >= 1):
            raise ConfigError(f"batch should be a whole number of at least 1, not {self.batch}")
        if self.stop not in ("gap", "paper"):
            raise ConfigError(f"stop should be gap or paper, not '{self.stop}'")

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        alone = WithoutKernels.of(loss_of("hinge").counting(self.C * counts), Y, intercept=self.intercept)
        together = np.sum if self.mode == "sum" else np.max
        return WithoutKernels(np.array([together(alone.primal)]), np.array([together(alone.dual)]), alone.intercept)
