"""The SVMs of many classes at one common combination of kernels: on compact blocks, then judged over all samples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dmkl._util.types import Float64
from dmkl.oracles import ORACLES, least_hinge
from dmkl.solvers.blocks import Blocks
from dmkl.solvers.columns import column, dense, with_columns
from dmkl.solvers.fixed_weights import FixedWeights
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import State
from dmkl.solvers.sweep import combine, multiply
from dmkl.solvers.working_sets import next_set, settled_set

SCORED = 256  # classes whose scores are computed at once: n times this many values
FREE = 1e-8  # alpha is free when it is further than this share of C from its bounds
RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # of the mean diagonal: free samples may repeat each other, up to rounding


@dataclass(frozen=True)
class Question:
    """One class at given weights of the kernels, self-contained, to be solved anywhere."""

    block: Any  # (s, |W|, |W|)
    y: Float64
    C: float
    intercept: bool
    weights: Float64
    warm: Float64
    tol: float
    oracle: str
    curved: bool  # whether the curvature is wanted


@dataclass(frozen=True)
class Answer:
    """What H(p) = max_alpha sum(alpha) - 1/2 sum_a p_a D_a is at these weights, and how it changes with them."""

    alpha: Float64
    total: float  # sum(alpha): total - 1/2 p . forms is a lower bound of H(p) for every p
    forms: Float64  # D_a
    primal: float  # over the block
    curvature: Float64 | None  # second derivatives of H


def solve_class(question: Question) -> Answer:
    """The SVM on the combined block."""
    block, y, C = question.block, question.y, question.C
    combined = np.empty(block.shape[1:])
    combine(block, question.weights, combined)
    oracle = ORACLES[question.oracle]
    svm = oracle(combined, y, C, intercept=question.intercept, alpha=question.warm, tol=question.tol)
    support = np.flatnonzero(svm.alpha)
    beta = svm.alpha * y
    products = np.empty((len(block), len(support)))  # (K_a beta) of the support samples
    multiply(block, support, beta, products)
    forms = np.maximum(products @ beta[support], 0.0)
    curvature = None
    if question.curved:
        alpha = svm.alpha[support]
        free = (alpha > FREE * C) & (alpha < (1 - FREE) * C)
        curvature = _curvature(combined, support[free], products[:, free], question.intercept)
    return Answer(svm.alpha, float(svm.alpha.sum()), forms, svm.primal, curvature)


def _curvature(combined: Float64, free: NDArray[np.int64], G: Float64, intercept: bool) -> Float64:
    """G K_FF^-1 G' over the free samples F, G_a = (K_a beta)_F, within sum(beta) = 0 where there is an intercept."""
    s = len(G)
    factor = _factored(combined[free[:, None], free]) if len(free) > intercept else None
    if factor is None:
        return np.zeros((s, s))
    solved = scipy.linalg.cho_solve(factor, np.column_stack([G.T, np.ones(len(free))]), check_finite=False)
    result = G @ solved[:, :s]
    if intercept:
        along = G @ solved[:, s]
        result -= np.outer(along, along) / solved[:, s].sum()
    return np.asarray(0.5 * (result + result.T))


def _factored(matrix: Float64) -> Any:
    """Cholesky with the smallest of the ridges that makes it definite; None for kernels that are zero there."""
    ends, diagonal = np.arange(len(matrix)), matrix.diagonal().copy()
    for ridge in RIDGES:
        matrix[ends, ends] = diagonal + ridge * diagonal.mean()
        with contextlib.suppress(np.linalg.LinAlgError):
            return scipy.linalg.cho_factor(matrix, check_finite=False)
    return None


@dataclass(frozen=True)
class Judged:
    """Some classes over all samples: primal values, the part of them that is loss, intercepts."""

    primal: Float64
    loss: Float64
    intercept: Float64


