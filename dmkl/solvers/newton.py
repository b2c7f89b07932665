"""Newton's method in the kernel weights, with an SVM inside: VSKL, L1MKL and LpMKL for any number of support vectors.

    min_theta J(theta),     J(theta) = max_alpha  1'alpha - 1/2 sum_a theta_a D_a(beta)      (FORMULATIONS section 1)

theta are the effective weights of the kernels. Inside a group they share a total tau_j, and the totals belong to the
radii N_j = max_{a in j} sqrt(D_a) by tau = (gradient of 1/2 ||N||_rho^2) / N; for rho = 2 every total is 1.

An evaluation of theta is one weighted sum of the kernels, one SVM on it, and the products K_a beta. It gives

    a primal value, of w_a = theta_a sum_i beta_i phi_a(x_i);
    a lower bound, of beta or of a mixture with the points found before;
    J(theta) with its gradient -D/2 and its second derivatives H = G (sum theta K)_FF^-1 G', G_a = (K_a beta)_F,

where F are the free samples, 0 < alpha < C: those at a bound do not answer to a small change of theta. The next theta
minimises the quadratic model:

    rho = 2   over the simplex of each group, together with the linear lower bounds (cuts) of all evaluations so far
    rho > 2   over the unit ball of the p-norm of the totals
    rho < 2   a saddle point: over the simplices as for rho = 2, with totals that agree with the forms that the model
              predicts. Where such a step does not help, steps of mirror descent and of the VSKL paper's oracle follow

So some four or five evaluations reach a gap of 1e-3, however many samples support the solution, and an evaluation costs
little more than reading the kernels with weight.

Many samples start from few: the method first solves random parts of growing size, loosely. Their weights are the start
for all samples; the certificate is always that of all samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.linalg

from dmkl._util.jit import jit
from dmkl._util.stopping import must_stop
from dmkl._util.types import Array, Float64, FloatArray, Samples
from dmkl.oracles import ORACLES
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.automatic import Hopeless
from dmkl.solvers.certificate import CertifiedWeights, best_multiple, relative_gap
from dmkl.solvers.kernel_operators import KernelOperator
from dmkl.solvers.precision import sum_dtype
from dmkl.solvers.simplex_qp import simplex_qp
from dmkl.solvers.svm_by_parts import svm_by_parts


@dataclass(frozen=True)
class NewtonOptions:
    """Constants of the method."""

    evaluations: int = 60  # at most, on all samples
    patience: int = 12  # evaluations without a smaller gap before the method gives up
    svm_share: float = 0.05  # the SVM's tolerance as a share of the gap so far,
    svm_least: float = 0.02  # and as a share of the tolerance at least
    loosest_svm: float = 1e-2
    svm_steps: int = 1000  # of an SVM, for each sample, at most: where weights differ by millions it would last
    free: float = 1e-8  # alpha counts as free further than this share of its bound from both bounds
    most_free: int = 2000  # free samples that the curvature is computed from; of more, a random part,
    part_power: float = 0.75  # whose curvature is divided by its share to this power (measured: 0.7 to 0.85)
    ridges: tuple[float, ...] = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # of the mean diagonal: free samples may be duplicates
    sharpest: float = 20.0  # curvature of a kernel, in units of the one that takes its form to zero at the total weight
    most_kernels: int = 200  # kernels in the model: those with weight, and those with the largest forms,
    near: float = 0.5  # of at least this share of the form that kernels with weight have
    weighty: float = 1e-3  # weights below this share of their mean are not counted as weights
    proximity: float = 0.1  # of gap times objective, added to the curvature: a model of cuts alone jumps
    stiffer: float = 4.0  # factor of the curvature after a rejected step
    stiffest: float = 1024.0
    kept_products: int = 4_000_000  # numbers K_a beta, that are kept from one evaluation to the next
    kept_cuts: int = 20  # the newest ones, beside those with a multiplier
    least_multiplier: float = 1e-6  # smaller multipliers of cuts count as zero
    negligible: float = 1e-2  # weights below this times the tolerance times their group's largest become zero
    totals_steps: int = 40  # of Newton's method for the totals,
    totals_patience: int = 4  # and so many that leave more than
    totals_progress: float = 0.9  # this share of the residual: it turns in circles where samples become free on the way
    consistent: float = 1e-2  # the residual of the equation of the totals, as a share of the gap
    longest_log_step: float = 2.0  # of the totals
    first_reach: float = 1.0  # of the totals, from the centre, on the logarithms,
    longer: float = 2.0  # factor after a step that helped,
    shorter: float = 0.3  # and after one that did not
    steepest: float = 1.8  # eigenvalue of E, see `_log_step`
    least_form: float = 0.05  # a form that the model predicts, as a share of that at the centre
    least_radius: float = 1e-8  # of a group, as a share of the largest
    mirror_step: float = 1.0
    most_mirror_steps: int = 16  # in a row
    level_factor: int = 4  # between the sizes of the parts of the samples
    smallest_level: int = 500
    levels_from: int = 3000  # samples; below, all samples at once are as fast
    level_gap: float = 3e-3  # of the parts, or the tolerance if it is larger


@dataclass(frozen=True)
class BallOptions:
    """Constants of the barrier method of `ball_minimum`."""

    first: float = 1e-1  # weight of the logarithms, relative to the largest slope,
    last: float = 1e-10
    fall: float = 0.2  # factor of the weight
    newton_steps: int = 30  # for one weight
    centred: float = 1e-4  # the Newton decrement that is enough
    descent: float = 0.1  # share of the promised fall that a step has to reach
    shortest: float = 1e-10


OPTIONS = NewtonOptions()
PANEL = 64  # rows of a triangular system, fixed when compiling
BALL = BallOptions()


# The model.


@dataclass(frozen=True)
class Evaluation:
    """What is known at one theta."""

    theta: Float64
    beta: Float64
    forms: Float64  # (s,)
    primal: float
    scores: Float64  # (n,) at theta
    penalty: float
    kernels: Samples  # those that the curvature is of
    curvature: Float64  # (kernels, kernels)

    @property
    def total(self) -> float:
        """1'alpha."""
        return float(np.abs(self.beta).sum())

    @property
    def value(self) -> float:
        """J(theta), as far as beta is optimal."""
        return self.total - 0.5 * float(self.theta @ self.forms)


