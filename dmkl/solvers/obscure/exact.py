"""Stage 3, ours: the whole problem on a working set, to any gap, by dual coordinate ascent inside a bundle of mixtures.

A step solves the SVM of the kernel sum_a u_a K_a by coordinate ascent on the rows (`rows.py`), adds its B to
those found before, and takes the best mixture of all of them (`hull.py`): its kernel weights are the next u,
its value is a lower bound of the whole problem. Any p takes some 3 to 13 steps: the gap falls by about ten in each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.obscure.block import Block
from dmkl.solvers.obscure.hull import NEGLIGIBLE, Mixture, best_mixture
from dmkl.solvers.obscure.loss import RowLoss
from dmkl.solvers.obscure.norm import PNorm
from dmkl.solvers.obscure.rows import ascend

STEPS = 60  # SVMs in one call at most
SWEEPS = 3000  # over the rows in one SVM at most
SVM_SHARE = 0.1  # of the gap so far, the tolerance of an SVM,
LAST_SHARE = 0.3  # and of the gap asked for, of what may be the last one
MIXED = 0.03  # the tolerance of a mixture, as a share of the gap


@dataclass(frozen=True)
class Exact:
    """The best function found, w_a = weights_a sum_i B_i phi_a(x_i), and a bound with the point that proves it."""

    weights: Float64
    B: Float64
    square: float  # ||w||^2
    primal: float
    dual: float
    proof: Float64
    svms: int
    sweeps: int


class _Bundle:
    """The points found so far, and how they meet: M[a, c, d] = tr B_c' K_a B_d."""

    def __init__(self, block: Block, loss: RowLoss, norm: PNorm) -> None:
        self._block, self._loss, self._norm = block, loss, norm
        self.points: list[Float64] = []
        self._gains: list[float] = []
        self._M = np.empty((0, 0, 0))

    def add(self, B: Float64) -> Float64:
        """Take one more point; its forms."""
        self.points.append(B.copy())
        self._gains.append(self._loss.gain(B))
        crossed = self._block.crossed(self.points, B)
        k, s = len(self.points), len(crossed)
        grown = np.empty((s, k, k))
        grown[:, : k - 1, : k - 1] = self._M if k > 1 else 0.0
        grown[:, :, -1] = grown[:, -1, :] = crossed
        self._M = grown
        return np.maximum(crossed[:, -1], 0.0)

    def mixture(self, tol: float) -> tuple[Mixture, Float64]:
        """The best mixture; points that have no share in it are let go, but for the last."""
        found = best_mixture(np.array(self._gains), self._M, self._norm.q, tol)
        B = sum((share * point for share, point in zip(found.shares, self.points, strict=True)), start=0.0)
        kept = np.flatnonzero(found.shares > NEGLIGIBLE * found.shares.max())
        kept = np.union1d(kept, [len(self.points) - 1])
        self.points = [self.points[c] for c in kept]
        self._gains = [self._gains[c] for c in kept]
        self._M = self._M[:, kept][:, :, kept]
        return found, np.asarray(B)


def solve_exact(
    block: Block, loss: RowLoss, norm: PNorm, tol: float, start: Float64, weights: Float64, rng: np.random.Generator
) -> Exact:
    """Minimise 1/2 ||w||_{2,p}^2 + C sum loss over the samples of a block to a relative gap; `start` is feasible."""
    bundle, B, gap, sweeps = _Bundle(block, loss, norm), start.copy(), 1.0, 0
    best, svms = Exact(weights, B, 0.0, np.inf, -np.inf, B, 0, 0), 0
    if B.any():
        bundle.add(B)
        weights = bundle.mixture(MIXED)[0].weights
    while svms < STEPS:
        svms += 1
        K = block.combined(weights)
        # the SVM of what may be the last step has to leave room for the mixture's own share
        exact = LAST_SHARE * tol if SVM_SHARE * gap < 2 * tol else SVM_SHARE * gap
        scores, used = _svm(K, loss, B, exact, rng)
        sweeps += used
        forms = bundle.add(B)
        square = norm.primal(weights * np.sqrt(forms)) ** 2
        primal = loss.primal(square, scores)
        if primal < best.primal:
            best = replace(best, weights=weights, B=B.copy(), square=square, primal=primal)
        mixture, mixed = bundle.mixture(max(min(MIXED * gap, 1e-3), 1e-13))
        if mixture.value > best.dual:
            best = replace(best, dual=mixture.value, proof=mixed)
        gap = relative_gap(best.primal, best.dual)
        if gap <= tol:
            break
        B, weights = mixed.copy(), mixture.weights
    return replace(best, svms=svms, sweeps=sweeps)


def _svm(
    K: NDArray[np.float64], loss: RowLoss, B: Float64, tol: float, rng: np.random.Generator
) -> tuple[Float64, int]:
    """Improve B in place until the gap at this kernel is small; its scores (n, m) and how many sweeps it took."""
    F, sweeps = _products(K, B), 0
    while sweeps < SWEEPS:
        sweeps += 1
        moved = ascend(K, loss.Y, loss.labels, loss.C, rng.permutation(len(B)), B, F)
        square = float((B * F.T).sum())
        primal, dual = loss.primal(square, F.T), loss.gain(B) - 0.5 * square
        if primal - dual <= tol * abs(primal) or not moved:
            break
    return np.ascontiguousarray(F.T), sweeps


def _products(K: NDArray[np.float64], B: Float64) -> Float64:
    """(K B)', in float64 whatever K is, a few rows at a time."""
    support = np.flatnonzero(B.any(axis=1))
    F = np.zeros((B.shape[1], len(B)))
    if len(support):
        for start in range(0, len(B), 256):
            rows = slice(start, start + 256)
            F[:, rows] = (K[rows][:, support].astype(np.float64) @ B[support]).T
    return F
