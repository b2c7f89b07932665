"""OBSCURE for structured outputs, such as sequences (sections 2 and 6 of Orabona, Jie and Caputo 2012).

    min_w  lambda/2 ||w||_{2,p}^2 + 1/n sum_i max_y [ delta_i(y) + <w, phi(x_i, y)> - <w, phi(x_i, y_i)> ]

phi(x, y) is a joint feature map with a kernel for each of its s parts, and delta_i(y) >= 0 is what the output y costs
in place of y_i. The user gives the kernels' values between pairs (x, y), and the y that attains the maximum; nothing
else is known of outputs. Stages 1 and 2 are the steps of `obscure_subgradient.py`, -z = phi(x_i, y_i) - phi(x_i, y).

A dual point has an alpha_iy >= 0 for every pair with sum_y alpha_iy <= C, C = 1 / (lambda n). With theta =
sum_iy alpha_iy (phi(x_i, y_i) - phi(x_i, y)) it proves, in the units of `obscure_terms.py`,

    dual / lambda = sum_iy alpha_iy delta_i(y) - 1/2 ||theta||_{2,q}^2

After epochs 1, 2, 4, 8 ... both are computed at the last and the mean coefficients. Every look at all samples gives
one more dual point, which has all of C at the y found. The bound is that of the best mixture of all of them
(`obscure_exact.py`), whose function is looked at, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from dmkl._util.stopping import deadline, must_stop
from dmkl._util.types import Float64
from dmkl.errors import ConfigError, DataError
from dmkl.problems.obscure import Obscure
from dmkl.problems.obscure_terms import PNorm
from dmkl.solvers.api import depth_outside
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.obscure_exact import best_mixture
from dmkl.solvers.obscure_subgradient import NUMBERS, ONLINE, PROXIMAL, step_size


@dataclass(frozen=True)
class StructuredOptions:
    """Constants of the default step size and of the bound."""

    online_step: float = 16.0  # of stage 1, in Polyak's steps at w = 0
    mixture: float = 1e-6  # the tolerance of the best mixture
    negligible: float = 1e-5  # dual points with less than this share of the largest share leave the bundle


OPTIONS = StructuredOptions()


class Pair(NamedTuple):
    """The number of a sample and an output for it."""

    sample: int
    output: Hashable


@dataclass(frozen=True)
class StructuredModel:
    """The function w_a = weights_a sum_p coef_p phi_a(pair_p).

    Parameters
    ----------
    pairs : list of Pair
    coef : array (pairs,)
    weights : array (s,)
        The kernel weights.
    """

    pairs: list[Pair]
    coef: Float64
    weights: Float64

    def score(self, values: Float64) -> float:
        """<w, phi(x, y)>, of the kernels' values (s, pairs) between (x, y) and the pairs."""
        return float(self.weights @ (values @ self.coef))


JointKernel: TypeAlias = Callable[[Pair, Sequence[Pair]], Float64]
Worst: TypeAlias = Callable[[int, StructuredModel], tuple[Hashable, float]]


@dataclass(frozen=True)
class StructuredFit:
    """What `structured` returns.

    Parameters
    ----------
    model : StructuredModel
        The function with the lowest objective.
    objective, dual : float
        Its objective, and a lower bound of every function's.
    gap : float
        (objective - dual) / objective.
    epochs : int
        Epochs of both stages.
    converged : bool
        Whether the gap is at most the tolerance.
    """

    model: StructuredModel
    objective: float
    dual: float
    gap: float
    epochs: int
    converged: bool


