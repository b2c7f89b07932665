"""VSKL, L1MKL and LpMKL on working sets: the block methods, the rule that chooses one, and what a block yields.

Newton's method in the weights ends with an SVM. The interior point method and mirror descent yield weights; the SVM at
these weights gives the sparse alpha, and the certificate needs nothing else.

The method "automatic" takes the one that is fastest for a block (`automatic`). A method that does not reach the
tolerance hands over to the next: none is best on every problem, and a proof counts wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np

from dmkl._util.stopping import must_stop
from dmkl._util.types import Array, Float64, FloatArray, Mask, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.oracles import ORACLES
from dmkl.problems.norms import MixedNorm
from dmkl.problems.vskl import MixedNormMKL
from dmkl.solvers.automatic import INTERIOR, MIRROR, NEWTON, Hopeless, Rule, interior_is_faster
from dmkl.solvers.certificate import (
    Certificate,
    CertifiedWeights,
    best_multiple,
    relative_gap,
    rounding_of_scores,
)
from dmkl.solvers.fixed_weights import outlined
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels, combine, quadratic_forms
from dmkl.solvers.low_rank import CertifiedPoint, solve_any_rank, solve_full_rank, solve_low_rank
from dmkl.solvers.mirror import NUMBERS, VECTORS, Descent, MirrorOptions, SvmsInPasses, solve_mirror
from dmkl.solvers.newton import KEPT, NewtonSolution, Search, WeightModel, first_weights, solve_newton
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import Arrays, MethodState, State
from dmkl.solvers.working_sets import (
    BLOCK_MEMORY,
    BlockOptions,
    BlockProblem,
    BlockSolution,
    ClassMethod,
    OneVsRest,
    block_room,
    entering,
    many_kernels,
    own_layers,
    random_kernels,
    whole,
)

# K (kernels, n, n), y (n,), bounds of alpha (n,), norm, tolerance, SVM oracle
SolveWeights: TypeAlias = Callable[[FloatArray, Float64, Float64, MixedNorm, float, str], CertifiedWeights]


@dataclass(frozen=True)
class MixedNormOptions:
    """Tolerances of compact problems, which kernels they hold, and which method is taken."""

    block_share: float = 0.5  # of the tolerance, for the block; the rest is for the samples outside
    candidate: float = 0.8  # kernels whose quadratic form reaches this share of their group's largest stay in the block
    # kernels whose weight and norm are below this times the tolerance times the largest get no weight: passes skip them
    negligible: float = 0.01
    tighten: float = 0.02  # a block method's tolerance from one attempt to the next
    svm_share: float = 0.02  # of the tolerance, for the SVM at the weights: slacks count C times in the primal value
    hopeful: float = 0.98  # a gap below which a point is near enough to the optimum for its rounding to count,
    rounded: float = 10.0  # and times the rounding of its scores, below which no method will make the gap smaller
    dense: float = 0.3  # working sets with more than this share of an array's samples take all of them, uncopied


OPTIONS = MixedNormOptions()


@dataclass(frozen=True)
class WeightsMethod:
    """A method that yields weights: to which share of the whole tolerance it solves a block, in how many attempts."""

    solve: SolveWeights
    share: float
    attempts: int = 1
    svm_steps: int = 10_000  # of the SVM at the weights, a sample


MIRROR_PAPER = "mirror-paper"
WEIGHTS_METHODS: dict[str, WeightsMethod] = {
    # only the weights of interior points are used; with kinks in the norm (q = inf) nearly right ones may not be enough
    INTERIOR: WeightsMethod(solve_any_rank, share=0.3, attempts=3),
    MIRROR: WeightsMethod(solve_mirror, share=0.4),
    MIRROR_PAPER: WeightsMethod(solve_mirror, share=0.4),
}
AUTOMATIC = "automatic"
TRIAL = MirrorOptions(svm_steps=50)  # of mirror descent before another method: an SVM that lasts is given up, too


def build(formulation: MixedNormMKL, problem: Problem) -> Solver:
    """Working-set rounds, blocks solved by the problem's method."""
    problem.stack.require_semidefinite(type(formulation).__name__)
    norm = formulation.norm(problem.stack.groups)
    method = MixedNormMethod(formulation.C, norm, problem.method, OPTIONS, formulation.mirror_step)
    return OneVsRest(method, problem.stack.dtype)


