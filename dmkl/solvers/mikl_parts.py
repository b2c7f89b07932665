"""The coefficients and samples of a compact MIKL problem that take part in an interior point solve.

The interior point method (`mikl_interior.py`) pays for every coefficient and sample in every step, but at the optimum
few balls of coefficients have weight, and samples beyond their margin have u = 0. So a compact problem is solved in
parts: some balls against some samples, first an even sample of both, to a gap that need not be small. Each solution
gives margins of all samples and slopes V of all coefficients, so a certificate for the whole, and says what takes part
next: balls whose V comes close to their bound, samples whose margin comes close to 1. How close is close enough falls
with the certified gap. If that has not fallen much, nothing is left out again; so in the end everything takes part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Float64, Mask
from dmkl.problems.norms import TINY, GroupNorm
from dmkl.solvers.mikl_compact import CompactPoint, HeldRows, loss_of, slack, start_at
from dmkl.solvers.mikl_interior import GramForms, RowForms, interior_point, weights_of

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0  # its multiples modulo 1 are spread evenly


@dataclass(frozen=True)
class PartOptions:
    """Constants of the parts."""

    samples: int = 500  # in the first part, half of them of either sign if there are as many
    rows: int = 2  # in the first part, for every sample
    balls: int = 10  # of whole kernels that take part at least; in the first part one for so many samples
    first_gap: float = 0.1  # of the first part
    share: float = 0.1  # of the certified gap that the next part is solved to
    nearness: float = 0.5  # V at least 1 - this * sqrt(gap) of its bound takes part,
    farthest: float = 0.8  # and at least this share
    growth: float = 2.0  # as many times the present size may join
    progress: float = 0.7  # of the gap: if a part does not reduce it to this share, nothing is left out
    smaller: float = 0.3  # of the gap of the last part, after a part without progress
    stalled: int = 3  # parts without progress that end the method once everything takes part
    most: int = 60  # parts
    cuts: tuple[float, ...] = tuple(float(10.0**-e) for e in np.arange(1.0, 8.1, 0.5))  # of the largest ball's size
    copies: int = 2  # arrays of the size of a part,
    matrices: int = 4  # and of its samples squared, that a step allocates
    own_share: float = 0.5  # of the tolerance for the last part; setting small coefficients to 0 may take the rest


OPTIONS = PartOptions()


def solve_in_parts(rows: HeldRows, norm: GroupNorm, point: CompactPoint, tol: float) -> CompactPoint:
    """Reduce the relative gap to `tol`; the result has a larger one where rounding or memory allow no more.

    Parameters
    ----------
    rows : HeldRows
        The kernel values of the compact problem.
    norm : GroupNorm
        Its regulariser.
    point : CompactPoint
        Where to start.
    tol : float

    Returns
    -------
    CompactPoint
    """
    parts = Parts(rows, norm)
    u = 2.0 * slack(point.margins)
    V = rows.slopes(u)
    point = point.with_bound(norm, u, V)
    if point.gap <= tol:
        return point
    start: Float64 | None = None
    if point.alpha.any():
        parts.choose(V, point, certified=point.gap, keep=False)
        start = u
    else:
        parts.sample()
    gap, stalled = OPTIONS.first_gap, 0
    for _ in range(OPTIONS.most):
        before = point.gap
        gap = max(min(gap, OPTIONS.share * before), OPTIONS.own_share * tol)
        if not parts.fit():
            break
        taking = parts.samples
        found, u = parts.solve(start, point.primal, gap)
        point, u, V = parts.joined(point, found, u)
        if point.gap <= tol:
            return pruned(rows, norm, point, tol)
        progress = point.gap <= OPTIONS.progress * before
        stalled = 0 if progress else stalled + 1
        if must_stop() or (stalled >= OPTIONS.stalled and parts.complete):
            break
        gap = gap if progress else OPTIONS.smaller * gap
        parts.choose(V, replace(point, margins=parts.margins), certified=point.gap, keep=not progress)
        start = np.where(taking, u, 2.0 * slack(parts.margins))
    return point


class Parts:
    """Which balls and samples take part, and the problem over them."""

    def __init__(self, rows: HeldRows, norm: GroupNorm) -> None:
        self._rows, self._norm = rows, norm
        self._grams = rows.grams
        p, n = rows.p, rows.n
        equal = (norm.inner, norm.outer) == (2, 2)
        # the ball of every coefficient
        self._ball = np.zeros(p, dtype=np.int64) if equal else np.arange(p) if norm.inner == 1 else norm.groups
        self._sizes = np.bincount(self._ball, minlength=1 if equal else p if norm.inner == 1 else norm.count)
        self.balls: Mask = self._sizes > 0
        self.samples: Mask = np.ones(n, dtype=bool)
        self.margins = np.zeros(n)  # of the last part's solution

    @property
    def complete(self) -> bool:
        """Whether everything takes part."""
        return bool(self.samples.all() and (self.balls | (self._sizes == 0)).all())

    def sample(self) -> None:
        """Let an even sample of balls and samples take part."""
        y = self._rows.y
        for sign in (-1.0, 1.0):
            mine = np.flatnonzero(y == sign)
            most = max(OPTIONS.samples // 2, OPTIONS.samples * len(mine) // len(y))
            self.samples[mine] = _even(len(mine), most)
        used = np.flatnonzero(self._sizes)
        taking = int(self.samples.sum())
        if self._grams is not None:
            most = max(OPTIONS.balls, taking // OPTIONS.balls)
        else:
            most = OPTIONS.rows * taking * len(used) // max(int(self._sizes.sum()), 1)
        self.balls[:] = False
        self.balls[used] = _even(len(used), max(OPTIONS.balls, most))

    def choose(self, V: Float64, point: CompactPoint, *, certified: float, keep: bool) -> None:
        """Let those take part that are close to their bounds at a point; V = K_y' u; `keep` leaves nobody out."""
        closeness = max(OPTIONS.farthest, 1.0 - OPTIONS.nearness * float(np.sqrt(certified)))
        self.samples = _next(-point.margins, -1.0 / closeness, self.samples, keep)
        nearness = self._nearness(V, point.alpha)
        nearness[self._sizes == 0] = -np.inf
        self.balls = _next(nearness, closeness, self.balls, keep)

    def _nearness(self, V: Float64, alpha: Float64) -> Float64:
        """(balls,): the share of its bound that V has reached."""
        norm = self._norm
        if (norm.inner, norm.outer) == (2, 2):
            return np.ones(1)
        if norm.inner == 2:
            return norm.dual_norms(V) / norm.lam
        if norm.outer == 1:
            return np.abs(V) / norm.lam
        inside = self.balls & (V != 0)
        radii = np.zeros(norm.count)
        np.maximum.at(radii, norm.groups[inside], np.abs(V[inside]))
        largest = norm.dual_norms(V)
        radii = np.where(radii > 0, radii, largest)
        return np.abs(V) / np.maximum(radii, TINY)[norm.groups]

    def fit(self) -> bool:
        """Whether there is memory for the problem over these parts."""
        taking = int(self.samples.sum())
        high = int(self._sizes[self.balls].sum()) if self._grams is None else int(self.balls.sum()) * taking
        return self._rows.has_bytes(8 * taking * (OPTIONS.copies * high + OPTIONS.matrices * taking))

    def solve(self, start: Float64 | None, above: float, gap: float) -> tuple[Float64, Float64]:
        """Coefficients (p,) and the dual point (n,) of the part."""
        rows, norm = self._rows, self._norm
        F, balls = np.flatnonzero(self.samples), np.flatnonzero(self.balls)
        begin = None if start is None else start[F]
        u = np.zeros(rows.n)
        if self._grams is not None:
            forms = GramForms(self._grams.over(balls, F), rows.y[F])
            found = interior_point(forms, weights_of(norm, len(balls)), begin, above, gap)
            u[F] = found.image[-1]
            eta = np.zeros(len(self._sizes))
            eta[balls] = found.eta
            alpha = eta[self._ball] * rows.slopes(u)
        else:
            members = np.flatnonzero(self.balls[self._ball])
            own = np.searchsorted(balls, self._ball[members])
            row_forms = RowForms(rows.part(members, F), own, len(balls), rows.threads)
            found = interior_point(row_forms, weights_of(norm.among(members), len(balls)), begin, above, gap)
            alpha = np.zeros(rows.p)
            alpha[members] = row_forms.each(found.eta) * found.image
        u[F] = found.u
        self.steps = found.steps
        self.end = found.end
        return alpha, u

    def joined(self, point: CompactPoint, alpha: Float64, u: Float64) -> tuple[CompactPoint, Float64, Float64]:
        """The point with the part's solution if it is better, the dual point over all samples and its V."""
        rows, norm = self._rows, self._norm
        self.margins = rows.margins(alpha)
        V = rows.slopes(u)
        primal = loss_of(self.margins) + norm.value(alpha)
        if primal < point.primal:
            point = replace(point, alpha=alpha, margins=self.margins, primal=primal)
        point = replace(point, iterations=point.iterations + self.steps)
        return point.with_bound(norm, u, V), u, V


