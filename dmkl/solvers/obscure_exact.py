"""Stage 3 (not in the paper): the whole problem on a working set, to any gap, by a bundle of dual points.

A step solves the SVM of the kernel sum_a u_a K_a, adds its B to those found before, and takes their best mixture: its
value is a lower bound of the whole problem, its kernel weights are the next u. Any p takes some 3 to 13 steps; the gap
falls by about ten in each.

The SVM, for one fixed kernel:

    max  sum_i b_i - 1/2 tr B' K B,     every row of B in its dual set (see `dmkl.problems.obscure_terms`)

With hinges every column of B is a machine of its own, solved by `smo`; with a loss of the table a problem of its own,
solved by the method of `one_kernel` without an intercept; with the softmax loss by `multiclass_logistic`. With the
multiclass loss it is solved by dual coordinate ascent: the problem of a row is solved exactly, by a projection on a
simplex (Crammer and Singer 2001). Scores F = (K B)' are kept for all rows, so looking at a row costs m and changing it
m vectors at most. Where that is slow, by a forecast of what is left, an interior point method goes on
(`multiclass_svm`).

The mixture: the rows of sum_c g_c B_c are in their sets if those of all B_c are, so

    max over the simplex of g    b'g - 1/2 || (g' M_a g)_a ||_h      M_a[c, d] = tr B_c' K_a B_d,   h = q / 2

is a lower bound. At the maximum let u_a = (D_a / ||D||_h)^(h - 1). There max_g b'g - 1/2 sum_a u_a g' M_a g, which is a
model of the bound, is smallest, as in a bundle method whose cuts know their curvature; so the next SVM is solved there.
The mixture has a handful of variables and is found by an interior point method. h is raised to its value in stages,
because near p = 1 it is in the hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.jit import jit
from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.oracles import ORACLES
from dmkl.problems.losses import Loss
from dmkl.problems.obscure_terms import ColumnLoss, PNorm, RowLoss, SoftmaxLoss, onto_simplex, weigh
from dmkl.solvers.automatic import Forecast, ForecastOptions
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.multiclass_logistic import solve_logistic
from dmkl.solvers.multiclass_svm import solve_multiclass
from dmkl.solvers.obscure_kernel_values import KernelBlock
from dmkl.solvers.one_kernel import OneKernel, solver_of


@dataclass(frozen=True)
class ExactOptions:
    """Constants of the exact stage."""

    steps: int = 60  # SVMs in one call at most,
    patience: int = 5  # and so many in a row that gain nothing
    sweeps: int = 3000  # over the rows in one SVM at most
    svm_share: float = 0.1  # the tolerance of an SVM as a share of the gap so far,
    last_share: float = 0.3  # and of the gap to be reached when it may be the last one
    mixture_share: float = 0.03  # the tolerance of a mixture as a share of the gap,
    loosest_mixture: float = 1e-3  # at most,
    tightest_mixture: float = 1e-13  # and at least
    # the interior point method goes on where it costs less than the sweeps that are left (seconds, times)
    interior: float = 6e-10  # (m + 1) n^3
    row: tuple[float, ...] = (2e-8, 1e-10)  # m of a row, n m of a row that moves
    most_factored: float = 2e8  # numbers that its factors may have,
    factored_share: float = 0.2  # its tolerance as a share of the SVM's,
    repairs: int = 60  # and sweeps over its point at most, which is not exact where the kernel is ill-conditioned
    rows_at_once: int = 256  # of a product with the kernel
    entries: int = 100_000_000  # of scores that a sweep changes between two questions whether to stop, at most


@dataclass(frozen=True)
class MixtureOptions:
    """Constants of the interior point method for the best mixture."""

    newton_steps: int = 40
    centred: float = 1e-3  # a Newton decrement below this share of the barrier's weight ends a stage
    fall: float = 0.2  # factor of the barrier's weight from stage to stage
    early_tol: float = 1e-3  # the tolerance of stages with a smaller h
    inside: float = 0.95  # share of the way to the boundary that a step goes at most
    negligible: float = 1e-5  # points with less than this share of the largest share leave the bundle
    first_barrier: float = 0.1  # the barrier's first weight, relative to the largest b
    first_h: float = 2.0  # the first h, which is then doubled
    least_form: float = 1e-16  # D of a mixture, as a share of the largest crossed form


OPTIONS = ExactOptions()
MIXTURE = MixtureOptions()
SWEEPS = ForecastOptions(first=40)  # the gap of the first ones rises and falls
IDLE = 1e-15  # a change of a coefficient by this share of C is rounding; a constant because it is compiled


@dataclass(frozen=True)
class ExactSolution:
    """The best function found, w_a = weights_a sum_i B_i phi_a(x_i), and a lower bound with its dual point."""

    weights: Float64  # (s,)
    B: Float64  # (w, m)
    square: float  # ||w||^2
    primal: float
    dual: float
    proof: Float64  # (w, m): the dual point with this bound
    svms: int
    sweeps: int


def solve_exact(
    block: KernelBlock,
    loss: RowLoss,
    norm: PNorm,
    tol: float,
    start: Float64,
    weights: Float64,
    rng: np.random.Generator,
    threads: int = 1,
) -> ExactSolution:
    """Minimise 1/2 ||w||_{2,p}^2 + C sum loss over the samples of a block.

    Parameters
    ----------
    block : KernelBlock
        The kernels on w samples.
    loss : RowLoss
        The loss of these samples.
    norm : PNorm
    tol : float
        The relative gap to be reached.
    start : array (w, m)
        A feasible dual point.
    weights : array (s,)
        Kernel weights of the first SVM if the start is zero.
    rng : numpy.random.Generator
        For the order of the rows.
    threads : int
        Threads for factorisations.

    Returns
    -------
    ExactSolution
    """
    bundle, B, gap, sweeps = _DualBundle(block, loss, norm), start.copy(), 1.0, 0
    best, svms, idle = ExactSolution(weights, B, 0.0, np.inf, -np.inf, B, 0, 0), 0, 0
    columns = _column_solvers(loss, threads) if isinstance(loss, ColumnLoss) else []
    if B.any():
        bundle.add(B)
        weights = bundle.mixture(OPTIONS.mixture_share)[0].weights
    while svms < OPTIONS.steps and idle < OPTIONS.patience:
        svms += 1
        K = block.combined(weights)
        # the SVM of what may be the last step has to leave room for the mixture's own share
        last = OPTIONS.svm_share * gap < 2 * tol
        exact = OPTIONS.last_share * tol if last else OPTIONS.svm_share * gap
        scores, used = _solve_svm(K, loss, columns, B, exact, rng)
        sweeps += used
        forms = bundle.add(B)
        square = norm.primal(weights * np.sqrt(forms)) ** 2
        primal = loss.primal(square, scores)
        if primal < best.primal:
            best = replace(best, weights=weights, B=B.copy(), square=square, primal=primal)
        loosest = min(OPTIONS.mixture_share * gap, OPTIONS.loosest_mixture)
        mixture, mixed = bundle.mixture(max(loosest, OPTIONS.tightest_mixture))
        if mixture.value > best.dual:
            best = replace(best, dual=mixture.value, proof=mixed)
        before, gap = gap, relative_gap(best.primal, best.dual)
        idle = 0 if gap < before else idle + 1
        if gap <= tol or must_stop():
            break
        B, weights = mixed.copy(), mixture.weights
    return replace(best, svms=svms, sweeps=sweeps)


# the SVM of one kernel


def _column_solvers(loss: ColumnLoss, threads: int) -> list[OneKernel]:
    """What solves the problem of each column."""
    solvers = [solver_of(*loss.column(r), threads, intercept=False) for r in range(loss.Y.shape[1])]
    found = [solver for solver in solvers if solver is not None]
    assert len(found) == len(solvers)  # `solves` was asked
    return found


def solves(loss: Loss) -> bool:
    """Whether there is a method for the columns of a loss."""
    return solver_of(loss, np.array([1.0, -1.0]), 1, intercept=False) is not None


def _solve_svm(
    K: FloatArray, loss: RowLoss, columns: list[OneKernel], B: Float64, tol: float, rng: np.random.Generator
) -> tuple[Float64, int]:
    """Improve B in place until the gap at this kernel is small; its scores (n, m) and the number of sweeps."""
    if isinstance(loss, SoftmaxLoss):
        B[:], scores = solve_logistic(K, loss, B, tol)
        return scores, 0
    if loss.multiclass:
        return _ascended(K, loss, B, tol, rng)
    scores = np.empty_like(B)
    if columns:
        for r, column in enumerate(columns):
            solved = column.solve(K, [np.ascontiguousarray(B[:, r])], tol)
            B[:, r], scores[:, r] = solved.rho, solved.scores
        return scores, 0
    kernel = ORACLES["smo"].prepare(K)
    for r, y in enumerate(np.ascontiguousarray(loss.Y.T)):
        alpha = np.clip(B[:, r] * y, 0.0, loss.C)
        found = ORACLES["smo"](kernel, y, loss.C, intercept=False, alpha=alpha, tol=tol)
        B[:, r], scores[:, r] = found.alpha * y, found.scores
    return scores, 0


def _ascended(K: FloatArray, loss: RowLoss, B: Float64, tol: float, rng: np.random.Generator) -> tuple[Float64, int]:
    """The same by dual coordinate ascent."""
    n, m = B.shape
    support = np.flatnonzero(B.any(axis=1))
    F = np.zeros((m, n))  # (K B)' in float64 whatever the type of K, a few rows at a time
    if len(support):
        for start in range(0, n, OPTIONS.rows_at_once):
            rows = slice(start, start + OPTIONS.rows_at_once)
            F[:, rows] = (K[rows][:, support].astype(np.float64) @ B[support]).T

    def gap_of(B: Float64, F: Float64) -> float:
        square = float((B * F.T).sum())
        primal = loss.primal(square, F.T)
        return (primal - loss.gain(B) + 0.5 * square) / abs(primal)

    row, moving = OPTIONS.row
    forecast = Forecast(tol, lambda moved: m * n * (row + moving * moved), SWEEPS)
    interior = OPTIONS.interior * (m + 1) * n**3 if n * B.size <= OPTIONS.most_factored else np.inf
    central: tuple[float, Float64, Float64] | None = None  # the point of the interior point method, and its gap
    sweeps, most, portion = 0, OPTIONS.sweeps, max(OPTIONS.entries // B.size, 1)
    while sweeps < most:
        sweeps += 1
        order, moved = rng.permutation(n), 0
        for start in range(0, n, portion):  # compiled code cannot be asked to stop
            moved += ascend(K, loss.labels, loss.C, order[start : start + portion], B, F)
            if must_stop():
                break
        gap = gap_of(B, F)
        if gap <= tol or not moved or must_stop():
            break
        forecast.add(gap, moved)
        if central is None and forecast.left > interior:
            found = loss.nearest(solve_multiclass(K, loss.labels, m, loss.C, OPTIONS.factored_share * tol))
            scores = found.T @ K
            central = gap_of(found, scores), found, scores
            if central[0] <= tol:
                break
            if central[0] < gap:
                B[:], F[:] = found, scores
            most = sweeps + OPTIONS.repairs
    if central is not None and central[0] < gap_of(B, F):
        B[:], F[:] = central[1:]
    return np.ascontiguousarray(F.T), sweeps


@jit(fastmath={"reassoc", "contract"})
def ascend(K: FloatArray, labels: Samples, C: float, order: Samples, B: Float64, F: Float64) -> int:
    """One exact step on each row of `order`; B (n, m) and F (m, n) are changed. Returns how many rows moved."""
    n, m = B.shape
    v, new, scores, moved = np.empty(m), np.empty(m), np.empty(m), 0
    for i in order:
        own = max(np.float64(K[i, i]), 1e-300)
        for r in range(m):
            scores[r] = F[r, i]
        best_row(B[i], scores, own, labels[i], C, v, new)
        changed = False
        for r in range(m):
            step = new[r] - B[i, r]
            if abs(step) > IDLE * C:
                changed = True
                B[i, r] = new[r]
                for j in range(n):
                    F[r, j] += step * K[i, j]
        moved += changed
    return moved


@jit()
def best_row(old: Float64, scores: Float64, own: float, label: int, C: float, v: Float64, out: Float64) -> None:
    """Write the best row given all others to `out`; `own` is K_ii, `label` the class."""
    m = old.shape[0]
    for r in range(m):
        v[r] = scores[r] / own - old[r]
    v[label] += C - 1.0 / own
    onto_simplex(v, C, out)
    for r in range(m):
        out[r] = -out[r]
    out[label] += C


# the bundle and its best mixture


class _DualBundle:
    """The dual points found so far, with their crossed forms M[a, c, d] = tr B_c' K_a B_d."""

    def __init__(self, block: KernelBlock, loss: RowLoss, norm: PNorm) -> None:
        self._block, self._loss, self._norm = block, loss, norm
        self.points: list[Float64] = []
        self._gains: list[float] = []
        self._M = np.empty((0, 0, 0))

    def add(self, B: Float64) -> Float64:
        """Add one more point; returns its forms (s,)."""
        self.points.append(B.copy())
        self._gains.append(self._loss.gain(B))
        crossed = self._block.crossed(self.points, B)
        k, s = len(self.points), len(crossed)
        grown = np.empty((s, k, k))
        grown[:, : k - 1, : k - 1] = self._M if k > 1 else 0.0
        grown[:, :, -1] = grown[:, -1, :] = crossed
        self._M = grown
        return np.maximum(crossed[:, -1], 0.0)

    def mixture(self, tol: float) -> tuple[Mixture, Float64]:
        """The best mixture and its point; points without a share in it leave, except for the last one."""
        found = best_mixture(np.array(self._gains), self._M, self._norm.q, tol)
        B = sum((share * point for share, point in zip(found.shares, self.points, strict=True)), start=0.0)
        if self._loss.curved:  # the gain of the mixture is more than the mixture of the gains
            more = self._loss.gain(np.asarray(B)) - float(np.array(self._gains) @ found.shares)
            found = replace(found, value=found.value + more)
        kept = np.flatnonzero(found.shares > MIXTURE.negligible * found.shares.max())
        kept = np.union1d(kept, [len(self.points) - 1])
        self.points = [self.points[c] for c in kept]
        self._gains = [self._gains[c] for c in kept]
        self._M = self._M[:, kept][:, :, kept]
        return found, np.asarray(B)


