"""The two terms of Obscure's objective: the (2,p) norm over kernels, and losses of a sample's row of scores.

The norm and its dual are computed in logarithms, because near p = 1 the exponent q is in the hundreds:

    ||w||_{2,p} = (sum_a ||w_a||^p)^(1/p)        q = p / (p - 1)

B holds coefficients and D_a = tr B' K_a B, so that N_a = sqrt(D_a) are the norms of the functions of its kernels. The
half square of the dual norm ||N||_q has the slope u_a N_a with u_a = (N_a / ||N||_q)^(q - 2), and the functions
w_a = u_a sum_i B_i phi_a(x_i) have ||w||_{2,p} = ||N||_q (Lemma 1 of Orabona et al. 2012, where theta = q B).

The loss is the multiclass loss, or hinges summed over the columns (`RowLoss`), or any loss of the table of losses,
summed over the columns (`ColumnLoss`), or the logistic loss of several classes (`SoftmaxLoss`):

    multiclass   [1 - (f_y - max_{r != y} f_r)]+        hinge   sum_r [1 - y_r f_r]+
    softmax      log sum_r exp(f_r) - f_y               others  sum_r l(y_r, f_r)

Dual variables are rows B[i] of a matrix (n, m), each in a set of its own, with a gain b_i that is concave in them:

    multiclass   B[i] <= C e_{y_i}, of sum zero,          b_i = B[i, y_i]
    softmax      the same set,                            b_i = -C sum_r pi_r log pi_r,   B[i] = C (e_{y_i} - pi)
    hinge        0 <= B[i, r] y_ir <= C,                  b_i = sum_r |B[i, r]|
    others       B[i, r] / C in the domain of l*(y, -.)   b_i = -C sum_r l*(y_ir, -B[i, r] / C)

In the units of B, with C = 1 / (lambda n),

    primal / lambda = 1/2 ||w||^2 + C sum loss          dual / lambda = sum b - 1/2 ||B||^2

where ||B|| is the dual norm of the regulariser.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax, xlogy

from dmkl._util.jit import jit
from dmkl._util.types import Float64, Samples
from dmkl.problems.losses import Loss

HINGES = -1  # the label of every sample under a loss of columns
SCALE_BISECTIONS = 40
LARGEST_SCALE = 2.0**100


@jit()
def weigh(forms: Float64, q: float, weights: Float64) -> float:
    """Write u for the forms D to `weights` and return ||N||_q. If all forms are zero, the weights are equal."""
    s = forms.shape[0]
    largest = 0.0
    for a in range(s):
        largest = max(largest, forms[a])
    if largest <= 0.0:
        for a in range(s):
            weights[a] = np.exp(-(q - 2) / q * np.log(s))
        return 0.0
    total = 0.0
    for a in range(s):
        weights[a] = 0.5 * np.log(forms[a] / largest) if forms[a] > 0 else -np.inf
        total += np.exp(q * weights[a])
    shift = np.log(total) / q
    for a in range(s):
        weights[a] = np.exp((q - 2) * (weights[a] - shift)) if q > 2 else 1.0
    return float(np.sqrt(largest) * np.exp(shift))


@dataclass(frozen=True)
class PNorm:
    """The norm with exponent p, 1 < p <= 2."""

    p: float

    @property
    def q(self) -> float:
        """The conjugate exponent p / (p - 1)."""
        return self.p / (self.p - 1)

    def weights(self, forms: Float64) -> Float64:
        """(s,): the kernel weights u that belong to these forms (s,)."""
        weights = np.empty(len(forms))
        weigh(np.ascontiguousarray(forms), self.q, weights)
        return weights

    def dual(self, forms: Float64) -> float:
        """||N||_q of the forms (s,)."""
        return float(weigh(np.ascontiguousarray(forms), self.q, np.empty(len(forms))))

    def primal(self, norms: Float64) -> float:
        """||norms||_p of the norms (s,) of the kernels' functions."""
        largest = float(norms.max())
        return largest * float(((norms / largest) ** self.p).sum() ** (1 / self.p)) if largest > 0 else 0.0


