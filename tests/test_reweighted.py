"""VSKL with q < 1/2: reweighting against brute force, its descent, what it proves and what it does not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_working_sets
from exact_svm import Vector, libsvm_alpha
from sklearn.exceptions import ConvergenceWarning

import dmkl
from dmkl.problems.norms import ConcaveNorm
from dmkl.solvers import reweighted
from dmkl.solvers.reweighted import ReweightedMethod, ReweightedState
from dmkl.stack import KernelStack

C = 1.0
GROUPS = np.repeat(np.arange(4), 2)


def problem(seed: int = 0, n: int = 30) -> tuple[Vector, Vector]:
    """Two groups that tell the classes apart, one of them less; two of noise."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = np.outer(y, [0.9, 0.6, 0.0, 0.0]) + rng.normal(size=(n, 4))
    K = [np.exp(-((X[:, None, v] - X[None, :, v]) ** 2) / (2 * w**2)) for v in range(4) for w in (0.7, 2.0)]
    return np.stack(K) + 1e-3 * np.eye(n), y


def solved(K: Vector, y: Vector, q: float, **options: Any) -> dmkl.Fit:
    return dmkl.solve(KernelStack.from_array(K, groups=GROUPS), y, dmkl.VSKL(q=q, C=C), **options)


def group_norms(K: Vector, fit: dmkl.Fit) -> Vector:
    forms = np.einsum("i,aij,j->a", fit.coef, K, fit.coef)
    return np.bincount(GROUPS, fit.weights[0] * np.sqrt(forms))


def objective(K: Vector, y: Vector, fit: dmkl.Fit, q: float) -> float:
    """By the formula."""
    scores = np.tensordot(fit.weights[0], K, 1) @ fit.coef + fit.intercept
    penalty = 0.5 * (group_norms(K, fit) ** (2 * q)).sum() ** (1 / q)
    return float(penalty + C * np.maximum(0, 1 - y * scores).sum())


def local_minimum(K: Vector, y: Vector, q: float, weights: Vector) -> float:
    """The wrapper: the SVM and the best weights for its functions, in turn, from these weights."""
    best = np.inf
    for _ in range(200):
        combined = np.tensordot(weights, K, 1)
        beta = libsvm_alpha(combined, y, C) * y
        norms = weights * np.sqrt(np.einsum("i,aij,j->a", beta, K, beta))
        u = np.bincount(GROUPS, norms)
        slack = 1 - y * (combined @ beta)
        least = min(float(np.maximum(slack - y * b, 0).sum()) for b in y - combined @ beta)
        value = 0.5 * (u ** (2 * q)).sum() ** (1 / q) + C * least
        if value > best * (1 - 1e-4):
            break
        best = value
        slope = np.where(u > 0, (u ** (2 * q)).sum() ** (1 / q - 1) * np.maximum(u, 1e-9) ** (2 * q - 1), np.inf)
        weights = norms / slope[GROUPS]
    return best


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("q", "seed"), [(0.45, 0), (0.25, 0), (0.25, 1), (0.1, 2)])
def test_it_is_near_the_best_of_many_starts(q: float, seed: int) -> None:
    """Local minima belong to sets of groups: starts from all of them."""
    K, y = problem(seed)
    fit = solved(K, y, q)
    sets = [some for size in range(1, 5) for some in itertools.combinations(range(4), size)]
    values = [local_minimum(K, y, q, np.isin(GROUPS, some).astype(float)) for some in sets]
    assert fit.objective == pytest.approx(objective(K, y, fit, q), rel=1e-9)
    assert fit.dual <= min(values)  # the bound is one of the whole problem
    assert fit.objective <= 1.1 * min(values)  # it is a local minimum, too
    assert fit.objective >= 0.99 * min(values)


