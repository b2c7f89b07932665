"""VSKL, L1MKL, LpMKL: gold optima, certificates, invariances, and agreement with each other."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_working_sets, whole

import dmkl
from dmkl.errors import ConfigError
from dmkl.problems.norms import MixedNorm
from dmkl.solvers.interior_point import solve_interior
from dmkl.solvers.kernel_operators import sweep
from dmkl.solvers.mirror import MirrorOptions, solve_mirror
from dmkl.solvers.mixed_norm import NEWTON, WEIGHTS_METHODS
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

GOLD = Path(__file__).parent / "gold"
CASES = json.loads((GOLD / "open.json").read_text())
ARRAYS = dict(np.load(GOLD / "open.npz"))


RHO = {dmkl.VSKL(q=2, C=10.0): 4 / 3, dmkl.L1MKL(C=5.0): 2.0}


def formulation(section: str, case: dict[str, Any]) -> Any:
    if section == "vskl":
        return dmkl.VSKL(q=float(case["q"]), C=case["C"])
    if section == "lpmkl":
        return dmkl.LpMKL(p=float(case["p"]), C=case["C"])
    return dmkl.L1MKL(C=case["C"])


def stack_of(case: dict[str, Any]) -> KernelStack:
    return KernelStack.from_array(ARRAYS[case["kernels"]], groups=ARRAYS[case["groups"]] if "groups" in case else None)


GOLDEN = [(section, case) for section in ("vskl", "l1mkl", "lpmkl") for case in CASES[section]]
NAMES = [f"{section}-{case.get('q', case.get('p', ''))}-C{case['C']:g}" for section, case in GOLDEN]


@pytest.mark.parametrize(("section", "case"), GOLDEN, ids=NAMES)
def test_gold_optima_are_met_and_certified(section: str, case: dict[str, Any]) -> None:
    fit = dmkl.solve(stack_of(case), ARRAYS[case["y"]], formulation(section, case), tol=1e-7)
    optimum, rounding = case["value"], 1e-9 * case["value"] + case["solver_tol"] * case["value"]
    assert fit.converged
    assert abs(fit.objective - optimum) <= 1e-6 * optimum
    assert fit.dual - rounding <= optimum <= fit.objective + 100 * rounding


@pytest.mark.parametrize("method", [NEWTON, *WEIGHTS_METHODS])
@pytest.mark.parametrize(("section", "case"), GOLDEN, ids=NAMES)
def test_every_method_reaches_the_same_optimum(section: str, case: dict[str, Any], method: str) -> None:
    fit = dmkl.solve(stack_of(case), ARRAYS[case["y"]], formulation(section, case), tol=2e-3, method=method)
    assert fit.converged
    assert fit.dual <= case["value"] * (1 + 1e-7)
    assert case["value"] * (1 - 1e-7) <= fit.objective <= case["value"] * (1 + 2e-3)


def test_the_adaptive_rule_beats_the_papers_and_the_oracle_takes_few_steps() -> None:
    """The prototype's finding, and the paper's own of 2 to 4 block steps an oracle call."""
    K, groups, y = binary()
    norm = MixedNorm(groups, 4 / 3)
    adaptive = solve_mirror(K, y, 10.0, norm, 1e-3)
    paper = solve_mirror(K, y, 10.0, norm, 1e-3, options=MirrorOptions(rule="paper"))
    assert 5 * adaptive.svm_calls < paper.svm_calls
    assert 1 <= paper.svm_calls / paper.oracle_calls <= 4


def test_an_unknown_method_is_refused() -> None:
    K, _, y = binary()
    with pytest.raises(ConfigError, match="unknown method 'miror' of L1MKL; did you mean 'mirror'"):
        dmkl.solve(KernelStack.from_array(K), y, dmkl.L1MKL(), method="miror")


@pytest.mark.parametrize(("section", "case"), GOLDEN, ids=NAMES)
def test_the_objective_is_that_of_the_returned_point(section: str, case: dict[str, Any]) -> None:
    """Recomputed from weights, coefficients and intercept with the formulas of FORMULATIONS."""
    K, y, C = ARRAYS[case["kernels"]], ARRAYS[case["y"]], case["C"]
    fit = dmkl.solve(stack_of(case), y, formulation(section, case), tol=1e-4)
    weights = fit.weights[0]
    assert (weights >= 0).all()
    forms = np.einsum("i,aij,j->a", fit.coef, K, fit.coef)
    norms = weights * np.sqrt(np.maximum(forms, 0))
    alpha = fit.coef * y
    assert ((alpha >= 0) & (alpha <= C)).all()
    assert abs(fit.coef.sum()) <= 1e-9 * alpha.sum()
    if section == "lpmkl" and float(case["p"]) > 1:
        p = float(case["p"])
        r = 2.0 if np.isinf(p) else 2 * p / (p + 1)
        penalty = 0.5 * (norms**r).sum() ** (2 / r)
    else:
        q = float(case.get("q", 1))
        groups = ARRAYS[case["groups"]] if "groups" in case else np.zeros(len(K), int)
        u = np.array([norms[groups == j].sum() for j in np.unique(groups)])
        penalty = 0.5 * u.max() ** 2 if np.isinf(q) else 0.5 * (u ** (2 * q)).sum() ** (1 / q)
    scores = np.tensordot(weights, K, 1) @ fit.coef + fit.intercept
    assert fit.objective == pytest.approx(penalty + C * np.maximum(0, 1 - y * scores).sum(), rel=1e-8)


CKL = [0.5, 0.51, 0.6, 0.75, 0.85, 0.99]  # the paper's table 1 has 0.75, 0.85 and 0.99


@pytest.mark.parametrize("method", ["automatic", NEWTON, *WEIGHTS_METHODS])
@pytest.mark.parametrize("q", CKL)
def test_composite_kernel_learning_is_convex_and_certified(q: float, method: str) -> None:
    """q < 1: the objective is that of the formula, and the bound of the coefficients alone nearly proves it."""
    K, groups, y = binary()
    C = 10.0
    tol = 1e-7 if method == "automatic" else 2e-3
    fit = dmkl.solve(KernelStack.from_array(K, groups=groups), y, dmkl.VSKL(q=q, C=C), tol=tol, method=method)
    assert fit.converged
    forms = np.einsum("i,aij,j->a", fit.coef, K, fit.coef)
    norms = fit.weights[0] * np.sqrt(forms)
    u = np.array([norms[groups == j].sum() for j in np.unique(groups)])
    M = np.array([forms[groups == j].max() for j in np.unique(groups)])
    scores = np.tensordot(fit.weights[0], K, 1) @ fit.coef + fit.intercept
    primal = 0.5 * (u ** (2 * q)).sum() ** (1 / q) + C * np.maximum(0, 1 - y * scores).sum()
    assert fit.objective == pytest.approx(primal, rel=1e-8)
    worst = M.max() if q == 0.5 else (M ** (q / (2 * q - 1))).sum() ** ((2 * q - 1) / q)
    bound = np.abs(fit.coef).sum() - 0.5 * worst
    assert bound <= fit.objective * (1 + 1e-9)
    assert bound >= fit.objective * (1 - 0.01)
    assert fit.dual <= fit.objective * (1 + 1e-12)


def test_composite_kernel_learning_lies_between_l1mkl_and_vskl() -> None:
    """The norm falls with q, so the optimum does: from L1MKL at q = 1/2 to VSKL with q = 1, without a jump."""
    K, groups, y = binary()
    stack = KernelStack.from_array(K, groups=groups)
    fits = [dmkl.solve(stack, y, dmkl.VSKL(q=q, C=10.0), tol=1e-6) for q in (*CKL, 0.9999, 1.0)]
    for sparser, denser in itertools.pairwise(fits):
        assert denser.dual <= sparser.objective
    assert fits[0].objective == pytest.approx(dmkl.solve(stack, y, dmkl.L1MKL(C=10.0), tol=1e-6).objective, rel=2e-6)
    assert fits[-2].objective == pytest.approx(fits[-1].objective, rel=1e-3)
    np.testing.assert_allclose(fits[-2].weights, fits[-1].weights, atol=0.02)


def test_a_smaller_q_selects_fewer_groups() -> None:
    """One group of four tells the classes apart, another a little; two are noise."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(80) < 0.5, 1.0, -1.0)
    X = np.outer(y, [1.2, 0.4, 0.0, 0.0]) + rng.normal(size=(80, 4))
    K = [np.exp(-((X[:, None, v] - X[None, :, v]) ** 2) / (2 * w**2)) for v in range(4) for w in (0.7, 2.0)]
    stack = KernelStack.from_array(np.stack(K), groups=np.repeat(np.arange(4), 2))
    shares = {}
    for q in (0.55, 0.75, 1.0, 2.0):
        fit = dmkl.solve(stack, y, dmkl.VSKL(q=q, C=1.0))
        assert fit.converged
        norms = fit.weights[0] * np.sqrt(np.einsum("i,aij,j->a", fit.coef, np.stack(K), fit.coef))
        u = norms.reshape(4, 2).sum(axis=1)
        shares[q] = float(np.sort(u / u.sum())[:2].sum())  # of the two groups that count least
    assert shares[0.55] < 0.2 * shares[1.0]
    assert shares[0.55] < shares[0.75] < shares[1.0] < shares[2.0]