@dataclass(frozen=True)
class Proof:
    """A dual feasible beta, forms that are not below its own, and the lower bound that it proves."""

    beta: Float64
    forms: Float64
    bound: float


def totals_of(norm: MixedNorm, forms: Float64) -> Float64:
    """(groups,): tau, the sum of the weights of every group, at these forms."""
    radii = norm.radii(forms)
    largest = float(radii.max())
    if not largest > 0:
        return np.asarray(norm.slope(np.ones(norm.count)))
    radii = np.maximum(radii / largest, OPTIONS.least_radius)
    return np.asarray(norm.slope(radii) / radii)


@dataclass(frozen=True)
class NewtonSolution(CertifiedWeights):
    """The best weights and the best lower bound that the method met."""

    gap: float  # relative, on the block
    primal: float
    penalty: float  # the regulariser of the primal point
    scores: Float64  # (n,) without intercept


def feasible(norm: MixedNorm, theta: Float64) -> Float64:
    """The weights scaled so that they may be those of a solution; every group has some."""
    totals = norm.total(theta)
    empty = (totals <= 0)[norm.groups]
    theta = np.where(empty, norm.uniform(), theta)
    if norm.rho > 2:
        return theta / norm.size(theta)
    return theta / norm.total(theta)[norm.groups] if norm.rho == 2 else theta


KEPT = (
    "theta",
    "evaluations",
    "idle",
    "gap",
    "_totals",
    "_forms",
    "_stiffness",
    "_reach",
    "_mirror_left",
    "_mirror_steps",
    "last_beta",
    "last_products",
)


