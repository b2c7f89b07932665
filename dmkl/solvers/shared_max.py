"""SharedMKL with mode "max": minimise the worst class's objective over the kernel weights.

    min_p max_k H_k(p),     p >= 0, sum(p) = 1

A round has three parts. Stochastic approximation over sampled classes (in the first round only) finds roughly where p
is and which classes are hard. A bundle method over the hard classes alone closes the gap between them. Then every class
is evaluated once at these weights; a class that turns out to be above the bound becomes a hard class, and the next
round goes on. The method "sa-paper" is the stochastic approximation alone, twice as long in every round, with its
averages certified; "mirror-paper" is the same with the gradients of all classes at every step (the paper's equations 6
and 7). With `stop = "paper"` they end after the step that changes the average of the weights by less than 1 %.

The stochastic approximation is of the saddle point  min_p max_gamma sum_k gamma_k H_k(p)  (ML-MKL-SA of Bucak et al.
2010). Classes are sampled from a smoothed gamma; the SVM of a sampled class gives unbiased estimates of both gradients.
Weights and gamma move by exponentiated gradient steps. They are kept as logarithms, so that nothing overflows and no
gamma is lost at zero. The paper's step has a constant size eta. The scale-free step is divided by the root of the sum
of all squared deviations so far, so it has nothing to tune. Values of classes that are known from before serve as a
control variate: subtracted from the estimates they reduce the variance and add no bias.

The paper's equations 8 and 9 with classes drawn from gamma' are biased: in p the factor gamma_j / gamma'_j is missing.
The estimates here have it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Array, Float64, Mask, Samples
from dmkl.problems.shared import SharedMKL
from dmkl.solvers import fixed_weights
from dmkl.solvers.certificate import relative_gap
from dmkl.solvers.problem import Problem
from dmkl.solvers.shared_sum import BundleOptions, CuttingPlanes
from dmkl.solvers.shared_svms import Blocks, ClassSolution, ClassSvms, SetUpdate
from dmkl.solvers.state import MethodState, State, column
from dmkl.solvers.working_sets import block_room, first_sets, whole


@dataclass(frozen=True)
class MinimaxOptions:
    """Constants of the minimax method."""

    bundle: BundleOptions = field(default_factory=BundleOptions)  # of the bundle method over the hard classes
    sampled: float = 4.0  # SVM calls of the first stochastic part, as a multiple of the root of the number of classes
    sampled_tol: float = 0.01  # tolerance of its SVMs
    still: float = 0.01  # the paper's stop: a change of the average weights by less than this share of their length
    first_checked: int = 16  # classes solved before looking whether one of them is harder; then twice as many
    close: float = 0.005  # classes within this share of the hardest are solved along with it,
    close_gap: float = 0.3  # or within this share of the gap, if that is more
    least_share: float = 0.01  # so are the classes with more than this share of the multipliers


MINIMAX = MinimaxOptions()
PAPERS_STOP = "the paper's stop, a change of the average weights by less than 1 %"


def smoothed(gamma: Float64, delta: float) -> Float64:
    """gamma' = (1 - delta) gamma + delta / m: the probabilities by which classes are sampled."""
    return np.asarray((1 - delta) * gamma + delta / len(gamma))


@dataclass(frozen=True)
class ControlVariate:
    """Estimates of every class before sampling, H_k at the weights at hand and its forms; zeros are allowed."""

    values: Float64  # (m,)
    forms: Float64  # (m, s)


def estimate(
    sampled: Samples,
    values: Float64,
    forms: Float64,
    gamma: Float64,
    probabilities: Float64,
    control: ControlVariate,
) -> tuple[Float64, Float64]:
    """Unbiased estimates of the gradients in p and in gamma.

    Parameters
    ----------
    sampled : array (b,)
        Classes drawn independently, with repetitions, with `probabilities`.
    values : array (b,)
        H_k of the sampled classes at the weights at hand.
    forms : array (b, s)
        D_a(beta_k) of the sampled classes.
    gamma, probabilities : arrays (m,)
        The class weights, and the probabilities of sampling each class.
    control : ControlVariate

    Returns
    -------
    by_weight : array (s,)
        Estimate of -1/2 sum_k gamma_k D(beta_k).
    by_class : array (m,)
        Estimate of H.
    """
    count = len(sampled)
    share = 1.0 / (count * probabilities[sampled])
    by_class = control.values.copy()
    np.add.at(by_class, sampled, share * (values - control.values[sampled]))
    change = (share * gamma[sampled])[:, None] * (forms - control.forms[sampled])
    return -0.5 * (gamma @ control.forms + change.sum(axis=0)), by_class