@dataclass(frozen=True)
class Mixture:
    """A mixture of dual points: their shares, its lower bound, and the kernel weights there."""

    shares: Float64
    value: float
    weights: Float64


def best_mixture(b: Float64, M: Float64, q: float, tol: float) -> Mixture:
    """Maximise b'g - 1/2 || (g' M_a g)_a ||_{q/2} over the simplex.

    Parameters
    ----------
    b : array (k,)
        The gains of k points.
    M : array (s, k, k)
        Their crossed forms.
    q : float
        The exponent of the dual norm.
    tol : float
        Relative to the largest b.

    Returns
    -------
    Mixture
    """
    k = len(b)
    h, scale = q / 2, max(float(np.abs(b).max()), 1e-300)
    shares, barrier = np.full(k, 1.0 / k), MIXTURE.first_barrier * scale
    for stage in _stages(h):
        enough = tol if stage == h else max(tol, MIXTURE.early_tol)
        while k > 1:
            shares = _centred(b, M, stage, barrier, shares)
            if barrier * k <= enough * scale:
                break
            barrier *= MIXTURE.fall
    forms = np.maximum(np.einsum("c,acd,d->a", shares, M, shares), 0.0)
    weights = np.empty(len(M))
    norm = weigh(forms, q, weights)
    return Mixture(shares, float(b @ shares) - 0.5 * norm**2, weights)