def _sum_fits(problem: Problem) -> bool:
    """Whether a weighted sum of all kernels, beside the copy that an SVM makes of it, fits in memory."""
    return BLOCK_MEMORY.in_flight * problem.stack.dtype.itemsize * problem.n**2 <= block_room(problem)


def _solution(found: NewtonSolution) -> BlockSolution:
    """What Newton's method found, as the rounds take it."""
    return BlockSolution(
        found.beta,
        found.dual,
        found.svm_calls,
        found.oracle_calls,
        found.weights,
        found.penalty,
        found.proof,
        found.proof_forms,
        scores=found.scores,
    )


@dataclass(frozen=True)
class ModelState(MethodState):
    """The models of classes whose kernels are read in passes, so that every evaluation counts in a later run."""

    models: Mapping[str, Array] = field(default_factory=dict)  # "class.name of the array"

    def arrays(self) -> dict[str, Array]:
        return dict(self.models)

    @classmethod
    def read(cls, arrays: Arrays) -> ModelState:
        unknown = [name for name in arrays if not name.partition(".")[0].isdecimal()]
        if unknown:
            raise ValueError(f"a state of the method with unknown {', '.join(sorted(unknown))}")
        classes = {name.partition(".")[0] for name in arrays}
        kept = {k: (*(NUMBERS + VECTORS if f"{k}.lam" in arrays else KEPT), "going") for k in classes}
        if missing := {f"{k}.{name}" for k in classes for name in kept[k]}.difference(arrays):
            raise ValueError(f"a state of the method without {', '.join(sorted(missing))}")
        return cls(dict(arrays))

    def of(self, k: int) -> dict[str, Array] | None:
        """The arrays of the model of class k, if there is one."""
        found = {name.partition(".")[2]: values for name, values in self.models.items() if name.startswith(f"{k}.")}
        return found or None

    def updated(self, k: int, model: Mapping[str, Array]) -> ModelState:
        """With another model of class k."""
        return ModelState({**self.models, **{f"{k}.{name}": values for name, values in model.items()}})

    def milestone(self) -> Array:
        """Evaluations of models that have not ended: each of them is progress."""
        counts = {
            name.partition(".")[0]: int(values) for name, values in self.models.items() if name.endswith(".evaluations")
        }
        return np.array([number for k, number in counts.items() if self.models[f"{k}.going"]])


@dataclass(frozen=True)
class _Attempt:
    """A solution of a block, and its primal value there."""

    solution: BlockSolution
    primal: float

    @property
    def gap(self) -> float:
        return relative_gap(self.primal, self.solution.dual)

    def or_better(self, other: _Attempt) -> _Attempt:
        """The better primal and the better dual point of this and a later attempt, and the work of both.

        Points that contradict each other, because rounding made a kernel indefinite, are not mixed: then the attempt
        counts that agrees with itself better.
        """
        best, rest = (other, self) if other.primal < self.primal else (self, other)
        if relative_gap(best.primal, rest.solution.dual) > min(best.gap, rest.gap):
            best, rest = (other, self) if other.gap < self.gap else (self, other)
        solution, second = best.solution, rest.solution
        if solution.dual < second.dual <= best.primal:
            solution = replace(solution, dual=second.dual, proof=second.proof, proof_forms=second.proof_forms)
        svm_calls = solution.svm_calls + second.svm_calls
        oracle_calls = solution.oracle_calls + second.oracle_calls
        return _Attempt(replace(solution, svm_calls=svm_calls, oracle_calls=oracle_calls), best.primal)