@dataclass(frozen=True)
class RowLoss:
    """The loss with the labels of n samples."""

    Y: Float64  # (n, m): signs -1/+1
    labels: Samples  # (n,): classes, or HINGES
    C: float

    @classmethod
    def of(cls, Y: Float64, multiclass: bool, C: float) -> RowLoss:
        """The loss of these signs. A single column is a hinge in any case: the difference of two classes' functions."""
        labels = Y.argmax(axis=1) if multiclass and Y.shape[1] > 1 else np.full(len(Y), HINGES)
        return cls(Y, labels.astype(np.int64), C)

    def among(self, samples: Samples) -> RowLoss:
        """The loss of some of the samples."""
        return RowLoss(np.ascontiguousarray(self.Y[samples]), self.labels[samples], self.C)

    @property
    def multiclass(self) -> bool:
        return bool(self.labels[0] != HINGES)

    @property
    def sparse(self) -> bool:
        """Whether rows of B are zero for samples that fit well."""
        return True

    @property
    def curved(self) -> bool:
        """Whether B is a function of the scores at the optimum, which `tangent` is."""
        return False

    def margins(self, scores: Float64) -> Float64:
        """The margins in [1 - margin]+ of scores (n, m): (n, 1), or (n, m) for hinges."""
        if not self.multiclass:
            return self.Y * scores
        rows = np.arange(len(scores))
        others = scores.copy()
        others[rows, self.labels] = -np.inf
        return np.asarray(scores[rows, self.labels] - others.max(axis=1))[:, None]

    def gain(self, B: Float64) -> float:
        """sum_i b_i."""
        return float(B[np.arange(len(B)), self.labels].sum() if self.multiclass else (B * self.Y).sum())

    def nearest(self, B: Float64) -> Float64:
        """Every row projected on its dual set."""
        out = np.empty_like(B)
        onto_sets(np.ascontiguousarray(B), self.Y, self.labels, self.C, out)
        return out

    def first_step(self) -> float:
        """A sample's loss over the square of its slope, both at scores of zero: there Polyak's step is this over K."""
        return 0.5 if self.multiclass else 1.0

    def bound(self, B: Float64, square: float) -> float:
        """The lower bound that a feasible B with ||B||^2 = square proves after scaling."""
        return scaled_dual(self.gain(B), square)

    def tangent(self, scores: Float64) -> Float64:
        """The feasible B of a curved loss that belongs to these scores."""
        raise NotImplementedError  # there is no single one

    def primal(self, square: float, scores: Float64) -> float:
        """1/2 square + C sum loss, where `square` is ||w||^2."""
        return 0.5 * square + self.C * float(np.maximum(1.0 - self.margins(scores), 0.0).sum())

    def best_scale(self, square: float, scores: Float64) -> float:
        """The t >= 0 that minimises t^2 / 2 square + C sum [1 - t margin]+."""
        if square <= 0:
            return 1.0
        margins = self.margins(scores).ravel()
        rising = np.sort(margins[margins > 0])[::-1]  # their losses end at 1 / margin, ascending
        always = float(margins[margins <= 0].sum())
        ends = np.append(1.0 / np.maximum(rising, 1e-300), np.inf)
        pull = always + np.append(rising.sum() - np.append(0.0, np.cumsum(rising[:-1])), 0.0)[: len(ends)]
        slopes = ends[:-1] * square - self.C * pull[:-1] if len(rising) else np.empty(0)
        k = int(np.searchsorted(slopes >= 0, True)) if len(slopes) else 0
        lower = float(ends[k - 1]) if k else 0.0
        return float(np.clip(self.C * pull[k] / square, lower, ends[k]))