def _next(closeness: Float64, bound: float, taking: Mask, keep: bool) -> Mask:
    """Those that reach the bound; of those that do not take part yet, the closest, as many as may join."""
    near = closeness >= bound
    joining = np.flatnonzero(near & ~taking)
    most = int(OPTIONS.growth * max(int(taking.sum()), 1))
    if len(joining) > most:
        joining = joining[np.argsort(-closeness[joining], kind="stable")[:most]]
    chosen = taking.copy() if keep else taking & near
    chosen[joining] = True
    if not chosen.any():
        chosen[np.argmax(closeness)] = True
    return chosen


def _even(count: int, most: int) -> Mask:
    """About `most` of so many things, spread evenly in whatever order they are."""
    return np.asarray((np.arange(count) * GOLDEN) % 1.0 < most / max(count, 1))


def pruned(rows: HeldRows, norm: GroupNorm, point: CompactPoint, tol: float) -> CompactPoint:
    """The point with as many small coefficients set to 0 as its gap allows: those of an interior point are all nonzero.

    Small is relative to the largest ball, in its group if a group shares its weights.
    """
    if (norm.inner, norm.outer) == (2, 2):
        return point
    sizes = norm.norms(point.alpha)[norm.groups] if norm.inner == 2 else np.abs(point.alpha)
    largest = np.full(len(sizes), float(sizes.max()))
    if norm.outer == 2:
        most = np.zeros(norm.count)
        np.maximum.at(most, norm.groups, sizes)
        largest = most[norm.groups]
    for cut in OPTIONS.cuts:
        alpha = np.where(sizes >= cut * largest, point.alpha, 0.0)
        fewer = start_at(rows, norm, alpha)
        fewer = replace(point, alpha=alpha, margins=fewer.margins, primal=fewer.primal)
        if fewer.gap <= tol:
            return fewer
    return point
