"""MIKL as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.base import KernelClassifier
from dmkl.solvers import MIKL


@dataclass(kw_only=True, eq=False, repr=False)
class MIKLClassifier(KernelClassifier):
    """Similarities of any kind; `norm` "21;1" keeps few samples, "21;2" few kernels, "1" few of both, fewer as lam
    grows."""

    formulation: ClassVar = MIKL

    norm: str = "21;2"
    lam: float = 1.0