def test_composite_kernel_learning_on_working_sets(store: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds, and Newton's method in a ball of groups, where neither the block nor a group is one kernel."""
    small_working_sets(monkeypatch, start=15, least_growth=20)
    stack = KernelStack.from_array(whole(store).astype(np.float64), groups=store.bank.groups)
    full = dmkl.solve(stack, store.labels, dmkl.VSKL(q=0.75, C=5.0), tol=1e-4)
    fit = dmkl.solve(open_stack(store), store.labels, dmkl.VSKL(q=0.75, C=5.0), tol=1e-4, method=NEWTON)
    assert fit.converged
    np.testing.assert_allclose(fit.objective, full.objective, rtol=3e-4)


def binary() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return ARRAYS["bin_K"], ARRAYS["bin_groups"], ARRAYS["bin_y"]


@pytest.mark.parametrize("problem", [dmkl.VSKL(q=2, C=10.0), dmkl.L1MKL(C=10.0), dmkl.LpMKL(p=2, C=10.0)])
def test_permuting_kernels_permutes_weights(problem: Any) -> None:
    K, groups, y = binary()
    order = np.random.default_rng(0).permutation(len(K))
    fit = dmkl.solve(KernelStack.from_array(K, groups=groups), y, problem, tol=1e-8)
    moved = dmkl.solve(KernelStack.from_array(K[order], groups=groups[order]), y, problem, tol=1e-8)
    assert moved.objective == pytest.approx(fit.objective, rel=1e-7)
    np.testing.assert_allclose(moved.weights[0], fit.weights[0][order], atol=1e-3 * fit.weights.max())


@pytest.mark.parametrize("problem", [dmkl.VSKL(q=2, C=10.0), dmkl.L1MKL(C=10.0)])
def test_a_duplicated_kernel_changes_nothing(problem: Any) -> None:
    K, groups, y = binary()
    fit = dmkl.solve(KernelStack.from_array(K, groups=groups), y, problem, tol=1e-7)
    twice = KernelStack.from_array(np.concatenate([K, K[2:3]]), groups=np.append(groups, groups[2]))
    assert dmkl.solve(twice, y, problem, tol=1e-7).objective == pytest.approx(fit.objective, rel=1e-6)


def test_formulations_agree_where_they_coincide() -> None:
    """One group is L1MKL; singletons with q = 1, p = inf and s times the uniform SVM are one problem."""
    K, _, y = binary()
    alone = np.arange(len(K))
    one = dmkl.solve(KernelStack.from_array(K), y, dmkl.VSKL(q=3, C=10.0), tol=1e-8).objective
    l1 = dmkl.solve(KernelStack.from_array(K), y, dmkl.L1MKL(C=10.0), tol=1e-8).objective
    assert one == pytest.approx(l1, rel=1e-7)
    vskl = dmkl.solve(KernelStack.from_array(K, groups=alone), y, dmkl.VSKL(q=1, C=10.0), tol=1e-8).objective
    lp = dmkl.solve(KernelStack.from_array(K), y, dmkl.LpMKL(p=np.inf, C=10.0), tol=1e-8).objective
    svm = dmkl.solve(KernelStack.from_array(K * len(K)), y, dmkl.UniformMKL(C=10.0), tol=1e-8).objective
    assert vskl == pytest.approx(lp, rel=1e-7)
    assert svm == pytest.approx(lp, rel=1e-7)
    near = dmkl.solve(KernelStack.from_array(K), y, dmkl.LpMKL(p=1.02, C=10.0), tol=1e-5).objective
    assert near == pytest.approx(l1, rel=2e-2)


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> None:
    small_working_sets(monkeypatch, start=15, least_growth=20)


@pytest.mark.parametrize("problem", [dmkl.VSKL(q=np.inf, C=10.0), dmkl.L1MKL(C=0.05), dmkl.LpMKL(p=1.5, C=100.0)])
def test_working_sets_reach_the_same_optimum(store: KernelStore, problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with C so small that alpha is not sparse and the sets grow to everything."""
    assert store.labels is not None
    stack = KernelStack.from_array(whole(store).astype(np.float64), groups=store.bank.groups)
    at_once = dmkl.solve(stack, store.labels, problem, tol=1e-6)
    small_working_sets(monkeypatch, start=15, least_growth=20)
    by_rounds = dmkl.solve(stack, store.labels, problem, tol=1e-5)
    assert by_rounds.rounds > at_once.rounds == 1
    assert by_rounds.converged
    for k in range(3):
        assert at_once.dual[k] * (1 - 1e-9) <= by_rounds.objective[k] <= at_once.objective[k] * (1 + 2e-5)


@pytest.mark.parametrize("problem", [dmkl.VSKL(q=2, C=10.0), dmkl.L1MKL(C=5.0)])
def test_later_rounds_gather_the_kernels_that_matter(
    store: KernelStore, problem: Any, compact: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the bound holds over the others too: some that no block holds are poor, and one comes back."""
    assert store.labels is not None
    held: list[list[int]] = []
    answers = KernelStack.answers

    def seen(self: KernelStack, *arguments: Any, **options: Any) -> Any:
        if "kernels" in options:  # else it is a weighted sum
            held.append([len(chosen) for chosen in options["kernels"]])
        return answers(self, *arguments, **options)

    monkeypatch.setattr(KernelStack, "answers", seen)
    stack = KernelStack.from_array(whole(store).astype(np.float64), groups=store.bank.groups)
    fit = dmkl.solve(stack, store.labels, problem, tol=1e-6)
    assert held[0] == [store.s] * 3
    assert max(held[1]) < store.s
    for k in range(3):
        beta = fit.coef[:, k]
        forms = np.einsum("i,aij,j->a", beta, whole(store), beta)
        norm = MixedNorm(
            store.bank.groups if isinstance(problem, dmkl.VSKL) else np.zeros(store.s, dtype=int), RHO[problem]
        )
        assert np.abs(beta).sum() - norm.conjugate(forms) == pytest.approx(fit.dual[k], rel=1e-4)


@pytest.mark.parametrize("make", [dmkl.VSKL, dmkl.LpMKL, dmkl.UniformMKL])
def test_a_path_ends_where_cold_starts_end_in_fewer_rounds(
    store: KernelStore, make: Any, compact: None, tmp_path: Path
) -> None:
    constants = {"C": (1.0, 3.0)}
    if make is not dmkl.UniformMKL:
        constants = {"q" if make is dmkl.VSKL else "p": (1.0, 1.5, np.inf), **constants}
    points = dmkl.grid(make, **constants)
    stack = open_stack(store.path)
    path = list(dmkl.solve_path(stack, store.labels, points, tol=1e-5, folder=tmp_path))
    cold = [dmkl.solve(stack, store.labels, point, tol=1e-5) for point in points]
    for warm, fit in zip(path, cold, strict=True):
        assert warm.converged
        assert np.allclose(warm.objective, fit.objective, rtol=2e-5)
    assert sum(fit.rounds for fit in path[1:]) < sum(fit.rounds for fit in cold[1:]) or make is dmkl.UniformMKL
    passes = stack.passes
    again = list(dmkl.solve_path(stack, store.labels, points, tol=1e-5, folder=tmp_path))
    assert stack.passes == passes  # every checkpoint is a finished one
    assert all(np.array_equal(a.coef, b.coef) for a, b in zip(path, again, strict=True))


def test_a_grid_goes_from_neighbour_to_neighbour() -> None:
    points = dmkl.grid(dmkl.VSKL, q=(1, 2, np.inf), C=(1.0, 10.0))
    assert [(point.q, point.C) for point in points] == [(1, 1), (2, 1), (np.inf, 1), (np.inf, 10), (2, 10), (1, 10)]


def test_a_start_from_other_samples_is_refused(store: KernelStore) -> None:
    K, groups, y = binary()
    fit = dmkl.solve(KernelStack.from_array(K, groups=groups), y, dmkl.L1MKL())
    with pytest.raises(ConfigError, match="start from is not of 150 samples, 3 classes and 6 kernels"):
        dmkl.solve(open_stack(store.path), store.labels, dmkl.L1MKL(), start=fit)


def test_classes_learn_their_own_weights(store: KernelStore) -> None:
    assert store.labels is not None
    fit = dmkl.solve(open_stack(store.path), store.labels, dmkl.VSKL(q=2, C=10.0), method="interior")
    assert fit.weights.shape == (3, store.s)
    assert not np.allclose(fit.weights[0], fit.weights[1])
    assert (fit.passes, fit.svm_calls) == (2, 3)


def test_every_backend_gives_the_same_model(store: KernelStore, compact: None, two_workers: Any) -> None:
    assert store.labels is not None
    fits = [
        dmkl.solve(open_stack(store.path, backend=backend, workers=workers), store.labels, dmkl.VSKL(q=2, C=10.0))
        for backend, workers in (("memory", 1), ("disk", 2))
    ]
    fits.append(dmkl.solve(open_stack(store.path, runtime=two_workers), store.labels, dmkl.VSKL(q=2, C=10.0)))
    for fit in fits[1:]:
        assert np.array_equal(fits[0].coef, fit.coef)
        assert np.array_equal(fits[0].weights, fit.weights)
        assert np.array_equal(fits[0].objective, fit.objective)


@pytest.mark.parametrize("C", [1e-4, 1.0, 1e5])
@pytest.mark.parametrize("q", [1.0, 2.0, np.inf])
def test_any_scale_of_kernels_and_constant_is_solved(C: float, q: float) -> None:
    K, groups, y = binary()
    for scale in (1e-3, 1.0, 1e3):
        stack = KernelStack.from_array(K * len(y) * scale, groups=groups)
        fit = dmkl.solve(stack, y, dmkl.VSKL(q=q, C=C), tol=1e-5)
        assert fit.converged
        found = solve_interior(K * len(y) * scale, y, C, MixedNorm(groups, 1.5), 1e-6)
        assert found.steps < 25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sweep_is_two_tensor_products(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    K, beta, weights = rng.random((4, 7, 7)).astype(dtype), rng.normal(size=7), rng.random(4)
    combined, products = np.empty((7, 7)), np.empty((4, 7))
    K += K.transpose(0, 2, 1)
    sweep(K, np.arange(4), beta, weights, combined, products)
    np.testing.assert_allclose(combined, np.tensordot(weights, K.astype(np.float64), 1), rtol=1e-12)
    np.testing.assert_allclose(products, K.astype(np.float64) @ beta, rtol=1e-12, atol=1e-12)


def test_exponents_and_constants_out_of_range_are_refused() -> None:
    for wrong, message in [
        (lambda: dmkl.VSKL(q=0.0), r"q should be in \(0, inf\], not 0.0"),
        (lambda: dmkl.LpMKL(p=0.9), r"p should be in \[1, inf\], not 0.9"),
        (lambda: dmkl.L1MKL(C=0.0), "C should be positive"),
    ]:
        with pytest.raises(ConfigError, match=message):
            wrong()


def test_a_tolerance_beyond_rounding_is_no_error() -> None:
    """Points reach their bounds then: what was found is judged as it is."""
    rng = np.random.default_rng(24)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, 1, -1)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    centre = np.eye(60) - 1 / 60
    K = np.array([centre @ np.exp(-squares / (2 * width**2)) @ centre for width in (0.5, 2.0)], dtype=np.float32)
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.VSKL(q=2, C=1.0), tol=1e-12)
    assert fit.gap < 1e-6


@pytest.mark.parametrize("C", [1.0, 1e3, 1e5])
@pytest.mark.parametrize(
    "formulation", [dmkl.L1MKL, partial(dmkl.VSKL, np.inf), partial(dmkl.LpMKL, 1.05), partial(dmkl.LpMKL, np.inf)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_and_a_large_C_are_certified(formulation: Any, C: float, seed: int) -> None:
    """Half of the labels are noise and kernels have low rank: most samples end at C, far from where methods start."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    X[30:] = X[:30]  # the same samples again, some with the other label
    y = np.where(rng.random(60) < 0.5, 1.0, np.sign(X[:, 0]))
    squared = (X.T[:, :, None] - X.T[:, None, :]) ** 2
    K = np.concatenate([np.exp(-squared / 2), np.exp(-squared / 200), X.T[:, :, None] * X.T[:, None, :]])
    fit = dmkl.solve(dmkl.KernelStack.from_array(K, groups=np.arange(9) % 3), y, formulation(C=C), tol=1e-4)
    assert fit.worst_gap <= 1e-4
