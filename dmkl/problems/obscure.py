"""Obscure: p-norm MKL with a true multiclass loss, or any other (FORMULATIONS 4; Orabona, Jie and Caputo, JMLR 2012).

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
from dmkl.errors import ConfigError, did_you_mean
from dmkl.problems.base import MINOR, Candidates, Formulation, Values, WithLoss, WithoutKernels, require_positive_C
from dmkl.problems.losses import LOSSES, Loss, LossLike, loss_of
from dmkl.problems.obscure_terms import ColumnLoss, RowLoss, SoftmaxLoss
from dmkl.problems.targets import Targets
from dmkl.problems.uniform import BoundedByC, UniformMKL

COLUMN_LOSS = {"multiclass": "hinge", "softmax": "logistic"}  # of two classes; these losses are not of the table
FAR = 1e200
BASELINE_C = 10.0  # of the baseline when only lam is given


@dataclass(frozen=True)
class Obscure(WithLoss):
    """One p-norm combination of kernels for all classes, with a multiclass loss or another, and without intercepts.

        min  lambda/2 ||w||_{2,p}^2 + 1/n sum_i loss_i,      ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p)

    With two classes the losses "multiclass" and "softmax" have one column of scores, f_1 - f_0. Any other loss with
    more than two classes is summed over one-against-rest columns; it is also for several labels a sample. There is
    no intercept: centre real targets, or add a constant kernel.

    Parameters
    ----------
    p : float
        In (1, 2]: the nearer to 1, the fewer kernels have large weights; 2 is the sum of the kernels.
    C, lam : float
        Exactly one of the two: how much the loss counts against the regulariser, or lambda = 1 / (C n).
    loss : str, dict or Loss
        "multiclass", "softmax" (the logistic loss of several classes), "hinge" or "logistic" for classes, "squared"
        for classes or real targets, "epsilon" for real targets. A dict states parameters: {"name": "epsilon",
        "epsilon": 0.2}.
    epsilon : float
        Half the width of the tube of the loss "epsilon".
    online : int
        Epochs of the paper's first stage, at least 1.
    epochs : int
        Epochs of its second stage in the method "obscure".
    eta : float
        The step size of the first stage (Algorithm 1 of the paper). 0 stands for 16 / L^2, where L is the norm of a
        typical sample's subgradient; for real targets and the squared loss for less.
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

    weighted: ClassVar[bool] = False
    paper: ClassVar[str] = (
        "F. Orabona, L. Jie and B. Caputo. Multi Kernel Learning with Online-Batch Optimization. Journal of "
        "Machine Learning Research 13, 2012."
    )

    p: float = 1.5
    C: float | None = field(default=None, metadata=MINOR)
    lam: float | None = field(default=None, metadata=MINOR)
    loss: LossLike = "multiclass"
    epsilon: float = field(default=0.1, metadata=MINOR)
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
        if isinstance(self.loss, str) and self.loss not in (known := [*COLUMN_LOSS, *LOSSES]):
            raise ConfigError(f"unknown loss '{self.loss}'", did_you_mean(self.loss, known))
        super().__post_init__()
        if self.online < 1 or self.epochs < 0 or self.eta < 0:
            raise ConfigError("online should be at least 1, epochs and eta at least 0")

    @property
    def strength(self) -> float:
        """1 / C, which is lam times the number of samples."""
        return 1.0 / self.C if self.C else float(self.lam or 0.0)

    def own_loss(self) -> Loss:
        """The loss of a column of scores: with two classes the multiclass loss is a hinge."""
        return loss_of(self.column_loss, self.epsilon)

    @property
    def joint(self) -> bool:
        """Whether the loss is of all classes together, of which every sample has one."""
        return self.loss in COLUMN_LOSS

    @property
    def column_loss(self) -> LossLike:
        """The constant of `own_loss`."""
        return COLUMN_LOSS[self.loss] if isinstance(self.loss, str) and self.joint else self.loss

    def row_loss(self, Y: Float64, C: float) -> RowLoss:
        """C times the sum of losses over the rows of Y (n, m), signs or targets."""
        if self.loss == "softmax" and Y.shape[1] > 1:
            return SoftmaxLoss.made(Y, C)
        if self.column_loss == "hinge":
            return RowLoss.of(Y, self.joint, C)
        return ColumnLoss.made(Y, self.own_loss(), C)

    @property
    def bounded(self) -> bool:
        """Whether the slopes of the loss have a limit: the domain of its conjugate is bounded."""
        loss, y = self.own_loss(), np.ones(1)
        return all(abs(float(loss.into_domain(y, np.array([far]))[0])) < FAR for far in (FAR, -FAR))

    @classmethod
    def usual_values(cls, labels: Labels, given: Candidates) -> Values:
        """The hinge for several labels a sample, the squared loss for a regression."""
        loss = {"multilabel": "hinge", "regression": "squared"}.get(labels.task)
        left_out = {"C"} if "lam" in given else set()
        values = {**cls.usual, **({"loss": (loss,)} if loss else {}), **given}
        return {name: tried for name, tried in values.items() if name not in left_out}

    def stretch(self, start: Formulation) -> float:
        if not isinstance(start, Obscure):
            return 1.0
        if self.C and start.C:
            return float(self.C / start.C)
        return float(start.lam / self.lam) if self.lam and start.lam else 1.0  # too large ones are projected

    def without_kernels(self, Y: Targets, counts: Float64) -> WithoutKernels:
        n, m = Y.shape
        if self.joint:
            each = 1.0 if self.loss == "multiclass" else float(np.log(max(m, 2)))
            return WithoutKernels(np.array([each]), np.zeros(1), np.zeros(m))
        columns = WithoutKernels.of(self.own_loss(), Y, intercept=False)
        return WithoutKernels(columns.primal.sum(keepdims=True) / n, columns.dual.sum(keepdims=True) / n, np.zeros(m))

    def baseline(self, weights: Float64) -> UniformMKL:
        """The average kernel, with the total weight of these kernels, which makes the same C comparable."""
        C = float(self.C * max(weights.sum(), 1e-6)) if self.C else BASELINE_C
        return UniformMKL(C=C, loss=self.column_loss, epsilon=self.epsilon)