class WeightModel:
    """The points found for one class, and where to go next."""

    def __init__(self, norm: MixedNorm, n: int, tol: float, theta: Float64) -> None:
        s = len(norm.groups)
        self.norm, self.tol, self.theta = norm, tol, feasible(norm, theta)  # where to evaluate next
        self.evaluations = self.idle = 0  # and those since the gap fell
        self.centre: Evaluation | None = None
        self.best: Evaluation | None = None  # of the primal value
        self.proof = Proof(np.zeros(n), np.zeros(s), 0.0)  # alpha = 0 is feasible
        self.gap = 1.0
        self._cuts: list[Float64] = []  # beta
        self._totals, self._forms = np.zeros(0), np.zeros((0, s))
        self._stiffness, self._reach = 1.0, OPTIONS.first_reach
        self._mirror_left, self._mirror_steps = 0, 1  # steps to come, and how many there were after the last failure
        # where every product is a pass: those with the last beta, from which the next SVM starts
        self.last_beta, self.last_products = np.zeros(0), np.zeros((0, 0))

    def add(self, found: Evaluation, crossed: Float64) -> None:
        """Enter an evaluation; `crossed` are beta' K_a proof of its beta and the present proof."""
        if self.best is None or found.primal < self.best.primal:
            self.best = found
        self._prove(self._mixed(found, crossed))
        self._cuts.append(found.beta)
        self._totals = np.append(self._totals, found.total)
        self._forms = np.vstack([self._forms, found.forms])
        if self._mirror_left:  # every step counts, and Newton's method goes on from the last one
            self._mirror_left -= 1
            self.centre = found
        elif self.centre is None or self._falls(found, self.centre):
            self._reach *= 1.0 if self.centre is None else OPTIONS.longer
            self.centre, self._stiffness = found, 1.0
        elif self.norm.rho < 2:
            self._reach *= OPTIONS.shorter
            self._mirror_left = self._mirror_steps = min(2 * self._mirror_steps, OPTIONS.most_mirror_steps)
        else:
            self._stiffness = min(self._stiffness * OPTIONS.stiffer, OPTIONS.stiffest)

    @property
    def ended(self) -> bool:
        """Whether the tolerance is reached, or nothing was gained for long."""
        return self.gap <= self.tol or self.idle >= OPTIONS.patience or self.evaluations >= OPTIONS.evaluations

    def advance(self, search: Search) -> None:
        """One evaluation, and the weights to evaluate next."""
        before = self.gap
        self.add(*search.evaluate(self.theta, self))
        if self.gap > self.tol:
            self.theta = self.next_weights()  # which may prove more
        self.evaluations += 1
        self.idle = 0 if self.gap < before else self.idle + 1

    def arrays(self) -> dict[str, Array]:
        """Everything as arrays, from which `restored` makes the same model."""
        found = {name: np.asarray(getattr(self, name)) for name in KEPT}
        found["_cuts"], found["going"] = np.array(self._cuts), np.asarray(self.idle < OPTIONS.patience)
        for name in ("centre", "best", "proof"):
            part = getattr(self, name)
            found |= {f"{name}.{field.name}": np.asarray(getattr(part, field.name)) for field in fields(part)}
        return found

    @classmethod
    def restored(cls, norm: MixedNorm, tol: float, arrays: Mapping[str, Array]) -> WeightModel:
        """The model with these arrays, for the same norm."""
        model = cls(norm, arrays["proof.beta"].shape[0], tol, arrays["theta"])
        for name in KEPT:
            setattr(model, name, arrays[name] if arrays[name].ndim else arrays[name].item())
        model._cuts = list(arrays["_cuts"])
        for name, kind in (("centre", Evaluation), ("best", Evaluation), ("proof", Proof)):
            values: list[Any] = [arrays[f"{name}.{field.name}"] for field in fields(kind)]
            setattr(model, name, kind(*(value if value.ndim else value.item() for value in values)))
        return model

    def solution(self, calls: int) -> NewtonSolution:
        """The best point so far, after so many SVMs."""
        best, proof = self.best, self.proof
        assert best is not None
        points = best.theta, best.beta, proof.bound, proof.beta, proof.forms
        values = self.gap, best.primal, best.penalty, best.scores
        return NewtonSolution(*points, *values, svm_calls=calls, oracle_calls=calls)

    def _prove(self, proof: Proof) -> None:
        if proof.bound > self.proof.bound:
            self.proof = proof
        assert self.best is not None
        self.gap = relative_gap(self.best.primal, self.proof.bound)

    def _bound(self, total: float, forms: Float64) -> float:
        return total - self.norm.conjugate(forms)

    def _mixed(self, found: Evaluation, crossed: Float64) -> Proof:
        """The best point between the proof and a new one, by golden section: the bound is concave on the way."""
        old, low, high = self.proof, 0.0, 1.0
        before, after = float(np.abs(old.beta).sum()), found.total

        def forms(t: float) -> Float64:
            return np.asarray((1 - t) ** 2 * old.forms + 2 * t * (1 - t) * crossed + t**2 * found.forms)

        def bound(t: float) -> float:
            return self._bound((1 - t) * before + t * after, forms(t))

        golden = 0.5 * (np.sqrt(5.0) - 1.0)
        left, right = high - golden * (high - low), low + golden * (high - low)
        values = bound(left), bound(right)
        while high - low > 1e-3:
            if values[0] >= values[1]:
                high, right = right, left
                left = high - golden * (high - low)
                values = bound(left), values[0]
            else:
                low, left = left, right
                right = low + golden * (high - low)
                values = values[1], bound(right)
        t = max((0.5 * (low + high), 1.0), key=bound)
        return Proof((1 - t) * old.beta + t * found.beta, np.maximum(forms(t), 0.0), bound(t))

    def _falls(self, found: Evaluation, centre: Evaluation) -> bool:
        """Whether a point is better than the centre.

        Where J is to be minimised over a convex set both are judged by all cuts, because the value of a loosely solved
        SVM is too low. For rho < 2 the problem is a saddle point, and the gaps that the points prove of themselves are
        compared.
        """
        if self.norm.rho < 2:
            own, least = (one.primal - self._bound(one.total, one.forms) for one in (found, centre))
            return own < least
        reached, least = ((self._totals - 0.5 * self._forms @ one.theta).max() for one in (found, centre))
        return bool(reached <= least)

    def next_weights(self) -> Float64:
        """The minimiser of the model."""
        centre, norm = self.centre, self.norm
        assert centre is not None
        if norm.rho > 2:
            return self._in_ball(centre)
        if self._mirror_left:
            return self._mirror_step(centre)
        logs = first = np.log(norm.total(centre.theta))
        theta, multipliers = self._at(centre, logs)
        best, found, idle = np.inf, (theta, multipliers, logs), 0
        for _ in range(OPTIONS.totals_steps if norm.rho < 2 else 0):
            forms = self._predicted(centre, theta)
            squares = np.maximum(norm.radii(forms) ** 2, OPTIONS.least_radius**2 * forms.max())
            residual = np.log(totals_of(norm, forms)) - logs
            shares = np.exp(logs) * squares
            size = float(np.abs(residual) @ (shares / shares.sum()))
            idle = 0 if size < OPTIONS.totals_progress * best else idle + 1
            if size < best:
                best, found = size, (theta, multipliers, logs)
            if size <= OPTIONS.consistent * max(self.gap, self.tol) or idle > OPTIONS.totals_patience:
                break
            step = self._log_step(residual, self._group_curvature(centre, theta, logs), np.exp(logs), squares)
            before = logs
            logs = np.clip(logs + step, first - self._reach, first + self._reach)  # as far as the model may be trusted
            if np.array_equal(logs, before):
                break
            theta, multipliers = self._at(centre, logs)
        theta, multipliers, logs = found
        self._use_cuts(multipliers, np.exp(logs))
        return theta

    def _in_ball(self, centre: Evaluation) -> Float64:
        norm, A, alone = self.norm, centre.kernels, self.norm.count == len(self.norm.groups)
        # inside a group the weights are a simplex's, and the model may be linear: steps of any length may look good
        stiffness = self._stiffness - 1.0 if alone else self._stiffness
        size = stiffness * OPTIONS.proximity * min(self.gap, 1.0) * abs(centre.value)
        Q = self._stiffness * centre.curvature + size * np.eye(len(A))
        if alone:
            theta = ball_minimum(0.5 * centre.forms, Q, A, centre.theta, norm.rho)
            return theta / norm.size(theta)
        g = norm.groups[A]
        found = grouped_ball_minimum(0.5 * centre.forms[A], Q, g, centre.theta[A], norm.rho)
        largest = np.zeros(norm.count)
        np.maximum.at(largest, g, found)
        theta = np.zeros(len(norm.groups))
        theta[A] = np.where(found > OPTIONS.negligible * self.tol * largest[g], found, 0.0)
        return theta / norm.size(theta)

    def _mirror_step(self, centre: Evaluation) -> Float64:
        """Multiplicative inside groups, with the totals of the forms at hand: it needs no model.

        The totals are the block step of the VSKL paper's oracle, which raises the dual for these weights inside the
        groups; the rest is mirror descent on those.
        """
        norm = self.norm
        level = np.maximum(norm.radii(centre.forms) ** 2, 1e-300)[norm.groups]
        share = centre.theta * np.exp(OPTIONS.mirror_step * (centre.forms / level - 1.0))
        return np.asarray(share * (totals_of(norm, centre.forms) / norm.total(share))[norm.groups])

    def _at(self, centre: Evaluation, logs: Float64) -> tuple[Float64, Float64]:
        """The best weights with these logarithms of the totals, and the multipliers of the cuts there."""
        norm, A, totals = self.norm, centre.kernels, np.exp(logs)
        if norm.count == len(norm.groups):
            newest = np.zeros(len(self._totals))
            newest[-1] = 1.0
            return totals[norm.groups], newest
        g = norm.groups[A]
        scale = totals[g]
        size = OPTIONS.proximity * min(self.gap, 1.0) * abs(centre.value)
        Q = self._stiffness * (centre.curvature * np.outer(scale, scale) + size * np.eye(len(A)))
        p, multipliers = simplex_qp(self._totals, -0.5 * self._forms[:, A] * scale, Q, centre.theta[A] / scale, g)
        largest = np.zeros(norm.count)
        np.maximum.at(largest, g, p)
        theta = np.zeros(len(norm.groups))
        theta[A] = np.where(p > OPTIONS.negligible * self.tol * largest[g], p, 0.0)
        return theta * (totals / norm.total(theta))[norm.groups], multipliers

    def _predicted(self, centre: Evaluation, theta: Float64) -> Float64:
        """The forms at these weights, to first order, but no less than a share of those at the centre."""
        A, forms = centre.kernels, centre.forms.copy()
        forms[A] -= 2.0 * centre.curvature @ (theta[A] - centre.theta[A])
        return np.maximum(forms, OPTIONS.least_form * centre.forms)

    def _group_curvature(self, centre: Evaluation, theta: Float64, logs: Float64) -> Float64:
        """(groups, groups): the curvature in the totals, weights keeping their shares."""
        A, g = centre.kernels, self.norm.groups
        spread = np.zeros((len(A), self.norm.count))
        spread[np.arange(len(A)), g[A]] = (theta / np.exp(logs)[g])[A]
        return np.asarray(spread.T @ centre.curvature @ spread)

    def _log_step(self, residual: Float64, curvature: Float64, totals: Float64, squares: Float64) -> Float64:
        """Newton's step for log tau = F(log N^2(tau)), where d log N^2 / d log tau = -E, for rho < 2.

        N^2 falls as tau^-2 at the most; where E says more, the free samples change on the way.
        """
        rho = self.norm.rho
        E = 2.0 * curvature * totals / squares[:, None]
        powers = (squares / squares.max()) ** (0.5 * rho)
        F = 0.5 * (rho - 2.0) * (np.eye(len(totals)) - powers / powers.sum())
        most = float(np.abs(np.linalg.eigvals(E)).max(initial=0.0))
        E = E * min(1.0, OPTIONS.steepest / max(most, 1e-300))
        step = np.linalg.solve(np.eye(len(totals)) + F @ E, residual)
        return np.clip(step, -OPTIONS.longest_log_step, OPTIONS.longest_log_step)

    def _use_cuts(self, multipliers: Float64, totals: Float64) -> None:
        """The lower bounds that mixtures of all points prove; cuts that no mixture uses are dropped."""
        norm, centre = self.norm, self.centre
        assert centre is not None
        mixtures = [multipliers]
        if norm.count < len(norm.groups) and len(self._totals) > 1:
            A = centre.kernels
            g = norm.groups[A]
            slopes = -0.5 * self._forms[:, A] * totals[g]
            mixtures.append(simplex_qp(self._totals, slopes, np.zeros((len(A), len(A))), np.zeros(len(A)), g)[1])
        for mixture in mixtures:
            forms = mixture @ self._forms  # not below those of the mixture, which are convex in beta
            bound = self._bound(float(mixture @ self._totals), forms)
            if bound > self.proof.bound:
                self._prove(Proof(np.asarray(mixture @ np.array(self._cuts)), forms, bound))
        kept = np.max(mixtures, axis=0) > OPTIONS.least_multiplier
        kept[-OPTIONS.kept_cuts :] = True
        self._cuts = [beta for beta, keep in zip(self._cuts, kept, strict=True) if keep]
        self._totals, self._forms = self._totals[kept], self._forms[kept]


