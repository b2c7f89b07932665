"""Interior point for the dual of a mixed-norm problem on one compact block, and its use on the kernels that matter.

    min_{beta, N}  1/2 ||N||_rho^2 - y'beta    s.t.  (beta' K_a beta / N_g(a) - N_g(a)) / 2 <= 0  for every kernel a,
                                                    0 <= y * beta <= C,  sum(beta) = 0

(FORMULATIONS section 1 with M_j = N_j^2; dividing by N makes the constraint convex.) The multipliers mu_a of the
constraints are the kernels: at the optimum the effective weight of kernel a is mu_a / N_g(a). A primal-dual method with
Mehrotra's predictor and corrector takes 10 to 15 steps whatever the number of kernels, where methods that alternate
between SVM and weights stall when many kernels are near-active: a step moves the active samples and the active
kernels at once. Each step reads the block once (`sweep`) and factors one matrix of its size.

Screening. Of hundreds of kernels in a block only a few dozen have weight at the optimum: those whose quadratic form
D_a = beta' K_a beta is the largest of their group. `solve_screened` looks at all kernels three times, each time reading
the block once: at the SVM on their average, to choose the kernels that take part at first; once the gap is small, to
choose again; and at the end, to see whether the lower bound holds for the kernels left out. Where it does not, they
join, and the method goes on from the second look, a few times; then all kernels take part. The result holds for all.

The module has four parts: the options, the problem and its points, the Newton equations, the method with screening.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsyrk

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.oracles import ORACLES, least_hinge
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.certificate import CertifiedWeights
from dmkl.solvers.kernel_operators import combine, quadratic_forms, sweep


@dataclass(frozen=True)
class InteriorPointOptions:
    """Constants of the method and of screening."""

    max_steps: int = 60
    to_boundary: float = 0.99  # the share of the way to the nearest bound that a step may go
    # complementarity below this share of the tolerance is as good as the gap: with C slacks and a large C the primal
    # value of an interior point lags behind, and the caller's SVM makes up for it
    optimal: float = 0.01
    floor: float = 1e-3  # complementarity below this share of the tolerance only costs digits
    shortest_step: float = 1e-3  # steps shorter than this, twice in a row, end the method

    few: int = 48  # kernels that take part in any case; blocks of less than twice as many are not screened
    outline_tol: float = 0.05  # of the SVM on the average kernel
    first: float = 0.1  # the share of their group's largest form that lets kernels take part at the first look,
    second: float = 0.3  # at the second,
    rejoin: float = 0.5  # and at the end
    loose: float = 0.1  # the relative gap at the second look: the point is still far from all bounds
    join_slack: float = 0.1  # the least slack, as a share of N, of a kernel that joins
    looks: int = 3  # at the end, before all kernels take part
    lost: float = 0.1  # the share of the tolerance that kernels left out may take from the lower bound


OPTIONS = InteriorPointOptions()


@dataclass(frozen=True)
class InteriorSolution(CertifiedWeights):
    """The best weights and the best lower bound that the method met."""

    primal: float = np.inf  # of the weights, over the block
    steps: int = 0
    solved: bool = False  # else rounding ended the method, or a point that no step could leave


# The problem on some kernels of a block, and its points.


@dataclass
class InteriorPoint:
    """Primal variables with their slacks, and multipliers. All but beta and b stay positive."""

    beta: Float64
    radii: Float64  # N
    slack: Float64  # of the kernels' constraints
    mu: Float64  # multipliers of the kernels' constraints
    lower: Float64  # multipliers of beta >= lo
    upper: Float64  # multipliers of beta <= hi
    b: float

    def moved(self, step: InteriorPoint, primal: float, dual: float) -> InteriorPoint:
        """This point after a step, of which primal variables and multipliers go these shares."""
        return InteriorPoint(
            self.beta + primal * step.beta,
            self.radii + primal * step.radii,
            self.slack + primal * step.slack,
            self.mu + dual * step.mu,
            self.lower + dual * step.lower,
            self.upper + dual * step.upper,
            self.b + dual * step.b,
        )


class InteriorProblem:
    """The problem with these kernels of a block, and the quantities last read of them."""

    def __init__(self, K: FloatArray, y: Float64, C: Float64 | float, norm: MixedNorm, kernels: Samples) -> None:
        C = np.broadcast_to(C, y.shape)
        self.K, self.y, self.C, self.norm = K, y, C, norm.among(kernels)
        self.kernels, self.g = kernels, self.norm.groups
        self.lo, self.hi = np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)
        s, n = len(kernels), len(y)
        self.weights = self.norm.uniform()
        self.products = np.empty((s, n))  # K_a beta
        self.combined = np.empty((n, n))  # sum_a weights_a K_a
        self.forms = np.empty(s)  # beta' K_a beta

    def start(self) -> InteriorPoint:
        """The best multiple of the class-balanced alpha, well inside the box, its products balanced."""
        positive, largest = self.y > 0, float(self.C.max())
        alpha = self._balanced(self.C / largest)
        sweep(self.K, self.kernels, alpha * self.y, self.weights, self.combined, self.products)
        ray = self.norm.conjugate(self.products @ (alpha * self.y))
        scale = min(0.5 * largest, max(0.5 * alpha.sum() / max(ray, 1e-300), 1e-6 * largest))
        alpha *= scale
        beta = alpha * self.y
        forms = self.products @ beta * scale  # the products are of the alpha before
        radii, mu, slack = self._loose(forms)
        room = alpha / (self.C - alpha)
        lower, upper = np.where(positive, 1.0, room), np.where(positive, room, 1.0)
        return InteriorPoint(beta, radii, slack, mu, lower, upper, 0.0)

    def central(self) -> InteriorPoint:
        """Half way through the box, each product of slack and multiplier as large as the point's infeasibility.

        It takes more steps from here than from `start`, but it avoids the bounds that the path from `start` runs into
        where C is large and many samples end at their bounds.
        """
        positive = self.y > 0
        alpha = 0.5 * self._balanced(self.C)
        beta = alpha * self.y
        sweep(self.K, self.kernels, beta, self.weights, self.combined, self.products)
        radii, mu, slack = self._loose(self.products @ beta)
        infeasible = float(np.abs((mu / radii[self.g]) @ self.products - self.y).max())
        size = max(infeasible * float(alpha.max()), float((mu * slack).max()))
        lower, upper = size / alpha, size / (self.C - alpha)
        return InteriorPoint(
            beta, radii, size / mu, mu, np.where(positive, lower, upper), np.where(positive, upper, lower), 0.0
        )

    def _balanced(self, bounds: Float64) -> Float64:
        """Multiples of these bounds with the same sum for both classes, the smaller class at its bounds."""
        positive = self.y > 0
        sides = np.where(positive, bounds[positive].sum(), bounds[~positive].sum())
        return np.asarray(bounds * (sides.min() / sides))

    def _loose(self, forms: Float64) -> tuple[Float64, Float64, Float64]:
        """N large enough for every kernel, multipliers for which it is stationary but for a factor, and slacks."""
        radii = np.full(self.norm.count, 1.5 * np.sqrt(max(forms.max(), 1e-300)))
        mu = (self.norm.slope(radii) / np.bincount(self.g))[self.g]
        return radii, mu, np.maximum(0.5 * (radii[self.g] - forms / radii[self.g]), 1e-8 * radii[self.g])

    def read(self, point: InteriorPoint) -> None:
        """Everything of the block that depends on the point, in one sweep."""
        self.weights = point.mu / point.radii[self.g]
        sweep(self.K, self.kernels, point.beta, self.weights, self.combined, self.products)
        self.forms = np.maximum(self.products @ point.beta, 0.0)

    def bounds(self, point: InteriorPoint) -> tuple[float, float]:
        """The primal value of the weights with the exact intercept, and the dual value of beta."""
        scores = self.weights @ self.products
        primal = self.norm.regulariser(self.weights * np.sqrt(self.forms)) + least_hinge(scores, self.y, self.C)[0]
        # the iterate sums to zero only in the limit: its dual value counts once it does
        balanced = abs(point.beta.sum()) <= 1e-12 * np.abs(point.beta).sum()
        dual = float(self.y @ point.beta) - self.norm.conjugate(self.forms)
        return primal, dual if balanced else -np.inf

    def products_of_slacks(self, point: InteriorPoint) -> tuple[Float64, Float64, Float64]:
        """All products of slacks and multipliers: of kernels, of beta >= lo, of beta <= hi."""
        box = point.lower * (point.beta - self.lo), point.upper * (self.hi - point.beta)
        return point.mu * point.slack, *box

    def complementarity(self, point: InteriorPoint) -> float:
        """The sum of all products of slacks and multipliers: the duality gap once the point is feasible."""
        return float(sum(product.sum() for product in self.products_of_slacks(point)))

    def residual(self, point: InteriorPoint) -> float:
        """Complementarity and, in the same units, how far N is from stationary: zero at the solution only."""
        by_radius = 0.5 * (self.forms / point.radii[self.g] ** 2 + 1.0)
        radius = self.norm.slope(point.radii) - self.norm.total(point.mu * by_radius)
        return self.complementarity(point) + float(np.abs(radius) @ point.radii)


# The Newton equations.


class NewtonEquations:
    """The Newton equations at a point, reduced to (beta, N) and the intercept, factored once for both directions."""

    def __init__(self, problem: InteriorProblem, point: InteriorPoint) -> None:
        norm, g, n = problem.norm, problem.g, len(problem.y)
        self._problem, self._point, self._n = problem, point, n
        radii = point.radii[g]
        self._ratio = problem.forms / radii
        self._by_beta = problem.products / radii[:, None]  # gradients of the constraints
        self._by_radius = -0.5 * (self._ratio / radii + 1.0)
        self._box = point.lower / (point.beta - problem.lo) + point.upper / (problem.hi - point.beta)
        self._factor = self._factored()
        self._ones = np.zeros(n + norm.count)
        self._ones[:n] = 1.0
        self._toward: Float64 | None = None  # where the intercept pulls; solved for beside the first direction

    def _matrix(self) -> Float64:
        """The lower triangle of the equations in (beta, N)."""
        problem, point, n = self._problem, self._point, self._n
        norm, g = problem.norm, problem.g
        radii = point.radii[g]
        matrix = np.empty((n + norm.count, n + norm.count), order="F")
        matrix[:n, :n] = problem.combined.T  # symmetric, and this way round it is a plain copy
        matrix[np.arange(n), np.arange(n)] += self._box
        cross = problem.products * (-point.mu / radii**2)[:, None]
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

    def _factored(self) -> tuple[Float64, bool]:
        """Cholesky; where rounding made the matrix indefinite, the diagonal is raised by as little as helps."""
        push = 0.0
        while True:
            matrix = self._matrix()
            diagonal = matrix.diagonal().copy()
            matrix[np.diag_indices(len(matrix))] = diagonal * (1.0 + push) + push * diagonal.mean()
            try:
                factor, lower = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
                return factor, lower
            except np.linalg.LinAlgError:
                if push > 1e-2 or must_stop():
                    raise
                push = max(100.0 * push, 1e-14)

    def direction(self, kernels: Float64, lower: Float64, upper: Float64) -> InteriorPoint:
        """The step that takes the three sets of products, to first order, down by these amounts."""
        problem, point, n, g = self._problem, self._point, self._n, self._problem.g
        stationary = problem.weights @ problem.products - problem.y + point.b + point.upper - point.lower
        radius = _power_law_residual(problem.norm.slope(point.radii), -problem.norm.total(point.mu * self._by_radius))
        feasible = 0.5 * (self._ratio - point.radii[g]) + point.slack
        pull = (point.mu * feasible - kernels) / point.slack
        right = np.empty(n + problem.norm.count)
        right[:n] = -stationary - pull @ self._by_beta
        right[:n] += upper / (problem.hi - point.beta) - lower / (point.beta - problem.lo)
        right[n:] = -radius - problem.norm.total(pull * self._by_radius)
        if self._toward is None:  # both in one reading of the factor
            x, self._toward = self._solved(np.column_stack([right, self._ones])).T
        else:
            x = self._solved(right)
        b = float((self._ones @ x + point.beta.sum()) / (self._ones @ self._toward))
        x -= b * self._toward
        beta, radii = x[:n], x[n:]
        slack = -feasible - self._by_beta @ beta - self._by_radius * radii[g]
        return InteriorPoint(
            beta,
            radii,
            slack,
            -(kernels + point.mu * slack) / point.slack,
            -(lower + point.lower * beta) / (point.beta - problem.lo),
            -(upper - point.upper * beta) / (problem.hi - point.beta),
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


# The method.


def solve_interior(
    K: FloatArray,
    y: Float64,
    C: Float64 | float,
    norm: MixedNorm,
    tol: float,
    options: InteriorPointOptions | None = None,
) -> InteriorSolution:
    """Solve on all kernels of a block.

    Parameters
    ----------
    K : array (s, n, n)
        The kernels over the samples of the block.
    y : array (n,)
        Signs -1/+1.
    C : float or array (n,)
        Bounds of alpha.
    norm : MixedNorm
        The regulariser of these kernels.
    tol : float
        The relative gap to reach on the block.
    options : InteriorPointOptions, optional
        Constants of the method.

    Returns
    -------
    InteriorSolution
        With a gap of `tol`, or as far as rounding and time allow.
    """
    options = options or OPTIONS
    problem = InteriorProblem(K, y, C, norm, np.arange(len(K)))
    found = follow(problem, problem.start(), tol, options)[0]
    if found.solved or must_stop():
        return found
    again = follow(problem, problem.central(), tol, options)[0]
    again = replace(again, steps=found.steps + again.steps)
    better = again.primal - again.dual < found.primal - found.dual  # both are true bounds, whatever ended the method
    return again if better else found


def follow(
    problem: InteriorProblem, point: InteriorPoint, tol: float, options: InteriorPointOptions
) -> tuple[InteriorSolution, InteriorPoint]:
    """Steps from this point on, and the last point; arrays over kernels are over the problem's kernels only."""
    nothing = np.zeros(len(problem.y))
    best = InteriorSolution(problem.norm.uniform(), nothing, -np.inf, nothing, np.zeros(len(problem.g)))
    idle, seconds = 0, 0.0
    for number in range(1, options.max_steps + 1):
        if must_stop(seconds):  # a step is mostly one call of BLAS
            break
        started = time.perf_counter()
        problem.read(point)
        primal, dual = problem.bounds(point)
        best = replace(best, steps=number)
        if primal < best.primal:
            best = replace(best, weights=problem.weights, beta=point.beta, primal=primal)
        if dual > best.dual:
            best = replace(best, dual=dual, proof=point.beta, proof_forms=problem.forms)
        if best.primal - best.dual <= tol * abs(best.primal):
            best = replace(best, solved=True)
            break
        solved = np.isfinite(best.dual) and problem.residual(point) <= options.optimal * tol * abs(best.dual)
        if idle == 2 or solved:
            best = replace(best, weights=problem.weights, beta=point.beta, primal=primal, solved=bool(solved))
            break
        try:
            with np.errstate(divide="raise", invalid="raise"):
                point, length = _step(problem, point, options.floor * tol * abs(best.dual), options.to_boundary)
        except (np.linalg.LinAlgError, FloatingPointError):  # no digits left: the best so far is the result
            break
        idle = idle + 1 if length < options.shortest_step else 0
        seconds = time.perf_counter() - started
    return best, point


