"""Interior point over second-order cones for the dual of a mixed-norm problem, on factors of the kernels of one block.

    min_{beta, N}  1/2 ||N||_rho^2 - y'beta    s.t.  ||Phi_a' beta|| <= N_g(a)  for every kernel a,
                                                    0 <= y * beta <= C,  sum(beta) = 0

with K_a = Phi_a Phi_a' (FORMULATIONS section 1). The multipliers (u_a, w_a) of the cones, ||w_a|| <= u_a, are the
primal point itself: w_a are its weight vectors in the coordinates of the factors. So nothing is divided by N, and the
method does not mind where N_j goes to zero: there w_j is a feature that costs nothing (q = inf), and its kernel weight
u_j / N_j is infinite. A primal-dual method with Nesterov and Todd's scaling of the cones and Mehrotra's predictor and
corrector takes 10 to 90 steps from one fixed start, whatever the scales of kernels, C and labels.

Where the ranks are small, a step is one Cholesky factorisation of their sum's size. A kernel of a large rank enters as
a matrix over the samples, of which only the direction of its w_a is kept apart (`NewtonEquations`). Every matrix is a
sum of semidefinite ones: nothing cancels, however near to the boundary a cone is.

The norm's equation N -> u is linearised where it is concave: slope(N) = U for rho <= 2, and its inverse for rho > 2.

The module has five parts: the options, the factors, the cones, the problem and its points, the Newton equations, the
method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpstrf

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Mask, Samples
from dmkl.oracles import least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.kernel_operators import combine


@dataclass(frozen=True)
class ConeOptions:
    """Constants of the method."""

    max_steps: int = 150
    to_boundary: float = 0.99  # the share of the way to the boundary that a step may go
    least_centring: float = 1e-6  # of the complementarity, that a step aims at
    depth: float = 1.5  # N at the start, as a multiple of the largest norm
    shortest_step: float = 1e-3  # steps shorter than this,
    idle: int = 12  # so many times in a row, end the method
    settled: int = 4  # and so do steps that gain nothing, once the gap has been small

    pivot: float = 1e-15  # of a kernel's largest diagonal entry: smaller pivots are the rounding of its values,
    roundings: float = 2.0  # as they are below so many roundings of the type of its values
    apart: float = 0.5  # kernels whose ranks, least first, sum to this share of n have all their columns kept apart


OPTIONS = ConeOptions()


# Factors.


@dataclass(frozen=True)
class Factors:
    """Centred factors of the kernels that are not zero, columns side by side: H K_a H = Phi_a Phi_a', H = I - 11'/n.

    Centring changes nothing where coefficients sum to zero, and it takes away what would cancel there.
    """

    Phi: Float64  # (n, r)
    owner: Samples  # (r,) the kernel of each column, counted among `kernels`
    kernels: Samples  # their numbers in the block

    @property
    def ranks(self) -> Samples:
        return np.bincount(self.owner, minlength=len(self.kernels)).astype(np.int64)


def factored(K: FloatArray, options: ConeOptions = OPTIONS) -> Factors:
    """Pivoted Cholesky of every kernel, down to the rounding of its values."""
    columns, kernels, pivot = [np.zeros((K.shape[1], 0))], [], rounding(K, options)
    for a, kernel in enumerate(K):
        factor = factor_of(kernel, pivot)
        centred = factor - factor.mean(axis=0)
        sizes, before = np.square(centred).sum(axis=0), np.square(factor).sum(axis=0)
        real = sizes > pivot**2 * before  # a constant column is centred to its rounding
        if real.any():
            columns.append(centred[:, real])
            kernels.append(a)
    owner = np.repeat(np.arange(len(kernels)), [column.shape[1] for column in columns[1:]])
    return Factors(np.ascontiguousarray(np.hstack(columns)), owner, np.array(kernels, dtype=np.int64))


def rounding(K: FloatArray, options: ConeOptions = OPTIONS) -> float:
    """The share of a kernel's largest diagonal entry below which pivots are the rounding of its values."""
    return max(options.pivot, options.roundings * float(np.finfo(K.dtype).eps))


def factor_of(kernel: FloatArray, pivot: float) -> Float64:
    """Phi (n, rank) of one kernel."""
    largest = float(kernel.diagonal().max())
    if largest <= 0.0:
        return np.zeros((len(kernel), 0))
    lower, order, rank, _ = dpstrf(kernel, tol=pivot * largest, lower=1)
    factor = np.empty((len(kernel), rank))
    factor[order - 1] = np.tril(lower)[:, :rank]
    return factor


