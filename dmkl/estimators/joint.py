"""One combination of kernels for all classes, as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmkl.estimators.base import KernelClassifier
from dmkl.solvers import Obscure, SharedMKL


@dataclass(kw_only=True, eq=False, repr=False)
class SharedMKLClassifier(KernelClassifier):
    """Weights that serve all classes together (`mode` "sum") or the hardest one ("max")."""

    formulation: ClassVar = SharedMKL

    C: float = 1.0
    mode: str = "sum"
    intercept: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class ObscureClassifier(KernelClassifier):
    """One multiclass problem, few kernels (p near 1) or all of them (p = 2); `loss` is "multiclass" or "hinge"."""

    formulation: ClassVar = Obscure

    p: float = 1.5
    C: float = 1.0
    loss: str = "multiclass"