def _softmax(logs: Float64) -> Float64:
    shifted = np.exp(logs - logs.max())
    return np.asarray(shifted / shifted.sum())


def _deviation(shares: Float64, values: Float64) -> float:
    """The standard deviation under these shares; a constant added to all values does not change it."""
    size = max(float(np.abs(values).max()), 1e-300)
    scaled = values / size
    return size * float(np.sqrt(shares @ (scaled - shares @ scaled) ** 2))


@dataclass
class SaddleIterates:
    """The iterates of stochastic approximation: weights p (s,) and class weights gamma (m,), with their sums so far."""

    log_weights: Float64
    log_gamma: Float64
    weight_sum: Float64
    gamma_sum: Float64
    path: Float64  # (2,): roots of the sums of squares that scale-free steps are divided by
    last: Float64  # the weights of the last step, the newest ones in their sum

    @classmethod
    def start(cls, s: int, m: int) -> SaddleIterates:
        """Equal weights of s kernels and m classes."""
        return cls(np.zeros(s), np.zeros(m), np.zeros(s), np.zeros(m), np.zeros(2), np.zeros(s))

    @property
    def weights(self) -> Float64:
        return _softmax(self.log_weights)

    @property
    def gamma(self) -> Float64:
        return _softmax(self.log_gamma)

    @property
    def average(self) -> tuple[Float64, Float64]:
        """The averages of weights and gamma over all steps: the answer of the method."""
        if not self.weight_sum.any():
            return self.weights, self.gamma
        return self.weight_sum / self.weight_sum.sum(), self.gamma_sum / self.gamma_sum.sum()

    @property
    def steps(self) -> int:
        """The number of steps so far."""
        return round(float(self.weight_sum.sum()))

    @property
    def change(self) -> float:
        """How much the last step changed the average of the weights, as a share of its length; infinite at first."""
        steps = self.steps
        if steps < 2:
            return np.inf
        average = self.weight_sum / steps
        return float(np.linalg.norm(self.last - average) / np.linalg.norm(average)) / (steps - 1)

    def move(self, by_weight: Float64, by_class: Float64, eta: float) -> None:
        """Descend in the weights and ascend in gamma, by steps of size eta, or by scale-free ones if eta = 0."""
        weights, gamma = self.weights, self.gamma
        self.weight_sum = self.weight_sum + weights
        self.gamma_sum = self.gamma_sum + gamma
        self.last = weights
        if eta:
            eta_p = eta_gamma = eta
        else:
            spread = np.array([_deviation(weights, by_weight), _deviation(gamma, by_class)])
            self.path = np.hypot(self.path, spread)
            logs = np.log([max(len(weights), 2), max(len(gamma), 2)])
            eta_p, eta_gamma = np.sqrt(logs) / np.maximum(self.path, 1e-300)
        self.log_weights = self.log_weights - eta_p * by_weight
        self.log_gamma = self.log_gamma + eta_gamma * by_class
        self.log_weights -= self.log_weights.max()
        self.log_gamma -= self.log_gamma.max()


@dataclass(frozen=True)
class MinimaxState(MethodState):
    """The cuts, the iterates of stochastic approximation, each class's last forms, and which classes are hard."""

    cut_total: Float64
    cut_forms: Float64
    cut_owner: Samples
    walk_log_weights: Float64
    walk_log_gamma: Float64
    walk_weight_sum: Float64
    walk_gamma_sum: Float64
    walk_path: Float64
    walk_last: Float64
    forms: Float64  # (m, s)
    hard: Mask  # (m,)
    centre: Float64  # (s,): the weights at the end of the last round
    still: Array | None = None  # whether the paper's stop has ended the walk; None where it is not asked for

    @classmethod
    def of(
        cls,
        cuts: CuttingPlanes,
        iterates: SaddleIterates,
        forms: Float64,
        hard: Mask,
        centre: Float64,
        still: Array | None = None,
    ) -> MinimaxState:
        return cls(
            cuts.total,
            cuts.forms,
            cuts.owner,
            iterates.log_weights,
            iterates.log_gamma,
            iterates.weight_sum,
            iterates.gamma_sum,
            iterates.path,
            iterates.last,
            forms,
            hard,
            centre,
            still,
        )

    @property
    def cuts(self) -> CuttingPlanes:
        return CuttingPlanes(self.cut_total, self.cut_forms, self.cut_owner)

    @property
    def iterates(self) -> SaddleIterates:
        return SaddleIterates(
            self.walk_log_weights,
            self.walk_log_gamma,
            self.walk_weight_sum,
            self.walk_gamma_sum,
            self.walk_path,
            self.walk_last,
        )

    def rule(self, tol: float) -> str:
        return PAPERS_STOP if self.still is not None and self.still.any() else ""