# Cones.


class Pair(NamedTuple):
    """An element (head_a, tail_a) of the space of every cone: heads (s,), and tails (r,) side by side."""

    head: Float64
    tail: Float64


class Cones:
    """The second-order cones ||tail_a|| <= head_a, and their products x o y = (x'y, x0 y1 + y0 x1)."""

    def __init__(self, owner: Samples, count: int) -> None:
        self.owner, self.count = owner, count

    def sums(self, tail: Float64) -> Float64:
        return np.bincount(self.owner, tail, self.count).astype(np.float64, copy=False)

    def norms(self, tail: Float64) -> Float64:
        return np.asarray(np.sqrt(self.sums(tail * tail)))

    def depth(self, x: Pair) -> Float64:
        """head^2 - ||tail||^2, positive inside."""
        norms = self.norms(x.tail)
        return np.asarray((x.head - norms) * (x.head + norms))

    def product(self, x: Pair, y: Pair) -> Pair:
        head = x.head * y.head + self.sums(x.tail * y.tail)
        return Pair(head, x.head[self.owner] * y.tail + y.head[self.owner] * x.tail)

    def quotient(self, x: Pair, y: Pair) -> Pair:
        """z with x o z = y."""
        head = (x.head * y.head - self.sums(x.tail * y.tail)) / self.depth(x)
        return Pair(head, (y.tail - head[self.owner] * x.tail) / x.head[self.owner])

    def reach(self, x: Pair, step: Pair) -> float:
        """The inverse of how far one can go from x along a step."""
        root = np.sqrt(self.depth(x))
        head, tail = x.head / root, x.tail / root[self.owner]
        along = head * step.head - self.sums(tail * step.tail)
        across = step.tail - ((along + step.head) / (head + 1.0))[self.owner] * tail
        return float(((self.norms(across) - along) / root).max())


class Scaling:
    """Nesterov and Todd's scaling: the symmetric W with W z = W^-1 s for a pair of points inside the cones.

    W^2 = 1/e [[c, h d'], [h d, I + (c - 1) dd']] with c^2 - h^2 = 1 and a direction d for each cone.
    """

    def __init__(self, cones: Cones, s: Pair, z: Pair) -> None:
        self._cones = cones
        root, other = np.sqrt(cones.depth(s)), np.sqrt(cones.depth(z))
        head, tail = s.head / root, s.tail / root[cones.owner]
        head_z, tail_z = z.head / other, z.tail / other[cones.owner]
        middle = np.sqrt(2.0 * (1.0 + head * head_z + cones.sums(tail * tail_z)))
        self._tail = (tail - tail_z) / middle[cones.owner]
        sinh = cones.norms(self._tail)
        self._head, self._eta = np.hypot(1.0, sinh), np.sqrt(root / other)
        self.e, self.c, self.h = other / root, self._head**2 + sinh**2, 2.0 * self._head * sinh
        self.d = self._tail / np.where(sinh > 0.0, sinh, 1.0)[cones.owner]
        self.point = self.times(z)  # W z

    def times(self, x: Pair) -> Pair:
        """W x."""
        along, owner = self._cones.sums(self._tail * x.tail), self._cones.owner
        tail = x.tail + (x.head + along / (1.0 + self._head))[owner] * self._tail
        return Pair(self._eta * (self._head * x.head + along), self._eta[owner] * tail)

    def into(self, x: Pair) -> Pair:
        """W^-1 x."""
        along, owner = self._cones.sums(self._tail * x.tail), self._cones.owner
        tail = x.tail + (along / (1.0 + self._head) - x.head)[owner] * self._tail
        return Pair((self._head * x.head - along) / self._eta, tail / self._eta[owner])


# The problem and its points.


@dataclass
class ConePoint:
    """beta and N with their multipliers, or a step of them."""

    beta: Float64
    b: float
    radii: Float64  # N
    u: Float64  # (s,) and
    w: Float64  # (r,): the multipliers of the cones
    lower: Float64  # multipliers of beta >= lo
    upper: Float64  # multipliers of beta <= hi

    def moved(self, step: ConePoint, length: float) -> ConePoint:
        return ConePoint(
            self.beta + length * step.beta,
            self.b + length * step.b,
            self.radii + length * step.radii,
            self.u + length * step.u,
            self.w + length * step.w,
            self.lower + length * step.lower,
            self.upper + length * step.upper,
        )