def _past_barriers(
    theta: Float64,
    value: Callable[[Float64, float], float],
    newton: Callable[[Float64, float], tuple[Float64, Float64]],
) -> Float64:
    """The minimum of value(theta, weight) for ever smaller weights of the barrier; `newton` gives gradient and step."""
    weight = BALL.first
    while weight > BALL.last:
        for _ in range(BALL.newton_steps):
            gradient, step = newton(theta, weight)
            fall = -float(gradient @ step)
            if not fall > BALL.centred:
                break
            length, before = 1.0, value(theta, weight)
            while (
                length > BALL.shortest and value(theta + length * step, weight) > before - BALL.descent * length * fall
            ):
                length *= 0.5
            theta = theta + length * step
        weight *= BALL.fall
    return theta


def ball_minimum(slope: Float64, Q: Float64, kernels: Samples, centre: Float64, rho: float) -> Float64:
    """Minimise -slope . theta + 1/2 (theta - centre)' Q (theta - centre) over theta >= 0, sum theta^p <= 1.

    Here p = rho / (rho - 2), and Q is over some of the kernels. A barrier method: the weight of the logarithms falls,
    Newton's method follows.
    """
    p, s = rho / (rho - 2.0), len(centre)
    size = float(slope.max())
    if not size > 0:
        return centre
    slope, Q = slope / size, Q / size
    theta = np.maximum(centre, 1e-3 / s)
    theta *= 0.9 / (theta**p).sum() ** (1 / p)

    def value(theta: Float64, weight: float) -> float:
        room = 1.0 - float((np.maximum(theta, 0.0) ** p).sum())
        if not (room > 0 and theta.min() > 0):
            return np.inf
        move = theta[kernels] - centre[kernels]
        smooth = -float(slope @ theta) + 0.5 * float(move @ Q @ move)
        return smooth / weight - float(np.log(room)) - float(np.log(theta).sum())

    def newton(theta: Float64, weight: float) -> tuple[Float64, Float64]:
        room = 1.0 - float((theta**p).sum())
        normal = p * theta ** (p - 1.0) / room
        gradient = -slope / weight + normal - 1.0 / theta
        gradient[kernels] += Q @ (theta[kernels] - centre[kernels]) / weight
        diagonal = (p - 1.0) * normal / theta + 1.0 / theta**2
        right = np.column_stack([gradient, normal])
        solved = right / diagonal[:, None]
        if len(kernels):
            matrix = Q / weight
            matrix[np.diag_indices(len(kernels))] += diagonal[kernels]
            solved[kernels] = scipy.linalg.solve(matrix, right[kernels], assume_a="pos", check_finite=False)
        step = -solved[:, 0] + solved[:, 1] * float(normal @ solved[:, 0]) / (1.0 + float(normal @ solved[:, 1]))
        return gradient, step

    return _past_barriers(theta, value, newton)


