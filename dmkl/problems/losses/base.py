"""What a solver needs to know of a convex loss l(y, f), f the score with its intercept.

Dual variables are rho = -dl/df (FORMULATIONS section 2). Their penalty l*(y, -rho) is a smooth function plus, where the
loss has kinks, one term per slack: a hinge is 1 - yf + (a slack above) - (a slack below), and so on. Solvers that need
smooth functions treat slacks as variables of their own instead of smoothing the kinks away.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from dmkl._util.types import Float64

NEGLIGIBLE = 1e-10  # of a rho's range, or of a slope's


@dataclass(frozen=True)
class Slack:
    """A variable t in [low, high] a sample that moves its score by `sign * t` at the price `cost * t`."""

    sign: Float64
    cost: Float64 | float
    low: float
    high: float


@dataclass(frozen=True)
class Smooth:
    """A smooth function of rho: its sum over the samples, gradient, and second derivatives."""

    value: float
    gradient: Float64
    curvature: Float64


class Loss(Protocol):
    """A convex loss; `y` holds signs -1/+1 or real targets."""

    def counting(self, counts: Float64) -> Self:
        """The loss in which every sample counts so many times: its c l(y, f) has the conjugate c l*(y, -rho / c)."""

    @property
    def regression(self) -> bool:
        """Whether y may be any real numbers."""

    @property
    def sparse(self) -> bool:
        """Whether samples that are fitted well have rho = 0, so that working sets of samples help."""

    def total(self, y: Float64, f: Float64) -> float:
        """The sum of losses."""

    def conjugate(self, y: Float64, rho: Float64) -> float:
        """The sum of l*(y, -rho), for rho in its domain."""

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        """The nearest rho with a finite conjugate. The domain of every loss is an interval that holds 0."""

    def smooth(self, y: Float64, rho: Float64) -> Smooth | None:
        """The smooth part of the conjugate; None outside its domain."""

    def shortened(self, y: Float64, rho: Float64, step: Float64) -> Float64:
        """The step with every sample's part kept inside the domain, where its ends can't be reached."""

    def slacks(self, y: Float64) -> list[Slack]:
        """What is not smooth about it."""

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        """The cheapest slacks that make up these scores."""

    def null(self, y: Float64) -> Float64:
        """A rho in the domain that sums to zero, good when the model is only an intercept."""

    def intercept(self, y: Float64, scores: Float64) -> float:
        """The b that minimises the sum of losses at scores + b."""

    def margins(self, y: Float64, f: Float64) -> Float64:
        """At least 1 where rho = 0 is right, growing with the distance from where it is not."""


@dataclass(frozen=True)
class Counted:
    """What every loss has: how many times each sample counts."""

    counts: Float64 | float = field(default=1.0, kw_only=True)

    def counting(self, counts: Float64) -> Self:
        return replace(self, counts=counts)

    def mean(self, values: Float64) -> float:
        counts = np.broadcast_to(self.counts, values.shape)
        return float((counts * values).sum() / counts.sum())


def balanced(rho: Float64) -> Float64:
    """rho with the heavier side scaled down so that it sums to zero: inside every domain that held it."""
    up, down = float(rho[rho > 0].sum()), float(-rho[rho < 0].sum())
    if up == down:
        return rho
    if up > down:
        return np.where(rho > 0, rho * (down / up), rho)
    return np.where(rho < 0, rho * (up / down), rho)


def sparse_clip(rho: Float64, low: Float64 | float, high: Float64 | float) -> Float64:
    """rho in [low, high], with zeros where it is nothing but rounding."""
    clipped = np.clip(rho, low, high)
    return np.where(np.abs(clipped) < NEGLIGIBLE * high, 0.0, clipped)


def lowest(breaks: Float64, rises: Float64 | float, below: float) -> float:
    """Where a convex piecewise linear function is least; its slope starts at -below and rises so much at its breaks."""
    order = np.argsort(breaks, kind="stable")
    slope = np.broadcast_to(rises, breaks.shape)[order].cumsum()
    rounding = NEGLIGIBLE * slope[-1]
    left = min(int(slope.searchsorted(below - rounding)), len(order) - 1)
    right = min(int(slope.searchsorted(below + rounding, side="right")), len(order) - 1)
    return 0.5 * float(breaks[order[left]] + breaks[order[right]])
