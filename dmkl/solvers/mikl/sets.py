"""Which coefficients of a MIKL problem can still matter, and which are in its compact problem.

Screening by the gap: the dual is 1/2-strongly concave, so the best u is within r = 2 sqrt(P - L) of any feasible one,
and what V = K_y' u is for it within r times a row's norm. A coefficient that is zero for every such u is zero for good
and leaves the problem, bound and all ("gap safe sphere" of Ndiaye et al. 2017). Of the others those enter the compact
problem whose V is near what makes them nonzero, at most twice as many groups as there are with coefficients.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmkl._util.types import Float64, Mask
from dmkl.problems.proxes import TINY, GroupNorm, groups_of

NEAR = 0.9  # of the bound, or of the largest in its group
FEWEST, AS_MANY = 200, 2  # groups that may enter: so many, or so many times those with coefficients


def norm_of(members: Mask, inner: int, outer: int, r: int, lam: float) -> GroupNorm:
    """The penalty of the coefficients in a mask (s, n)."""
    groups, count = groups_of(members, r)
    return GroupNorm(inner, outer, lam, groups, count)


def screened(norm: GroupNorm, V: Float64, radius: float, row_norms: Float64) -> Mask:
    """Which of the coefficients may be nonzero at the optimum; V belongs to a feasible u, `radius` bounds its error."""
    reach = radius * row_norms
    if norm.outer == 1:
        wide = replace(norm, inner=2)
        most = norm.dual_norms(V) + (wide.dual_norms(reach) if norm.inner == 2 else 0.0)
        if norm.inner == 1:
            return np.asarray(np.abs(V) + reach >= norm.lam)
        return np.asarray(most[norm.groups] >= norm.lam)
    if norm.inner == 2:
        return np.ones(len(V), dtype=bool)
    surely = np.zeros(norm.count)
    np.maximum.at(surely, norm.groups, np.abs(V) - reach)
    return np.asarray(np.abs(V) + reach >= surely[norm.groups])


def entering(norm: GroupNorm, V: Float64, alpha: Float64) -> Mask:
    """Coefficients for the next compact problem: those there are, and those nearest to being needed."""
    if (norm.inner, norm.outer) == (2, 2):
        return np.ones(len(V), dtype=bool)
    sizes = norm.dual_norms(V)
    if norm.outer == 2:  # every group has its largest; which of the others matter is relative to it
        return np.asarray((alpha != 0) | ((np.abs(V) >= NEAR * sizes[norm.groups]) & (np.abs(V) > 0)))
    if norm.inner == 1:
        return _nearest(np.abs(V) / norm.lam, alpha != 0)
    used = np.bincount(norm.groups, alpha != 0, norm.count) > 0
    return _nearest(sizes / norm.lam, used)[norm.groups]


def _nearest(scores: Float64, used: Mask) -> Mask:
    """Used ones and those near the bound, in the order of their scores as many as may enter."""
    most = max(FEWEST, AS_MANY * int(used.sum()))
    near = np.flatnonzero((scores >= min(NEAR, NEAR * max(float(scores.max(initial=0.0)), TINY))) & ~used)
    chosen = used.copy()
    chosen[near[np.argsort(-scores[near], kind="stable")[:most]]] = True
    return chosen