def grouped_ball_minimum(slope: Float64, Q: Float64, groups: Samples, centre: Float64, rho: float) -> Float64:
    """As `ball_minimum`, where kernels share groups and Q is over all of them: sum_j (sum_{a in j} theta_a)^p <= 1."""
    p, s, count = rho / (rho - 2.0), len(centre), int(groups.max()) + 1
    size = float(slope.max())
    if not size > 0:
        return centre
    slope, Q = slope / size, Q / size
    together = groups[:, None] == groups

    def totals(theta: Float64) -> Float64:
        return np.bincount(groups, theta, count).astype(np.float64, copy=False)

    theta = np.maximum(centre, 1e-3 / s)
    theta *= 0.9 / (totals(theta) ** p).sum() ** (1 / p)

    def value(theta: Float64, weight: float) -> float:
        room = 1.0 - float((np.maximum(totals(theta), 0.0) ** p).sum())
        if not (room > 0 and theta.min() > 0):
            return np.inf
        move = theta - centre
        smooth = -float(slope @ theta) + 0.5 * float(move @ Q @ move)
        return smooth / weight - float(np.log(room)) - float(np.log(theta).sum())

    def newton(theta: Float64, weight: float) -> tuple[Float64, Float64]:
        inside = totals(theta)
        room = 1.0 - float((inside**p).sum())
        normal = (p * inside ** (p - 1.0) / room)[groups]
        gradient = (Q @ (theta - centre) - slope) / weight + normal - 1.0 / theta
        matrix = Q / weight + np.outer(normal, normal)
        matrix += together * ((p - 1.0) * normal / inside[groups])
        matrix[np.diag_indices(s)] += 1.0 / theta**2
        step = -scipy.linalg.solve(matrix, gradient, assume_a="pos", check_finite=False)
        return gradient, step

    return _past_barriers(theta, value, newton)


