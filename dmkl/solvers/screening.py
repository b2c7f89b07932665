"""The interior point method on the kernels that may matter: of hundreds in a block, a few dozen end with weight.

Kernels are in proportion to the size of their quadratic forms D_a = beta' K_a beta against the largest of their group:
at the optimum only those that reach it have weight. Three looks at all kernels decide, each a reading of the block: at
the SVM on their average, who takes part at first; once the gap is small, who takes part from then on; at the end,
whether the lower bound holds for those left out. Where it does not, they join, and the method goes on from where the
second look was, a few times; then all take part. What comes back holds for all kernels of the block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.oracles import ORACLES
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.interior import Interior, follow, solve_interior
from dmkl.solvers.interior_point import Machine, Point
from dmkl.solvers.sweep import combine, quadratic_forms

Kernels = NDArray[np.int64]
FEW = 48  # kernels: fewer are not worth choosing among, and of more this many take part in any case
OUTLINE = 0.05  # tolerance of the SVM on their average
FIRST, SECOND, BACK = 0.1, 0.3, 0.5  # share of their group's largest form that lets kernels in, at the three looks
LOOSE = 0.1  # relative gap at the second look: the point is still far from all bounds
ROOM = 0.1  # least slack, as a share of N, that a kernel joins with
LOOKS = 3  # at the end, before all kernels take part: where each joining makes room for others, that is cheaper
LOST = 0.1  # of the tolerance: what kernels left out may take from the lower bound


def solve_screened(
    K: NDArray[Any], y: Float64, C: Float64 | float, norm: MixedNorm, tol: float, oracle: str
) -> Interior:
    """As `solve_interior`; and that very method where most kernels have a group of their own, or are few."""
    if len(K) - norm.count < 2 * FEW:
        return solve_interior(K, y, C, norm, tol)
    machine = Machine(K, y, C, norm, _near(norm, _outlined(K, y, C, norm, oracle), FIRST, FEW))
    found, point = follow(machine, machine.start(), max(LOOSE, tol))
    steps, forms = found.steps, quadratic_forms(K, point.beta)
    kernels = _near(norm, forms, SECOND, FEW)
    for _ in range(LOOKS):
        here = Machine(K, y, C, norm, kernels)
        found = follow(here, _joined(machine, point, here, forms), tol)[0]
        steps += found.steps
        if not found.solved:  # too near to bounds that these kernels want it away from
            found = follow(here, here.central(), tol)[0]
            steps += found.steps
        if not found.solved:
            break
        seen = quadratic_forms(K, found.proof)
        dual = float(y @ found.proof) - norm.conjugate(seen)
        joining = np.setdiff1d(_near(norm, seen, BACK, 0), kernels)
        if found.dual - dual <= LOST * tol * abs(found.primal) or not len(joining):
            weights = np.zeros(len(K))
            weights[kernels] = found.weights
            return replace(found, weights=weights, dual=dual, proof_forms=seen, steps=steps)
        kernels = np.union1d(kernels, joining)
    return solve_interior(K, y, C, norm, tol)


def _outlined(K: NDArray[Any], y: Float64, C: Float64 | float, norm: MixedNorm, oracle: str) -> Float64:
    """The forms of the SVM on the average of the kernels."""
    average = np.empty(K.shape[1:])
    combine(K, norm.uniform(), average)
    svm = ORACLES[oracle](average, y, C, alpha=np.zeros(len(y)), tol=OUTLINE)
    return quadratic_forms(K, svm.alpha * y)


def _near(norm: MixedNorm, forms: Float64, share: float, few: int) -> Kernels:
    """The kernels that reach this share of the largest form of their group, its largest among them, and the few that
    come nearest."""
    largest = norm.radii(forms)[norm.groups] ** 2
    relative = np.where(largest > 0, forms / np.maximum(largest, 1e-300), 1.0)
    nearest = np.argsort(-relative, kind="stable")[:few]
    return np.union1d(np.flatnonzero(relative >= share), nearest)


def _joined(before: Machine, point: Point, after: Machine, forms: Float64) -> Point:
    """The point among other kernels: those that join have the complementarity that kernels had on the average."""
    radii = point.radii[after.g]
    slack = np.maximum(0.5 * (radii - forms[after.kernels] / radii), ROOM * radii)
    mu = float(point.mu @ point.slack) / len(point.mu) / slack
    _, old, new = np.intersect1d(before.kernels, after.kernels, return_indices=True)
    slack[new], mu[new] = point.slack[old], point.mu[old]
    return replace(point, slack=slack, mu=mu)