def test_the_objective_falls_with_every_reweighting(monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[float] = []
    real = ReweightedMethod._point

    def seen(self: ReweightedMethod, *arguments: Any) -> Any:
        point = real(self, *arguments)
        points.append(point.primal)
        return point

    monkeypatch.setattr(ReweightedMethod, "_point", seen)
    K, y = problem()
    fit = solved(K, y, 0.2, tol=1e-4)
    assert len(points) >= 3
    assert (np.diff(points) < 0).all()
    assert fit.objective == pytest.approx(points[-1], rel=1e-9)


@pytest.mark.filterwarnings("error")
def test_what_is_proved_and_what_is_not(tmp_path: Path) -> None:
    """The gap is the true one, against L1MKL's bound; the run is stationary, not converged; nothing warns."""
    K, y = problem()
    fit = solved(K, y, 0.25, checkpoint=tmp_path / "state")
    convex = dmkl.solve(KernelStack.from_array(K), y, dmkl.L1MKL(C=C), tol=1e-6)
    assert fit.gap == pytest.approx((fit.objective - fit.dual) / fit.objective)
    assert fit.dual <= convex.objective
    assert fit.dual >= convex.dual * (1 - 1e-3)
    assert fit.gap > 0.01
    assert not fit.converged
    assert "not convex" in fit.rule
    assert (fit.state.own_as(ReweightedState).lowered <= 1e-3).all()
    again = solved(K, y, 0.25, checkpoint=tmp_path / "state")
    assert again.history == []
    finer = solved(K, y, 0.25, tol=1e-5, checkpoint=tmp_path / "state")
    assert (finer.state.own_as(ReweightedState).lowered <= 1e-5).all()  # a smaller tolerance goes on


def test_a_run_cut_short_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last convex problem that is allowed, nothing is known of the point's own tangent."""
    monkeypatch.setattr(reweighted, "OPTIONS", replace(reweighted.OPTIONS, most=1))
    K, y = problem()
    with pytest.warns(ConvergenceWarning, match="the certified gap is"):
        fit = solved(K, y, 0.2, tol=1e-6, max_rounds=1)
    assert not fit.rule
    assert np.isinf(fit.state.own_as(ReweightedState).lowered).all()


def test_paths_and_the_estimator_pass_through(recwarn: pytest.WarningsRecorder) -> None:
    """A path of q across 1/2, each from the solution before; and the estimator, whose gap is the true one."""
    K, y = problem()
    stack = KernelStack.from_array(K, groups=GROUPS)
    fits = list(dmkl.solve_path(stack, y, [dmkl.VSKL(q=q, C=C) for q in (1.0, 0.4, 0.3, 0.75)]))
    assert [bool(fit.rule) for fit in fits] == [False, True, True, False]
    for fit, q in zip(fits, (1.0, 0.4, 0.3, 0.75), strict=True):
        assert fit.objective == pytest.approx(solved(K, y, q).objective, rel=2e-3)
    rng = np.random.default_rng(0)
    X = np.outer(y, [1.0, 0.0]) + rng.normal(size=(len(y), 2))
    model = dmkl.VSKLClassifier(q=0.25, views={"use": [0], "noise": [1]}).fit(X, y)
    assert model.gap_ > 1e-3
    assert not recwarn.list


def test_groups_without_use_have_no_weight() -> None:
    K, y = problem()
    dense, sparse = (np.count_nonzero(group_norms(K, solved(K, y, q))) for q in (0.75, 0.2))
    assert dense == 4
    assert sparse <= 2


def test_one_half_is_approached_from_below() -> None:
    K, y = problem()
    below, at = solved(K, y, 0.4999, tol=1e-5), solved(K, y, 0.5, tol=1e-5)
    assert below.objective == pytest.approx(at.objective, rel=1e-3)


@pytest.mark.filterwarnings("error")
def test_one_group_is_l1mkl_and_proved() -> None:
    K, y = problem()
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.VSKL(q=0.25, C=C))
    assert fit.converged
    assert not fit.rule


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_of_the_kernels_is_of_no_meaning(scale: float) -> None:
    K, y = problem()
    plain = solved(K, y, 0.25)
    scaled = dmkl.solve(KernelStack.from_array(K * scale, groups=GROUPS), y, dmkl.VSKL(q=0.25, C=C / scale))
    assert scaled.rule
    assert scaled.objective * scale == pytest.approx(plain.objective, rel=2e-3)


def test_classes_and_working_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three classes over more samples than the blocks hold: the same objectives as with whole blocks."""
    rng = np.random.default_rng(3)
    y = np.arange(150) % 3
    X = 1.2 * np.eye(4)[y] + rng.normal(size=(150, 4))
    K = [np.exp(-((X[:, None, v] - X[None, :, v]) ** 2) / (2 * w**2)) for v in range(4) for w in (0.7, 2.0)]
    stack = KernelStack.from_array(np.stack(K), groups=GROUPS)
    plain = dmkl.solve(stack, y, dmkl.VSKL(q=0.3, C=C))
    small_working_sets(monkeypatch, start=15, least_growth=20)
    fit = dmkl.solve(stack, y, dmkl.VSKL(q=0.3, C=C))
    assert fit.rule
    assert fit.rounds > 1
    np.testing.assert_allclose(fit.objective, plain.objective, rtol=0.03)  # other points may be stationary, too
    assert (fit.dual <= plain.objective).all()


def test_the_tangent_touches_the_norm_and_is_above_it() -> None:
    rng = np.random.default_rng(0)
    for exponent in (0.02, 0.5, 0.9):
        norm = ConcaveNorm(GROUPS, np.inf, exponent)
        here = rng.random(8) * np.array([1, 1, 0, 0, 1, 1, 1, 1])
        eta = np.sqrt(norm.tangent(here))
        used = eta > 0
        assert 0.5 * (here[used] / eta[used]).sum() ** 2 == pytest.approx(norm.regulariser(here), rel=1e-9)
        for _ in range(20):
            there = rng.random(8) * used
            assert 0.5 * (there[used] / eta[used]).sum() ** 2 >= norm.regulariser(there) * (1 - 1e-9)
            assert norm.regulariser(there) >= 0.5 * there.sum() ** 2 * (1 - 1e-9)