def structured(
    truths: Sequence[Hashable],
    kernel: JointKernel,
    worst: Worst,
    formulation: Obscure,
    *,
    tol: float = 1e-2,
    seed: int = 0,
    max_seconds: float = np.inf,
    warn: bool = True,
) -> StructuredFit:
    """Learn one p-norm combination of joint kernels for outputs with a structure, by OBSCURE's stages 1 and 2:

        min_w  lambda/2 ||w||_{2,p}^2 + 1/n sum_i max_y [ delta_i(y) + <w, phi(x_i, y)> - <w, phi(x_i, y_i)> ]

    The bounds are true if `worst` returns a true maximum and the kernels are positive semidefinite.

    Parameters
    ----------
    truths : sequence
        The true output y_i of every sample; outputs can be hashed, as tuples can.
    kernel : callable
        `kernel(pair, pairs)`: array (s, len(pairs)) of the s kernels' values between a pair and others. A pair has a
        `sample` (its number) and an `output`.
    worst : callable
        `worst(i, model)`: the output y with the largest `delta_i(y) + <w, phi(x_i, y)>`, and its delta_i(y); this may
        be y_i, with 0. The model has `pairs`, `coef` and `weights`: w_a = weights_a sum_p coef_p phi_a(pair_p).
    formulation : Obscure
        p, C or lam, `online` and `epochs` of the stages, and eta; its loss stays "multiclass".
    tol : float
        The relative gap that ends the stages early.
    seed : int
        Seed of the order of the samples.
    max_seconds : float
        The most time.
    warn : bool
        Whether to warn of a gap above `tol`.

    Returns
    -------
    StructuredFit

    Warns
    -----
    ConvergenceWarning
        Of scikit-learn: if the gap is above `tol`.

    Raises
    ------
    ConfigError
        If the formulation has another loss.
    DataError
        If there are no samples, or the kernel's values are not finite or of another shape.

    Examples
    --------
    Three classes are the smallest structure; a class is the output, and its kernels are zero between classes.

    >>> import numpy as np, dmkl
    >>> y = (np.arange(30) % 3).tolist()
    >>> X = 3 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(30, 3))
    >>> K = np.stack([X @ X.T, (X @ X.T) ** 2 / 10])
    >>> def kernel(pair, pairs):
    ...     return np.array([K[:, pair.sample, other.sample] * (pair.output == other.output) for other in pairs]).T
    >>> def worst(i, model):
    ...     costs = 1.0 - np.eye(3)[y[i]]
    ...     gains = costs.copy()
    ...     for pair, c in zip(model.pairs, model.coef):
    ...         gains[pair.output] += c * model.weights @ K[:, i, pair.sample]
    ...     return int(gains.argmax()), costs[gains.argmax()]
    >>> fit = dmkl.structured(y, kernel, worst, dmkl.Obscure(p=1.5, C=0.1, epochs=30), tol=0.05)
    >>> fit.converged, fit.dual <= fit.objective
    (True, True)
    """
    if formulation.loss != "multiclass":
        raise ConfigError(f"structured outputs have a loss of their own, not '{formulation.loss}'", "leave loss out")
    if not len(truths):
        raise DataError("there are no samples to learn from")
    learner = _Learner(truths, kernel, worst, formulation)
    with deadline(max_seconds):
        epochs = learner.run(formulation, tol, seed)
    fit = learner.fit(tol, epochs)
    if warn and not fit.converged:
        from sklearn.exceptions import ConvergenceWarning

        text = f"the certified gap is {fit.gap:.1e} after {epochs} epochs, above tol = {tol:g}. Allow more epochs."
        warnings.warn(text, ConvergenceWarning, stacklevel=depth_outside())
    return fit