# The method on one block.


def curvature_of(block: FloatArray, G: Float64) -> Float64:
    """G block^-1 G' within sum(beta) = 0; the block (F, F) is of the weighted sum, G is (kernels, F)."""
    if len(block) < 2:
        return np.zeros((len(G), len(G)))
    right = np.vstack([G, np.ones(len(block))]).T.astype(block.dtype, order="C")
    mean = float(block.diagonal().mean())
    for ridge in OPTIONS.ridges:
        try:
            half = _half_solved(block, ridge * mean, right).astype(np.float64)
        except np.linalg.LinAlgError:
            continue
        result = half.T @ half
        result -= np.outer(result[-1], result[-1]) / max(result[-1, -1], 1e-300)
        return np.asarray(result[:-1, :-1])
    return np.zeros((len(G), len(G)))


@jit()
def _half_solved(block: FloatArray, ridge: float, right: FloatArray) -> FloatArray:
    """L^-1 right, where L L' is the block with a larger diagonal. Compiled, since scipy's LAPACK holds the GIL."""
    size = len(block)
    matrix = block.copy()
    for i in range(size):
        matrix[i, i] += ridge
    L = np.linalg.cholesky(matrix)
    x = right.copy()
    for start in range(0, size, PANEL):
        stop = min(start + PANEL, size)
        if start:
            x[start:stop] -= np.dot(np.ascontiguousarray(L[start:stop, :start]), x[:start])
        for i in range(start, stop):
            for j in range(start, i):
                for k in range(x.shape[1]):
                    x[i, k] -= L[i, j] * x[j, k]
            for k in range(x.shape[1]):
                x[i, k] /= L[i, i]
    return x


