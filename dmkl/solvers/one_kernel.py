"""Any loss on one kernel matrix, with or without an intercept, and how the solution moves with the matrix.

    min_{w, b}  sum_i l(y_i, f_i + b) + 1/2 ||w||^2         f = K rho,   ||w||^2 = rho' K rho
    max_rho     -sum_i l*(y_i, -rho_i) - 1/2 rho' K rho     sum(rho) = 0

Without an intercept b is 0 and rho may have any sum. Any rho in the domain of l*, and of the right sum, is a point of
both problems, so the gap is known. There are two methods. A loss that is piecewise linear (hinge, epsilon, quantiles)
makes this the dual of a support vector machine. Every other loss is solved by Newton's method on the scores: with W the
second derivatives of the loss, a step is a linear system in K + W^-1 on the samples where W is not zero.

The value of the problem as a function of K has second derivatives, too. For K + sum_a t_a K_a and G_a = K_a rho they
are G A^-1 G' within sum(rho) = 0, where A is the matrix of the last Newton step, or K itself on the free samples of the
machine. `OneKernel.curvature` gives them, and `OneKernel.response` tells how rho moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.oracles import ORACLES
from dmkl.problems.losses import Loss, balanced
from dmkl.solvers.box_qp import Box, BoxQp
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.cholesky import Cholesky


@dataclass(frozen=True)
class OneKernelOptions:
    """Constants of both methods."""

    steps: int = 100  # of Newton's method, at most
    stalled: int = 4  # steps that do not shrink the gap, before Newton's method gives up
    shortest: float = 1e-6  # step of Newton's method
    direct: int = 500  # samples: up to here every system is factored anew
    products: float = 0.002  # products for each sample that cost as much as half a factorisation
    system: float = 1e-2  # relative residual of a Newton system
    rough: float = 0.1  # of the systems that second derivatives need
    flat: float = 0.2  # the share of the slope that may be left at the end of a step
    jitter: float = 1e-12  # of the mean diagonal: kernels are semidefinite only up to rounding
    jitter_growth: float = 100.0
    free: float = 1e-8  # of its range: a rho nearer to a bound is at the bound
    ridge: float = 1e-8  # of the mean diagonal, for free samples that are duplicates
    ridge32: float = 1e-5  # in float32
    pairs: int = 20_000  # steps of SMO, and
    pairs_share: float = 0.125  # of n^2 more of them, take as long as interior points
    turns: int = 30  # of samples from one side of a kink to the other, at most


OPTIONS = OneKernelOptions()


@dataclass(frozen=True)
class OneKernelSolution:
    """A feasible rho and what is known at it."""

    rho: Float64
    scores: Float64  # K rho
    intercept: float
    primal: float
    dual: float
    steps: int = 0  # of Newton's method
    svm_calls: int = 0

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.dual)


class OneKernel(Protocol):
    """Solves the problem for one matrix after the other, each from the last one's rho."""

    unique: bool  # whether there is one optimal rho

    def solve(self, K: FloatArray, starts: Sequence[Float64], tol: float) -> OneKernelSolution:
        """From the best of some feasible points to a relative gap of `tol`, or as far as rounding allows."""

    def curvature(self, G: Float64) -> Float64:
        """(k, k): the second derivatives of the value along matrices with G (k, n), their products with rho."""

    def response(self, change: Float64) -> Float64:
        """(n,): to first order, how rho moves where the matrix's product with the old rho changes by this."""


def solver_of(loss: Loss, y: Float64, threads: int, *, intercept: bool = True) -> OneKernel | None:
    """The method for a loss; None for one with curvature and kinks inside its domain."""
    shape = Shape.of(loss, y)
    if shape is None:
        return None
    if shape.curved:
        return NewtonMethod(loss, y, shape, threads, intercept=intercept)
    return MachineMethod(loss, y, shape, threads, intercept=intercept)


