"""Obscure: p-norm MKL with a true multiclass loss (FORMULATIONS section 4; Orabona, Jie and Caputo, JMLR 2012).

    min  lambda/2 ||w||_{2,p}^2 + 1/n sum_i loss_i        1 < p <= 2, no intercept

with ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p), w_a holding all classes of kernel a. It is one problem for all classes. The
norm and the losses are in `obscure_terms.py`, the algorithm is `dmkl/solvers/obscure.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, Candidates, Formulation, Values, WithoutKernels, require_positive_C
from dmkl.problems.targets import Targets
from dmkl.problems.uniform import BoundedByC, UniformMKL

LOSSES = ("multiclass", "hinge")
BASELINE_C = 10.0  # of the baseline when only lam is given


@dataclass(frozen=True)
class Obscure(Formulation):
    """One p-norm combination of kernels for all classes, with a multiclass loss and without intercepts.

        min  lambda/2 ||w||_{2,p}^2 + 1/n sum_i loss_i,      ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p)

    With two classes the multiclass loss has one column of scores, f_1 - f_0. The hinge loss with more than two classes
    is summed over one-against-rest columns; it is also for several labels a sample.

    Parameters
    ----------
    p : float
        In (1, 2]: the nearer to 1, the fewer kernels have large weights; 2 is the sum of the kernels.
    C, lam : float
        Exactly one of the two: how much the loss counts against the regulariser, or lambda = 1 / (C n).
    loss : {"multiclass", "hinge"}
    online : int
        Epochs of the paper's first stage, at least 1.
    epochs : int
        Epochs of its second stage in the method "obscure".
    eta : float
        The step size of the first stage (Algorithm 1 of the paper). 0 stands for 16 / L^2, where L is the norm of a
        typical sample.
    ahead : bool
        Whether the kernel values of the next batch are computed while the stages learn from the present one.

    Raises
    ------
    ConfigError
        If a constant is out of its range.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    >>> K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(axis=2))])
    >>> fit = dmkl.solve(dmkl.KernelStack.from_array(K), y, dmkl.Obscure(p=1.25, C=1.0))
    >>> fit.weights.shape, fit.coef.shape, bool(fit.gap <= 1e-3)
    ((2,), (60, 3), True)
    """

    paper: ClassVar[str] = (
        "F. Orabona, L. Jie and B. Caputo. Multi Kernel Learning with Online-Batch Optimization. Journal of "
        "Machine Learning Research 13, 2012."
    )

    p: float = 1.5
    C: float | None = field(default=None, metadata=MINOR)
    lam: float | None = field(default=None, metadata=MINOR)
    loss: str = "multiclass"
    online: int = field(default=1, metadata=MINOR)
    epochs: int = field(default=1, metadata=MINOR)
    eta: float = field(default=0.0, metadata=MINOR)
    ahead: bool = field(default=False, metadata=MINOR)

    usual: ClassVar[Candidates] = {"p": (1.05, 1.25, 1.5, 2.0), **BoundedByC.usual}

    def __post_init__(self) -> None:
        if not 1 < self.p <= 2:
            raise ConfigError(f"p should be above 1 and at most 2, not {self.p}", "L1MKL is p = 1")
        if (self.C is None) == (self.lam is None):
            raise ConfigError("Obscure takes either C or lam = 1 / (C n)", "give one of them")
        if self.C is not None:
            require_positive_C(self.C)
        if self.lam is not None and not (self.lam > 0 and np.isfinite(self.lam)):
            raise ConfigError(f"lam should be positive and finite, not {self.lam}")
        if self.loss not in LOSSES:
            raise ConfigError(f"unknown loss '{self.loss}'", f"use one of {', '.join(LOSSES)}")
        if self.online < 1 or self.epochs < 0 or self.eta < 0:
            raise ConfigError("online should be at least 1, epochs and eta at least 0")

    @property
    def strength(self) -> float:
        """1 / C, which is lam times the number of samples."""
        return 1.0 / self.C if self.C else float(self.lam or 0.0)

    @classmethod
    def usual_values(cls, labels: Labels, given: Candidates) -> Values:
        loss = {"loss": ("hinge",)} if labels.task == "multilabel" else {}
        left_out = {"C"} if "lam" in given else set()
        return {name: values for name, values in {**cls.usual, **loss, **given}.items() if name not in left_out}

    def stretch(self, start: Formulation) -> float:
        if not isinstance(start, Obscure):
            return 1.0
        if self.C and start.C:
            return float(self.C / start.C)
        return float(start.lam / self.lam) if self.lam and start.lam else 1.0  # too large ones are projected

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        columns = 1 if self.loss == "multiclass" else Y.shape[1]  # a loss of 1 each, for every sample
        return WithoutKernels(np.array([float(columns)]), np.zeros(1), np.zeros(Y.shape[1]))

    def baseline(self, weights: Float64) -> UniformMKL:
        """The average kernel, with the total weight of these kernels, which makes the same C comparable."""
        return UniformMKL(C=float(self.C * max(weights.sum(), 1e-6)) if self.C else BASELINE_C)
