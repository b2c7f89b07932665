"""Stochastic approximation of the saddle point min_p max_gamma sum_k gamma_k H_k(p) (ML-MKL-SA).

Classes are sampled from smoothed gamma; a sampled class's SVM gives unbiased estimates of both gradients. Weights and
gamma move by exponentiated steps, kept as logarithms: nothing overflows, and no gamma is lost at zero. Two step rules:
`paper` has the constant eta; the other divides by the root of all squares seen so far, so it has no scale to tune. What
is known of classes from before (`known`) can be subtracted from the estimates without bias, which calms them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64

WALKED = ("log_weights", "log_gamma", "weight_sum", "gamma_sum", "path")


def softmax(logs: Float64) -> Float64:
    shifted = np.exp(logs - logs.max())
    return np.asarray(shifted / shifted.sum())


def smoothed(gamma: Float64, delta: float) -> Float64:
    """gamma' = (1 - delta) gamma + delta / m: how classes are sampled."""
    return np.asarray((1 - delta) * gamma + delta / len(gamma))


@dataclass(frozen=True)
class Known:
    """What is believed of every class before sampling: H_k at the weights at hand, and its forms. Zeros are allowed."""

    values: Float64  # (m,)
    forms: Float64  # (m, s)


def estimate(
    sampled: NDArray[np.int64], values: Float64, forms: Float64, gamma: Float64, chances: Float64, known: Known
) -> tuple[Float64, Float64]:
    """Unbiased estimates of the gradients in p, -1/2 sum_k gamma_k D(beta_k), and in gamma, H.

    `values` and `forms` are those of the sampled classes, which were drawn independently with these chances.
    """
    count = len(sampled)
    share = 1.0 / (count * chances[sampled])
    by_class = known.values.copy()
    np.add.at(by_class, sampled, share * (values - known.values[sampled]))
    change = (share * gamma[sampled])[:, None] * (forms - known.forms[sampled])
    return -0.5 * (gamma @ known.forms + change.sum(axis=0)), by_class


def _deviation(shares: Float64, values: Float64) -> float:
    """The standard deviation under these shares: blind to a constant added to all values."""
    size = max(float(np.abs(values).max()), 1e-300)
    scaled = values / size
    return size * float(np.sqrt(shares @ (scaled - shares @ scaled) ** 2))


@dataclass
class Walk:
    """Where the stochastic approximation is: logarithms, running sums, how far it has come."""

    log_weights: Float64
    log_gamma: Float64
    weight_sum: Float64
    gamma_sum: Float64
    path: Float64  # roots of the sums of squares that scale-free steps are divided by

    @classmethod
    def start(cls, s: int, m: int) -> Walk:
        return cls(np.zeros(s), np.zeros(m), np.zeros(s), np.zeros(m), np.zeros(2))

    @classmethod
    def of(cls, own: dict[str, NDArray[Any]]) -> Walk:
        """The walk that a state keeps."""
        return cls(**{name: own[f"walk_{name}"] for name in WALKED})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a state keeps it."""
        return {f"walk_{name}": getattr(self, name) for name in WALKED}

    @property
    def weights(self) -> Float64:
        return softmax(self.log_weights)

    @property
    def gamma(self) -> Float64:
        return softmax(self.log_gamma)

    @property
    def average(self) -> tuple[Float64, Float64]:
        """Running averages of weights and gamma: the answer of the method."""
        if not self.weight_sum.any():
            return self.weights, self.gamma
        return self.weight_sum / self.weight_sum.sum(), self.gamma_sum / self.gamma_sum.sum()

    def move(self, by_weight: Float64, by_class: Float64, eta: float) -> None:
        """Weights down, gamma up their gradients; eta = 0 means scale-free."""
        weights, gamma = self.weights, self.gamma
        self.weight_sum = self.weight_sum + weights
        self.gamma_sum = self.gamma_sum + gamma
        if eta:
            eta_p = eta_gamma = eta
        else:
            spread = np.array([_deviation(weights, by_weight), _deviation(gamma, by_class)])
            self.path = np.hypot(self.path, spread)
            logs = np.log([max(len(weights), 2), max(len(gamma), 2)])
            eta_p, eta_gamma = np.sqrt(logs) / np.maximum(self.path, 1e-300)
        self.log_weights = self.log_weights - eta_p * by_weight
        self.log_gamma = self.log_gamma + eta_gamma * by_class
        self.log_weights -= self.log_weights.max()
        self.log_gamma -= self.log_gamma.max()
