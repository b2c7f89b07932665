"""The certificate: a primal and a dual value, and the relative gap between them.

Every solver stops on `relative_gap`, where the primal value belongs to a feasible primal point and the dual value to a
feasible dual point: the optimum lies between the two, however inexactly the points were found. The function itself
stands beside the SVM oracles, which are below the solvers and stop on it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dmkl._util.types import Float64, FloatArray
from dmkl.oracles import least_hinge
from dmkl.oracles.base import relative_gap

__all__ = [
    "Certificate",
    "CertifiedWeights",
    "best_multiple",
    "largest_violation",
    "relative_gap",
    "rounding_of_scores",
]


@dataclass(frozen=True)
class Certificate:
    """A primal value over all samples and the point it belongs to: `scale` times w, with this intercept."""

    primal: float
    intercept: float
    margins: Float64  # (n,) of the unscaled w
    scale: float = 1.0


@dataclass(frozen=True)
class CertifiedWeights:
    """Kernel weights found on a block, and a lower bound over the kernels of the block."""

    weights: Float64  # (kernels,)
    beta: Float64  # (n,) the coefficients that the weights were found with
    dual: float  # the lower bound
    proof: Float64  # (n,) the beta that proves it
    proof_forms: Float64  # (kernels,) proof' K_a proof
    svm_calls: int = field(default=0, kw_only=True)
    oracle_calls: int = field(default=0, kw_only=True)  # maximisations over (alpha, gamma)


def best_multiple(penalty: float, beta: Float64, scores: Float64, y: Float64, upper: Float64) -> Certificate:
    """The better primal value of w itself and of w scaled so far that small violations of the margins go away.

    Where C is large, slacks of the size of the SVM's tolerance count C times and dwarf the primal value; scaling w by
    1 / (1 - violation) removes them for a slightly larger penalty.

    Parameters
    ----------
    penalty : float
        The regulariser of w.
    beta, scores, y, upper : arrays (n,)
        Coefficients alpha * y, scores without intercept, signs -1/+1, and bounds of alpha.
    """
    plain = _hinge_value(1.0, penalty, scores, y, upper)
    scaled = _hinge_value(1.0 / (1.0 - largest_violation(beta, scores, y, upper)), penalty, scores, y, upper)
    return replace(scaled, margins=plain.margins) if scaled.primal < plain.primal else plain


def _hinge_value(scale: float, penalty: float, scores: Float64, y: Float64, upper: Float64) -> Certificate:
    loss, b = least_hinge(scale * scores, y, upper)
    return Certificate(scale**2 * penalty + loss, b, y * (scale * scores + b), scale)


def largest_violation(beta: Float64, scores: Float64, y: Float64, upper: Float64) -> float:
    """The most that a sample whose alpha could still move violates the optimality conditions, at most 1/2."""
    slope, alpha = y - scores, beta * y
    rising = slope[np.where(y > 0, alpha < upper, alpha > 0)]
    falling = slope[np.where(y > 0, alpha > 0, alpha < upper)]
    if not (len(rising) and len(falling)):
        return 0.0
    return float(np.clip(0.5 * (rising.max() - falling.min()), 0.0, 0.5))


def rounding_of_scores(diagonals: FloatArray, weights: Float64, beta: Float64) -> float:
    """How much rounding in float64 may change scores sum_a weights_a K_a beta, where margins are 1.

    Parameters
    ----------
    diagonals : array (s, n)
        K_a[i, i] of every kernel and sample.
    weights : array (s,)
    beta : array (n,)
    """
    roots = np.sqrt(np.maximum(diagonals.astype(np.float64), 0.0))
    return float(np.finfo(np.float64).eps * (weights * (roots @ np.abs(beta)) @ roots).max(initial=0.0))
