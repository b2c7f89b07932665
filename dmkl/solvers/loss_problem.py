"""One class with any loss: the regulariser, where a method starts, and what it returns.

    min  sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2

A point is a rho and a weight for each kernel, w_a = weight_a sum_i rho_i phi_a(x_i), and an intercept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.types import Float64
from dmkl.problems.losses import Loss
from dmkl.solvers.certificate import relative_gap


@dataclass(frozen=True)
class Penalty:
    """The regulariser C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2."""

    C: float
    ridge: float

    def primal(self, norms: Float64) -> float:
        """Its value at these norms (kernels,)."""
        return self.C * float(norms.sum()) + 0.5 * self.ridge * float((norms**2).sum())

    def dual(self, loss: Loss, y: Float64, rho: Float64, forms: Float64) -> tuple[float, float]:
        """The dual value of the largest feasible multiple of rho, which sums to zero, and the factor."""
        radii = np.sqrt(np.maximum(forms, 0.0))
        if self.ridge > 0:
            excess = np.maximum(radii - self.C, 0.0)
            return -loss.conjugate(y, rho) - float((excess**2).sum()) / (2 * self.ridge), 1.0
        scale = min(1.0, self.C / max(float(radii.max()), 1e-300))
        return -loss.conjugate(y, scale * rho), scale


@dataclass(frozen=True)
class Start:
    """A point to begin at."""

    rho: Float64
    weights: Float64
    intercept: float
    step: float = 0.0  # the penalty parameter of the proximal method at the end of the run before; 0 if there was none


@dataclass(frozen=True)
class Solution:
    """The best primal point (weights, rho, intercept), the best dual point (proof), their values, and the work."""

    weights: Float64
    rho: Float64
    intercept: float
    primal: float
    penalty: float  # the regulariser's share of the primal value
    dual: float
    proof: Float64
    proof_forms: Float64
    trace: Float64  # (iterations, 3): gap, active kernels, steps
    svm_calls: int = 0
    evaluations: int = 0  # of weight vectors
    handovers: int = 0  # from a method that stalled to another one
    step: float = 0.0  # the penalty parameter of the proximal method at the end

    @property
    def gap(self) -> float:
        """The relative gap over these samples and kernels."""
        return relative_gap(self.primal, self.dual)

    @property
    def newton_steps(self) -> int:
        """Steps of all iterations."""
        return int(self.trace[:, 2].sum())

    @property
    def start(self) -> Start:
        """To begin here."""
        return Start(self.rho, self.weights, self.intercept, self.step)

    def or_better(self, other: Solution) -> Solution:
        """The better primal and the better dual point of two; everything else is this one's."""
        best = self
        if other.primal < best.primal:
            names = ("weights", "rho", "intercept", "primal", "penalty")
            best = replace(best, **{name: getattr(other, name) for name in names})
        if other.dual > best.dual:
            best = replace(best, dual=other.dual, proof=other.proof, proof_forms=other.proof_forms)
        return best

    def followed_by(self, other: Solution) -> Solution:
        """The better points of this one and of another method that went on from here, and the work of both."""
        return replace(
            self.or_better(other),
            trace=np.concatenate([self.trace, other.trace]),
            step=other.step,
            handovers=self.handovers + 1,
        )
