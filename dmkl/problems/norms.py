"""The norms that regularise: mixed norms over kernels, and mixed norms of coefficients (`GroupNorm`).

With u_j = sum_{a in j} ||w_a|| the regulariser of kernels, l1 inside a group and l_sigma across groups, is
R = 1/2 ||u||_sigma^2. Its conjugate in the dual variables is Omega(D) = 1/2 ||N||_rho^2, N_j = max_{a in j} sqrt(D_a),
1/rho + 1/sigma = 1. One family holds FORMULATIONS section 1:

    VSKL(q)    groups as given, sigma = 2q          rho = 2q / (2q - 1), and q = 1/2 is L1MKL
    L1MKL      one group                            rho = 2
    LpMKL(p)   one kernel a group, sigma = 2p/(p+1)   rho = 2p / (p - 1), and p = 1 is L1MKL

Its functions scale by the largest entry first, so that no power overflows or underflows.

Of coefficients, one a sample and kernel (FORMULATIONS section 5), the regulariser is

    pen(alpha) = lam/Q ||alpha||_{PQ}^Q = lam/Q sum_g ||alpha_g||_P^Q,     P, Q in {1, 2}

over groups g of coefficients: those of one sample (r = 1) or of one kernel (r = 2). Coefficients are a flat vector with
the group number of each, so that a part of an array (s, n) is handled like the whole array (`groups_of`).

(1, 1) makes single coefficients zero, (2, 1) whole groups, (1, 2) most members of every group (Kowalski and Torresani's
elitist lasso), (2, 2) none. The (1, 2) map is that of FORMULATIONS; the paper's has a factor too many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.types import Float64, Mask, Samples

TINY = 1e-300  # replaces 0 as a divisor


@dataclass(frozen=True)
class MixedNorm:
    """The regulariser of one grouping and exponent.

    Parameters
    ----------
    groups : (s,) the number of the group of each kernel, from 0.
    rho : the dual exponent across groups, in [1, inf).
    """

    groups: Samples
    rho: float

    @property
    def count(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1

    def among(self, kernels: Samples) -> MixedNorm:
        """The norm over some of the kernels, which include one of every group."""
        return self if len(kernels) == len(self.groups) else MixedNorm(self.groups[kernels], self.rho)

    def total(self, per_kernel: Float64) -> Float64:
        """Sums over the kernels of each group."""
        return np.bincount(self.groups, per_kernel, self.count).astype(np.float64, copy=False)

    def regulariser(self, norms: Float64) -> float:
        """R of the norms ||w_a||."""
        return _half_squared(self.total(norms), self.sigma)

    def conjugate(self, forms: Float64) -> float:
        """Omega of the quadratic forms D_a."""
        return _half_squared(self.radii(forms), self.rho)

    @property
    def sigma(self) -> float:
        """The primal exponent across groups."""
        return np.inf if self.rho == 1 else self.rho / (self.rho - 1)

    def size(self, weights: Float64) -> float:
        """For rho >= 2: the dual norm of effective weights, whose unit ball holds those of every solution."""
        totals = self.total(weights)
        largest = float(totals.max())
        if self.rho == 2 or not largest > 0:
            return largest
        p = self.rho / (self.rho - 2)
        return largest * float(((totals / largest) ** p).sum() ** (1 / p))

    def radii(self, forms: Float64) -> Float64:
        """N_j, the largest sqrt(D_a) of each group."""
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.groups, np.maximum(forms, 0.0))
        return np.sqrt(largest)

    def slope(self, radii: Float64) -> Float64:
        """Gradient of 1/2 ||N||_rho^2, zero where all N are; the weights of a group sum to slope / N."""
        largest = radii.max()
        scaled = radii / max(largest, TINY)
        return np.asarray(largest * (scaled**self.rho).sum() ** (2 / self.rho - 1) * scaled ** (self.rho - 1))

    def curvature(self, radii: Float64) -> Float64:
        """Hessian of 1/2 ||N||_rho^2 at N > 0."""
        scaled, rho = np.maximum(radii / radii.max(), TINY), self.rho
        total = (scaled**rho).sum()
        power = scaled ** (rho - 1)
        hessian = (2 - rho) * total ** (2 / rho - 2) * np.outer(power, power)
        hessian[np.diag_indices(len(radii))] += (rho - 1) * total ** (2 / rho - 1) * scaled ** (rho - 2)
        return np.asarray(hessian)

    def uniform(self) -> Float64:
        """Initial weights (s,): the same total for every group, divided equally among its kernels."""
        radii = np.ones(self.count)
        return (self.slope(radii) / np.bincount(self.groups))[self.groups]


@dataclass(frozen=True)
class ConcaveNorm(MixedNorm):
    """l1 inside a group and an exponent below 1 across groups: R = 1/2 (sum_j u_j^sigma)^(2/sigma) is not convex.

    The largest convex function below R is 1/2 (sum_a ||w_a||)^2, so the conjugate is that of one group: rho is inf.
    """

    exponent: float

    @property
    def sigma(self) -> float:
        return self.exponent

    def tangent(self, norms: Float64) -> Float64:
        """(s,): eta_g(a)^2 at these ||w_a||; 1/2 (sum_a ||w_a|| / eta_g(a))^2 is not below R, and equal to it there."""
        totals = self.total(norms)
        shares = totals / max(float(totals.max()), TINY)
        power = (1 - self.sigma) / self.sigma
        eta = shares ** (1 - self.sigma) / (shares[shares > 0] ** self.sigma).sum() ** power
        return np.asarray(np.square(eta)[self.groups])


def _half_squared(values: Float64, exponent: float) -> float:
    """1/2 ||values||_exponent^2 of non-negative values."""
    largest = float(values.max())
    if largest <= 0 or np.isinf(exponent):
        return 0.5 * largest**2
    return 0.5 * largest**2 * float(((values / largest) ** exponent).sum() ** (2 / exponent))


@dataclass(frozen=True)
class Jacobian:
    """A generalised derivative of a proximal map: diag(diagonal) + sum_g factor_g v_g v_g'.

    v_g is the part of `vector` that belongs to group g.
    """

    diagonal: Float64
    factor: Float64  # (count,), all zero if the derivative is diagonal
    vector: Float64


@dataclass(frozen=True)
class GroupNorm:
    """The penalty with its constant lam over `count` groups; `groups` has the group number of each coefficient."""

    inner: int  # P
    outer: int  # Q
    lam: float
    groups: Samples
    count: int

    def among(self, members: Samples) -> GroupNorm:
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
        """The dual of the inner norm of V in every group."""
        if self.inner == 2:
            return self.norms(V)
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.groups, np.abs(V))
        return largest

    def largest(self, V: Float64) -> float:
        """The largest dual norm of a group; for Q = 1 the smallest lam with a finite pen*(V), which is 0."""
        return float(self.dual_norms(V).max(initial=0.0))

    def conjugate(self, V: Float64) -> float:
        """pen*(V); for Q = 1 it is 0, and V has to be in its domain."""
        return 0.0 if self.outer == 1 else float(np.square(self.dual_norms(V)).sum()) / (2 * self.lam)

    def reach(self, V: Float64) -> float:
        """The largest factor of V with a finite pen*; infinite for Q = 2."""
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
        """The map, and for each group the norm of u for (2, 1) or the threshold for (1, 2)."""
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
        """The threshold mu U_M / (1 + mu M) of every group, U_M the sum of its M largest sizes.

        M is the largest number for which the M-th size exceeds the threshold.
        """
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


def groups_of(members: Mask, r: int) -> tuple[Samples, int]:
    """The group number of each coefficient that a mask (s, n) selects, in row order, and the number of groups.

    With r = 1 the coefficients of a sample are a group, with r = 2 those of a kernel.
    """
    kernels, samples = np.nonzero(members)
    return (samples, members.shape[1]) if r == 1 else (kernels, members.shape[0])