class ConeProblem:
    """The problem on the factors of a block's kernels; labels of both signs, at least one kernel that is not zero."""

    def __init__(
        self,
        K: FloatArray,
        factors: Factors,
        y: Float64,
        C: Float64 | float,
        norm: MixedNorm,
        options: ConeOptions = OPTIONS,
    ) -> None:
        self.K, self.factors, self.y = K, factors, y
        self.C = np.broadcast_to(np.asarray(C, dtype=np.float64), y.shape)
        groups = np.unique(norm.groups[factors.kernels], return_inverse=True)[1]
        self.norm, self.g = MixedNorm(groups.astype(np.int64), norm.rho), groups
        self.primal_norm = MixedNorm(self.norm.groups, self.norm.sigma) if norm.rho > 2 else None
        self.lo, self.hi = np.where(y > 0, 0.0, -self.C), np.where(y > 0, self.C, 0.0)
        self.cones = Cones(factors.owner, len(factors.kernels))
        self.columns = Columns(factors, apart_of(factors.ranks, len(y), options.apart))

    def start(self, depth: float) -> ConePoint:
        """Half way through the box or below, N large, w = 0, and all products of slacks and multipliers nearly equal.

        They are as large as C, if need be by a smaller beta: multipliers of the order of 1, and a loss of C a sample.
        """
        positive, mean = self.y > 0, float(self.C.mean())
        sides = np.where(positive, self.C[positive].sum(), self.C[~positive].sum())
        alpha = 0.5 * self.C * (sides.min() / sides)
        largest = self.cones.norms(self.factors.Phi.T @ (alpha * self.y)).max()
        radii = np.full(self.norm.count, depth * largest if largest > 0 else 1.0)
        share = self.norm.slope(radii) / np.bincount(self.g)
        cone = float((share * radii).mean())
        size = np.sqrt(max(mean / cone, 1.0))
        mean = max(mean, cone)
        low, high = mean / alpha, mean / (self.C - alpha)
        lower, upper = np.where(positive, low, high), np.where(positive, high, low)
        w = np.zeros(len(self.cones.owner))
        return ConePoint(alpha * self.y, 0.0, size * radii, size * share[self.g], w, lower, upper)

    def slacks(self, point: ConePoint) -> tuple[Pair, Pair]:
        """The cones' slacks (N, Phi'beta) and multipliers (u, -w)."""
        return Pair(point.radii[self.g], self.factors.Phi.T @ point.beta), Pair(point.u, -point.w)

    def balanced(self, point: ConePoint) -> ConePoint:
        """The point with what rounding left of sum(beta) taken from the coefficients far from their bounds."""
        room = np.minimum(point.beta - self.lo, self.hi - point.beta)
        return replace(point, beta=point.beta - room * (point.beta.sum() / room.sum()))

    def inside(self, point: ConePoint) -> bool:
        """Whether rounding left the point inside all cones and bounds."""
        s, z = self.slacks(point)
        return bool(
            (self.cones.norms(s.tail) < s.head).all()
            and (self.cones.norms(z.tail) < z.head).all()
            and (point.beta > self.lo).all()
            and (point.beta < self.hi).all()
            and (point.lower > 0).all()
            and (point.upper > 0).all()
        )

    def primal(self, point: ConePoint) -> float:
        """The primal value of w with the exact intercept."""
        norms = self.cones.norms(point.w)
        return self.norm.regulariser(norms) + least_hinge(self.factors.Phi @ point.w, self.y, self.C)[0]

    def dual(self, point: ConePoint) -> float:
        """The dual value of beta once it sums to zero."""
        balanced = abs(point.beta.sum()) <= 1e-12 * np.abs(point.beta).sum()
        forms = self.cones.sums(np.square(self.factors.Phi.T @ point.beta))
        return float(self.y @ point.beta) - self.norm.conjugate(forms) if balanced else -np.inf

    def norm_equation(self, point: ConePoint) -> tuple[Float64, Float64]:
        """Residual and Jacobian in N of slope(N) = U, U_j the sum of u_a in group j."""
        U = self.norm.total(point.u)
        if self.primal_norm is None:
            return self.norm.slope(point.radii) - U, self.norm.curvature(point.radii)
        wanted = self.primal_norm.slope(U)
        jacobian = self.norm.curvature(wanted)
        return jacobian @ (point.radii - wanted), jacobian