def _step(
    problem: InteriorProblem, point: InteriorPoint, floor: float, to_boundary: float
) -> tuple[InteriorPoint, float]:
    """One predictor-corrector step and its length; it does not aim at a complementarity below `floor`."""
    equations = NewtonEquations(problem, point)
    products = problem.products_of_slacks(point)
    count = sum(map(len, products))
    mean = sum(float(product.sum()) for product in products) / count
    ahead = equations.direction(*products)
    primal, dual = _lengths(problem, point, ahead)
    predicted = point.moved(ahead, primal, dual)
    target = max((problem.complementarity(predicted) / count / mean) ** 3, 1e-8) * mean
    target = max(target, floor / count) if np.isfinite(floor) else target
    step = equations.direction(
        products[0] + ahead.mu * ahead.slack - target,
        products[1] + ahead.lower * ahead.beta - target,
        products[2] - ahead.upper * ahead.beta - target,
    )
    length = to_boundary * min(_lengths(problem, point, step))
    return point.moved(step, length, length), length


def _lengths(problem: InteriorProblem, point: InteriorPoint, step: InteriorPoint) -> tuple[float, float]:
    """How far primal variables and multipliers can go."""
    primal = (
        (point.slack, step.slack),
        (point.radii, step.radii),
        (point.beta - problem.lo, step.beta),
        (problem.hi - point.beta, -step.beta),
    )
    dual = ((point.mu, step.mu), (point.lower, step.lower), (point.upper, step.upper))
    return min(_room(*pair) for pair in primal), min(_room(*pair) for pair in dual)


