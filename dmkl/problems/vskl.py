"""VSKL, L1MKL and LpMKL: weights learnt for each class under a mixed norm (FORMULATIONS section 1; Aflalo et al. 2011).

    min  1/2 [ sum_j ( sum_{a in j} ||w_a|| )^(2q) ]^(1/q) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+     VSKL
    min  1/2 ( sum_a ||w_a|| )^2 + C sum_i [...]+                                                                L1MKL
    min  1/2 ( sum_a ||w_a||^r )^(2/r) + C sum_i [...]+,   r = 2p / (p + 1)                                      LpMKL

All three are one family (`dmkl.problems.norms`), and each class is a problem of its own, one against the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dmkl._util.types import Samples
from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, Candidates, require_positive, require_positive_C
from dmkl.problems.norms import ConcaveNorm, MixedNorm
from dmkl.problems.uniform import BoundedByC


class MixedNormMKL(BoundedByC):
    """The hinge loss with a mixed norm over the kernels as regulariser."""

    weighted: ClassVar[bool] = True

    @abstractmethod
    def norm(self, groups: Samples) -> MixedNorm:
        """The regulariser of kernels in these groups (s,)."""

    @property
    def mirror_step(self) -> float:
        """The constant of the step sizes of the method "mirror-paper"."""
        return 1.0


@dataclass(frozen=True)
class VSKL(MixedNormMKL):
    """Groups of kernels: sparse inside a group, q across groups:

        min  1/2 [ sum_j ( sum_{a in j} ||w_a|| )^(2q) ]^(1/q) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+

    Parameters
    ----------
    q : float
        In (0, inf]; with q = inf every group is used equally, smaller values prefer the better groups. Below 1 it is
        composite kernel learning; q = 1/2 is L1MKL, whatever the groups. Below 1/2 few groups have any weight, and the
        problem is not convex: the solution is a stationary point, of which the gap proves little.
    C : float
        How much the loss counts against the regulariser, positive.
    step : float
        For the method "mirror-paper": the constant A of the paper's step sizes A sqrt(log n_max) / (|G'| sqrt t), where
        n_max is the number of kernels of the largest group and G' the gradient. Positive.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2)), (1 + X @ X.T) ** 2])
    >>> stack = dmkl.KernelStack.from_array(K, groups=[0, 0, 1])
    >>> fit = dmkl.solve(stack, X[:, 0] > 0, dmkl.VSKL(q=2, C=10.0))
    >>> fit.weights.shape, fit.coef.shape, fit.gap <= 1e-3
    ((1, 3), (60,), True)
    """

    paper: ClassVar[str] = (
        "J. Aflalo, A. Ben-Tal, C. Bhattacharyya, J. Saketha Nath and S. Raman. Variable Sparsity Kernel "
        "Learning. Journal of Machine Learning Research 12, 2011."
    )

    q: float = 2.0
    C: float = 1.0
    step: float = field(default=1.0, metadata=MINOR)

    usual: ClassVar[Candidates] = {"q": (1.0, 1.5, 2.0, 3.0, 8.0, np.inf), **BoundedByC.usual}

    def __post_init__(self) -> None:
        require_positive_C(self.C)
        require_positive("step", self.step)
        if not self.q > 0:
            raise ConfigError(f"q should be in (0, inf], not {self.q}")

    def norm(self, groups: Samples) -> MixedNorm:
        if self.q < 0.5:
            return ConcaveNorm(groups, np.inf, 2 * self.q)
        if self.q == 0.5:
            return MixedNorm(np.zeros_like(groups), 2.0)
        return MixedNorm(groups, 1.0 if np.isinf(self.q) else 2 * self.q / (2 * self.q - 1))

    @property
    def mirror_step(self) -> float:
        return self.step


@dataclass(frozen=True)
class L1MKL(MixedNormMKL):
    """Sparse over all kernels, which is VSKL with a single group:

        min  1/2 ( sum_a ||w_a|| )^2 + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+

    Parameters
    ----------
    C : float
        How much the loss counts against the regulariser, positive.
    step : float
        For the method "mirror-paper": the constant A of the step sizes, as for VSKL. Positive.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2)), (1 + X @ X.T) ** 2])
    >>> fit = dmkl.solve(dmkl.KernelStack.from_array(K), X[:, 0] > 0, dmkl.L1MKL(C=10.0))
    >>> fit.gap <= 1e-3, int((fit.weights > 0).sum()) <= 3
    (True, True)
    """

    paper: ClassVar[str] = (
        "F. Bach, G. R. G. Lanckriet and M. I. Jordan. Multiple kernel learning, conic duality, and the SMO "
        "algorithm. International Conference on Machine Learning, 2004."
    )

    C: float = 1.0
    step: float = field(default=1.0, metadata=MINOR)

    def __post_init__(self) -> None:
        require_positive_C(self.C)
        require_positive("step", self.step)

    def norm(self, groups: Samples) -> MixedNorm:
        return MixedNorm(np.zeros_like(groups), 2.0)

    @property
    def mirror_step(self) -> float:
        return self.step


@dataclass(frozen=True)
class LpMKL(MixedNormMKL):
    """Weights d >= 0 with ||d||_p <= 1:

        min  1/2 ( sum_a ||w_a||^r )^(2/r) + C sum_i [1 - y_i (sum_a <w_a, phi_a(x_i)> + b)]+,   r = 2p / (p + 1)

    Parameters
    ----------
    p : float
        In [1, inf]; p = 1 is L1MKL, p = inf the SVM on the sum of the kernels.
    C : float
        How much the loss counts against the regulariser, positive.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2)), (1 + X @ X.T) ** 2])
    >>> fit = dmkl.solve(dmkl.KernelStack.from_array(K), X[:, 0] > 0, dmkl.LpMKL(p=1.5, C=10.0))
    >>> fit.gap <= 1e-3, bool((fit.weights > 0).all())
    (True, True)
    """

    paper: ClassVar[str] = (
        "M. Kloft, U. Brefeld, S. Sonnenburg and A. Zien. Non-sparse regularization and efficient training "
        "with multiple kernels. Technical report UCB/EECS-2010-21, University of California, Berkeley, 2010."
    )

    p: float = 2.0
    C: float = 1.0

    usual: ClassVar[Candidates] = {"p": (1.0, 1.25, 2.0, 4.0, np.inf), **BoundedByC.usual}

    def __post_init__(self) -> None:
        require_positive_C(self.C)
        if not self.p >= 1:
            raise ConfigError(f"p should be in [1, inf], not {self.p}")

    def norm(self, groups: Samples) -> MixedNorm:
        if self.p == 1:
            return MixedNorm(np.zeros_like(groups), 2.0)
        rho = 2.0 if np.isinf(self.p) else 2 * self.p / (self.p - 1)
        return MixedNorm(np.arange(len(groups)), rho)
