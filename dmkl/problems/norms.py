"""Mixed norms over kernels, l1 inside a group and l_sigma across groups: values, conjugates and derivatives.

With u_j = sum_{a in j} ||w_a|| the regulariser is R = 1/2 ||u||_sigma^2. Its conjugate in the dual variables is
Omega(D) = 1/2 ||N||_rho^2, N_j = max_{a in j} sqrt(D_a), 1/rho + 1/sigma = 1. One family holds FORMULATIONS section 1:

    VSKL(q)    groups as given, sigma = 2q          rho = 2q / (2q - 1)
    L1MKL      one group                            rho = 2
    LpMKL(p)   one kernel a group, sigma = 2p/(p+1)   rho = 2p / (p - 1), and p = 1 is L1MKL

Every function scales by the largest entry first, so that no power overflows or underflows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, Samples


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

    def radii(self, forms: Float64) -> Float64:
        """N_j, the largest sqrt(D_a) of each group."""
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.groups, np.maximum(forms, 0.0))
        return np.sqrt(largest)

    def slope(self, radii: Float64) -> Float64:
        """Gradient of 1/2 ||N||_rho^2 at N > 0; the weights of a group sum to slope / N."""
        largest = radii.max()
        scaled = radii / largest
        return np.asarray(largest * (scaled**self.rho).sum() ** (2 / self.rho - 1) * scaled ** (self.rho - 1))

    def curvature(self, radii: Float64) -> Float64:
        """Hessian of 1/2 ||N||_rho^2 at N > 0."""
        scaled, rho = radii / radii.max(), self.rho
        total = (scaled**rho).sum()
        power = scaled ** (rho - 1)
        hessian = (2 - rho) * total ** (2 / rho - 2) * np.outer(power, power)
        hessian[np.diag_indices(len(radii))] += (rho - 1) * total ** (2 / rho - 1) * scaled ** (rho - 2)
        return np.asarray(hessian)

    def uniform(self) -> Float64:
        """Initial weights (s,): the same total for every group, divided equally among its kernels."""
        radii = np.ones(self.count)
        return (self.slope(radii) / np.bincount(self.groups))[self.groups]


def _half_squared(values: Float64, exponent: float) -> float:
    """1/2 ||values||_exponent^2 of non-negative values."""
    largest = float(values.max())
    if largest <= 0 or np.isinf(exponent):
        return 0.5 * largest**2
    return 0.5 * largest**2 * float(((values / largest) ** exponent).sum() ** (2 / exponent))