class Search:
    """The evaluations of one problem."""

    def __init__(
        self,
        kernels: KernelOperator,
        y: Float64,
        C: Float64,
        norm: MixedNorm,
        tol: float,
        oracle: str,
        alpha: Float64 | None = None,
    ) -> None:
        self._kernels, self._y, self._C, self._norm, self._tol = kernels, y, C, norm, tol
        self._alpha = np.zeros(len(y)) if alpha is None else alpha  # where the first SVM starts
        self._svm = ORACLES[oracle]
        self._dtype = sum_dtype(kernels.dtype, len(y), tol)
        self.steps = 0  # of the last SVM that was solved as a whole
        self._rng = np.random.default_rng(0)  # for the free samples that the curvature is computed from

    def evaluate(self, theta: Float64, model: WeightModel) -> tuple[Evaluation, Float64]:
        """The evaluation at theta, and the crossed forms of its beta with the proof of the model."""
        y, C, norm = self._y, self._C, self._norm
        tol = max(min(OPTIONS.svm_share * model.gap, OPTIONS.loosest_svm), OPTIONS.svm_least * self._tol)
        warm, known = self._alpha if model.centre is None else np.abs(model.centre.beta), None
        combined = self._kernels.matrix(theta, self._dtype)
        if combined is None:
            if model.last_products.size:
                warm, known = np.abs(model.last_beta), model.last_products
            beta, G = svm_by_parts(self._kernels, theta, y, C, warm, tol, known)
            if G.size <= OPTIONS.kept_products:
                model.last_beta, model.last_products = beta, G
        else:
            svm = self._svm(combined, y, C, alpha=warm, tol=tol, max_steps=OPTIONS.svm_steps * len(y))
            beta, self.steps = svm.alpha * y, svm.steps
            G = self._kernels.products(beta)
        forms, scores = np.maximum(G @ beta, 0.0), theta @ G
        penalty = norm.regulariser(theta * np.sqrt(forms))
        primal = best_multiple(penalty, beta, scores, y, C).primal
        kernels = self._chosen(theta, forms, model.centre)
        curvature = self._curvature(theta, combined, np.abs(beta), G[kernels])
        if norm.count < len(norm.groups):  # a kernel outside the range of all others, at weight zero, has a form that
            most = OPTIONS.sharpest * np.count_nonzero(theta) * forms / norm.total(theta)[norm.groups]  # falls at once
            steep = np.maximum(curvature.diagonal(), most[kernels])
            shrink = np.sqrt(np.divide(most[kernels], steep, out=np.ones(len(kernels)), where=steep > 0))
            curvature *= np.outer(shrink, shrink)
        return Evaluation(theta, beta, forms, primal, scores, penalty, kernels, curvature), G @ model.proof.beta

    def _curvature(self, theta: Float64, combined: FloatArray | None, alpha: Float64, G: Float64) -> Float64:
        edge = OPTIONS.free * self._C
        free = np.flatnonzero((alpha > edge) & (alpha < self._C - edge))
        share = min(1.0, OPTIONS.most_free / max(len(free), 1))
        if share < 1.0:
            free = np.sort(self._rng.permutation(free)[: OPTIONS.most_free])
        block = self._kernels.sum_over(free, theta, self._dtype) if combined is None else combined[free[:, None], free]
        return np.asarray(curvature_of(block, G[:, free]) / share**OPTIONS.part_power)

    def _chosen(self, theta: Float64, forms: Float64, centre: Evaluation | None) -> Samples:
        """Kernels of the model: with weight, or with one of the largest forms of their group."""
        norm = self._norm
        level = norm.total(theta * forms) / norm.total(theta)  # the form that kernels with weight have at the optimum
        ratio = forms / np.maximum(level, 1e-300)[norm.groups]
        weights = theta if centre is None else np.maximum(theta, centre.theta)
        ratio += np.where(weights > OPTIONS.weighty * weights.mean(), OPTIONS.near + weights / weights.max(), 0.0)
        order = np.argsort(-ratio, kind="stable")
        chosen = order[: OPTIONS.most_kernels]
        best = np.empty(norm.count, dtype=np.int64)
        best[norm.groups[order[::-1]]] = order[::-1]  # one of each group in any case
        return np.union1d(chosen[ratio[chosen] >= OPTIONS.near], best)