@dataclass(frozen=True)
class AskedLoss(RowLoss):
    """A loss that compiled code does not know."""

    @abstractmethod
    def slopes(self, scores: Float64) -> Float64:
        """(n, m): minus C times a subgradient in the scores."""

    @abstractmethod
    def pull(self, sample: int, scores: Float64) -> Float64:
        """(m,): minus a subgradient of one sample's loss in its scores, without the C."""

    def tangent(self, scores: Float64) -> Float64:
        return self.nearest(self.slopes(scores))

    def first_step(self) -> float:
        nothing = np.zeros(self.Y.shape)
        square = float(np.square(self.slopes(nothing) / self.C).sum())
        return self.primal(0.0, nothing) / self.C / square if square > 0 else 1.0

    def bound(self, B: Float64, square: float) -> float:
        """The dual sets hold zero, so that all shares of B are feasible; the bound is concave in the share."""

        from scipy.optimize import minimize_scalar  # takes 15 MB, and other formulations need none of it

        def bound_of(share: float) -> float:
            return self.gain(share * B) - 0.5 * share * share * square

        shares = minimize_scalar(lambda share: -bound_of(share), bounds=(0.0, 1.0), method="bounded")
        return max(bound_of(share) for share in (0.0, float(shares.x), 1.0))

    def best_scale(self, square: float, scores: Float64) -> float:
        """By bisection of the slope, which rises with t."""
        if square <= 0:
            return 1.0

        def rises(t: float) -> bool:
            return t * square >= float((self.slopes(t * scores) * scores).sum())

        low, high = 0.5, 1.0
        while not rises(high) and high < LARGEST_SCALE:
            low, high = high, 2.0 * high
        while rises(low) and low > 1.0 / LARGEST_SCALE:
            low, high = 0.5 * low, low
        for _ in range(SCALE_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if rises(middle) else (middle, high)
        return min((1.0, high), key=lambda t: self.primal(t * t * square, t * scores))


@dataclass(frozen=True)
class ColumnLoss(AskedLoss):
    """A loss of the table of losses, summed over the columns of Y, which holds signs or real targets."""

    loss: Loss

    @classmethod
    def made(cls, Y: Float64, loss: Loss, C: float) -> ColumnLoss:
        """C times the sum of this loss over all samples and columns."""
        return cls(Y, np.full(len(Y), HINGES), C, loss)

    def among(self, samples: Samples) -> ColumnLoss:
        return ColumnLoss.made(np.ascontiguousarray(self.Y[samples]), self.loss, self.C)

    @property
    def sparse(self) -> bool:
        return self.loss.sparse

    @property
    def curved(self) -> bool:
        y = self.Y.ravel()
        smooth = self.loss.smooth(y, self.loss.into_domain(y, self.loss.null(y)))
        return smooth is not None and bool((smooth.curvature > 0).all())

    def column(self, r: int) -> tuple[Loss, Float64]:
        """C times the loss, and the targets of a column."""
        return self._counted, np.ascontiguousarray(self.Y[:, r])

    def slopes(self, scores: Float64) -> Float64:
        return self._counted.slopes(self.Y.ravel(), scores.ravel()).reshape(scores.shape)

    def pull(self, sample: int, scores: Float64) -> Float64:
        return self.loss.slopes(self.Y[sample], scores)

    def margins(self, scores: Float64) -> Float64:
        return self.loss.margins(self.Y.ravel(), scores.ravel()).reshape(scores.shape)

    def gain(self, B: Float64) -> float:
        return -self._counted.conjugate(self.Y.ravel(), B.ravel())

    def nearest(self, B: Float64) -> Float64:
        return self._counted.into_domain(self.Y.ravel(), B.ravel()).reshape(B.shape)

    def primal(self, square: float, scores: Float64) -> float:
        return 0.5 * square + self._counted.total(self.Y.ravel(), scores.ravel())

    @property
    def _counted(self) -> Loss:
        return self.loss.counting(self.C)


@dataclass(frozen=True)
class SoftmaxLoss(AskedLoss):
    """The logistic loss of several classes; its dual sets are those of the multiclass loss."""

    @classmethod
    def made(cls, Y: Float64, C: float) -> SoftmaxLoss:
        """C times the sum over all samples, whose signs are Y."""
        return cls(Y, Y.argmax(axis=1).astype(np.int64), C)

    def among(self, samples: Samples) -> SoftmaxLoss:
        return SoftmaxLoss.made(np.ascontiguousarray(self.Y[samples]), self.C)

    @property
    def sparse(self) -> bool:
        return False

    @property
    def curved(self) -> bool:
        return True

    def chances(self, scores: Float64) -> Float64:
        """(n, m): the probabilities of the classes."""
        return np.asarray(softmax(scores, axis=1))

    def slopes(self, scores: Float64) -> Float64:
        return np.asarray(self.C * ((self.Y > 0) - self.chances(scores)))

    def pull(self, sample: int, scores: Float64) -> Float64:
        return np.asarray((self.Y[sample] > 0) - softmax(scores))

    def gain(self, B: Float64) -> float:
        chances = np.maximum((self.Y > 0) - B / self.C, 0.0)
        return -self.C * float(xlogy(chances, chances).sum())

    def primal(self, square: float, scores: Float64) -> float:
        own = scores[np.arange(len(scores)), self.labels]
        return 0.5 * square + self.C * float((logsumexp(scores, axis=1) - own).sum())


def scaled_dual(gain: float, square: float) -> float:
    """max over t in [0, 1] of t gain - t^2 / 2 square: the lower bound that a feasible B proves after scaling."""
    t = min(1.0, max(gain, 0.0) / square) if square > 0 else 1.0
    return t * gain - 0.5 * t * t * square


@jit()
def onto_simplex(v: Float64, total: float, out: Float64) -> None:
    """Write the projection of v on the simplex of this sum to `out`.

    Michelot's algorithm: drop what is negative and project again. Members are only dropped, never added: an entry that
    is zero up to rounding could otherwise come back and leave for ever.
    """
    m = v.shape[0]
    shift, members = -np.inf, m + 1
    while True:
        count, mass = 0, 0.0
        for r in range(m):
            if v[r] > shift:
                count += 1
                mass += v[r]
        if count >= members or count == 0:
            break
        members = count
        shift = (mass - total) / count
    for r in range(m):
        out[r] = max(v[r] - shift, 0.0)


@jit()
def onto_sets(B: Float64, Y: Float64, labels: Samples, C: float, out: Float64) -> None:
    """Write every row of B, projected on its dual set, to `out`."""
    n, m = B.shape
    v = np.empty(m)
    for i in range(n):
        if labels[i] < 0:
            for r in range(m):
                out[i, r] = Y[i, r] * min(max(B[i, r] * Y[i, r], 0.0), C)
            continue
        for r in range(m):
            v[r] = -B[i, r]
        v[labels[i]] += C
        onto_simplex(v, C, out[i])
        for r in range(m):
            out[i, r] = -out[i, r]
        out[i, labels[i]] += C


@jit()
def subgradient(scores: Float64, signs: Float64, label: int, out: Float64) -> float:
    """Write minus a subgradient of one sample's loss in its scores to `out`; return its square, 0 without a loss."""
    m = scores.shape[0]
    square = 0.0
    if label < 0:
        for r in range(m):
            out[r] = signs[r] if signs[r] * scores[r] < 1.0 else 0.0
            square += out[r] * out[r]
        return square
    other = -1
    for r in range(m):
        out[r] = 0.0
        if r != label and (other < 0 or scores[r] > scores[other]):
            other = r
    if scores[label] - scores[other] < 1.0:
        out[label], out[other], square = 1.0, -1.0, 2.0
    return square
