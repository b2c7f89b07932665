"""SharedMKL: one combination of kernels for all classes or labels (FORMULATIONS section 3; Bucak, Jin and Jain 2010).

    H_k(p) = min_f  1/2 sum_a ||w_ka||^2 / p_a + C sum_i [1 - y_ik f_k(x_i)]+,    p >= 0, sum(p) = 1

    sum    min_p sum_k H_k(p) = min 1/2 (sum_a sqrt(sum_k ||w_ka||^2))^2 + C sum_k sum_i [...]+
    max    min_p max_k H_k(p), by stochastic approximation over the classes

Both are convex in p, which has few entries, and every SVM gives a cut (`cuts.py`) and a curvature. So `sum` and the end
of `max` are a bundle method: minimise the largest cut plus the curvature, solve the SVMs there, repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dmkl.errors import ConfigError
from dmkl.problems.base import MINOR, require_positive_C
from dmkl.problems.uniform import BoundedByC


@dataclass(frozen=True)
class SharedMKL(BoundedByC):
    """`delta`, `eta`, `batch` matter for mode max: smoothing, step size (0: scale-free), classes sampled at once."""

    C: float = 1.0
    mode: str = "sum"
    intercept: bool = field(default=True, metadata=MINOR)
    delta: float = field(default=0.2, metadata=MINOR)
    eta: float = field(default=0.0, metadata=MINOR)
    batch: int = field(default=1, metadata=MINOR)

    def __post_init__(self) -> None:
        require_positive_C(self.C)
        if self.mode not in ("sum", "max"):
            raise ConfigError(f"mode should be sum or max, not '{self.mode}'")
        if not 0 <= self.delta <= 1:
            raise ConfigError(f"delta should be in [0, 1], not {self.delta}")
        if not (self.eta >= 0 and np.isfinite(self.eta)):
            raise ConfigError(f"eta should be positive, or 0 for scale-free steps, not {self.eta}")
        if not (isinstance(self.batch, int) and self.batch >= 1):
            raise ConfigError(f"batch should be a whole number from 1 on, not {self.batch}")
