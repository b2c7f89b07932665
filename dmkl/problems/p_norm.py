"""The (2,p) norm over kernels and its dual, computed in logarithms: near p = 1 the exponent q is in the hundreds.

    ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p)        q = p / (p - 1)

B holds coefficients and D_a = tr B' K_a B, so that N_a = sqrt(D_a) are the norms of the functions of its kernels. The
half square of the dual norm ||N||_q has the slope u_a N_a with u_a = (N_a / ||N||_q)^(q - 2), and the functions
w_a = u_a sum_i B_i phi_a(x_i) have ||w||_{2,p} = ||N||_q (Lemma 1 of Orabona et al. 2012, where theta = q B).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.types import Float64


@jit()
def weigh(forms: Float64, q: float, weights: Float64) -> float:
    """Write u for the forms D to `weights` and return ||N||_q. If all forms are zero, the weights are equal."""
    s = forms.shape[0]
    largest = 0.0
    for a in range(s):
        largest = max(largest, forms[a])
    if largest <= 0.0:
        for a in range(s):
            weights[a] = np.exp(-(q - 2) / q * np.log(s))
        return 0.0
    total = 0.0
    for a in range(s):
        weights[a] = 0.5 * np.log(forms[a] / largest) if forms[a] > 0 else -np.inf
        total += np.exp(q * weights[a])
    shift = np.log(total) / q
    for a in range(s):
        weights[a] = np.exp((q - 2) * (weights[a] - shift)) if q > 2 else 1.0
    return float(np.sqrt(largest) * np.exp(shift))


@dataclass(frozen=True)
class PNorm:
    """The norm with exponent p, 1 < p <= 2."""

    p: float

    @property
    def q(self) -> float:
        """The conjugate exponent p / (p - 1)."""
        return self.p / (self.p - 1)

    def weights(self, forms: Float64) -> Float64:
        """(s,): the kernel weights u that belong to these forms (s,)."""
        weights = np.empty(len(forms))
        weigh(np.ascontiguousarray(forms), self.q, weights)
        return weights

    def dual(self, forms: Float64) -> float:
        """||N||_q of the forms (s,)."""
        return float(weigh(np.ascontiguousarray(forms), self.q, np.empty(len(forms))))

    def primal(self, norms: Float64) -> float:
        """||norms||_p of the norms (s,) of the kernels' functions."""
        largest = float(norms.max())
        return largest * float(((norms / largest) ** self.p).sum() ** (1 / self.p)) if largest > 0 else 0.0
