"""The SVMs of all classes at one common combination of kernels, on compact blocks and over all samples.

The blocks of all kernels are solved again and again at other weights, so they are kept in memory as long as they fit
(`Blocks`). Classes whose blocks do not fit at all are solved on the stack: one pass makes the combined matrix of every
class's samples, on which its SVM is solved, another one multiplies every kernel by the coefficients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.linalg

from dmkl._util.machine import in_batches
from dmkl._util.stopping import Stopped, must_stop
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ResourceError
from dmkl.events import Note
from dmkl.oracles import ORACLES, least_hinge, svm_bounds
from dmkl.solvers.fixed_weights import FixedWeights
from dmkl.solvers.kernel_operators import StreamedKernels, combine, multiply
from dmkl.solvers.precision import sum_dtype
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import State, column, dense, with_columns
from dmkl.solvers.svm_by_parts import svm_by_parts
from dmkl.solvers.working_sets import BLOCK_MEMORY, next_set, own_layers, settled_set

SetUpdate: TypeAlias = Literal["grow", "anew", "keep"]
Cholesky: TypeAlias = tuple[Float64, bool]  # as scipy.linalg.cho_factor returns it


@dataclass(frozen=True)
class ClassSvmOptions:
    """Constants of the SVMs of single classes."""

    classes_at_once: int = 256  # whose scores are computed in one pass: n times this many values
    free: float = 1e-8  # alpha counts as free further than this share of C from its bounds
    ridges: tuple[float, ...] = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # of the mean diagonal: free samples may be duplicates


CLASS_SVMS = ClassSvmOptions()


@dataclass(frozen=True)
class ClassSvm:
    """The SVM of one class on its block at given kernel weights, as a task takes it beside the block (s, w, w)."""

    y: Float64  # (w,)
    C: float
    intercept: bool
    weights: Float64  # (s,)
    warm: Float64  # (w,): alpha to start from
    tol: float
    oracle: str
    curved: bool  # whether to compute the curvature


@dataclass(frozen=True)
class ClassSolution:
    """H(p) = max_alpha sum(alpha) - 1/2 sum_a p_a D_a at the weights of the SVM, and its derivatives there."""

    alpha: Float64  # (w,)
    total: float  # sum(alpha): total - 1/2 p . forms is a lower bound of H(p) for every p
    forms: Float64  # (s,): D_a
    primal: float  # over the block
    curvature: Float64 | None  # (s, s): second derivatives of H


def solve_class(block: FloatArray, svm: ClassSvm) -> ClassSolution:
    """Solve the SVM on the combined block; `Stopped` where it is too late: a few of the classes are of no use."""
    if must_stop():
        raise Stopped
    y, C = svm.y, svm.C
    combined = np.empty(block.shape[1:])
    combine(block, svm.weights, combined)
    oracle = ORACLES[svm.oracle]
    solved = oracle(combined, y, C, intercept=svm.intercept, alpha=svm.warm, tol=svm.tol)
    support = np.flatnonzero(solved.alpha)
    beta = solved.alpha * y
    products = np.empty((len(block), len(support)))  # (K_a beta) of the support samples
    multiply(block, support, beta, products)
    forms = np.maximum(products @ beta[support], 0.0)
    curvature = None
    if svm.curved:
        alpha, least = solved.alpha[support], CLASS_SVMS.free
        free = (alpha > least * C) & (alpha < (1 - least) * C)
        F = support[free]
        curvature = curvature_of(combined[F[:, None], F], products[:, free], svm.intercept)
    return ClassSolution(solved.alpha, float(solved.alpha.sum()), forms, solved.primal, curvature)


def solve_sum(combined: FloatArray, svm: ClassSvm) -> tuple[Float64, float]:
    """alpha and the primal value of the SVM on a combined block; `Stopped` where it is too late."""
    if must_stop():
        raise Stopped
    oracle = ORACLES[svm.oracle]
    solved = oracle(combined, svm.y, svm.C, intercept=svm.intercept, alpha=svm.warm, tol=svm.tol)
    return solved.alpha, solved.primal


def curvature_of(combined: Float64, G: Float64, intercept: bool) -> Float64:
    """G K_FF^-1 G' over the free samples F, G_a = (K_a beta)_F, within sum(beta) = 0 where there is an intercept.

    The combined matrix of the free samples is overwritten.
    """
    s, free = G.shape
    factor = _factored(combined) if free > intercept else None
    if factor is None:
        return np.zeros((s, s))
    solved = scipy.linalg.cho_solve(factor, np.column_stack([G.T, np.ones(free)]), check_finite=False)
    result = G @ solved[:, :s]
    if intercept:
        along = G @ solved[:, s]
        result -= np.outer(along, along) / solved[:, s].sum()
    return np.asarray(0.5 * (result + result.T))


def _factored(matrix: Float64) -> Cholesky | None:
    """The Cholesky factor with the smallest ridge that makes the matrix definite; None for kernels that are zero."""
    ends, diagonal = np.arange(len(matrix)), matrix.diagonal().copy()
    for ridge in CLASS_SVMS.ridges:
        matrix[ends, ends] = diagonal + ridge * diagonal.mean()
        with contextlib.suppress(np.linalg.LinAlgError):
            factor: Cholesky = scipy.linalg.cho_factor(matrix, check_finite=False)
            return factor
    return None


@dataclass(frozen=True)
class ClassValues:
    """The objectives of some classes over all samples."""

    primal: Float64
    loss: Float64  # the part of the primal value that is loss
    intercept: Float64


class Blocks:
    """A cache of blocks of all kernels over the working sets of a state, where tasks run; the least recently used ones
    leave first."""

    def __init__(self, problem: Problem, state: State) -> None:
        self._problem, self.largest, self._room = problem, state.room, problem.stack.room_near(state.room)
        self._sets = state.working.copy()
        self._kept: dict[int, Any] = {}  # blocks, or futures of blocks, in the order of last use
        self._sizes: dict[int, int] = {}  # of the kept ones, in bytes
        self._used = 0
        self._announced = False

    def fits(self, k: int) -> bool:
        """Whether the block of class k fits in memory; the first time that one does not, the plan is said."""
        fits = self._bytes(k) <= self.largest
        if not (fits or self._announced):
            self._announced, source = True, self._problem.stack.source
            self._problem.observer(
                Note(
                    f"{self._sets.sizes[k]:,} samples of class {k} take {self._bytes(k) / 1e6:,.0f} MB, "
                    f"{self.largest / 1e6:,.0f} MB are there: every step of the weights reads the kernels in two or "
                    f"three passes of {source.tile_bytes / 1e9:,.1f} GB"
                )
            )
        return fits

    def follow(self, working: SampleSets) -> None:
        """Use these working sets; blocks of sets that changed are dropped."""
        for k in working.differing(self._sets):
            if self._kept.pop(k, None) is not None:
                self._used -= self._sizes.pop(k)
        self._sets = working.copy()

    def samples(self, k: int) -> Samples:
        """The working set of class k."""
        return self._sets.members(k)

    def batches(self, classes: Sequence[int]) -> Iterator[tuple[list[int], list[Any]]]:
        """The classes, kept ones first, as many at a time as fit, with their blocks as arguments of tasks."""
        kept_first = [k for k in classes if k in self._kept] + [k for k in classes if k not in self._kept]
        for batch in in_batches(kept_first, lambda some: sum(self._bytes(k) for k in some), self._room):
            yield from self._held(batch)

    def _held(self, batch: list[int]) -> Iterator[tuple[list[int], list[Any]]]:
        """A batch with its blocks; in smaller ones where something else in this process takes the memory."""
        try:
            self._gather(batch)
        except ResourceError:
            if len(batch) == 1 and not self._kept:
                raise
            self._kept, self._sizes, self._used = {}, {}, 0
            middle = (len(batch) + 1) // 2
            for some in filter(None, (batch[:middle], batch[middle:])):
                yield from self._held(some)
        else:
            yield batch, [self._kept[k] for k in batch]

    def _gather(self, batch: list[int]) -> None:
        """Make sure that the blocks of these classes are kept, and drop others that no longer fit."""
        for k in batch:
            if k in self._kept:
                self._kept[k] = self._kept.pop(k)  # now the last to leave
        missing = [k for k in batch if k not in self._kept]
        if not missing:
            return
        sizes = {k: self._bytes(k) for k in missing}
        for k in [k for k in self._kept if k not in set(batch)]:
            if self._used + sum(sizes.values()) <= self._room:
                break
            del self._kept[k]
            self._used -= self._sizes.pop(k)
        found = self._problem.stack.block_near([self._sets.members(k) for k in missing])
        self._kept.update(zip(missing, found, strict=True))
        self._sizes |= sizes
        self._used += sum(sizes.values())

    def _bytes(self, k: int) -> int:
        stack = self._problem.stack
        return int(own_layers(self._problem, stack.s) * stack.dtype.itemsize * int(self._sets.sizes[k]) ** 2)


class ClassSvms:
    """The SVMs of all classes of a problem with one C; they start from their last alpha.

    Parameters
    ----------
    problem : Problem
    blocks : Blocks
        The compact blocks of the classes.
    state : State
        Its working sets and coefficients are where the SVMs start.
    C : float
    intercept : bool
        Whether the classes have intercepts.
    """

    def __init__(self, problem: Problem, blocks: Blocks, state: State, C: float, intercept: bool) -> None:
        self._problem, self._blocks, self._C, self._intercept = problem, blocks, C, intercept
        self.working = state.working.copy()
        self.alpha: dict[int, Float64] = {}  # (w,) by class, of the SVMs solved since the state
        self.coef = state.coef
        self.svm_calls = 0

    def solve(self, classes: Sequence[int], weights: Float64, tol: float, *, curved: bool) -> list[ClassSolution]:
        """Solve the SVMs of these classes on their blocks at these weights, one task each.

        Where the time is up, `Stopped` is raised, and the alpha of the classes that were solved are kept.
        """
        found: dict[int, ClassSolution] = {}
        svms = {k: self._svm(k, weights, tol, curved) for k in classes}
        fitting = [k for k in classes if self._blocks.fits(k)]
        others = [k for k in classes if k not in set(fitting)]
        try:
            for batch, blocks in self._blocks.batches(fitting):
                tasks = ((block, svms[k]) for k, block in zip(batch, blocks, strict=True))
                found.update(zip(batch, self._problem.runtime.map(solve_class, tasks), strict=True))
            if others:
                found |= self._solved_in_passes({k: svms[k] for k in others}, weights)
        finally:
            self.alpha |= {k: solution.alpha for k, solution in found.items()}
            self.svm_calls += len(found)
        return [found[k] for k in classes]

    def _svm(self, k: int, weights: Float64, tol: float, curved: bool) -> ClassSvm:
        W = self._blocks.samples(k)
        y = self._problem.Y.at(W, k)
        warm = self.alpha[k] if k in self.alpha else column(self.coef, k)[W] * y
        return ClassSvm(y, self._C, self._intercept, weights, warm, tol, self._problem.oracle, curved)

    def _solved_in_passes(self, svms: dict[int, ClassSvm], weights: Float64) -> dict[int, ClassSolution]:
        """The SVMs on the stack, without a block of all kernels: those of many classes share the passes."""
        stack, n, room = self._problem.stack, self._problem.n, self._blocks.largest
        solved = self._solved_on_sums(svms, weights)
        # the products of all kernels with one class's coefficients, where a curvature is wanted and they fit
        curved = 8 * stack.s * n <= room and all(svm.curved for svm in svms.values())
        most = max(1, room // (8 * stack.s * n)) if curved else CLASS_SVMS.classes_at_once
        found: dict[int, ClassSolution] = {}
        for some in in_batches(list(svms), len, most):
            beta = np.zeros((n, len(some)))
            for position, k in enumerate(some):
                beta[self._blocks.samples(k), position] = solved[k][0] * svms[k].y
            curvatures: dict[int, Float64] = {}
            if curved:
                products = stack.correlate(beta)  # (s, n, classes)
                forms = np.einsum("anm,nm->ma", products, beta)
                curvatures = self._curvatures({k: products[:, :, p] for p, k in enumerate(some)}, solved, weights)
            else:
                found_forms = stack.apply(beta, np.zeros(stack.s)).forms
                assert found_forms is not None
                forms = found_forms
            for k, own in zip(some, np.maximum(forms, 0.0), strict=True):
                alpha, primal = solved[k]
                found[k] = ClassSolution(alpha, float(alpha.sum()), own, primal, curvatures.get(k))
        return found

    def _solved_on_sums(self, svms: dict[int, ClassSvm], weights: Float64) -> dict[int, tuple[Float64, float]]:
        """alpha and the primal value of each class on the combined matrix of its samples, or by parts of that."""
        stack, runtime, room = self._problem.stack, self._problem.runtime, self._blocks.largest
        dtype = sum_dtype(stack.dtype, self._problem.n, self._problem.tol)
        sizes = {k: int(BLOCK_MEMORY.in_flight * dtype.itemsize * len(svm.y) ** 2) for k, svm in svms.items()}
        whole = [k for k in svms if sizes[k] <= room]
        in_tasks = bool(whole) and stack.cut_in_tasks([sizes[k] for k in whole], room)
        found: dict[int, tuple[Float64, float]] = {}
        for some in in_batches(whole, lambda batch: sum(sizes[k] for k in batch), np.inf if in_tasks else room):
            sets = [self._blocks.samples(k) for k in some]
            questions = [(svms[k],) for k in some]
            answers = stack.answers(
                solve_sum, questions, sets, runtime=runtime, room=room, weights=weights, dtype=dtype
            )
            found.update(zip(some, answers, strict=True))
        for k in svms.keys() - found.keys():
            svm, upper = svms[k], np.full(len(svms[k].y), svms[k].C)
            kernels = StreamedKernels(stack, weights[None], self._blocks.samples(k), room)
            beta, [scores] = svm_by_parts(kernels, np.ones(1), svm.y, upper, svm.warm, svm.tol, intercept=svm.intercept)
            found[k] = beta * svm.y, svm_bounds(beta, scores, svm.y, upper, 1.0, svm.intercept)[0]
        return found

    def _curvatures(
        self, products: dict[int, Float64], solved: dict[int, tuple[Float64, float]], weights: Float64
    ) -> dict[int, Float64]:
        """The curvature of each class from the products (s, n) of its coefficients; none of too many free samples."""
        room, least, sets = self._blocks.largest, CLASS_SVMS.free * self._C, {}
        for k in products:
            alpha = solved[k][0]
            free = self._blocks.samples(k)[(alpha > least) & (alpha < self._C - least)]
            if self._intercept < len(free) and BLOCK_MEMORY.in_flight * 8 * len(free) ** 2 <= room:
                sets[k] = free
        found: dict[int, Float64] = {}
        for some in in_batches(list(sets), lambda batch: sum(8 * len(sets[k]) ** 2 for k in batch), room):
            questions = [(np.ascontiguousarray(products[k][:, sets[k]]), self._intercept) for k in some]
            answers = self._problem.stack.answers(
                curvature_of,
                questions,
                [sets[k] for k in some],
                runtime=self._problem.runtime,
                room=room,
                weights=weights,
                dtype=np.float64,
            )
            found.update(zip(some, answers, strict=True))
        return found

    def keep(self, alpha: dict[int, Float64]) -> None:
        """Make these alpha, over the present working sets, the coefficients of their classes."""
        classes = list(alpha)
        for start in range(0, len(classes), CLASS_SVMS.classes_at_once):
            new = {}
            for k in classes[start : start + CLASS_SVMS.classes_at_once]:
                W = self._blocks.samples(k)
                new[k] = np.zeros(self._problem.n)
                new[k][W] = alpha[k] * self._problem.Y.at(W, k)
            self.coef = with_columns(self.coef, new)
        self.alpha = {}

    def solve_whole(self, classes: Sequence[int], weights: Float64, tol: float) -> State:
        """Solve these classes over all samples at these weights; the bounds are in the state that is returned."""
        some = list(classes)
        part = replace(self._problem, Y=self._problem.Y.among(some), tol=tol, start=None)
        fixed = FixedWeights(self._C, self._intercept)
        first = fixed.solver(part, weights).init(part)
        warm = with_columns(first.coef, {at: column(self.coef, k) for at, k in enumerate(some)})
        state = fixed.solve(replace(part, start=replace(first, coef=warm)), weights)
        if np.isinf(state.primal).any():
            raise Stopped
        self.coef = with_columns(self.coef, {k: column(state.coef, at) for at, k in enumerate(some)})
        self.svm_calls += state.svm_calls
        return state

    def evaluate(self, classes: Sequence[int], weights: Float64, sets: SetUpdate = "grow") -> ClassValues:
        """The primal values of these classes' coefficients over all samples, in passes.

        Parameters
        ----------
        classes : sequence of int
        weights : array (s,)
        sets : {"grow", "anew", "keep"}
            What becomes of the working sets: they grow by the samples that violate their margins, are replaced (for
            classes that were solved over all samples), or are kept.
        """
        primal, loss, intercept = np.empty((3, len(classes)))
        for start in range(0, len(classes), CLASS_SVMS.classes_at_once):
            some = list(classes[start : start + CLASS_SVMS.classes_at_once])
            beta = dense(self.coef, some)
            scores = self._problem.stack.apply(beta, weights, forms=False).scores
            for position, k in enumerate(some):
                at, y = start + position, self._problem.Y.column(k)
                loss[at], intercept[at] = self._loss(scores[:, position], y)
                primal[at] = 0.5 * float(beta[:, position] @ scores[:, position]) + loss[at]
                margins, support = y * (scores[:, position] + intercept[at]), beta[:, position] != 0
                if sets == "grow":
                    self.working.put(k, next_set(self.working.mask(k), support, margins, drop=False))
                elif sets == "anew":
                    self.working.put(k, settled_set(support, margins))
        self._blocks.follow(self.working)
        return ClassValues(primal, loss, intercept)

    def forms(self, classes: Sequence[int]) -> Float64:
        """(classes, s): the forms of these classes' coefficients.

        In passes over the stack: blocks of the support samples took ten times as long.
        """
        nothing = np.zeros(self._problem.stack.s)
        found = []
        for start in range(0, len(classes), CLASS_SVMS.classes_at_once):
            coef = dense(self.coef, classes[start : start + CLASS_SVMS.classes_at_once])
            forms = self._problem.stack.apply(coef, nothing).forms
            assert forms is not None
            found.append(forms)
        return np.vstack(found)

    def _loss(self, scores: Float64, y: Float64) -> tuple[float, float]:
        if self._intercept:
            return least_hinge(scores, y, self._C)
        return self._C * float(np.maximum(1.0 - y * scores, 0.0).sum()), 0.0