@dataclass(frozen=True)
class Fitted:
    """A loss with its targets, and whether there is an intercept."""

    loss: Loss
    y: Float64
    intercept: bool

    def best_intercept(self, scores: Float64) -> float:
        """The intercept that is best at these scores, or 0."""
        return self.loss.intercept(self.y, scores) if self.intercept else 0.0

    def balanced(self, rho: Float64) -> Float64:
        """rho with the sum that it has to have."""
        return balanced(rho) if self.intercept else rho

    def within(self, solve: Callable[[Float64], Float64], right: Float64) -> Float64:
        """The solution x (n, k) of A x = right - 1 d, with the d for which it sums to zero where it has to."""
        if not self.intercept:
            return solve(right)
        solved = solve(np.column_stack([right, np.ones(len(right))]))
        x, one = solved[:, :-1], solved[:, -1]
        return np.asarray(x - np.outer(one, x.sum(axis=0) / max(float(one.sum()), 1e-300)))

    def certified(self, rho: Float64, scores: Float64) -> OneKernelSolution:
        """Both values at a feasible rho with these products."""
        b, norm = self.best_intercept(scores), 0.5 * float(rho @ scores)
        primal = self.loss.total(self.y, scores + b) + norm
        return OneKernelSolution(rho, scores, b, primal, -self.loss.conjugate(self.y, rho) - norm)


@dataclass(frozen=True)
class Shape:
    """l*(y, -rho) = smooth part + below [-rho]+ + above [rho]+ on low <= rho <= high, as the slacks of a loss say."""

    curved: bool  # whether the smooth part has second derivatives; it is -pull rho if not
    box: Box

    @classmethod
    def of(cls, loss: Loss, y: Float64) -> Shape | None:
        """None for any other shape. A slack t adds the largest -(cost + sign rho) t over its range."""
        smooth = loss.smooth(y, loss.into_domain(y, loss.null(y)))
        if smooth is None:
            return None
        low, high = np.full(len(y), -np.inf), np.full(len(y), np.inf)
        below, above = np.zeros((2, len(y)))
        for slack in loss.slacks(y):
            size, up = np.abs(slack.sign), slack.sign > 0
            if np.isfinite(slack.low) and np.isfinite(slack.high):
                if np.any(slack.cost) or slack.low > 0 or slack.high < 0:
                    return None  # a kink elsewhere than at zero
                above += size * np.where(up, -slack.low, slack.high)
                below += size * np.where(up, slack.high, -slack.low)
            elif (slack.low, slack.high) == (0.0, np.inf):
                low = np.where(up, np.maximum(low, -slack.cost / size), low)
                high = np.where(up, high, np.minimum(high, slack.cost / size))
            else:
                return None
        curved = bool((smooth.curvature > 0).all())
        kinks = below.any() or above.any()
        bounded = np.isfinite(low).all() and np.isfinite(high).all() and (low <= 0).all() and (high >= 0).all()
        if (kinks and curved) or not (curved or (bounded and not smooth.curvature.any())):
            return None
        return cls(curved, Box(-smooth.gradient, low, high, below, above))


