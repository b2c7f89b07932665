"""VSKL with q < 1/2, which is not convex: few groups, by a sequence of convex problems.

    min  R(w) + C sum_i hinge_i,      R = 1/2 ( sum_j u_j^(2q) )^(1/q),   u_j = sum_{a in j} ||w_a||

The root of R is concave in u. Its tangent at the last point is above it and touches it there:

    ( sum_j u_j^(2q) )^(1/2q)  <=  sum_j u_j / eta_j

So L1MKL with the kernels eta_g(a)^2 K_a, a convex problem, has an objective that is never below the true one and equal
to it at the last point; its solution has a lower true objective. Repeated, this ends at a stationary point. A group
without weight has eta = 0 and does not come back. The sequence begins at L1MKL itself, which is the largest convex
function below R: its lower bound is one of the true problem, and the only one there is.

Two gaps are known of the result. `gap` is the true one, against the bound of L1MKL; it is large, because L1MKL is far
below. The other says how stationary the point is: by how much the convex problem at its own tangent could lower the
objective, at most. That one ends the run. Both are over all samples and kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Array, Float64, FloatType, Mask, Samples
from dmkl.problems.norms import ConcaveNorm, MixedNorm
from dmkl.problems.vskl import VSKL
from dmkl.solvers.certificate import best_multiple, relative_gap
from dmkl.solvers.kernel_operators import combine, quadratic_forms
from dmkl.solvers.mixed_norm import AUTOMATIC, MixedNormMethod
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import MethodState, State
from dmkl.solvers.working_sets import BlockProblem, BlockSolution, OneVsRest, many_kernels


@dataclass(frozen=True)
class ReweightingOptions:
    """Constants of the method."""

    inner: float = 0.1  # the tolerance of a convex problem, as a share of the whole one's
    enough: float = 0.5  # of the tolerance, for a block's stationarity; the rest is for the samples outside
    most: int = 50  # convex problems of one block


OPTIONS = ReweightingOptions()
STATIONARY = "reweighting at a stationary point of a problem that is not convex"


def build(formulation: VSKL, problem: Problem) -> Solver:
    """Working-set rounds, blocks solved by reweighting."""
    problem.stack.require_semidefinite("VSKL")
    norm = formulation.norm(problem.stack.groups)
    return Reweighting(ReweightedMethod(formulation.C, norm, AUTOMATIC), problem.stack.dtype)


@dataclass(frozen=True)
class ReweightedState(MethodState):
    """How stationary the classes are."""

    lowered: Array  # (m,): the share of the objective by which reweighting could lower it, at most

    def rule(self, tol: float) -> str:
        return STATIONARY if (self.lowered <= tol).all() else ""


@dataclass(frozen=True)
class _Point:
    """Weights and coefficients on a block, with the true objective there."""

    weights: Float64
    beta: Float64
    norms: Float64  # ||w_a||
    penalty: float
    primal: float


@dataclass(frozen=True)
class ReweightedMethod(MixedNormMethod):
    """Blocks of all kernels. `BlockSolution.resume` is the lower bound of the convex problem at the point's tangent."""

    own_type: ClassVar[type[MethodState]] = ReweightedState

    def solve(self, problem: BlockProblem) -> BlockSolution:
        norm = self.norm
        assert isinstance(norm, ConcaveNorm)
        K, everything = problem.array, np.arange(len(problem.array))
        relaxed = self._convex(problem, everything, np.ones(len(K)))
        assert relaxed.weights is not None
        point, found = self._point(problem, relaxed.weights, relaxed.beta), [relaxed]
        tangent = point.primal if not point.norms.any() else -np.inf  # w = 0 is stationary
        while point.norms.any() and len(found) <= OPTIONS.most and not must_stop():
            scale = norm.tangent(point.norms)
            live = np.flatnonzero(scale)
            step = self._convex(problem, live, scale[live])
            assert step.weights is not None
            tangent = step.dual
            found.append(step)
            if relative_gap(point.primal, tangent) <= OPTIONS.enough * problem.tol:
                break
            weights = np.zeros(len(K))
            weights[live] = scale[live] * step.weights
            lower = self._point(problem, weights, step.beta)
            if lower.primal >= point.primal:  # by less than the tolerance of the convex problem
                break
            point, tangent = lower, -np.inf  # nothing is known of the new point's own tangent
        return replace(
            relaxed,
            beta=point.beta,
            weights=point.weights,
            penalty=point.penalty,
            scores=None,
            svm_calls=sum(one.svm_calls for one in found),
            oracle_calls=sum(one.oracle_calls for one in found),
            handovers=sum(one.handovers for one in found),
            resume=tangent,
        )

    def _convex(self, problem: BlockProblem, kernels: Samples, scale: Float64) -> BlockSolution:
        """L1MKL with these kernels of the block times `scale`."""
        K, one_group = problem.array, MixedNorm(np.zeros(len(kernels), dtype=np.int64), 2.0)
        plain = len(kernels) == len(K) and bool((scale == 1).all())
        block = K if plain else K[kernels] * scale.astype(K.dtype)[:, None, None]
        inner = replace(
            problem, block=block, kernels=np.arange(len(kernels)), gap=np.inf, tol=OPTIONS.inner * problem.tol
        )
        return MixedNormMethod(self.C, one_group, AUTOMATIC, self.options).solve(inner)

    def _point(self, problem: BlockProblem, weights: Float64, beta: Float64) -> _Point:
        K = problem.array
        norms = weights * np.sqrt(quadratic_forms(K, beta, weights > 0))
        penalty, combined = self.norm.regulariser(norms), np.empty(K.shape[1:])
        combine(K, weights, combined)
        primal = best_multiple(penalty, beta, combined @ beta, problem.y, self.C * problem.counts).primal
        return _Point(weights, beta, norms, penalty, primal)

    def first_state(self, problem: Problem, state: State) -> State:
        return state if many_kernels(problem.stack.s) else super().first_state(problem, state)

    def first_own(self, problem: Problem) -> MethodState:
        return ReweightedState(np.full(problem.m, np.inf))

    def next_own(
        self, own: MethodState, number: int, classes: Sequence[int], solutions: Sequence[BlockSolution]
    ) -> MethodState:
        return own

    def resume(self, own: MethodState, k: int) -> None:
        return None

    def streaming_substitute(self, problem: Problem, samples: Samples, kernels: Samples, room: int) -> None:
        return None  # the convex problems scale the kernels of a block

    def next_kernels(self, weights: Float64, forms: Float64) -> Mask:
        return np.ones(len(weights), dtype=bool)

    def first_kernels(self, problem: Problem, active: Mask) -> Mask:
        return np.ones_like(active)


