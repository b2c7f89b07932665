"""MIKL: kernels of any kind, symmetric or not, semidefinite or not, with mixed norms over their coefficients.

    min  sum_i [1 - y_i f(x_i)]+^2 + lam/Q ||alpha||_{PQ;r}^Q,      f(x) = sum_a sum_i alpha[i, a] k_a(x_i, x)

Every sample has a coefficient for every kernel (FORMULATIONS section 5; Kowalski, Szafranski and Ralaivola 2009). The
norm says what is sparse: "1" single coefficients, "21;1" samples, "21;2" kernels, "12;1" the kernels of each sample,
"12;2" the samples of each kernel, "2" nothing. There is no intercept; a constant kernel serves as one. With several
classes each is a problem of its own, one against the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dmkl._util.types import Float64, Mask
from dmkl.data import Labels, make_labels
from dmkl.errors import ConfigError, did_you_mean
from dmkl.problems.base import Candidates, Formulation, Values, WithoutKernels, grids_below_largest
from dmkl.problems.norms import GroupNorm, groups_of
from dmkl.problems.targets import Targets
from dmkl.stack import KernelStack

NORMS = {"1": (1, 1, 1), "2": (2, 2, 1), "21;1": (2, 1, 1), "21;2": (2, 1, 2), "12;1": (1, 2, 1), "12;2": (1, 2, 2)}


@dataclass(frozen=True)
class GridOptions:
    """Which values of lam are worth trying."""

    shares: tuple[float, ...] = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)  # of the largest lam
    explained: float = 0.01  # share of the objective that the model explains at the "largest" lam of norms without one
    rounded_up: float = 1.0 + 1e-10  # so that sums in another order leave no coefficient at the largest lam


GRID = GridOptions()


@dataclass(frozen=True)
class MIKL(Formulation):
    """Kernels of any kind, with a coefficient for every sample and kernel that a mixed norm makes sparse.

        min  sum_i [1 - y_i f(x_i)]+^2 + lam/Q ||alpha||_{PQ;r}^Q,      f(x) = sum_a sum_i alpha[i, a] k_a(x_i, x)

    Parameters
    ----------
    norm : {"1", "2", "21;1", "21;2", "12;1", "12;2"}
        P, Q and r of the norm. It makes zero: "1" single coefficients, "21;1" samples, "21;2" kernels, "12;1" kernels
        of each sample, "12;2" samples of each kernel, "2" nothing.
    lam : float
        How much the norm counts against the loss, positive.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> K = np.stack([np.tanh(X @ X.T), np.ones((40, 40))])
    >>> fit = dmkl.solve(dmkl.KernelStack.from_array(K), X[:, 0] > 0, dmkl.MIKL(norm="21;1", lam=0.5))
    >>> fit.coef.shape, bool(fit.gap <= 1e-3)
    ((40, 2), True)
    """

    paper: ClassVar[str] = (
        "M. Kowalski, M. Szafranski and L. Ralaivola. Multiple Indefinite Kernel Learning with Mixed Norm "
        "Regularization. International Conference on Machine Learning, 2009."
    )

    norm: str = "21;2"
    lam: float = 1.0

    per_kernel: ClassVar[bool] = True
    usual: ClassVar[Candidates] = {"norm": ("1", "21;1", "21;2")}

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise ConfigError(f"unknown norm '{self.norm}'", did_you_mean(self.norm, list(NORMS)))
        if not (self.lam > 0 and np.isfinite(self.lam)):
            raise ConfigError(f"lam should be positive and finite, not {self.lam}")

    def penalty(self, members: Mask) -> GroupNorm:
        """The regulariser of the coefficients in a mask (s, n) of them, read row after row; the others are zero."""
        inner, outer, r = NORMS[self.norm]
        groups, count = groups_of(members, r)
        return GroupNorm(inner, outer, self.lam, groups, count)

    @classmethod
    def largest(cls, stack: KernelStack, y: ArrayLike | Labels, norm: str = "21;2") -> float:
        """The lam at which a path over lam begins, in one pass over the kernels.

        For the norms "1", "21;1" and "21;2" it is, up to rounding, the smallest lam at which every coefficient of every
        class is zero. For the others no finite lam does that; there it is a lam at which the objective is at least 99 %
        of its value without a model.

        Parameters
        ----------
        stack : KernelStack
            The kernels of n samples.
        y : Labels or array (n,) or (n, m)
            Labels as `solve` takes them.
        norm : str
            The norm of the formulation.

        Returns
        -------
        float
        """
        labels = y if isinstance(y, Labels) else make_labels(y, "auto")
        unit = cls(norm)
        n, m = unit.targets(labels).shape
        V = stack.correlate(2.0 * unit.targets(labels).dense())  # V has s times as many values
        penalty = unit.penalty(np.ones(V.shape[:2], dtype=bool))
        return GRID.rounded_up * max(_largest(penalty, V[:, :, k].ravel(), n) for k in range(m))

    @classmethod
    def path(
        cls, stack: KernelStack, y: ArrayLike | Labels, norm: str = "21;2", *, count: int = 20, ratio: float = 1e-3
    ) -> list[MIKL]:
        """Formulations for `solve_path`, from the largest lam down to `ratio` times it.

        Parameters
        ----------
        stack, y, norm
            As in `largest`.
        count : int
            The number of formulations, in equal steps of log(lam).
        ratio : float
            The smallest lam as a share of the largest.

        Returns
        -------
        list of MIKL
        """
        lams = cls.largest(stack, y, norm) * np.geomspace(1.0, ratio, count)
        return [cls(norm, float(lam)) for lam in lams]

    @property
    def strength(self) -> float:
        return self.lam

    @classmethod
    def usual_grids(cls, stack: KernelStack, labels: Labels, given: Candidates) -> list[Values]:
        """Unless lam is given: from half the largest lam of each norm down, which takes a pass for each norm."""
        values = cls.usual_values(labels, given)
        return grids_below_largest(values, "lam", "norm", lambda norm: cls.largest(stack, labels, norm), GRID.shares)

    def stretch(self, start: Formulation) -> float:
        return 1.0

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        n, m = Y.shape
        return WithoutKernels(np.full(m, float(n)), np.zeros(m), np.zeros(m))

    def baseline(self, weights: Float64) -> MIKL:
        """The norm that chooses neither samples nor kernels."""
        return MIKL("2", self.lam)


def _largest(penalty: GroupNorm, V: Float64, n: int) -> float:
    """The largest lam of one class; V belongs to u = 2, the penalty to lam = 1.

    For Q = 2 the best bound along this u is n / (1 + pen*(V) / n).
    """
    if penalty.outer == 1:
        return penalty.largest(V)
    return penalty.conjugate(V) / n * (1.0 - GRID.explained) / GRID.explained