class System:
    """(K + W^-1) x = right for one K and W after the other.

    The factor of an earlier matrix is the preconditioner of conjugate gradients, as long as these take fewer products
    than half a factorisation costs.
    """

    def __init__(self, threads: int, options: OneKernelOptions) -> None:
        self._threads, self._options = threads, options
        self._factor: Cholesky | None = None
        self._exact = False  # whether the factor is that of K and W, but for rounding
        self._K: FloatArray = np.empty((0, 0))
        self._w: Float64 = np.empty(0)

    def set(self, K: FloatArray, w: Float64) -> None:
        """The matrix of the next systems."""
        old, self._K, self._w = self._factor, K, w
        self._exact = False
        few = len(w) <= self._options.direct
        if old is None or few or old.dtype != K.dtype or (w[old.root == 0] > 0).any():
            self._factorise()

    def solve(self, right: Float64, tol: float) -> Float64:
        """x (n, k) to a relative residual of `tol`, or as rounding allows; zero where W is."""
        assert self._factor is not None
        if not self._exact:
            x, solved = self._by_gradients(right, tol)
            if solved:
                return x
            self._factorise()
        return self._factor.solve(right)

    def _factorise(self) -> None:
        """A factor of this very matrix; where rounding made it indefinite, of one with a larger diagonal."""
        least = self._options.jitter * max(float(self._K.diagonal().mean()), 1e-300)
        jitter = 0.0
        while True:
            try:
                self._factor = Cholesky(self._K, self._w / (1.0 + jitter * self._w), self._threads)
            except np.linalg.LinAlgError:
                jitter = max(self._options.jitter_growth * jitter, least)
            else:
                break
        self._exact = True

    def _by_gradients(self, right: Float64, tol: float) -> tuple[Float64, bool]:
        """Conjugate gradients on I + W^1/2 K W^1/2, all columns at once; x, and whether it is as exact as wanted."""
        assert self._factor is not None
        root = np.sqrt(self._w)[:, None]
        away = np.where(root > 0, 1.0 / np.maximum(root, 1e-300), 0.0)
        residual = root * right
        wanted = tol * np.linalg.norm(residual, axis=0)
        z = np.zeros(residual.shape)
        direction = away * self._factor.solve(away * residual)
        size = (residual * direction).sum(axis=0)
        most = 2 + int(self._options.products * len(right))
        for done in range(1, most + 1):
            image = direction + root * (self._K @ (root * direction).astype(self._K.dtype))
            curvature = (direction * image).sum(axis=0)
            length = np.where(curvature > 0, size / np.maximum(curvature, 1e-300), 0.0)
            z += length * direction
            residual = residual - length * image
            left = np.linalg.norm(residual, axis=0)
            if (left <= wanted).all():
                return root * z, True
            if done >= 3 and (left > wanted * tol ** (done / most - 1.0)).any():  # at this rate it takes too many
                break
            scaled = away * self._factor.solve(away * residual)
            before, size = size, (residual * scaled).sum(axis=0)
            direction = scaled + np.where(before > 0, size / np.maximum(before, 1e-300), 0.0) * direction
        return root * z, False