@dataclass
class _Round:
    """Everything that changes during a round."""

    classes: ClassSvms
    cuts: CuttingPlanes
    iterates: SaddleIterates
    forms: Float64  # (m, s), of each class's coefficients
    hard: Mask  # (m,)
    weights: Float64
    lower: float
    options: BundleOptions

    def solve(self, some: Samples, weights: Float64, tol: float, *, curved: bool = False) -> list[ClassSolution]:
        """Solve the SVMs of these classes at these weights and keep their cuts."""
        solutions = self.classes.solve([int(k) for k in some], weights, tol, curved=curved)
        forms = np.array([solution.forms for solution in solutions])
        self.cuts = self.cuts.plus(np.array([solution.total for solution in solutions]), forms, np.asarray(some))
        self.forms[some] = forms
        return solutions

    def cut(self, some: Samples) -> None:
        """Add the cuts of these classes' coefficients."""
        forms = self.classes.forms(some.tolist())
        total = [np.abs(column(self.classes.coef, int(k))).sum() for k in some]
        self.cuts = self.cuts.plus(np.array(total), forms, some)
        self.forms[some] = forms

    def minimum(self, centre: Float64, curvature: Float64) -> tuple[Float64, float, Float64]:
        """The minimum of the model, its value, and each class's share (m,) of the multipliers there."""
        found = self.cuts.minimum(centre, curvature, self.options)
        self.lower = max(self.lower, found.bound)
        shares = np.bincount(self.cuts.owner, found.multipliers, len(self.hard)).astype(np.float64, copy=False)
        self.cuts = self.cuts.pruned(found.active, self.options)
        return found.weights, found.value, shares


def build(formulation: SharedMKL, problem: Problem) -> WorstClass:
    """The rounds of the method that the problem names."""
    problem.stack.require_semidefinite("SharedMKL")
    return WorstClass(formulation, walk_only=problem.method != "sa", every_class=problem.method == "mirror-paper")


