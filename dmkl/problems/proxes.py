"""Mixed norms of coefficients, one a sample and kernel: values, proximal maps, conjugates (FORMULATIONS section 5).

    pen(alpha) = lam/Q ||alpha||_{PQ}^Q = lam/Q sum_g ||alpha_g||_P^Q,     P, Q in {1, 2}

over groups g of coefficients: those of one sample (r = 1) or of one kernel (r = 2). Coefficients come as a flat vector
with the number of each one's group, so that any part of an array (s, n) is as good as all of it (`groups_of`).

(1, 1) makes single coefficients zero, (2, 1) whole groups, (1, 2) most members of every group (Kowalski and Torresani's
elitist lasso), (2, 2) none. The (1, 2) map is FORMULATIONS' and not the paper's, which has a factor too many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64

Groups = NDArray[np.int64]
TINY = 1e-300  # what may stand for 0 below a fraction line


@dataclass(frozen=True)
class Jacobian:
    """A generalised derivative of a proximal map: diag(diagonal) + sum_g factor_g v_g v_g', v_g the part of group g."""

    diagonal: Float64
    factor: Float64  # one a group; all zero where there is no second part
    vector: Float64


@dataclass(frozen=True)
class GroupNorm:
    """The penalty with its constant over `count` groups; `groups` numbers the group of each coefficient."""

    inner: int  # P
    outer: int  # Q
    lam: float
    groups: Groups
    count: int

    def among(self, members: NDArray[np.int64]) -> GroupNorm:
        """The penalty of some of the coefficients, the others being zero."""
        return replace(self, groups=self.groups[members])

    def norms(self, alpha: Float64) -> Float64:
        """||alpha_g||_P."""
        if self.inner == 1:
            return np.asarray(np.bincount(self.groups, np.abs(alpha), self.count), dtype=np.float64)
        return np.asarray(np.sqrt(np.bincount(self.groups, alpha * alpha, self.count)))

    def value(self, alpha: Float64) -> float:
        if self.outer == 1:
            return self.lam * float(self.norms(alpha).sum())
        return 0.5 * self.lam * float(np.square(self.norms(alpha)).sum())

    def dual_norms(self, V: Float64) -> Float64:
        """The norm of V in every group that is dual to the inner one."""
        if self.inner == 2:
            return self.norms(V)
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.groups, np.abs(V))
        return largest

    def largest(self, V: Float64) -> float:
        """max_g of the dual norms: for Q = 1 the smallest lam with pen*(V) = 0, elsewhere infinite."""
        return float(self.dual_norms(V).max(initial=0.0))

    def conjugate(self, V: Float64) -> float:
        """pen*(V), for Q = 1 of a V that is scaled down to where it is 0."""
        return 0.0 if self.outer == 1 else float(np.square(self.dual_norms(V)).sum()) / (2 * self.lam)

    def reach(self, V: Float64) -> float:
        """How far V may be scaled up with a finite pen*: infinite for Q = 2."""
        return np.inf if self.outer == 2 else self.lam / max(self.largest(V), TINY)

    def prox(self, u: Float64, step: float) -> Float64:
        """argmin_alpha 1/2 ||u - alpha||^2 + step pen(alpha)."""
        return self._prox(u, step)[0]

    def prox_jacobian(self, u: Float64, step: float) -> tuple[Float64, Jacobian]:
        """The proximal map at u and a derivative of it there."""
        alpha, thresholds = self._prox(u, step)
        mu, none = step * self.lam, np.zeros(self.count)
        if (self.inner, self.outer) == (2, 2):
            return alpha, Jacobian(np.full(len(u), 1.0 / (1.0 + mu)), none, u)
        if self.inner == 2:
            kept = np.maximum(1.0 - mu / np.maximum(thresholds, TINY), 0.0)
            direction = u / np.maximum(thresholds, TINY)[self.groups]
            return alpha, Jacobian(kept[self.groups], np.where(kept > 0.0, 1.0 - kept, 0.0), direction)
        active = (alpha != 0).astype(np.float64)
        if self.outer == 1:
            return alpha, Jacobian(active, none, u)
        members: Float64 = np.bincount(self.groups, active, self.count).astype(np.float64)
        return alpha, Jacobian(active, -mu / (1.0 + mu * members), np.sign(alpha))

    def _prox(self, u: Float64, step: float) -> tuple[Float64, Float64]:
        """The map, and what decides in each group: the norm of u for (2, 1), the threshold for (1, 2)."""
        mu = step * self.lam
        if (self.inner, self.outer) == (1, 1):
            return np.sign(u) * np.maximum(np.abs(u) - mu, 0.0), np.full(self.count, mu)
        if (self.inner, self.outer) == (2, 2):
            return u / (1.0 + mu), np.zeros(self.count)
        if self.inner == 2:
            norms = self.norms(u)
            return u * np.maximum(1.0 - mu / np.maximum(norms, TINY), 0.0)[self.groups], norms
        thresholds = self._elitist(np.abs(u), mu)
        return np.sign(u) * np.maximum(np.abs(u) - thresholds[self.groups], 0.0), thresholds

    def _elitist(self, sizes: Float64, mu: float) -> Float64:
        """mu U_M / (1 + mu M) of every group: U_M sums its M largest, M the most for which the M-th exceeds it."""
        order = np.lexsort((-sizes, self.groups))
        sorted_sizes, owners = sizes[order], self.groups[order]
        starts = np.searchsorted(owners, np.arange(self.count))
        before = np.concatenate([[0.0], np.cumsum(sorted_sizes)])
        place = np.arange(len(sizes)) - starts[owners] + 1
        totals = before[1:] - before[starts[owners]]
        candidates = mu * totals / (1.0 + mu * place)
        kept = np.bincount(owners[sorted_sizes > candidates], minlength=self.count)
        thresholds = np.zeros(self.count)
        some = np.flatnonzero(kept)
        thresholds[some] = candidates[starts[some] + kept[some] - 1]
        return thresholds


def groups_of(members: NDArray[np.bool_], r: int) -> tuple[Groups, int]:
    """The group of each coefficient in a mask (s, n) of them, read row after row, and how many groups there are.

    r = 1: the coefficients of a sample are a group. r = 2: those of a kernel.
    """
    kernels, samples = np.nonzero(members)
    return (samples, members.shape[1]) if r == 1 else (kernels, members.shape[0])