class _Learner:
    """The pairs met so far with their kernel values, coefficients theta / q over them, and the best points."""

    def __init__(self, truths: Sequence[Hashable], kernel: JointKernel, worst: Worst, formulation: Obscure) -> None:
        self._truths, self._kernel, self._worst = truths, kernel, worst
        lam = 1.0 / (formulation.C * len(truths)) if formulation.C is not None else formulation.lam
        assert lam is not None  # one of the two is given
        self._lam, self._C, self._norm = lam, 1.0 / (lam * len(truths)), PNorm(formulation.p)
        self._pairs: list[Pair] = []
        self._places: dict[Pair, int] = {}
        self._deltas: list[float] = []  # of the pairs, 0 for the true ones
        first = Pair(0, truths[0])
        self._G = np.empty((len(self._asked(first, [first])), 0, 0))  # more room than there are pairs
        self._numbers = np.zeros(NUMBERS)
        self._coef, self._sum, self._met = np.zeros(0), np.zeros(0), 0
        self._forms = np.zeros(len(self._G))
        self._points: list[Float64] = []  # of the bundle: coefficients
        self._dual, self._primal, self._model = 0.0, np.inf, self._function(self._coef)

    def run(self, formulation: Obscure, tol: float, seed: int) -> int:
        """All epochs, or as many as the tolerance and the time ask for; returns their number."""
        q, n = self._norm.q, len(self._truths)
        step = self._look(np.zeros(0))
        step = (formulation.eta or step) / q
        done = 0
        for stage, epochs in ((ONLINE, formulation.online), (PROXIMAL, formulation.epochs)):
            self._numbers[:] = 0.0
            for epoch in range(epochs):
                radius = float(np.sqrt(2 * self._primal))
                if self._gap <= tol or must_stop():
                    return done
                self._sum[:], self._met = 0.0, 0
                for i in np.random.default_rng([seed, stage, epoch]).permutation(n):
                    self._step(int(i), step if stage == ONLINE else 0.0, radius)
                    if must_stop():
                        break
                done += 1
                self._forms = self._forms_of(self._coef)
                if not (epoch + 1) & epoch or epoch + 1 == epochs or must_stop():
                    self._certify()
        return done

    def fit(self, tol: float, epochs: int) -> StructuredFit:
        """The best points, without pairs of no weight."""
        used = np.flatnonzero(self._model.coef)
        model = StructuredModel([self._pairs[k] for k in used], self._model.coef[used], self._model.weights)
        return StructuredFit(
            model, float(self._lam * self._primal), self._lam * self._dual, self._gap, epochs, self._gap <= tol
        )

    @property
    def _gap(self) -> float:
        return relative_gap(self._primal, self._dual)

    # steps

    def _step(self, i: int, fixed: float, radius: float) -> None:
        """Algorithm 1 with fixed = eta / q, or Algorithm 2 with 0, on sample i."""
        output, delta, loss = self._loss(i, self._function(self._coef, self._forms))
        own, truth, other = np.zeros(len(self._G)), 0, 0
        if loss > 0:
            truth, other = self._placed(Pair(i, self._truths[i]), 0.0), self._placed(Pair(i, output), delta)
            own = self._G[:, truth, truth] + self._G[:, other, other] - 2 * self._G[:, truth, other]
        norm, step = self._norm.dual(self._forms), fixed
        if not fixed:
            step = step_size(self._numbers, self._norm.q, self._lam, radius, norm, self._norm.dual(own))
            kept = 1.0 - self._lam * step
            kept = kept if kept > 0 else 1.0
            self._coef *= kept
            self._forms *= kept * kept
        if loss > 0:
            turned = (self._G[:, truth, : len(self._coef)] - self._G[:, other, : len(self._coef)]) @ self._coef
            self._forms = np.maximum(self._forms + step * (2 * turned + step * own), 0.0)
            self._coef[truth] += step
            self._coef[other] -= step
        norm = self._norm.dual(self._forms)
        if not fixed and norm > radius:
            self._coef *= radius / norm
            self._forms *= (radius / norm) ** 2
        self._sum += self._coef
        self._met += 1

    def _loss(self, i: int, function: StructuredModel) -> tuple[Hashable, float, float]:
        """The output with the largest loss of sample i, its delta, and the loss."""
        output, delta = self._worst(i, function)
        if output == self._truths[i]:
            return output, 0.0, 0.0
        here, there = (self._values(Pair(i, y), len(function.coef)) for y in (self._truths[i], output))
        return output, float(delta), max(float(delta) - function.score(here - there), 0.0)

    # kernel values

    def _function(self, coef: Float64, forms: Float64 | None = None) -> StructuredModel:
        forms = self._forms_of(coef) if forms is None else forms
        return StructuredModel(self._pairs[: len(coef)], coef, self._norm.weights(forms))

    def _forms_of(self, coef: Float64) -> Float64:
        size = len(coef)
        forms: Float64 = np.einsum("p,apq,q->a", coef, self._G[:, :size, :size], coef)
        return np.maximum(forms, 0.0)

    def _values(self, pair: Pair, size: int) -> Float64:
        """(s, size): values between a pair and the first pairs."""
        if (place := self._places.get(pair)) is not None:
            return np.asarray(self._G[:, place, :size])
        return self._asked(pair, self._pairs[:size]) if size else np.zeros((len(self._G), 0))

    def _asked(self, pair: Pair, pairs: Sequence[Pair]) -> Float64:
        values = np.asarray(self._kernel(pair, pairs), dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(pairs):
            shape = f"shape {values.shape} for {len(pairs)} pairs"
            raise DataError(f"the kernel returned an array of {shape}", "it should be (kernels, pairs)")
        if not np.isfinite(values).all():
            raise DataError("a value of the kernel is not finite")
        return values

    def _placed(self, pair: Pair, delta: float) -> int:
        """The place of a pair, which is a new one if it was not met before."""
        if (place := self._places.get(pair)) is not None:
            return place
        size = len(self._pairs)
        values = self._asked(pair, [*self._pairs, pair])
        if size == self._G.shape[1]:
            grown = np.empty((len(self._G), 2 * size + 16, 2 * size + 16))
            grown[:, :size, :size] = self._G[:, :size, :size]
            self._G = grown
        self._G[:, size, : size + 1] = self._G[:, : size + 1, size] = values
        self._pairs.append(pair)
        self._deltas.append(delta)
        self._places[pair] = size
        self._coef, self._sum = np.append(self._coef, 0.0), np.append(self._sum, 0.0)
        return size

    # bounds

    def _certify(self) -> None:
        """Look at the last and the mean coefficients, and at the best mixture of the dual points so far."""
        candidates = self._coef.copy(), self._sum / max(self._met, 1)
        self._points += [self._feasible(coef) for coef in candidates]
        for coef in candidates:  # this may add pairs
            self._look(coef)
        mixed = self._mixture()
        if mixed is not None:
            self._look(mixed)
            self._mixture()

    def _look(self, coef: Float64) -> float:
        """The objective of a function, and the dual point with all of C at the outputs found. Returns Polyak's step."""
        forms = self._forms_of(coef)
        function, total = self._function(coef, forms), 0.0
        found: list[tuple[int, int]] = []
        for i, truth in enumerate(self._truths):
            output, delta, loss = self._loss(i, function)
            total += loss
            if loss > 0:
                found.append((self._placed(Pair(i, truth), 0.0), self._placed(Pair(i, output), delta)))
            if must_stop():
                return 0.0
        primal = 0.5 * self._norm.dual(forms) ** 2 + self._C * total
        if primal < self._primal:
            self._primal, self._model = primal, function
        if not found:
            return 0.0
        point = np.zeros(len(self._pairs))
        truths, others = np.array(found).T
        np.add.at(point, truths, self._C)
        np.add.at(point, others, -self._C)
        self._points.append(point)
        own = self._G[:, truths, truths] + self._G[:, others, others] - 2 * self._G[:, truths, others]
        return OPTIONS.online_step * total / len(found) / max(self._norm.dual(own.mean(axis=1)) ** 2, 1e-300)

    def _feasible(self, coef: Float64) -> Float64:
        """The coefficients of a sample scaled down until they add up to C at most."""
        scales = np.ones(len(self._truths))
        for pair, c in zip(self._pairs, coef, strict=True):
            if pair.output == self._truths[pair.sample] and c > self._C:
                scales[pair.sample] = self._C / c
        return coef * scales[[pair.sample for pair in self._pairs]]

    def _mixture(self) -> Float64 | None:
        """The best mixture of the dual points, whose value is a bound; points without a share in it leave."""
        size = len(self._pairs)
        points = np.array([np.append(point, np.zeros(size - len(point))) for point in self._points])
        gains = -points @ np.array(self._deltas) if size else np.zeros(0)
        if not (gains > 0).any():
            return None
        crossed = np.einsum("cp,apq,dq->acd", points, self._G[:, :size, :size], points, optimize=True)
        found = best_mixture(gains, crossed, self._norm.q, OPTIONS.mixture)
        self._dual = max(self._dual, found.value)
        self._points = [points[c] for c in np.flatnonzero(found.shares > OPTIONS.negligible * found.shares.max())]
        return np.asarray(found.shares @ points)
