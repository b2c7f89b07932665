"""The Newton equations of the interior point method (`interior.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsyrk

from dmkl._util.types import Float64
from dmkl.solvers.interior_point import Machine, Point


class Equations:
    """The Newton equations at a point, reduced to (beta, N) and the intercept, factored once for both directions."""

    def __init__(self, machine: Machine, point: Point) -> None:
        norm, g, n = machine.norm, machine.g, len(machine.y)
        self._machine, self._point, self._n = machine, point, n
        radii = point.radii[g]
        self._ratio = machine.forms / radii
        self._by_beta = machine.products / radii[:, None]  # gradients of the constraints
        self._by_radius = -0.5 * (self._ratio / radii + 1.0)
        self._box = point.lower / (point.beta - machine.lo) + point.upper / (machine.hi - point.beta)
        self._factor = self._factored()
        self._ones = np.zeros(n + norm.count)
        self._ones[:n] = 1.0
        self._toward: Float64 | None = None  # where the intercept pulls; solved for beside the first direction

    def _matrix(self) -> Float64:
        """The lower triangle of the equations in (beta, N)."""
        machine, point, n = self._machine, self._point, self._n
        norm, g = machine.norm, machine.g
        radii = point.radii[g]
        matrix = np.empty((n + norm.count, n + norm.count), order="F")
        matrix[:n, :n] = machine.combined.T  # symmetric, and this way round it is a plain copy
        matrix[np.arange(n), np.arange(n)] += self._box
        cross = machine.products * (-point.mu / radii**2)[:, None]
        for j in range(norm.count):
            matrix[n + j, :n] = cross[g == j].sum(axis=0)
        matrix[n:, n:] = norm.curvature(point.radii)
        ends = np.arange(n, n + norm.count)
        matrix[ends, ends] += norm.total(point.mu * self._ratio / radii**2)
        gradients = np.zeros((len(g), n + norm.count))  # of the kernels' constraints, in (beta, N)
        gradients[:, :n] = self._by_beta
        gradients[np.arange(len(g)), n + g] = self._by_radius
        gradients *= np.sqrt(point.mu / point.slack)[:, None]
        return np.asarray(dsyrk(1.0, gradients.T, beta=1.0, c=matrix, lower=1, overwrite_c=1))

    def _factored(self) -> Any:
        """Cholesky; a matrix that rounding made indefinite is pushed back by as little as helps."""
        push = 0.0
        while True:
            matrix = self._matrix()
            diagonal = matrix.diagonal().copy()
            matrix[np.diag_indices(len(matrix))] = diagonal * (1.0 + push) + push * diagonal.mean()
            try:
                return scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                if push > 1e-2:
                    raise
                push = max(100.0 * push, 1e-14)

    def direction(self, kernels: Float64, lower: Float64, upper: Float64) -> Point:
        """The step that takes the three sets of products, to first order, down by these amounts."""
        machine, point, n, g = self._machine, self._point, self._n, self._machine.g
        stationary = machine.weights @ machine.products - machine.y + point.b + point.upper - point.lower
        radius = _power_law_residual(machine.norm.slope(point.radii), -machine.norm.total(point.mu * self._by_radius))
        feasible = 0.5 * (self._ratio - point.radii[g]) + point.slack
        pull = (point.mu * feasible - kernels) / point.slack
        right = np.empty(n + machine.norm.count)
        right[:n] = -stationary - pull @ self._by_beta
        right[:n] += upper / (machine.hi - point.beta) - lower / (point.beta - machine.lo)
        right[n:] = -radius - machine.norm.total(pull * self._by_radius)
        if self._toward is None:  # both in one reading of the factor
            x, self._toward = self._solved(np.column_stack([right, self._ones])).T
        else:
            x = self._solved(right)
        b = float((self._ones @ x + point.beta.sum()) / (self._ones @ self._toward))
        x -= b * self._toward
        beta, radii = x[:n], x[n:]
        slack = -feasible - self._by_beta @ beta - self._by_radius * radii[g]
        return Point(
            beta,
            radii,
            slack,
            -(kernels + point.mu * slack) / point.slack,
            -(lower + point.lower * beta) / (point.beta - machine.lo),
            -(upper - point.upper * beta) / (machine.hi - point.beta),
            b,
        )

    def _solved(self, right: Float64) -> Float64:
        return np.asarray(scipy.linalg.cho_solve(self._factor, right, check_finite=False))


def _power_law_residual(slope: Float64, wanted: Float64) -> Float64:
    """slope - wanted, or slope * log(slope / wanted) where the slope is too large.

    The slope is a power of N, up to the hundredth for p near 1: Newton on the power itself would shrink N by a fixed
    small share a step; on its logarithm, to which this is equal near the solution, it gets there at once.
    """
    ratio = np.maximum(slope / np.maximum(wanted, 1e-300), 1.0)
    return np.where(ratio > 1.0, slope * np.log(ratio), slope - wanted)
