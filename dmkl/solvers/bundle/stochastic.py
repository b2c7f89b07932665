"""Stochastic approximation of the saddle point  min_p max_gamma sum_k gamma_k H_k(p)  (ML-MKL-SA of Bucak et al. 2010).

Classes are sampled from a smoothed gamma; the SVM of a sampled class gives unbiased estimates of both gradients.
Weights and gamma move by exponentiated gradient steps. They are kept as logarithms, so that nothing overflows and no
gamma is lost at zero. The paper's step has a constant size eta. The scale-free step is divided by the root of the sum
of all squared deviations so far, so it has nothing to tune. Values of classes that are known from before serve as a
control variate: subtracted from the estimates they reduce the variance and add no bias.

The paper's equations 8 and 9 with classes drawn from gamma' are biased: in p the factor gamma_j / gamma'_j is missing.
The estimates here have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, Samples


def smoothed(gamma: Float64, delta: float) -> Float64:
    """gamma' = (1 - delta) gamma + delta / m: the probabilities by which classes are sampled."""
    return np.asarray((1 - delta) * gamma + delta / len(gamma))


@dataclass(frozen=True)
class ControlVariate:
    """Estimates of every class before sampling, H_k at the weights at hand and its forms; zeros are allowed."""

    values: Float64  # (m,)
    forms: Float64  # (m, s)


def estimate(
    sampled: Samples,
    values: Float64,
    forms: Float64,
    gamma: Float64,
    probabilities: Float64,
    control: ControlVariate,
) -> tuple[Float64, Float64]:
    """Unbiased estimates of the gradients in p and in gamma.

    Parameters
    ----------
    sampled : array (b,)
        Classes drawn independently, with repetitions, with `probabilities`.
    values : array (b,)
        H_k of the sampled classes at the weights at hand.
    forms : array (b, s)
        D_a(beta_k) of the sampled classes.
    gamma, probabilities : arrays (m,)
        The class weights, and the probabilities of sampling each class.
    control : ControlVariate

    Returns
    -------
    by_weight : array (s,)
        Estimate of -1/2 sum_k gamma_k D(beta_k).
    by_class : array (m,)
        Estimate of H.
    """
    count = len(sampled)
    share = 1.0 / (count * probabilities[sampled])
    by_class = control.values.copy()
    np.add.at(by_class, sampled, share * (values - control.values[sampled]))
    change = (share * gamma[sampled])[:, None] * (forms - control.forms[sampled])
    return -0.5 * (gamma @ control.forms + change.sum(axis=0)), by_class


def _softmax(logs: Float64) -> Float64:
    shifted = np.exp(logs - logs.max())
    return np.asarray(shifted / shifted.sum())


def _deviation(shares: Float64, values: Float64) -> float:
    """The standard deviation under these shares; a constant added to all values does not change it."""
    size = max(float(np.abs(values).max()), 1e-300)
    scaled = values / size
    return size * float(np.sqrt(shares @ (scaled - shares @ scaled) ** 2))


@dataclass
class SaddleIterates:
    """The iterates of stochastic approximation: weights p (s,) and class weights gamma (m,), with their sums so far."""

    log_weights: Float64
    log_gamma: Float64
    weight_sum: Float64
    gamma_sum: Float64
    path: Float64  # (2,): roots of the sums of squares that scale-free steps are divided by

    @classmethod
    def start(cls, s: int, m: int) -> SaddleIterates:
        """Equal weights of s kernels and m classes."""
        return cls(np.zeros(s), np.zeros(m), np.zeros(s), np.zeros(m), np.zeros(2))

    @property
    def weights(self) -> Float64:
        return _softmax(self.log_weights)

    @property
    def gamma(self) -> Float64:
        return _softmax(self.log_gamma)

    @property
    def average(self) -> tuple[Float64, Float64]:
        """The averages of weights and gamma over all steps: the answer of the method."""
        if not self.weight_sum.any():
            return self.weights, self.gamma
        return self.weight_sum / self.weight_sum.sum(), self.gamma_sum / self.gamma_sum.sum()

    def move(self, by_weight: Float64, by_class: Float64, eta: float) -> None:
        """Descend in the weights and ascend in gamma, by steps of size eta, or by scale-free ones if eta = 0."""
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