def _room(values: Float64, steps: Float64) -> float:
    shrinking = steps < 0
    return min(1.0, float((-values[shrinking] / steps[shrinking]).min())) if shrinking.any() else 1.0


# Screening.


def solve_screened(
    K: FloatArray,
    y: Float64,
    C: Float64 | float,
    norm: MixedNorm,
    tol: float,
    oracle: str,
    options: InteriorPointOptions | None = None,
) -> InteriorSolution:
    """As `solve_interior`, on the kernels that matter.

    It is that very method where the kernels are few, or most have a group of their own. `oracle` solves the SVM that
    the kernels are first chosen by.
    """
    options = options or OPTIONS
    if len(K) - norm.count < 2 * options.few:
        return solve_interior(K, y, C, norm, tol, options)
    average = np.empty(K.shape[1:])
    combine(K, norm.uniform(), average)
    svm = ORACLES[oracle](average, y, C, alpha=np.zeros(len(y)), tol=options.outline_tol)
    chosen = _near(norm, quadratic_forms(K, svm.alpha * y), options.first, options.few)
    problem = InteriorProblem(K, y, C, norm, chosen)
    found, point = follow(problem, problem.start(), max(options.loose, tol), options)
    if must_stop():
        return _among_all(K, y, norm, chosen, found)
    steps, forms = found.steps, quadratic_forms(K, point.beta)
    kernels = _near(norm, forms, options.second, options.few)
    for _ in range(options.looks):
        here = InteriorProblem(K, y, C, norm, kernels)
        found = follow(here, _joined(problem, point, here, forms, options.join_slack), tol, options)[0]
        steps += found.steps
        if not (found.solved or must_stop()):  # the point is too near to bounds that are not active with these kernels
            found = follow(here, here.central(), tol, options)[0]
            steps += found.steps
        if not (found.solved or must_stop()):
            break
        whole = _among_all(K, y, norm, kernels, replace(found, steps=steps))
        joining = np.setdiff1d(_near(norm, whole.proof_forms, options.rejoin, 0), kernels)
        if found.dual - whole.dual <= options.lost * tol * abs(found.primal) or not len(joining) or must_stop():
            return whole
        kernels = np.union1d(kernels, joining)
    return solve_interior(K, y, C, norm, tol, options)


