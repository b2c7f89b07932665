"""The (2,p) norm and its dual: all that depends on p, in logarithms, for near p = 1 the exponent q has many digits.

B holds coefficients, D_a = tr B' K_a B, so that N_a = sqrt(D_a) are the norms of its kernels' functions. With
q = p / (p - 1) the dual norm is ||N||_q; its half square has the slope u_a N_a,  u_a = (N_a / ||N||_q)^(q - 2), and the
functions w_a = u_a sum_i B_i phi_a(x_i) have ||w||_{2,p} = ||N||_q (Lemma 1 of the paper, where theta = q B).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.types import Float64


@jit()
def weigh(forms: Float64, q: float, weights: Float64) -> float:
    """weights = u for forms D; returns ||N||_q. Without any norm all weights are as if kernels were equal."""
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
        return self.p / (self.p - 1)

    def weights(self, forms: Float64) -> Float64:
        """u: the kernel weights that belong to these forms."""
        weights = np.empty(len(forms))
        weigh(np.ascontiguousarray(forms), self.q, weights)
        return weights

    def dual(self, forms: Float64) -> float:
        """||N||_q."""
        return float(weigh(np.ascontiguousarray(forms), self.q, np.empty(len(forms))))

    def primal(self, norms: Float64) -> float:
        """||norms||_p."""
        largest = float(norms.max())
        return largest * float(((norms / largest) ** self.p).sum() ** (1 / self.p)) if largest > 0 else 0.0
