"""OBSCURE: p-norm MKL with a true multiclass loss (FORMULATIONS section 4; Orabona, Jie and Caputo, JMLR 2012).

    min  lambda/2 ||w||_{2,p}^2 + 1/n sum_i loss_i        1 < p <= 2, no intercept

with ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p), w_a holding all classes of kernel a.

One problem for all classes. Stage 1 (online) bounds ||w||, stage 2 (stochastic, proximal, projected) learns inside that
bound, stage 3 (ours) reaches any certified gap on the samples that matter. Kernel values are asked for as rows of
shuffled samples against those that have coefficients (`Source.cross`): no n x n matrix is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dmkl._util.types import Float64
from dmkl.data import Labels
from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, Formulation, require_positive_C
from dmkl.problems.uniform import BoundedByC, UniformMKL

LOSSES = ("multiclass", "hinge")
PAPERS_C = 10.0  # of the baseline when only lambda is known


@dataclass(frozen=True)
class Obscure(Formulation):
    """One p-norm combination of kernels for all classes: sparser the nearer p is to 1, the sum of kernels at 2.

    Either C or lam = 1 / (C n). On two classes the multiclass loss has one column of scores, f_1 - f_0; the hinge loss
    on more than two is summed over one-against-rest columns. Methods: exact (stage 3), obscure (all stages), stochastic
    (the paper's two), online (the first), pegasos (its 1/t rate).
    """

    p: float = 1.5
    C: float | None = field(default=None, metadata=MINOR)
    lam: float | None = field(default=None, metadata=MINOR)
    loss: str = "multiclass"
    online: int = field(default=1, metadata=MINOR)  # epochs of stage 1
    epochs: int = field(default=1, metadata=MINOR)  # and of stage 2, where stage 3 follows
    eta: float = field(
        default=0.0, metadata=MINOR
    )  # the paper's eta, of stage 1; 0: 16 / L^2 from the kernels' diagonals
    ahead: bool = field(default=False, metadata=MINOR)  # ask for the next batch's rows while learning from this one's

    usual: ClassVar[Mapping[str, Sequence[Any]]] = {"p": (1.05, 1.25, 1.5, 2.0), **BoundedByC.usual}

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
    def usual_values(cls, labels: Labels, given: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        loss = {"loss": ("hinge",)} if labels.task == "multilabel" else {}
        left_out = {"C"} if "lam" in given else set()
        return {name: values for name, values in {**cls.usual, **loss, **given}.items() if name not in left_out}

    def stretch(self, start: Formulation) -> float:
        if not isinstance(start, Obscure):
            return 1.0
        if self.C and start.C:
            return float(self.C / start.C)
        return float(start.lam / self.lam) if self.lam and start.lam else 1.0  # what is too large is cut at the start

    def baseline(self, weights: Float64) -> UniformMKL:
        """The average kernel weighed as these are in all, which is the same C."""
        return UniformMKL(C=float(self.C * max(weights.sum(), 1e-6)) if self.C else PAPERS_C)