# The Newton equations.


def apart_of(ranks: Samples, n: int, share: float = OPTIONS.apart) -> Mask:
    """(s,): of kernels of these ranks over n samples, those whose columns are all kept apart."""
    apart = np.ones(len(ranks), dtype=bool)
    if ranks.sum() > n:
        order = np.argsort(ranks, kind="stable")
        apart[order] = np.cumsum(ranks[order]) <= share * n
    return apart


class Columns:
    """The columns of F: all those of kernels that are kept apart, then one, g_a = Phi_a d_a, for each other kernel."""

    def __init__(self, factors: Factors, apart: Mask) -> None:
        self.factors, self.others = factors, np.flatnonzero(~apart)
        self.kept = np.flatnonzero(apart[factors.owner])
        self.rest = np.flatnonzero(~apart[factors.owner])
        self.owner = np.concatenate([factors.owner[self.kept], self.others])
        counts = np.bincount(self.owner, minlength=len(apart))
        self.alone = counts[self.owner] == 1
        ends = np.cumsum(counts)
        spans = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True) if count > 1]
        order = np.argsort(self.owner, kind="stable")
        self.rows = np.concatenate([np.repeat(order[span], len(span)) for span in spans] or [self.others[:0]])
        self.columns = np.concatenate([np.tile(order[span], len(span)) for span in spans] or [self.others[:0]])

    def gathered(self, d: Float64) -> tuple[Float64, Float64]:
        """F, and d of its columns."""
        if not len(self.others):
            return self.factors.Phi, d
        Phi = self.factors.Phi
        along = np.stack([Phi[:, mine] @ d[mine] for mine in self._members()], axis=1)
        return np.hstack([Phi[:, self.kept], along]), np.concatenate([d[self.kept], np.ones(len(self.others))])

    def _members(self) -> list[slice]:
        starts = np.searchsorted(self.factors.owner, self.others, side="left")
        ends = np.searchsorted(self.factors.owner, self.others, side="right")
        return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


