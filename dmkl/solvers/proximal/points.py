"""What proximal minimisation begins with, judges points by, and ends with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.types import Float64
from dmkl.problems.losses import Loss
from dmkl.solvers.certificate import relative_gap


@dataclass(frozen=True)
class Penalty:
    """C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2."""

    C: float
    ridge: float

    def primal(self, norms: Float64) -> float:
        return self.C * float(norms.sum()) + 0.5 * self.ridge * float((norms**2).sum())

    def dual(self, loss: Loss, y: Float64, rho: Float64, forms: Float64) -> tuple[float, float]:
        """The dual value of the largest feasible multiple of rho (a sum of zero), and which one it is."""
        radii = np.sqrt(np.maximum(forms, 0.0))
        if self.ridge > 0:
            excess = np.maximum(radii - self.C, 0.0)
            return -loss.conjugate(y, rho) - float((excess**2).sum()) / (2 * self.ridge), 1.0
        scale = min(1.0, self.C / max(float(radii.max()), 1e-300))
        return -loss.conjugate(y, scale * rho), scale


@dataclass(frozen=True)
class Found:
    """A primal point (weights, rho, intercept), a dual one (proof), their values, and how it went."""

    weights: Float64
    rho: Float64
    intercept: float
    primal: float
    penalty: float  # the primal value's share of the regulariser
    dual: float
    proof: Float64
    proof_forms: Float64
    trace: Float64  # a row an outer step: gap, active kernels, Newton steps
    newton_steps: int
    step: float = 0.0  # the penalty parameter of the kernels it ended with

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual)


@dataclass(frozen=True)
class Start:
    """A point to begin at."""

    rho: Float64
    weights: Float64
    intercept: float
    step: float = 0.0  # that a run which ended here had reached


def better(best: Found, seen: Found) -> Found:
    """The better primal and the better dual point of two."""
    if seen.primal < best.primal:
        names = ("weights", "rho", "intercept", "primal", "penalty")
        best = replace(best, **{name: getattr(seen, name) for name in names})
    if seen.dual > best.dual:
        best = replace(best, dual=seen.dual, proof=seen.proof, proof_forms=seen.proof_forms)
    return best
