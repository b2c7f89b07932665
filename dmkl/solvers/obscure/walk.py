"""Stages 1 and 2 of OBSCURE on one batch of samples, one after the other (Algorithms 1 and 2 of the paper).

Coefficients are theta / q = scale * coef: what the norm's mirror map wants, and what shrinking touches is one number.
G[a, i] holds the scores of coef under kernel a for sample i of the batch, K the batch's own kernel values: updates
inside the batch correct the scores of those that follow, so any batch gives what one sample at a time would.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.jit import jit
from dmkl._util.types import Float64
from dmkl.solvers.obscure.norm import weigh

# of `numbers`: t, s_t, the scale, the sum of the scales of how many samples, updates so far
TIME, PULL, SCALE, WEIGHT, COUNT, UPDATES = range(6)
NUMBERS = 6


@jit()
def subgradient(scores: Float64, signs: Float64, label: int, out: Float64) -> float:
    """out = minus the loss's subgradient in the scores; returns its square, 0 where there is no loss."""
    m = scores.shape[0]
    square = 0.0
    if label < 0:
        for r in range(m):
            out[r] = signs[r] if signs[r] * scores[r] < 1.0 else 0.0
            square += out[r] * out[r]
        return square
    other = -1
    for r in range(m):
        out[r] = 0.0
        if r != label and (other < 0 or scores[r] > scores[other]):
            other = r
    if scores[label] - scores[other] < 1.0:
        out[label], out[other], square = 1.0, -1.0, 2.0
    return square


@jit()
def step_size(numbers: Float64, q: float, lam: float, radius: float, norm: float, slope: float) -> float:
    """1 / (lam t + s_t), after s_t was moved to balance the two rates of Theorem 3; radius inf: 1 / (lam t)."""
    numbers[TIME] += 1.0
    past = lam * numbers[TIME] + numbers[PULL]
    length = (lam * norm + slope) / radius
    numbers[PULL] += 0.5 * (np.sqrt(past * past + q * length * length) - past)
    return float(1.0 / (lam * numbers[TIME] + numbers[PULL]))


@jit()
def walk(
    K: NDArray[Any],
    G: Float64,
    Y: Float64,
    labels: NDArray[np.int64],
    coef: Float64,
    ledger: Float64,
    forms: Float64,
    numbers: Float64,
    q: float,
    lam: float,
    radius: float,
    fixed: float,
) -> None:
    """All samples of a batch in turn. Stage 1 takes steps of the same size, `fixed` = eta / q > 0; stage 2 has fixed = 0 and its own rate.

    `coef` and `ledger` are the batch's rows. The ledger makes the average over an epoch: it holds for each change of a
    coefficient the sum of scales that came before it.
    """
    s, size, m = G.shape
    weights, own, scores, pull = np.empty(s), np.empty(s), np.empty(m), np.empty(m)
    norm = weigh(forms, q, weights)
    for i in range(size):
        for r in range(m):
            total = 0.0
            for a in range(s):
                total += weights[a] * G[a, i, r]
            scores[r] = numbers[SCALE] * total
        square = subgradient(scores, Y[i], labels[i], pull)
        if fixed > 0:
            step = fixed
        else:
            for a in range(s):
                own[a] = square * K[a, i, i]
            slope = weigh(own, q, np.empty(s)) if square > 0 else 0.0
            step = step_size(numbers, q, lam, radius, numbers[SCALE] * norm, slope)
            numbers[SCALE] *= 1.0 - lam * step
            if numbers[SCALE] <= 0.0:  # the first step of the 1 / t rate: there is nothing to shrink yet
                numbers[SCALE] = 1.0
        if square > 0:
            step /= numbers[SCALE]
            numbers[UPDATES] += 1.0
            for a in range(s):
                change = step * square * K[a, i, i]
                for r in range(m):
                    change += 2.0 * pull[r] * G[a, i, r]
                forms[a] = max(forms[a] + step * change, 0.0)
            for r in range(m):
                if pull[r] != 0.0:
                    coef[i, r] += step * pull[r]
                    ledger[i, r] += numbers[WEIGHT] * step * pull[r]
                    for a in range(s):
                        for j in range(i + 1, size):
                            G[a, j, r] += step * pull[r] * K[a, i, j]
            norm = weigh(forms, q, weights)
        if fixed <= 0 and numbers[SCALE] * norm > radius:
            numbers[SCALE] = radius / norm
        numbers[WEIGHT] += numbers[SCALE]
        numbers[COUNT] += 1.0
