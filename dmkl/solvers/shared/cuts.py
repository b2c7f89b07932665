"""Cuts: every alpha a solver has seen gives a function of the kernel weights that the objective never falls below.

    H_k(p) >= total - 1/2 p . forms        total = sum(alpha), forms = D_a(beta)

A convex combination of cuts of the whole objective is a lower bound of its minimum: the least value over the simplex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.solvers.shared.simplex_qp import simplex_qp

KEPT = 12  # newest cuts of an owner; older ones stay while they hold the minimum up
HOLDING = 1e-6  # a multiplier above this does


@dataclass(frozen=True)
class Lowest:
    """Where a model is least: weights, the cuts' multipliers and which cuts hold it up, its value, and the lower bound
    of the objective."""

    weights: Float64
    multipliers: Float64
    holding: NDArray[np.bool_]
    value: float
    bound: float


@dataclass(frozen=True)
class Cuts:
    """`owner` says whose objective a cut bounds: a class, or -1 for all classes together."""

    total: Float64  # (cuts,)
    forms: Float64  # (cuts, s)
    owner: NDArray[np.int64]

    @classmethod
    def none(cls, s: int) -> Cuts:
        return cls(np.zeros(0), np.zeros((0, s)), np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, own: dict[str, NDArray[Any]]) -> Cuts:
        """The cuts that a state keeps."""
        return cls(own["cut_total"], own["cut_forms"], own["cut_owner"])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a state keeps them."""
        return {"cut_total": self.total, "cut_forms": self.forms, "cut_owner": self.owner}

    def plus(self, total: Float64, forms: Float64, owner: NDArray[np.int64]) -> Cuts:
        return Cuts(
            np.concatenate([self.total, total]), np.vstack([self.forms, forms]), np.concatenate([self.owner, owner])
        )

    def pruned(self, holding: NDArray[np.bool_]) -> Cuts:
        """Without old cuts that hold nothing up."""
        newest = np.zeros(len(self.total), dtype=bool)
        seen: dict[int, int] = {}
        for number in range(len(self.owner) - 1, -1, -1):
            k = int(self.owner[number])
            seen[k] = seen.get(k, 0) + 1
            newest[number] = seen[k] <= KEPT
        keep = newest | holding
        return Cuts(self.total[keep], self.forms[keep], self.owner[keep])

    def values(self, weights: Float64) -> Float64:
        """Every cut at these weights."""
        return self.total - 0.5 * self.forms @ weights

    def highest(self, weights: Float64) -> float:
        """The largest cut at these weights: what is known of the objective there."""
        return float(self.values(weights).max())

    def at(self, weights: Float64, m: int) -> Float64:
        """Every class's highest cut at these weights; -inf for a class without cuts."""
        highest = np.full(m, -np.inf)
        np.maximum.at(highest, self.owner, self.values(weights))
        return highest

    def bound(self, multipliers: Float64) -> float:
        """The lower bound that this convex combination of cuts proves."""
        return float(multipliers @ self.total) - 0.5 * float((multipliers @ self.forms).max())

    def lowest(self, centre: Float64, curvature: Float64) -> Lowest:
        """Where the largest cut plus the curvature around `centre` is least."""
        weights, multipliers = simplex_qp(self.total, -0.5 * self.forms, curvature, centre)
        newest = np.zeros(len(self.total))
        newest[-1] = 1.0
        plain = simplex_qp(self.total, -0.5 * self.forms, np.zeros_like(curvature), centre)[1]  # the tightest bound
        step = weights - centre
        value = self.highest(weights) + 0.5 * float(step @ curvature @ step)
        holding = np.maximum(multipliers, plain) > HOLDING
        return Lowest(weights, multipliers, holding, value, max(self.bound(plain), self.bound(newest)))