class Reweighting(OneVsRest):
    """The rounds; a class is finished when it is stationary over all samples, or its gap is small."""

    def __init__(self, method: ReweightedMethod, dtype: FloatType) -> None:
        super().__init__(method, dtype)
        self._lowered: dict[int, float] = {}  # of the classes of a round

    def step(self, problem: Problem, state: State) -> State:
        self._lowered = {}
        after = super().step(problem, state)
        lowered = state.own_as(ReweightedState).lowered.copy()
        for k, value in self._lowered.items():
            lowered[k] = value
        return replace(after, own=ReweightedState(np.where(after.gap <= problem.tol, 0.0, lowered)))

    def _unfinished(self, problem: Problem, state: State) -> Iterator[int]:
        lowered = state.own_as(ReweightedState).lowered
        return (k for k in super()._unfinished(problem, state) if lowered[k] > problem.tol)

    def _certify(
        self,
        problem: Problem,
        state: State,
        k: int,
        solution: BlockSolution,
        beta: Float64,
        scores: Float64,
        weights: Float64,
        forms: Float64,
        samples: Samples,
    ) -> bool:
        better = super()._certify(problem, state, k, solution, beta, scores, weights, forms, samples)
        primal = self._method.primal(beta, scores, problem.Y.column(k), problem.counts, solution).primal
        if primal <= state.primal[k] and isinstance(solution.resume, float):
            self._lowered[k] = relative_gap(primal, solution.resume)
        return better