class NewtonEquations:
    """The Newton equations at a point, factored once for both directions.

    With w of the kernels that are kept apart, and p = d'w of the others, as unknowns they are reduced to

        [ B   F  1 ] [dbeta]        B = box + sum_others e (K_a - g_a g_a'),  g_a = Phi_a d_a
        [ F' -V  0 ] [ dw  ] = ...  V = blocks 1/e (I - dd' + dd'/c) + T (curvature + sum e/c)^-1 T',  T = h/c d
        [ 1'  0  0 ] [ db  ]        F = columns of the kernels apart, and g_a of the others

    B and V are positive definite, so V + F' B^-1 F, centred for the last row, has a Cholesky factor.
    """

    def __init__(self, problem: ConeProblem, point: ConePoint) -> None:
        self.problem, self.point = problem, point
        s, z = problem.slacks(point)
        self.scaling = Scaling(problem.cones, s, z)
        self._stationary = problem.factors.Phi @ point.w - problem.y + point.b + point.upper - point.lower
        self._box = point.lower / (point.beta - problem.lo) + point.upper / (problem.hi - point.beta)
        self._F, self._d = problem.columns.gathered(self.scaling.d)
        self._base()
        self._norm()
        self._reduce()

    def _base(self) -> None:
        """B = LL', as the roots of its diagonal or its Cholesky factor."""
        problem, others = self.problem, self.problem.columns.others
        self._L: Float64 | None = None
        self._root = np.sqrt(self._box)
        if len(others):
            weights = np.zeros(len(problem.K))
            weights[problem.factors.kernels[others]] = self.scaling.e[others]
            B = np.empty(problem.K.shape[1:])
            combine(problem.K, weights, B)
            means = B.mean(axis=0)
            B += means.mean() - means[:, None] - means
            along = self._F[:, len(problem.columns.kept) :]
            B -= (along * self.scaling.e[others]) @ along.T
            B[np.diag_indices(len(B))] += self._box
            self._L = _cholesky(B)

    def _norm(self) -> None:
        """The norm's equation, without u: curvature + sum e/c."""
        self._residual, matrix = self.problem.norm_equation(self.point)
        matrix[np.diag_indices(len(matrix))] += self.problem.norm.total(self.scaling.e / self.scaling.c)
        self._norm_factor = _cholesky(matrix)

    def _reduce(self) -> None:
        """V + F' B^-1 F, factored."""
        problem, columns, scaling = self.problem, self.problem.columns, self.scaling
        self._Z, self._one = self._half(self._F), self._half(np.ones(len(problem.y)))
        self._total = float(self._one @ self._one)
        self._mean = (self._one @ self._Z) / self._total
        centred = self._Z - np.outer(self._one, self._mean)
        matrix = centred.T @ centred
        mine, spread = columns.owner, 1.0 / scaling.e
        along = spread / scaling.c
        matrix[np.diag_indices(len(matrix))] += np.where(columns.alone, along[mine], spread[mine])
        i, j = columns.rows, columns.columns
        matrix[i, j] -= (spread - along)[mine[i]] * self._d[i] * self._d[j]
        self._T = (scaling.h / scaling.c)[mine] * self._d
        groups = np.zeros((problem.norm.count, len(mine)))
        groups[problem.g[mine], np.arange(len(mine))] = self._T
        half = scipy.linalg.solve_triangular(self._norm_factor, groups, lower=True, check_finite=False)
        matrix += half.T @ half
        self._scale = 1.0 / np.sqrt(matrix.diagonal())
        self._factor = _cholesky(matrix * self._scale[:, None] * self._scale)

    def _half(self, x: Float64) -> Float64:
        """L^-1 x."""
        if self._L is None:
            return x / (self._root if x.ndim == 1 else self._root[:, None])
        return np.asarray(scipy.linalg.solve_triangular(self._L, x, lower=True, check_finite=False))

    def _back(self, x: Float64) -> Float64:
        """L'^-1 x."""
        if self._L is None:
            return x / self._root
        return np.asarray(scipy.linalg.solve_triangular(self._L, x, lower=True, trans=1, check_finite=False))

    def direction(self, cones: Pair, lower: Float64, upper: Float64) -> ConePoint:
        """The step that takes the three sets of products, to first order, down by these amounts."""
        problem, point, scaling, columns = self.problem, self.point, self.scaling, self.problem.columns
        owner, Phi, g = problem.factors.owner, problem.factors.Phi, problem.g
        down = problem.cones.quotient(scaling.point, cones)
        k = scaling.times(Pair(-down.head, -down.tail))
        room_low, room_high = point.beta - problem.lo, problem.hi - point.beta
        right = -self._stationary + upper / room_high - lower / room_low
        tail, e, t = k.tail, scaling.e, scaling.h / scaling.c
        along = problem.cones.sums(scaling.d * tail)
        if len(columns.others):
            across = np.zeros_like(tail)
            rest = columns.rest
            across[rest] = (e[owner] * (tail - along[owner] * scaling.d))[rest]
            right += Phi @ across
        norm = problem.norm.total(e * k.head / scaling.c) - self._residual
        pull = self._from_norm(norm)
        mine = columns.owner
        ends = np.concatenate([tail[columns.kept], along[columns.others]])
        ends += self._T * (pull[g[mine]]) - t[mine] * k.head[mine] * self._d
        half, missing = self._half(right), float(point.beta.sum())
        p = self._Z.T @ half - self._mean * (self._one @ half) - self._mean * missing - ends
        p = self._scale * _solved(self._factor, self._scale * p)
        b = float(self._one @ half + missing) / self._total - float(self._mean @ p)
        beta = self._back(half - self._Z @ p - b * self._one)
        ahead: Float64 = np.bincount(g[mine], self._T * p, problem.norm.count).astype(np.float64)
        radii = pull + self._from_norm(ahead)
        w = np.zeros_like(tail)
        w[columns.kept] = p[: len(columns.kept)]
        if len(columns.others):
            w[columns.rest] += self._across(beta, tail)[columns.rest]
            spread = np.zeros(problem.cones.count)
            spread[columns.others] = p[len(columns.kept) :]
            w[columns.rest] += (spread[owner] * scaling.d)[columns.rest]
        u = e * (k.head - radii[g]) / scaling.c + t * problem.cones.sums(scaling.d * w)
        return ConePoint(
            beta,
            b,
            radii,
            u,
            w,
            -(lower + point.lower * beta) / room_low,
            -(upper - point.upper * beta) / room_high,
        )

    def _across(self, beta: Float64, tail: Float64) -> Float64:
        """e (I - dd') (Phi' dbeta - k): the part of dw that is not along d."""
        scaling, cones = self.scaling, self.problem.cones
        ahead = self.problem.factors.Phi.T @ beta - tail
        along = cones.sums(scaling.d * ahead)
        return np.asarray(scaling.e[cones.owner] * (ahead - along[cones.owner] * scaling.d))

    def _from_norm(self, right: Float64) -> Float64:
        return _solved(self._norm_factor, right)