def solve_newton(
    kernels: KernelOperator,
    y: Float64,
    C: Float64 | float,
    norm: MixedNorm,
    tol: float,
    oracle: str = "smo",
    *,
    start: Float64 | None = None,
    hopeless: Hopeless | None = None,
) -> NewtonSolution:
    """Minimise over some samples and kernels.

    Parameters
    ----------
    kernels : KernelOperator
        The s kernels over n samples; a weighted sum of them fits in memory.
    y : array (n,)
        Signs -1/+1.
    C : float or array (n,)
        Bounds of alpha.
    norm : MixedNorm
        The regulariser of these kernels.
    tol : float
        The relative gap to reach on the block.
    oracle : str
        The SVM oracle.
    start : array (s,), optional
        Effective weights to begin at; without them the method begins with parts of the samples, or with equal weights.
    hopeless : callable, optional
        Is told the gap after every SVM and the SVM's steps, and says whether to give up.

    Returns
    -------
    NewtonSolution
        With a gap of `tol`, or of the last point before nothing was gained for some evaluations.
    """
    C = np.broadcast_to(np.asarray(C, dtype=np.float64), y.shape)
    theta, calls = (start, 0) if start is not None else first_weights(kernels, y, C, norm, tol, oracle)
    search, model = Search(kernels, y, C, norm, tol, oracle), WeightModel(norm, len(y), tol, theta)
    while True:
        model.advance(search)
        if model.ended or must_stop() or (hopeless is not None and hopeless(model.gap, search.steps)):
            return model.solution(calls + model.evaluations)


def first_weights(
    kernels: KernelOperator, y: Float64, C: Float64, norm: MixedNorm, tol: float, oracle: str
) -> tuple[Float64, int]:
    """The weights of random parts of the samples, each from those of the part before, and the SVMs that this took.

    Equal weights where the samples are few, or no part fits in memory.
    """
    theta, calls, n = norm.uniform(), 0, len(y)
    order = np.random.default_rng(0).permutation(n)
    parts: list[tuple[Samples, KernelOperator]] = []
    size = n // OPTIONS.level_factor if n >= OPTIONS.levels_from else 0
    while size >= OPTIONS.smallest_level:
        part = np.sort(order[:size])
        around, operator = parts[-1] if parts else (np.arange(n), kernels)
        some = operator.restricted(np.searchsorted(around, part))
        if some is not None:
            parts.append((part, some))
        size //= OPTIONS.level_factor
    for part, some in reversed(parts):
        if abs(y[part].sum()) < len(part):  # both sides are there
            found = solve_newton(some, y[part], C[part], norm, max(tol, OPTIONS.level_gap), oracle, start=theta)
            theta, calls = found.weights, calls + found.svm_calls
    return theta, calls