class NewtonMethod:
    """A smooth loss, or one whose slope has ends (Huber's), by Newton's method on the scores.

    At the scores f + b the loss has the slopes s and the second derivatives W. The coefficients of the next scores are
    s - A^-1 (K s - f + d), A = K + W^-1, with the d for which they sum to zero.
    """

    unique = True

    def __init__(
        self,
        loss: Loss,
        y: Float64,
        shape: Shape,
        threads: int,
        options: OneKernelOptions = OPTIONS,
        *,
        intercept: bool = True,
    ) -> None:
        self._loss, self._y, self._shape, self._options = loss, y, shape, options
        self._fitted = Fitted(loss, y, intercept)
        self._system = System(threads, options)

    def solve(self, K: FloatArray, starts: Sequence[Float64], tol: float) -> OneKernelSolution:
        loss, y, options = self._loss, self._y, self._options
        with np.errstate(over="ignore", invalid="ignore"):  # a start may be far off
            rho, scores = min((self._shrunk(rho, _product(K, rho)) for rho in starts), key=lambda start: start[0])[1:]
        best: OneKernelSolution | None = None
        steps = 0
        while True:
            b = self._fitted.best_intercept(scores)
            slopes = self._fitted.balanced(loss.slopes(y, scores + b))
            here = self._certified(K, rho, scores, slopes)
            best = here if best is None or here.gap < best.gap else best
            if (best.gap <= tol and steps) or steps >= options.steps or must_stop():
                break
            steps += 1
            change = self._step(K, self._curvature(slopes), slopes - rho)
            turned = _product(K, change)
            length = self._length(rho, scores, change, turned, float((rho - slopes) @ turned))
            if length == 0.0:
                break
            rho, scores = rho + length * change, scores + length * turned
        return replace(best, steps=steps)

    def _shrunk(self, rho: Float64, scores: Float64) -> tuple[float, Float64, Float64]:
        """The primal value, rho and its scores, or of the multiple that is better: K may have been much smaller."""
        loss, y, norm = self._loss, self._y, 0.5 * float(rho @ scores)
        best, share = np.inf, 1.0
        while True:
            b = self._fitted.best_intercept(share * scores)
            value = loss.total(y, share * scores + b) + share**2 * norm
            if not value < best:
                return best, 2.0 * share * rho, 2.0 * share * scores
            best, share = value, 0.5 * share

    def _step(self, K: FloatArray, curvature: Float64, toward: Float64) -> Float64:
        """d with d = toward - W (K d - shift) and, with an intercept, the sum of `toward`, which is near 0."""
        self._system.set(K, curvature)
        ended = np.where(curvature > 0, 0.0, toward)
        right = np.where(curvature > 0, toward / np.maximum(curvature, 1e-300), 0.0)
        if ended.any():
            right -= _product(K, ended)
        if not self._fitted.intercept:
            return ended + self._system.solve(right[:, None], self._options.system)[:, 0]
        found, one = self._system.solve(np.column_stack([right, np.ones(len(right))]), self._options.system).T
        change = ended + found
        return np.asarray(change - (change.sum() - toward.sum()) / max(float(one.sum()), 1e-300) * one)

    def curvature(self, G: Float64) -> Float64:
        H = G @ self._projected(G.T, self._options.rough)
        return np.asarray(0.5 * (H + H.T))

    def response(self, change: Float64) -> Float64:
        return -self._projected(change[:, None], self._options.rough)[:, 0]

    def _projected(self, right: Float64, tol: float) -> Float64:
        """A^-1 right, within sum(rho) = 0 with an intercept."""
        return self._fitted.within(lambda columns: self._system.solve(columns, tol), right)

    def _curvature(self, slopes: Float64) -> Float64:
        """W at the scores with these slopes: zero at the ends of the slope's range."""
        loss, y = self._loss, self._y
        smooth = loss.smooth(y, loss.into_domain(y, slopes))
        assert smooth is not None
        inside = (self._shape.box.low < slopes) & (slopes < self._shape.box.high)
        return np.where(inside, 1.0 / smooth.curvature, 0.0)

    def _certified(self, K: FloatArray, rho: Float64, scores: Float64, slopes: Float64) -> OneKernelSolution:
        """The values at rho, with the slopes in place of coefficients that are outside the domain."""
        loss, y = self._loss, self._y
        nearest = loss.into_domain(y, rho)
        feasible = self._fitted.balanced(np.where(nearest == rho, rho, slopes))
        if not np.array_equal(feasible, rho):
            scores = _product(K, feasible)
        return self._fitted.certified(feasible, scores)

    def _length(self, rho: Float64, scores: Float64, change: Float64, turned: Float64, slope: float) -> float:
        """The length, at most 1, at which the primal value along a step is nearly least; 0 if there is none."""
        loss, y = self._loss, self._y

        def slope_at(length: float) -> float:
            moved = scores + length * turned
            slopes = loss.slopes(y, moved + self._fitted.best_intercept(moved))
            return float((rho + length * change - slopes) @ turned)

        low, high, length = 0.0, 1.0, 1.0
        least, most = slope, slope_at(1.0)
        if not slope < 0.0:
            return 0.0
        while most > 0.0 and high - low > self._options.shortest:
            length = low + (high - low) * float(np.clip(least / (least - most), 0.1, 0.9))
            here = slope_at(length)
            if here <= 0.0:
                low, least = length, here
                if here >= self._options.flat * slope:
                    break
            else:
                high, most = length, here
        return low if most > 0.0 else high