def _stages(h: float) -> list[float]:
    stages = [min(h, MIXTURE.first_h)]
    while stages[-1] < h:
        stages.append(min(2 * stages[-1], h))
    return stages


def _centred(b: Float64, M: Float64, h: float, barrier: float, shares: Float64) -> Float64:
    """Newton's method on the objective plus barrier * sum log g, on sum g = 1."""
    for _ in range(MIXTURE.newton_steps):
        gradient, hessian = _derivatives(b, M, h, shares)
        gradient += barrier / shares
        hessian[np.diag_indices(len(b))] += barrier / shares**2 + 1e-14 * np.trace(hessian) / len(b)
        solved = np.linalg.solve(hessian, np.column_stack([gradient, np.ones(len(b))]))
        step = solved[:, 0] - solved[:, 0].sum() / solved[:, 1].sum() * solved[:, 1]
        decrement = float(gradient @ step)
        if decrement <= MIXTURE.centred * barrier:
            break
        shares = _searched(b, M, h, barrier, shares, step, decrement)
    return shares


def _searched(
    b: Float64, M: Float64, h: float, barrier: float, shares: Float64, step: Float64, decrement: float
) -> Float64:
    """A step along the Newton direction, halved until the objective rises enough."""
    inward = step < 0
    length = min(1.0, MIXTURE.inside * float((-shares[inward] / step[inward]).min())) if inward.any() else 1.0
    start = _value(b, M, h, barrier, shares)
    while length > 1e-12 and _value(b, M, h, barrier, shares + length * step) < start + 1e-4 * length * decrement:
        length *= 0.5
    moved = shares + length * step
    return np.asarray(moved / moved.sum())


def _value(b: Float64, M: Float64, h: float, barrier: float, shares: Float64) -> float:
    forms = np.maximum(np.einsum("c,acd,d->a", shares, M, shares), 0.0)
    norm = weigh(forms, 2 * h, np.empty(len(M)))
    return float(b @ shares) - 0.5 * float(norm) ** 2 + barrier * float(np.log(shares).sum())


def _derivatives(b: Float64, M: Float64, h: float, shares: Float64) -> tuple[Float64, Float64]:
    """The gradient and the negative Hessian of the objective."""
    products = M @ shares
    least = MIXTURE.least_form * np.abs(M).max(axis=(1, 2))  # float32 kernels can be indefinite by their rounding
    forms = np.maximum(np.maximum(products @ shares, least), 1e-300)
    weights = np.empty(len(M))
    norm = float(weigh(forms, 2 * h, weights)) ** 2  # ||D||_h
    slope = weights @ products
    bends = np.exp(np.log(np.maximum(weights, 1e-300)) - np.log(forms))  # D^(h - 2) / ||D||^(h - 1)
    curved = (products.T * bends) @ products - np.outer(slope, slope) / norm
    return b - slope, np.einsum("a,acd->cd", weights, M) + 2 * (h - 1) * curved