@dataclass(frozen=True)
class MixedNormMethod(ClassMethod):
    """Blocks of the kernels that matter; weights for each class."""

    own_type: ClassVar[type[MethodState]] = ModelState

    C: float
    norm: MixedNorm
    method: str
    options: MixedNormOptions = field(default_factory=MixedNormOptions)
    mirror_step: float = 1.0  # of the method "mirror-paper"

    def first_weights(self, problem: Problem) -> Float64:
        return np.tile(self.norm.uniform(), (problem.m, 1))

    def first_state(self, problem: Problem, state: State) -> State:
        """Random kernels of many; else the samples that matter at equal weights, or all where most of them matter."""
        if many_kernels(problem.stack.s):
            first = random_kernels(problem.stack.s, problem.seed) | self._one_of_each_group()
            return replace(state, active=np.tile(first, (problem.m, 1)))
        newton = self.method == NEWTON or (self.method == AUTOMATIC and not interior_is_faster(problem.n))
        uncopied = newton and problem.stack.in_one_array and not problem.runtime.remote
        if uncopied and problem.m == 1 and _sum_fits(problem):
            # Newton's method has its own first guess
            return replace(state, working=SampleSets.whole(problem.n, problem.m))
        state = outlined(problem, state, self.norm.uniform(), self.C)
        if uncopied and _sum_fits(problem):
            working, everything = state.working.copy(), np.ones(problem.n, dtype=bool)
            for k in np.flatnonzero(working.sizes / problem.n > self.options.dense):
                working.put(int(k), everything)
            state = replace(state, working=working)
        return state

    def _one_of_each_group(self) -> Mask:
        members = np.zeros(len(self.norm.groups), dtype=bool)
        members[np.unique(self.norm.groups, return_index=True)[1]] = True
        return members

    def layers(self, problem: Problem, active: Mask) -> int:
        return own_layers(problem, int(active.sum()))

    def block_options(self, problem: Problem, state: State, kernels: Sequence[Samples]) -> BlockOptions:
        return {"kernels": [A.tolist() for A in kernels]}

    def streaming_substitute(
        self, problem: Problem, samples: Samples, kernels: Samples, room: int
    ) -> StreamedKernels | None:
        """All samples of these kernels, for Newton's method and mirror descent, which can read them in passes."""
        if self.method == INTERIOR:
            return None
        each = np.zeros((len(kernels), problem.stack.s))
        each[np.arange(len(kernels)), kernels] = 1.0
        return StreamedKernels(problem.stack, each, np.arange(problem.n), room)

    def streamed_sets(self, working: Mask, active: Mask) -> tuple[Mask, Mask]:
        return np.ones_like(working), np.ones_like(active)  # a pass reads them in any case

    def first_own(self, problem: Problem) -> MethodState:
        return ModelState()

    def resume(self, own: MethodState, k: int) -> Mapping[str, Array] | None:
        assert isinstance(own, ModelState)
        return own.of(k)

    def next_own(
        self, own: MethodState, number: int, classes: Sequence[int], solutions: Sequence[BlockSolution]
    ) -> MethodState:
        assert isinstance(own, ModelState)
        for k, solution in zip(classes, solutions, strict=True):
            if solution.resume is not None:
                assert isinstance(solution.resume, Mapping)
                own = own.updated(k, solution.resume)
        return own

    def solve(self, problem: BlockProblem) -> BlockSolution:
        """By the method, or by one method after the other until the block's own certificate is small enough."""
        if isinstance(problem.block, StreamedKernels):
            return self._streamed(problem, problem.block)
        wanted = self.options.block_share * problem.tol
        found: _Attempt | None = None
        tried = 0
        for attempt in self._attempts(problem):
            found, tried = attempt if found is None else found.or_better(attempt), tried + 1
            if found.gap <= wanted or must_stop() or self._is_rounding(problem, found):
                break
        assert found is not None
        return replace(found.solution, handovers=tried - 1)

    def _is_rounding(self, problem: BlockProblem, found: _Attempt) -> bool:
        """Whether the gap is that of rounding, so that no method will do better."""
        weights = found.solution.weights
        if found.gap > self.options.hopeful or weights is None:
            return False
        rounding = rounding_of_scores(problem.array.diagonal(axis1=1, axis2=2), weights, found.solution.beta)
        return rounding > self.options.block_share * problem.tol and found.gap < self.options.rounded * rounding

    def _attempts(self, problem: BlockProblem) -> Iterator[_Attempt]:
        """The block solved by the method, or by the methods that "automatic" tries."""
        if self.method == NEWTON:
            yield self._newton(problem)
        elif self.method == AUTOMATIC:
            yield from self._in_turn(problem, Rule(problem.array, self.norm.among(problem.kernels)))
        else:
            method = WEIGHTS_METHODS[self.method]
            if self.method != INTERIOR:
                method = replace(method, solve=partial(solve_mirror, options=self._mirror_options()))
            yield self._by_weights(problem, method)

    def _in_turn(self, problem: BlockProblem, rule: Rule) -> Iterator[_Attempt]:
        """By one method after the other, in the order of the rule."""
        if rule.tries_mirror:
            mirror = WEIGHTS_METHODS[MIRROR]
            trial = partial(solve_mirror, options=TRIAL, hopeless=rule.hopeless(mirror.share * problem.tol))
            yield self._by_weights(problem, replace(mirror, solve=trial, svm_steps=TRIAL.svm_steps))
        names = list(rule.names)
        while names:
            name = names.pop(0)
            if name == NEWTON:
                judge = rule.hopeless(self.options.block_share * problem.tol, INTERIOR) if INTERIOR in names else None
                yield self._newton(problem, judge)
                if judge is not None and judge.gave_up:
                    names.sort(key=lambda one: one != INTERIOR)
            elif name == INTERIOR:
                solve = solve_low_rank if rule.low_rank else solve_full_rank
                yield self._by_weights(problem, replace(WEIGHTS_METHODS[INTERIOR], solve=solve))
            else:
                yield self._by_weights(problem, WEIGHTS_METHODS[name])

    def _newton(self, problem: BlockProblem, hopeless: Hopeless | None = None) -> _Attempt:
        norm, upper = self.norm.among(problem.kernels), self.C * problem.counts
        kernels = BlockKernels(problem.array, threads=problem.threads)
        wanted = self.options.block_share * problem.tol
        start = problem.warm.weights if np.isfinite(problem.gap) else None
        found = solve_newton(kernels, problem.y, upper, norm, wanted, problem.oracle, start=start, hopeless=hopeless)
        return _Attempt(_solution(found), found.primal)

    def _streamed(self, problem: BlockProblem, kernels: StreamedKernels) -> BlockSolution:
        """One evaluation of Newton's method, which takes two passes, or one call of mirror descent's oracle; the state
        goes from round to round."""
        if self.method in WEIGHTS_METHODS:
            return self._mirror_streamed(problem, kernels)
        norm, upper, y = self.norm.among(problem.kernels), self.C * problem.counts, problem.y
        wanted, resume, calls = self.options.block_share * problem.tol, problem.warm.resume, 0
        if isinstance(resume, Mapping):
            model = WeightModel.restored(norm, wanted, resume)
        else:
            theta = problem.warm.weights
            if not np.isfinite(problem.gap):
                theta, calls = first_weights(kernels, y, upper, norm, wanted, problem.oracle)
            model = WeightModel(norm, len(y), wanted, theta)
        model.advance(Search(kernels, y, upper, norm, wanted, problem.oracle, np.abs(problem.warm.beta)))
        found = model.solution(calls + 1)
        return replace(_solution(found), resume=model.arrays())

    def _mirror_streamed(self, problem: BlockProblem, kernels: StreamedKernels) -> BlockSolution:
        norm, upper, wanted = self.norm.among(problem.kernels), self.C * problem.counts, self.options.block_share
        svms = SvmsInPasses(kernels, problem.y, upper, problem.oracle, problem.tol)
        descent = Descent(svms, problem.y, upper, norm, wanted * problem.tol, self._mirror_options())
        if isinstance(problem.warm.resume, Mapping):
            descent.restore(problem.warm.resume)
        before = descent.svm_calls
        descent.step()
        found = descent.solution()
        return BlockSolution(
            found.beta,
            found.dual,
            found.svm_calls - before,
            1,
            found.weights,
            found.penalty,
            found.proof,
            found.proof_forms,
            scores=found.scores,
            resume=descent.arrays(),
        )

    def _mirror_options(self) -> MirrorOptions:
        return MirrorOptions(rule="paper", step=self.mirror_step) if self.method == MIRROR_PAPER else MirrorOptions()

    def _by_weights(self, problem: BlockProblem, method: WeightsMethod) -> _Attempt:
        """Weights by the method, then the SVM at them; tighter while the block's own certificate asks for it."""
        inner, found = method.share * problem.tol, None
        for _ in range(method.attempts):
            attempt = self._at_weights(problem, method, inner)
            found = attempt if found is None else found.or_better(attempt)
            if found.gap <= self.options.block_share * problem.tol or must_stop():
                break
            inner *= self.options.tighten
        assert found is not None
        return found

    def _at_weights(self, problem: BlockProblem, method: WeightsMethod, inner: float) -> _Attempt:
        """The method's weights, and the SVM there."""
        K, y, norm = problem.array, problem.y, self.norm.among(problem.kernels)
        upper = self.C * problem.counts
        found = method.solve(K, y, upper, norm, inner, problem.oracle)
        if isinstance(found, CertifiedPoint):
            proof, calls = (found.proof, found.proof_forms), (found.svm_calls, found.oracle_calls)
            solution = BlockSolution(found.beta, found.dual, *calls, found.weights, found.penalty, *proof)
            return _Attempt(solution, found.primal)
        least, norms = self.options.negligible * problem.tol, found.weights * np.sqrt(found.proof_forms)
        some = (found.weights > least * found.weights.max()) | (norms > least * norms.max())
        weights = np.where(some, found.weights, 0.0)
        combined = np.empty(K.shape[1:])
        combine(K, weights, combined)
        exact = self.options.svm_share * problem.tol
        most = method.svm_steps * len(y)
        svm = ORACLES[problem.oracle](combined, y, upper, alpha=np.abs(found.beta), tol=exact, max_steps=most)
        beta, calls = svm.alpha * y, (found.svm_calls + 1, found.oracle_calls + 1)
        forms = quadratic_forms(K, beta, weights > 0)
        penalty = norm.regulariser(weights * np.sqrt(forms))
        solution = BlockSolution(beta, found.dual, *calls, weights, penalty, found.proof, found.proof_forms)
        primal = self.primal(beta, svm.scores, y, problem.counts, solution).primal
        if relative_gap(primal, found.dual) > self.options.block_share * problem.tol:  # beta itself may prove more
            forms = quadratic_forms(K, beta)
            dual = float(svm.alpha.sum()) - norm.conjugate(forms)
            if dual > found.dual:
                solution = replace(solution, dual=dual, proof=beta, proof_forms=forms)
        return _Attempt(solution, primal)

    def primal(
        self, beta: Float64, scores: Float64, y: Float64, counts: Float64, solution: BlockSolution
    ) -> Certificate:
        return best_multiple(solution.penalty, beta, scores, y, self.C * counts)

    def dual(self, solution: BlockSolution, forms: Float64, y: Float64, counts: Float64) -> float:
        assert solution.proof is not None
        total, conjugate = float(np.abs(solution.proof).sum()), self.norm.conjugate(forms)
        multiple = min(1.0, total / max(2.0 * conjugate, 1e-300))  # the best one: kernels outside may have larger forms
        bound = multiple * total - multiple**2 * conjugate
        return min(solution.dual, bound)

    def as_known(self, beta: Float64, weights: Float64, forms: Float64, y: Float64, counts: Float64) -> BlockSolution:
        penalty, alpha = self.norm.regulariser(weights * np.sqrt(forms)), beta * y
        feasible = (alpha >= 0).all() and (alpha <= self.C * counts).all() and abs(beta.sum()) <= 1e-9 * alpha.sum()
        share = float(feasible)  # of the coefficients, as a dual point: those of another formulation may be none
        return BlockSolution(
            beta, np.inf, weights=weights, penalty=penalty, proof=share * beta, proof_forms=share * forms
        )

    def next_kernels(self, weights: Float64, forms: Float64) -> Mask:
        used, largest = weights > 0, self.norm.radii(forms)
        if not many_kernels(len(forms)):
            return np.asarray(used | (forms >= self.options.candidate * largest[self.norm.groups] ** 2))
        # as against the kernels with weight: those outside the block may have far larger forms
        bound = self.norm.radii(np.where(used, forms, 0.0))
        relative = forms / np.maximum(np.where(bound > 0, bound, largest)[self.norm.groups] ** 2, 1e-300)
        used[entering(np.flatnonzero(relative >= self.options.candidate), relative, int(np.count_nonzero(used)))] = True
        return used | (forms >= largest[self.norm.groups] ** 2)  # at least one of every group

    def first_kernels(self, problem: Problem, active: Mask) -> Mask:
        if whole(problem.n) and not many_kernels(problem.stack.s):
            return np.ones_like(active)
        missing = np.array([self.norm.total(row) == 0 for row in active])
        return np.asarray(active | missing[:, self.norm.groups])
