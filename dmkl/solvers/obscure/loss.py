"""The losses of OBSCURE row by row: the multiclass one, or hinges that are summed over the columns.

In the units of B, C = 1 / (lambda n):

    primal / lambda = 1/2 ||w||^2 + C sum loss          dual / lambda = sum b - 1/2 ||B||^2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import Float64, Samples
from dmkl.solvers.obscure.rows import onto_sets


@dataclass(frozen=True)
class RowLoss:
    """What every sample should be: its signs, and its class, which is -1 for hinges."""

    Y: Float64  # (n, m)
    labels: Samples  # (n,)
    C: float

    @classmethod
    def of(cls, Y: Float64, multiclass: bool, C: float) -> RowLoss:
        """One column is a hinge in any case: two classes whose functions differ by it, see `Obscure`."""
        labels = Y.argmax(axis=1) if multiclass and Y.shape[1] > 1 else np.full(len(Y), -1)
        return cls(Y, labels.astype(np.int64), C)

    def among(self, samples: Samples) -> RowLoss:
        return RowLoss(np.ascontiguousarray(self.Y[samples]), self.labels[samples], self.C)

    @property
    def multiclass(self) -> bool:
        return bool(self.labels[0] >= 0)

    def margins(self, scores: Float64) -> Float64:
        """What the loss [1 - margin]+ is of: (n, 1), or (n, m) for hinges."""
        if not self.multiclass:
            return self.Y * scores
        rows = np.arange(len(scores))
        others = scores.copy()
        others[rows, self.labels] = -np.inf
        return np.asarray(scores[rows, self.labels] - others.max(axis=1))[:, None]

    def gain(self, B: Float64) -> float:
        """sum_i b_i."""
        return float(B[np.arange(len(B)), self.labels].sum() if self.multiclass else (B * self.Y).sum())

    def nearest(self, B: Float64) -> Float64:
        """The nearest rows of the dual sets."""
        out = np.empty_like(B)
        onto_sets(np.ascontiguousarray(B), self.Y, self.labels, self.C, out)
        return out

    def primal(self, square: float, scores: Float64) -> float:
        """1/2 square + C sum loss."""
        return 0.5 * square + self.C * float(np.maximum(1.0 - self.margins(scores), 0.0).sum())

    def best_scale(self, square: float, scores: Float64) -> float:
        """The t >= 0 that minimises t^2 / 2 square + C sum [1 - t margin]+."""
        if square <= 0:
            return 1.0
        margins = self.margins(scores).ravel()
        rising = np.sort(margins[margins > 0])[::-1]  # their losses end at 1 / margin, ascending
        always = float(margins[margins <= 0].sum())
        ends = np.append(1.0 / np.maximum(rising, 1e-300), np.inf)
        pull = always + np.append(rising.sum() - np.append(0.0, np.cumsum(rising[:-1])), 0.0)[: len(ends)]
        slopes = ends[:-1] * square - self.C * pull[:-1] if len(rising) else np.empty(0)
        k = int(np.searchsorted(slopes >= 0, True)) if len(slopes) else 0
        lower = float(ends[k - 1]) if k else 0.0
        return float(np.clip(self.C * pull[k] / square, lower, ends[k]))


def scaled_dual(gain: float, square: float) -> float:
    """max over t in [0, 1] of t gain - t^2 / 2 square: what a feasible B proves, scaled down if that is better."""
    t = min(1.0, max(gain, 0.0) / square) if square > 0 else 1.0
    return t * gain - 0.5 * t * t * square