class Classes:
    """All classes of a problem with one C: solved on blocks, alpha kept warm."""

    def __init__(self, problem: Problem, blocks: Blocks, state: State, C: float, intercept: bool) -> None:
        self._problem, self._blocks, self._C, self._intercept = problem, blocks, C, intercept
        self.working = state.working.copy()
        self.alpha: dict[int, Float64] = {}  # over the working sets, of what was solved since the state
        self.coef = state.coef
        self.svm_calls = 0

    def solve(self, classes: Sequence[int], weights: Float64, tol: float, *, curved: bool) -> list[Answer]:
        """The SVMs of these classes at these weights, one task each."""
        found: dict[int, Answer] = {}
        for batch, blocks in self._blocks.batches(classes):
            answers = self._problem.runtime.map(solve_class, self._tasks(batch, blocks, weights, tol, curved))
            found.update(zip(batch, answers, strict=True))
        self.alpha |= {k: answer.alpha for k, answer in found.items()}
        self.svm_calls += len(classes)
        return [found[k] for k in classes]

    def _tasks(
        self, batch: list[int], blocks: list[Any], weights: Float64, tol: float, curved: bool
    ) -> Iterator[tuple[Question]]:
        for k in batch:
            W = self._blocks.samples(k)
            y, block = self._problem.Y[W, k], blocks.pop(0)
            warm = self.alpha[k] if k in self.alpha else column(self.coef, k)[W] * y
            yield (Question(block, y, self._C, self._intercept, weights, warm, tol, self._problem.oracle, curved),)

    def keep(self, alpha: dict[int, Float64]) -> None:
        """Make these, over the working sets at hand, the coefficients."""
        new = {}
        for k, values in alpha.items():
            W = self._blocks.samples(k)
            new[k] = np.zeros(self._problem.n)
            new[k][W] = values * self._problem.Y[W, k]
        self.coef = with_columns(self.coef, new)
        self.alpha = {}

    def settle(self, classes: Sequence[int], weights: Float64, tol: float) -> State:
        """Solve these classes over all samples at these weights; the state of that problem has their bounds."""
        some = list(classes)
        part = replace(self._problem, Y=np.ascontiguousarray(self._problem.Y[:, some]), tol=tol, start=None)
        machine = FixedWeights(self._C, self._intercept)
        first = machine.solver(part, weights).init(part)
        warm = with_columns(first.coef, {at: column(self.coef, k) for at, k in enumerate(some)})
        state = machine.solve(replace(part, start=replace(first, coef=warm)), weights)
        self.coef = with_columns(self.coef, {k: column(state.coef, at) for at, k in enumerate(some)})
        self.svm_calls += state.svm_calls
        return state

    def judge(self, classes: Sequence[int], weights: Float64, sets: str = "grow") -> Judged:
        """What these classes' coefficients reach over all samples. Working sets grow by violators, are made anew for
        classes that have been settled, or are kept."""
        primal, loss, intercept = np.empty((3, len(classes)))
        for start in range(0, len(classes), SCORED):
            some = list(classes[start : start + SCORED])
            beta = dense(self.coef, some)
            scores = self._problem.stack.apply(beta, weights, forms=False).scores
            for position, k in enumerate(some):
                at, y = start + position, self._problem.Y[:, k]
                loss[at], intercept[at] = self._loss(scores[:, position], y)
                primal[at] = 0.5 * float(beta[:, position] @ scores[:, position]) + loss[at]
                margins, support = y * (scores[:, position] + intercept[at]), beta[:, position] != 0
                here = self.working[:, k]
                if sets == "grow":
                    self.working[:, k] = next_set(here, support, margins, drop=False)
                elif sets == "anew":
                    self.working[:, k] = settled_set(support, margins)
        self._blocks.follow(self.working)
        return Judged(primal, loss, intercept)

    def forms(self, classes: Sequence[int]) -> Float64:
        """The forms of these classes' coefficients, in passes: blocks of the support samples took ten times as long."""
        nothing = np.zeros(self._problem.stack.s)
        found = []
        for start in range(0, len(classes), SCORED):
            coef = dense(self.coef, classes[start : start + SCORED])
            forms = self._problem.stack.apply(coef, nothing).forms
            assert forms is not None
            found.append(forms)
        return np.vstack(found)

    def _loss(self, scores: Float64, y: Float64) -> tuple[float, float]:
        if self._intercept:
            return least_hinge(scores, y, self._C)
        return self._C * float(np.maximum(1.0 - y * scores, 0.0).sum()), 0.0