class WorstClass:
    """The solver. One step is a round: stochastic approximation, bundle over the hard classes, check of all classes.

    Parameters
    ----------
    formulation : SharedMKL
        With mode "max".
    walk_only : bool
        Whether it is mirror descent on the saddle point and nothing else, as in the paper.
    every_class : bool
        Whether a step takes the gradients of all classes, instead of those of sampled ones.
    options : MinimaxOptions
    """

    own_type: ClassVar[type[MethodState]] = MinimaxState

    def __init__(
        self,
        formulation: SharedMKL,
        *,
        walk_only: bool,
        every_class: bool = False,
        options: MinimaxOptions = MINIMAX,
    ) -> None:
        self._C, self._intercept = formulation.C, formulation.intercept
        self._delta, self._eta, self._batch = formulation.delta, formulation.eta, formulation.batch
        self._walk_only, self._every_class, self._options = walk_only, every_class, options
        self._papers_stop = formulation.stop == "paper"
        self._blocks: Blocks | None = None  # made again after a restart

    def init(self, problem: Problem) -> State:
        s, m = problem.stack.s, problem.m
        working = first_sets(problem.Y.sides(), problem.seed)
        state = State.first(np.full(s, 1.0 / s), working, room=block_room(problem), bounds=1)
        nothing = np.zeros((m, s)), np.zeros(m, dtype=bool)
        own = MinimaxState.of(CuttingPlanes.none(s), SaddleIterates.start(s, m), *nothing, state.weights)
        return replace(state, own=own)

    def step(self, problem: Problem, state: State) -> State:
        blocks = self._blocks = self._blocks or Blocks(problem, state)
        classes = ClassSvms(problem, blocks, state, self._C, self._intercept)
        own, lower = state.own_as(MinimaxState), float(state.dual[0])
        now = _Round(
            classes,
            own.cuts,
            own.iterates,
            own.forms.copy(),
            own.hard.copy(),
            own.centre,
            lower,
            self._options.bundle,
        )
        if self._walk_only or state.round == 0:
            self._sample(problem, state, now)
        if not self._walk_only:
            self._bundle(problem, state, now)
        return self._check(problem, state, now)

    def leave(self, problem: Problem, state: State) -> State:
        """Train, roughly, the classes that have no coefficients yet because other classes were harder."""
        untrained = np.flatnonzero(np.diff(state.coef.indptr) == 0)
        if not len(untrained) or not np.isfinite(state.primal[0]) or must_stop():
            return state
        classes = ClassSvms(problem, Blocks(problem, state), state, self._C, self._intercept)
        classes.solve_whole(untrained.tolist(), state.weights, max(fixed_weights.OPTIONS.outline_tol, problem.tol))
        values = classes.evaluate(range(problem.m), state.weights, "keep")
        calls = state.svm_calls + classes.svm_calls
        primal = np.array([values.primal.max()])
        return replace(state, coef=classes.coef, intercept=values.intercept, primal=primal, svm_calls=calls)

    def _sample(self, problem: Problem, state: State, now: _Round) -> None:
        """Stochastic approximation for some steps: its average becomes the weights, the classes it met are hard."""
        m, iterates = problem.m, now.iterates
        rng = np.random.default_rng([problem.seed, state.round])
        calls = self._options.sampled * np.sqrt(m) * 2.0**state.round
        for _ in range(int(np.ceil(calls / (m if self._every_class else self._batch)))):
            gamma, weights = iterates.gamma, iterates.weights
            control = self._control(now, weights)
            if self._every_class:  # once each: the estimates are the gradients
                sampled, probabilities = np.arange(m), np.full(m, 1.0 / m)
            else:
                probabilities = smoothed(gamma, self._delta)
                sampled = rng.choice(m, self._batch, p=probabilities)
            met, which = np.unique(sampled, return_inverse=True)
            solutions = now.solve(met, weights, self._options.sampled_tol)
            values = np.array([solution.total - 0.5 * float(weights @ solution.forms) for solution in solutions])
            forms = now.forms[met]
            by_weight, by_class = estimate(sampled, values[which], forms[which], gamma, probabilities, control)
            iterates.move(by_weight, by_class, self._eta)
            now.hard[met] = True
            if must_stop() or self._is_still(iterates):
                break
        now.weights = iterates.average[0]
        if not (whole(problem.n) or state.round or must_stop()):  # sets from solved classes beat random ones
            met = np.flatnonzero(now.hard)
            now.classes.keep(now.classes.alpha)
            now.classes.solve_whole(met.tolist(), now.weights, fixed_weights.OPTIONS.outline_tol)
            now.cut(met)
            now.classes.evaluate(met.tolist(), now.weights, "anew")
        if self._walk_only:
            now.minimum(now.weights, np.zeros((problem.stack.s,) * 2))

    def _is_still(self, iterates: SaddleIterates) -> bool:
        """Whether the paper would stop here, and is to be followed."""
        return self._papers_stop and iterates.change < self._options.still

    def _control(self, now: _Round, weights: Float64) -> ControlVariate:
        """Each class's highest cut here; classes that were never sampled get the mean of the others."""
        m, s = now.forms.shape
        values = now.cuts.highest_of_each(weights, m)
        met = np.isfinite(values)
        if self._walk_only or not met.any():
            return ControlVariate(np.zeros(m), np.zeros((m, s)))
        forms = np.where(met[:, None], now.forms, now.forms[met].mean(axis=0))
        return ControlVariate(np.where(met, values, values[met].mean()), forms)

    def _bundle(self, problem: Problem, state: State, now: _Round) -> None:
        """Close the gap over the hard classes, on their blocks."""
        mine, options = self._options, self._options.bundle
        least = options.tol_share * problem.tol
        wanted, m, s = least if state.round else max(least, options.first_gap), problem.m, problem.stack.s
        gap, stiffness, reached, promised = options.loose_gap, 1.0, np.inf, -np.inf
        weights = best = now.weights
        alpha: dict[int, Float64] = {}
        forms: dict[int, Float64] = {}
        curvatures: dict[int, Float64] = {}
        centred = np.zeros((s, s))
        size = max(float(now.cuts.highest_of_each(weights, m).max()), 1e-300)
        shares = now.minimum(weights, options.proximity * gap * size * np.eye(s))[2]
        for _ in range(options.inner_steps):
            values = np.where(now.hard, now.cuts.highest_of_each(weights, m), -np.inf)
            threshold = (1 - max(mine.close, mine.close_gap * gap)) * values.max()
            hardest = np.flatnonzero((values >= threshold) | (shares > mine.least_share))
            try:
                solutions = now.solve(hardest, weights, options.svm_tol(gap, wanted), curved=True)
            except Stopped:
                break
            solved = [(int(k), solution) for k, solution in zip(hardest, solutions, strict=True)]
            primal = max(solution.primal for solution in solutions)
            curvatures |= {k: solution.curvature for k, solution in solved if solution.curvature is not None}
            known = np.isfinite(reached)
            rejected = known and primal > reached - options.least_fall * (reached - promised)
            stiffness = min(stiffness * options.stiffer, options.stiffest) if rejected else 1.0
            if primal < reached:
                reached, best = primal, weights
                alpha |= {k: solution.alpha for k, solution in solved}
                forms |= {k: solution.forms for k, solution in solved}
                centred = sum((shares[k] * c for k, c in curvatures.items()), np.zeros((s, s)))
            proximity = options.proximity * gap * abs(reached) * np.eye(s)
            weights, promised, shares = now.minimum(best, stiffness * (centred + proximity))
            gap = relative_gap(reached, now.lower)
            if gap <= wanted or must_stop():
                break
        now.weights = best
        now.classes.alpha |= alpha
        for k, values in forms.items():
            now.forms[k] = values

    def _check(self, problem: Problem, state: State, now: _Round) -> State:
        """Evaluate every class at the weights found; solve again the classes that the bound does not cover."""
        weights, tol, m, classes = now.weights, problem.tol, problem.m, now.classes
        enough = self._options.bundle.tol_share * tol
        classes.keep(classes.alpha)
        before = classes.working.copy()
        primal, intercept = np.empty((2, m))
        updates: tuple[tuple[Samples, SetUpdate], ...] = (
            (np.flatnonzero(now.hard), "grow"),
            (np.flatnonzero(~now.hard), "keep"),
        )
        for some, sets in updates:
            values = classes.evaluate(some.tolist(), weights, sets)
            primal[some], intercept[some] = values.primal, values.intercept
        lower = np.maximum(now.cuts.highest_of_each(weights, m), 0.0)  # no class's objective is negative

        def solve_whole(stale: Samples) -> None:
            found = classes.solve_whole(stale.tolist(), weights, enough)
            primal[stale], intercept[stale] = found.primal, found.intercept
            lower[stale] = np.maximum(lower[stale], found.dual)
            now.cut(stale)

        unsure = np.flatnonzero((primal * (1 - tol) > now.lower) & (relative_gap(primal, lower) > enough))
        unsure = unsure[np.argsort(-primal[unsure], kind="stable")]  # a harder class is probably among the first
        harder, size = np.zeros(m, dtype=bool), self._options.first_checked
        # the bound of the hard classes rises when they are solved again on larger working sets
        rising = bool((primal[now.hard] * (1 - tol) > now.lower).any()) and not self._walk_only
        rising = rising and bool(classes.working.differing(before))
        while len(unsure) and not rising and not harder.any() and not must_stop():
            with contextlib.suppress(Stopped):
                solve_whole(unsure[:size])
            unsure, size = unsure[size:], 2 * size
            harder = ~now.hard & (lower * (1 - tol) > now.lower)
        # otherwise only classes a little above the bound can raise it
        if not (rising or self._walk_only or harder.any() or must_stop()):
            harder = ~now.hard & (primal * (1 - tol) > now.lower)
        if harder.any():
            classes.evaluate(np.flatnonzero(harder).tolist(), weights, "anew")
            now.hard |= harder
        elif (primal * (1 - tol) <= now.lower).all():
            untrained = np.flatnonzero(relative_gap(primal, lower) > tol)
            if len(untrained) and not must_stop():  # the weights are final: every class is trained to the tolerance
                with contextlib.suppress(Stopped):
                    solve_whole(untrained)
        worst, calls = float(primal.max()), classes.svm_calls
        still = np.array(self._is_still(now.iterates)) if self._papers_stop else None
        own = MinimaxState.of(now.cuts, now.iterates, state.own_as(MinimaxState).forms, now.hard, weights, still)
        after = replace(
            state,
            working=classes.working,
            dual=np.array([now.lower]),
            svm_calls=state.svm_calls + calls,
            oracle_calls=state.oracle_calls + calls,
            own=own,
        )
        if worst > state.primal[0]:  # an equal value is better: the worst may be a class that was not trained before
            return after
        return replace(
            after,
            weights=weights,
            coef=classes.coef,
            intercept=intercept,
            primal=np.array([worst]),
            own=replace(own, forms=now.forms),
        )