def _among_all(
    K: FloatArray, y: Float64, norm: MixedNorm, kernels: Samples, found: InteriorSolution
) -> InteriorSolution:
    """A solution with some of the kernels as one with all of them, with the lower bound that its proof has there."""
    seen, weights = quadratic_forms(K, found.proof), np.zeros(len(K))
    weights[kernels] = found.weights
    return replace(found, weights=weights, dual=float(y @ found.proof) - norm.conjugate(seen), proof_forms=seen)


def _near(norm: MixedNorm, forms: Float64, share: float, few: int) -> Samples:
    """Kernels with at least this share of their group's largest form, so that largest too, and the `few` nearest."""
    largest = norm.radii(forms)[norm.groups] ** 2
    relative = np.where(largest > 0, forms / np.maximum(largest, 1e-300), 1.0)
    nearest = np.argsort(-relative, kind="stable")[:few]
    return np.union1d(np.flatnonzero(relative >= share), nearest)


def _joined(
    before: InteriorProblem, point: InteriorPoint, after: InteriorProblem, forms: Float64, join_slack: float
) -> InteriorPoint:
    """The point with other kernels; those that join have the average complementarity of those before."""
    radii = point.radii[after.g]
    slack = np.maximum(0.5 * (radii - forms[after.kernels] / radii), join_slack * radii)
    mu = float(point.mu @ point.slack) / len(point.mu) / slack
    _, old, new = np.intersect1d(before.kernels, after.kernels, return_indices=True)
    slack[new], mu[new] = point.slack[old], point.mu[old]
    return replace(point, slack=slack, mu=mu)