def _cholesky(matrix: Float64) -> Float64:
    """The lower factor; where rounding made the matrix indefinite, its diagonal is raised by as little as helps."""
    push = 0.0
    while True:
        pushed = matrix.copy()
        pushed[np.diag_indices(len(matrix))] += push * matrix.diagonal()
        try:
            return np.asarray(scipy.linalg.cholesky(pushed, lower=True, overwrite_a=True, check_finite=False))
        except np.linalg.LinAlgError:
            if push > 1e-2:
                raise
            push = max(100.0 * push, 1e-15)


def _solved(factor: Float64, right: Float64) -> Float64:
    return np.asarray(scipy.linalg.cho_solve((factor, True), right, check_finite=False))


# The method.


@dataclass(frozen=True)
class ConeSolution:
    """The best points of both problems that the method met."""

    primal: float  # of w
    point: ConePoint  # w is its
    dual: float  # of beta
    proof: Float64
    steps: int


def follow(problem: ConeProblem, target: float, options: ConeOptions = OPTIONS) -> ConeSolution:
    """Steps from the start until the relative gap is below the target, or no step gains any more."""
    point = problem.start(options.depth)
    best = ConeSolution(np.inf, point, -np.inf, point.beta, 0)
    short = still = 0
    for number in range(1, options.max_steps + 1):
        primal, dual, before = problem.primal(point), problem.dual(point), best.primal - best.dual
        if primal < best.primal:
            best = replace(best, primal=primal, point=point)
        if dual > best.dual:
            best = replace(best, dual=dual, proof=point.beta)
        best, gap = replace(best, steps=number), best.primal - best.dual
        still = still + 1 if gap > 0.9 * before and gap <= 1e-4 * abs(best.primal) else 0
        if gap <= target * abs(best.primal) or short >= options.idle or still >= options.settled or must_stop():
            break
        try:
            with np.errstate(all="ignore", divide="raise", invalid="raise"):
                point, length = _step(problem, point, options)
        except (np.linalg.LinAlgError, FloatingPointError, ValueError):  # no digits left: the best so far is the result
            break
        short = short + 1 if length < options.shortest_step else 0
    return best


def _step(problem: ConeProblem, point: ConePoint, options: ConeOptions) -> tuple[ConePoint, float]:
    """One predictor-corrector step, and its length."""
    equations, cones = NewtonEquations(problem, point), problem.cones
    here = equations.scaling.point
    products = cones.product(here, here)
    lower, upper = point.lower * (point.beta - problem.lo), point.upper * (problem.hi - point.beta)
    mean = float(products.head.sum() + lower.sum() + upper.sum()) / (len(products.head) + 2 * len(lower))
    ahead = equations.direction(products, lower, upper)
    s, z, reach = _scaled(problem, equations.scaling, point, ahead)
    target = max((1.0 - 1.0 / reach) ** 3, options.least_centring) * mean
    second = cones.product(s, z)
    step = equations.direction(
        Pair(products.head + second.head - target, products.tail + second.tail),
        lower + ahead.lower * ahead.beta - target,
        upper - ahead.upper * ahead.beta - target,
    )
    length = min(1.0, options.to_boundary / _scaled(problem, equations.scaling, point, step)[2])
    for _ in range(8):
        moved = problem.balanced(point.moved(step, length))
        if problem.inside(moved):
            return moved, length
        length *= 0.5  # rounding
    raise FloatingPointError("no step stays inside")


def _scaled(problem: ConeProblem, scaling: Scaling, point: ConePoint, step: ConePoint) -> tuple[Pair, Pair, float]:
    """A step of the cones' slacks and multipliers in scaled coordinates, and the inverse of how far it can go."""
    s = scaling.into(Pair(step.radii[problem.g], problem.factors.Phi.T @ step.beta))
    z = scaling.times(Pair(step.u, -step.w))
    reach = (
        1.0,
        problem.cones.reach(scaling.point, s),
        problem.cones.reach(scaling.point, z),
        float((-step.beta / (point.beta - problem.lo)).max()),
        float((step.beta / (problem.hi - point.beta)).max()),
        float((-step.lower / point.lower).max()),
        float((-step.upper / point.upper).max()),
    )
    return s, z, max(reach)