class MachineMethod:
    """A piecewise linear loss: a support vector machine, by SMO, or where that takes too long by interior points.

    Where rho may have both signs, SMO has each sample on one side of zero and changes sides between machines: with a
    kink at zero it has another slope on each side.
    """

    unique = False

    def __init__(
        self,
        loss: Loss,
        y: Float64,
        shape: Shape,
        threads: int,
        options: OneKernelOptions = OPTIONS,
        *,
        intercept: bool = True,
    ) -> None:
        self._y, self._shape, self._threads, self._options = y, shape, threads, options
        self._fitted = Fitted(loss, y, intercept)
        self._two_sided = (shape.box.low < 0) & (shape.box.high > 0)
        self._slow = False  # whether SMO has taken too long
        self._free: Samples = np.empty(0, np.int64)
        self._factor: Cholesky | None = None

    def solve(self, K: FloatArray, starts: Sequence[Float64], tol: float) -> OneKernelSolution:
        found = None
        if not self._slow:
            found = self._by_pairs(K, starts, tol)
            self._slow = found.gap > tol
        if found is None or self._slow:
            inside = self._inside(K, tol)
            if found is None or inside.gap < found.gap:
                return inside
        self._prepare(K, found.rho)
        return found

    def curvature(self, G: Float64) -> Float64:
        H = G[:, self._free] @ self._projected(G[:, self._free].T)
        return np.asarray(0.5 * (H + H.T))

    def response(self, change: Float64) -> Float64:
        moved = np.zeros(len(change))
        moved[self._free] = -self._projected(change[self._free, None])[:, 0]
        return moved

    def _by_pairs(self, K: FloatArray, starts: Sequence[Float64], tol: float) -> OneKernelSolution:
        fitted, box, options = self._fitted, self._shape.box, self._options
        rho = max(starts, key=lambda rho: fitted.certified(rho, _product(K, rho)).dual) if starts[1:] else starts[0]
        side = np.where(box.high > 0, 1.0, -1.0)
        if self._two_sided.any():
            scores = _product(K, rho)
            toward = np.where(rho != 0, rho, box.pull - scores - fitted.best_intercept(scores))
            side = np.where(self._two_sided, np.where(toward < 0, -1.0, 1.0), side)
        kernel, calls, left = ORACLES["smo"].prepare(K), 0, options.pairs + int(options.pairs_share * len(self._y) ** 2)
        while True:
            upper = np.where(side > 0, box.high, -box.low)
            linear = side * box.pull - np.where(side > 0, box.above, box.below)
            plain = None if (linear == 1.0).all() else linear
            warm = np.maximum(side * rho, 0.0)
            svm = ORACLES["smo"](
                kernel, side, upper, linear=plain, intercept=fitted.intercept, alpha=warm, tol=tol, max_steps=left
            )
            calls, left = calls + 1, left - svm.steps
            rho = svm.alpha * side
            found = replace(fitted.certified(rho, svm.scores), svm_calls=calls)
            rest = box.pull - svm.scores - found.intercept
            other = np.where(side > 0, -rest - box.below, rest - box.above)  # the slope on the other side of zero
            turning = self._two_sided & (rho == 0) & (other > 0)
            if found.gap <= tol or not turning.any() or calls >= options.turns or left <= 0 or must_stop():
                return found
            side = np.where(turning, -side, side)

    def _inside(self, K: FloatArray, tol: float) -> OneKernelSolution:
        fitted, y = self._fitted, self._y
        qp = BoxQp(K, self._shape.box, self._threads, intercept=fitted.intercept)
        nothing = np.zeros(len(y))
        best = [fitted.certified(nothing, nothing)]

        def enough(rho: Float64) -> bool:
            rho = fitted.balanced(fitted.loss.into_domain(y, rho))
            here = fitted.certified(rho, _product(K, rho))
            if here.gap < best[0].gap:
                best[0] = here
            return best[0].gap <= tol

        _, steps = qp.solve(enough)
        self._free, self._factor = np.arange(len(y)), qp.factor
        return replace(best[0], steps=steps)

    def _prepare(self, K: FloatArray, rho: Float64) -> None:
        """The factor of K on the free samples."""
        box, least = self._shape.box, self._options.free * (self._shape.box.high - self._shape.box.low)
        inside = (rho > box.low + least) & (rho < box.high - least) & (np.abs(rho) > least)
        free = self._free = np.flatnonzero(inside)
        self._factor = None
        part = K[free[:, None], free]
        if len(free) > 1 and part.diagonal().any():
            share = self._options.ridge if K.dtype == np.float64 else self._options.ridge32
            ridge = share * float(part.diagonal().mean())
            while self._factor is None:
                try:
                    self._factor = Cholesky(part, np.full(len(free), 1.0 / ridge), self._threads)
                except np.linalg.LinAlgError:  # float32 values, or many kernels in the sum: rounding is larger
                    ridge *= RIDGE_GROWTH

    def _projected(self, right: Float64) -> Float64:
        if self._factor is None:
            return np.zeros(right.shape)
        return self._fitted.within(self._factor.solve, right)


RIDGE_GROWTH = 100.0  # of the ridge, where a factorisation failed


def _product(K: FloatArray, vector: Float64) -> Float64:
    return (K @ vector.astype(K.dtype)).astype(np.float64)
