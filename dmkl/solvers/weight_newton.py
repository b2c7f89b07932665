"""Newton's method in the kernel weights, for any loss with a block-l1 norm or an elastic net (SpicyMKL).

    min_w        sum_i l(y_i, sum_a f_a(x_i) + b) + C sum_a ||w_a|| + ridge/2 sum_a ||w_a||^2
  = min_theta    J(theta) = V(theta) + sum_a C^2/2 theta_a / (1 - ridge theta_a),     0 <= theta, ridge theta < 1
    V(theta)   = min_w sum of losses + 1/2 sum_a ||w_a||^2 / theta_a
               = max_rho -l*(-rho) - 1/2 sum_a theta_a D_a(rho),     D_a(rho) = rho' K_a rho

V is the problem with one kernel matrix, sum_a theta_a K_a, and w_a = theta_a sum_i rho_i phi_a(x_i). Its derivatives
are -D_a / 2, and its second derivatives H come with its solution (`one_kernel`). So one evaluation of theta is: sum the
kernels, solve for one matrix, multiply every kernel by rho. It gives a primal point, and a dual point once rho is
multiplied by the largest feasible factor.

At the optimum sqrt(D_a) (1 - ridge theta_a) = C for every kernel with weight. As a function of theta, D_a falls like
1 / theta^2 or slower, so the method applies Newton's rule to 1 / sqrt(D_a), which is nearly linear (Hebden's and Reinsch's
device for a norm constraint): neither a start that is much too large nor one that is much too small delays it. With
kernels that may leave and join, a step is a quadratic program with bounds. A share `damping` of H is replaced by
diag(D_a / theta_a), which is never smaller: for `damping` 1 a step is the classical fixed point theta_a = ||w_a|| / C,
which always descends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatType
from dmkl.problems.losses import Loss, balanced
from dmkl.solvers import one_kernel
from dmkl.solvers.kernel_operators import KernelOperator
from dmkl.solvers.one_kernel import OneKernel
from dmkl.solvers.proximal import Penalty, ProximalSolution, ProximalStart, minimise


@dataclass(frozen=True)
class WeightNewtonOptions:
    """Constants of the method."""

    evaluations: int = 60  # at most
    stalled: int = 8  # evaluations that shrink the gap by less than `progress`, before another method goes on
    progress: float = 0.9
    inner: float = 0.1  # the gap at fixed weights, as a share of the present gap,
    inner_least: float = 0.1  # of the tolerance,
    inner_most: float = 1e-2  # and at most
    damping: float = 0.3  # of the first step
    damping_growth: float = 4.0  # after a step that did not descend; divided by it after one that did
    damping_least: float = 1e-3  # below it there is none
    rounding: float = 1e-10  # of H: kernels may be copies of each other
    joining: float = 0.1  # of the mean norm of kernels with weight: the scale of one that joins
    shortest: float = 0.1  # of a step that went too far
    near: float = 0.5  # of the largest slope: kernels that a cold start gives weight
    float32_lost: int = 3  # evaluations 


OPTIONS = WeightNewtonOptions()


@dataclass(frozen=True)
class Evaluation:
    """What is known at one weight vector."""

    theta: Float64
    rho: Float64
    intercept: float
    products: Float64  # K_a rho (kernels, n)
    forms: Float64  # D
    value: float  # J, from below
    slack: float  # how far J may be above it
    primal: float
    penalty: float
    dual: float
    scale: float
    steps: int


class WeightNewton:
    def __init__(self, kernels, y, loss, penalty, tol, dtype, threads, options):
        self.kernels, self.y, self.loss, self.penalty, self.tol = kernels, y, loss, penalty, tol
        self.dtype, self.threads, self.options = dtype, threads, options
        self.inner = one_kernel.solver_of(loss, y, threads)
        self.svm_calls = 0
        self.log = []

    def run(self, start):
        options, penalty = self.options, self.penalty
        here = self.first(start)
        self.best_primal = self.best_dual = here
        gap = self.gap
        trace = [(gap, np.count_nonzero(here.theta), here.steps)]
        if gap <= self.tol: return self.result(trace)
        theta, rho = self.begin(here, start)
        starts = [rho]
        centre, step, damping, idle = None, None, options.damping, 0
        while len(trace) < options.evaluations and idle < options.stalled and not must_stop():
            here = self.evaluate(theta, starts, gap)
            if here is None: break
            self.best_primal = min(self.best_primal, here, key=lambda e: e.primal)
            self.best_dual = max(self.best_dual, here, key=lambda e: e.dual)
            before, gap = gap, self.gap
            idle = 0 if gap < options.progress * before else idle + 1
            trace.append((gap, np.count_nonzero(theta), here.steps))
            accepted = centre is None or here.value <= centre.value + here.slack + 1e-13*abs(centre.value)
            self.log.append((gap, np.count_nonzero(theta), here.steps, accepted, damping, here.value, here.primal, here.dual))
            if gap <= self.tol: break
            if accepted:
                if centre is not None:
                    damping = damping / options.damping_growth
                    damping = damping if damping > options.damping_least else 0.0
                centre, cut = here, 1.0
                active = np.flatnonzero((theta > 0) | (here.forms > (penalty.C * (1 + 0*1e-9)) ** 2))
                H = self.inner.curvature(here.products[active])
                response = self.inner.response
            else:
                damping = max(damping * options.damping_growth, 0.1)
                a, b = self.slope(centre) @ step, self.slope(here) @ step
                share = np.clip(a / (a - b), options.shortest, 0.5) if b > 0 else 0.5
                if damping <= 1.0 or True:
                    step = share * step
                    theta = centre.theta + step
                    starts = [centre.rho, here.rho]
                    continue
            step = np.zeros(len(theta))
            step[active] = self.step(centre, active, H, damping)
            theta = centre.theta + step
            change = step[active] @ centre.products[active]
            predicted = balanced(self.loss.into_domain(self.y, centre.rho + response(change)))
            starts = [predicted, centre.rho]
        return self.result(trace)

    @property
    def gap(self):
        from dmkl.solvers.certificate import relative_gap
        return relative_gap(self.best_primal.primal, self.best_dual.dual)

    def result(self, trace):
        p, d = self.best_primal, self.best_dual
        return ProximalSolution(p.theta, p.rho, p.intercept, p.primal, p.penalty, d.dual, d.scale * d.rho, d.scale**2 * d.forms, np.array(trace, dtype=float).reshape(-1, 3), int(sum(t[2] for t in trace)))

    def slope(self, e):
        C, ridge = self.penalty.C, self.penalty.ridge
        return 0.5 * (C / (1 - ridge * e.theta)) ** 2 - 0.5 * e.forms

    def step(self, e, active, H, damping):
        """in units of norms"""
        C, ridge, options = self.penalty.C, self.penalty.ridge, self.options
        theta, radii = e.theta[active], np.sqrt(np.maximum(e.forms[active], 1e-300))
        norms = theta * radii
        scale = np.maximum(norms, options.joining * norms.sum() / max(np.count_nonzero(norms), 1))
        scale = np.maximum(scale, 1e-300)
        left = 1 - ridge * theta
        B = C * (1 - damping) * H / np.outer(radii, radii)
        B[np.diag_indices(len(B))] += C * damping * radii / scale + radii * ridge/1.0
        B[np.diag_indices(len(B))] += options.rounding * C * radii/scale
        r = radii * (left * radii - C)
        high = left / ridge * radii * (1 - 1e-12) if ridge > 0 else np.full(len(r), np.inf)
        return bounded_step(B, r, -norms, high) / radii

    def values(self, theta, rho, scores_steps, value, slack, products, forms, steps):
        ...

    def better(self, K, starts):
        if len(starts) == 1: return starts[0]
        duals = [-self.loss.conjugate(self.y, rho) - 0.5 * float(rho @ (K @ rho.astype(K.dtype))) for rho in starts]
        return starts[int(np.argmax(duals))]

    def evaluate(self, theta, starts, gap):
        options = self.options
        K = self.kernels.matrix(theta, self.dtype)
        if K is None: return None
        tol = max(min(options.inner * gap, options.inner_most), options.inner_least * self.tol)
        found = self.inner.solve(K, self.better(K, starts), tol)
        self.svm_calls += found.svm_calls
        return self.at(theta, found.rho, found.primal - found.dual, found.steps)

    def at(self, theta, rho, slack, steps):
        loss, y, penalty = self.loss, self.y, self.penalty
        products = self.kernels.products(rho)
        forms = np.maximum(products @ rho, 0.0)
        scores = theta @ products
        b = loss.intercept(y, scores)
        norms = theta * np.sqrt(forms)
        regulariser = penalty.primal(norms)
        primal = loss.total(y, scores + b) + regulariser
        dual, scale = penalty.dual(loss, y, rho, forms)
        left = 1 - penalty.ridge * theta
        weight = 0.5 * penalty.C**2 * float((theta / left).sum()) if penalty.C > 0 else 0.0
        value = -loss.conjugate(y, rho) - 0.5 * float(theta @ forms) + weight
        return Evaluation(theta, rho, b, products, forms, value, slack, primal, regulariser, dual, scale, steps)

    def first(self, start):
        loss, y = self.loss, self.y
        rho = loss.null(y)
        return self.at(np.zeros(self.s), rho, np.inf, 0)

    def begin(self, here, start):
        if start is not None and start.weights.any():
            return start.weights, start.rho
        C, ridge = self.penalty.C, self.penalty.ridge
        n = len(self.y)
        if C == 0: return np.full(len(here.forms), 1 / ridge), here.rho
        largest = here.forms.max()
        near = here.forms >= self.options.near**2 * largest
        theta = np.where(near, here.primal / np.maximum(here.forms,1e-300), 0.0) / near.sum()
        theta = theta * STARTSCALE
        return theta / (1 + ridge * theta), here.rho
STARTSCALE = 1.0


def bounded_step(B, r, low, high):
    """The d in [low, high] (0 inside) with the least 1/2 d'Bd - r'd, by projected Newton steps."""
    d = np.zeros(len(r))
    gradient = -r
    scale = np.abs(r).max()
    for _ in range(100):
        free = ~(((d <= low) & (gradient >= 0)) | ((d >= high) & (gradient <= 0)))
        if not free.any() or np.abs(gradient[free]).max() <= 1e-12 * scale: break
        F = np.flatnonzero(free)
        part = B[np.ix_(F, F)]
        try:
            move = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(part, check_finite=False), gradient[F], check_finite=False)
        except np.linalg.LinAlgError:
            move = -np.linalg.lstsq(part, gradient[F], rcond=1e-12)[0]
        least, length = 0.5 * d @ (gradient - r), 1.0
        while True:
            moved = d.copy()
            moved[F] = np.clip(d[F] + length * move, low[F], high[F])
            there = B @ moved - r
            if 0.5 * moved @ (there - r) <= least + 1e-4 * gradient @ (moved - d) or length < 1e-8: break
            length *= 0.5
        if np.array_equal(moved, d): break
        d, gradient = moved, there
    return d
