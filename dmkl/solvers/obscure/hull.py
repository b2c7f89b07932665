"""The best dual point among all mixtures of those found so far.

Every row of a mixture sum_c g_c B_c is in its set when all B_c's are, so

    max over the simplex of g    b'g - 1/2 || (g' M_a g)_a ||_h      M_a[c, d] = tr B_c' K_a B_d,   h = q / 2

is a lower bound, and the kernel weights u_a = (D_a / ||D||_h)^(h - 1) at its end are where to solve the next SVM: there
the bound's model max_g b'g - 1/2 sum_a u_a g' M_a g is smallest, as in a bundle method whose cuts know their curvature.
Solved by an interior point method in a handful of variables; h is raised to its value step by step, for near p = 1 it
has many digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.solvers.obscure.norm import weigh

NEWTON_STEPS = 40
CENTRED = 1e-3  # a Newton decrement this small against the barrier's weight ends a stage
FALL = 0.2  # of the barrier's weight, a stage
EARLY = 1e-3  # how far stages with a smaller h are solved
INSIDE = 0.95  # of the way to the border at most
NEGLIGIBLE = 1e-5  # shares below this one of the largest: their points are let go


@dataclass(frozen=True)
class Mixture:
    """Shares of the points, the bound, and the kernel weights there."""

    shares: Float64
    value: float
    weights: Float64


def best_mixture(b: Float64, M: Float64, q: float, tol: float) -> Mixture:
    """b (k,), M (s, k, k); `tol` is relative to the largest b."""
    k = len(b)
    h, scale = q / 2, max(float(np.abs(b).max()), 1e-300)
    shares, barrier = np.full(k, 1.0 / k), 0.1 * scale
    for stage in _stages(h):
        enough = tol if stage == h else max(tol, EARLY)
        while k > 1:
            shares = _centred(b, M, stage, barrier, shares)
            if barrier * k <= enough * scale:
                break
            barrier *= FALL
    forms = np.maximum(np.einsum("c,acd,d->a", shares, M, shares), 0.0)
    weights = np.empty(len(M))
    norm = weigh(forms, q, weights)
    return Mixture(shares, float(b @ shares) - 0.5 * norm**2, weights)


def _stages(h: float) -> list[float]:
    stages = [min(h, 2.0)]
    while stages[-1] < h:
        stages.append(min(2 * stages[-1], h))
    return stages


def _centred(b: Float64, M: Float64, h: float, barrier: float, shares: Float64) -> Float64:
    """Newton's method on the objective plus barrier * sum log g, on sum g = 1."""
    for _ in range(NEWTON_STEPS):
        gradient, hessian = _derivatives(b, M, h, shares)
        gradient += barrier / shares
        hessian[np.diag_indices(len(b))] += barrier / shares**2 + 1e-14 * np.trace(hessian) / len(b)
        solved = np.linalg.solve(hessian, np.column_stack([gradient, np.ones(len(b))]))
        step = solved[:, 0] - solved[:, 0].sum() / solved[:, 1].sum() * solved[:, 1]
        decrement = float(gradient @ step)
        if decrement <= CENTRED * barrier:
            break
        shares = _searched(b, M, h, barrier, shares, step, decrement)
    return shares


def _searched(
    b: Float64, M: Float64, h: float, barrier: float, shares: Float64, step: Float64, decrement: float
) -> Float64:
    inward = step < 0
    length = min(1.0, INSIDE * float((-shares[inward] / step[inward]).min())) if inward.any() else 1.0
    start = _value(b, M, h, barrier, shares)
    while length > 1e-12 and _value(b, M, h, barrier, shares + length * step) < start + 1e-4 * length * decrement:
        length *= 0.5
    moved = shares + length * step
    return np.asarray(moved / moved.sum())


def _value(b: Float64, M: Float64, h: float, barrier: float, shares: Float64) -> float:
    forms = np.maximum(np.einsum("c,acd,d->a", shares, M, shares), 0.0)
    norm = weigh(forms, 2 * h, np.empty(len(M)))
    return float(b @ shares) - 0.5 * float(norm) ** 2 + barrier * float(np.log(shares).sum())


def _derivatives(b: Float64, M: Float64, h: float, shares: Float64) -> tuple[Float64, NDArray[np.float64]]:
    """The gradient, and the negative Hessian."""
    products = M @ shares
    forms = np.maximum(products @ shares, 1e-300)
    weights = np.empty(len(M))
    norm = float(weigh(forms, 2 * h, weights)) ** 2  # ||D||_h
    slope = weights @ products
    bends = np.exp(np.log(np.maximum(weights, 1e-300)) - np.log(forms))  # D^(h - 2) / ||D||^(h - 1)
    curved = (products.T * bends) @ products - np.outer(slope, slope) / norm
    return b - slope, np.einsum("a,acd->cd", weights, M) + 2 * (h - 1) * curved
