"""Any loss by Newton's method in the kernel weights: its parts by what defines them, and how few steps it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huber import Huber

import dmkl
from dmkl._util.stopping import deadline
from dmkl.oracles import ORACLES
from dmkl.problems.losses import LOSSES, Loss, Slack, loss_of
from dmkl.runtime.blas import one_blas_thread
from dmkl.solvers import one_kernel, weight_newton
from dmkl.solvers.box_qp import Box, BoxQp
from dmkl.solvers.cholesky import PANEL, Cholesky
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels
from dmkl.solvers.loss_problem import Penalty
from dmkl.solvers.one_kernel import Shape
from dmkl.stack import KernelStack

GOLD = Path(__file__).parent / "gold"
CASES = json.loads((GOLD / "open.json").read_text())["spicy"]
ARRAYS = dict(np.load(GOLD / "open.npz"))
EVERY = pytest.mark.parametrize("name", [*LOSSES, "huber"])
CURVED = pytest.mark.parametrize("name", ["logistic", "squared", "huber"])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_blas_thread():
        yield


def made(name: str) -> Loss:
    return Huber(delta=0.4) if name == "huber" else loss_of(name)


def gaussians(n: int, features: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian of each of two widths on each feature, and labels of which every seventh is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    y[::7] *= -1
    d = (X[:, None, :] - X[None, :, :]) ** 2
    return np.array([np.exp(-d[:, :, a] / w) for a in range(features) for w in (0.5, 4.0)]), y


def targets(name: str, y: np.ndarray) -> np.ndarray:
    """Real targets for the losses that take them."""
    return y + 0.3 * np.random.default_rng(1).normal(size=len(y)) if made(name).regression else y


# The parts.


@pytest.mark.parametrize("n", [5, PANEL, 2 * PANEL + 7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_factor_solves_its_system_with_the_same_bits_on_any_number_of_threads(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(n, n))
    K, w, right = root @ root.T / n, rng.random(n), rng.normal(size=(n, 3))
    w[::4] = 0.0
    found = [Cholesky(K.astype(dtype), w, threads) for threads in (1, 3)]
    np.testing.assert_array_equal(found[0].solve(right), found[1].solve(right))
    inside = w > 0
    exact = np.zeros(right.shape)
    exact[inside] = np.linalg.solve(K[np.ix_(inside, inside)] + np.diag(1 / w[inside]), right[inside])
    np.testing.assert_allclose(found[0].solve(right), exact, atol=1e-12 if dtype == np.float64 else 1e-4)
    np.testing.assert_allclose(found[0].solve(right[:, 0]), exact[:, 0], atol=1e-12 if dtype == np.float64 else 1e-4)


def test_products_and_sums_of_kernels_have_the_same_bits_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    K = rng.normal(size=(3, 1100, 1100))
    K = (K + K.transpose(0, 2, 1)).astype(np.float32)
    dense, sparse = rng.normal(size=1100), np.where(rng.random(1100) < 0.3, rng.normal(size=1100), 0.0)
    one, three = (BlockKernels(K, np.array([2, 0]), threads) for threads in (1, 3))
    for vector in (dense, sparse):
        np.testing.assert_array_equal(one.products(vector), three.products(vector))
        np.testing.assert_allclose(one.products(vector), K[[2, 0]].astype(float) @ vector, rtol=1e-9, atol=1e-9)
    weights = np.array([0.7, 2.0])
    for dtype in (np.float32, np.float64):
        np.testing.assert_array_equal(one.matrix(weights, dtype), three.matrix(weights, dtype))
    np.testing.assert_allclose(one.matrix(weights, np.float64), 0.7 * K[2].astype(float) + 2.0 * K[0], rtol=1e-6)
    np.testing.assert_allclose(one.total(weights, dense), weights @ one.products(dense), rtol=1e-12)
    some = np.array([3, 700, 701, 1099])
    np.testing.assert_array_equal(
        three.restricted(some).matrix(weights, np.float64), one.matrix(weights, np.float64)[np.ix_(some, some)]
    )


@pytest.mark.parametrize("rank", [2, 60])
def test_interior_points_find_what_pairs_find(rank: int) -> None:
    """A hinge, on a kernel of low and of full rank."""
    rng = np.random.default_rng(3)
    root, y = rng.normal(size=(60, rank)), np.where(np.arange(60) % 2, 1.0, -1.0)
    K, zero = 10 * root @ root.T, np.zeros(60)
    exact = ORACLES["smo"](K, y, 1.0, tol=1e-9)
    found, steps = BoxQp(K, Box(y, np.minimum(y, 0), np.maximum(y, 0), zero, zero)).solve(
        lambda rho: abs(rho @ y - 0.5 * rho @ K @ rho - exact.dual) <= 1e-8 * exact.dual
    )
    assert steps < 30
    assert abs(found.sum()) <= 1e-9
    assert ((found * y >= 0) & (found * y <= 1)).all()


@pytest.mark.parametrize("intercept", [True, False])
def test_interior_points_take_kinks(intercept: bool) -> None:
    """The epsilon-insensitive loss, whose rho may have both signs, beside SMO that turns samples to the other side."""
    K, y = gaussians(80)
    y = targets("epsilon", y)
    shape = Shape.of(loss_of("epsilon"), y)
    assert shape is not None
    pairs = one_kernel.MachineMethod(loss_of("epsilon"), y, shape, 1, intercept=intercept)
    options = replace(one_kernel.OPTIONS, pairs=0, pairs_share=0.0)
    inside = one_kernel.MachineMethod(loss_of("epsilon"), y, shape, 1, options, intercept=intercept)
    one, other = (method.solve(20 * K.mean(axis=0), [np.zeros(80)], 1e-8) for method in (pairs, inside))
    assert one.svm_calls > 0 == one.steps
    assert other.steps > 0
    assert max(one.gap, other.gap) <= 1e-8
    assert (abs(one.rho.sum()) <= 1e-9) == (abs(other.rho.sum()) <= 1e-9) == intercept
    assert one.dual == pytest.approx(other.dual, rel=1e-7)
    np.testing.assert_allclose(one.scores + one.intercept, other.scores + other.intercept, atol=2e-3)


def test_the_shape_of_a_loss() -> None:
    y = np.array([1.0, -1.0, 1.0])
    hinge, epsilon, logistic, huber = (Shape.of(made(name), y) for name in ("hinge", "epsilon", "logistic", "huber"))
    assert hinge
    assert epsilon
    assert logistic
    assert huber
    assert [shape.curved for shape in (hinge, epsilon, logistic, huber)] == [False, False, True, True]
    np.testing.assert_array_equal(hinge.box.low, np.minimum(y, 0))
    np.testing.assert_array_equal(hinge.box.high, np.maximum(y, 0))
    np.testing.assert_array_equal(epsilon.box.above, np.full(3, 0.1))
    np.testing.assert_array_equal(huber.box.high, np.full(3, 0.4))
    counted = Shape.of(made("epsilon").counting(np.array([1.0, 2.0, 3.0])), y)
    assert counted
    np.testing.assert_array_equal(counted.box.low, [-1.0, -2.0, -3.0])


class Elsewhere(Huber):
    """Huber's loss with one more kink, in the middle: no method here has it."""

    def slacks(self, y: np.ndarray) -> list[Slack]:
        return [*super().slacks(y), Slack(np.ones(len(y)), 0.0, -0.1, 0.1)]


def test_no_method_for_a_loss_with_curvature_and_a_kink() -> None:
    assert one_kernel.solver_of(Elsewhere(), np.ones(3), 1) is None


@EVERY
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2, 1e5])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_kernel_is_solved_whatever_its_scale(name: str, scale: float, intercept: bool) -> None:
    K, y = gaussians(120)
    loss, y = made(name).counting(np.linspace(0.5, 2.0, 120)), targets(name, y)
    method = one_kernel.solver_of(loss, y, 1, intercept=intercept)
    assert method is not None
    found = method.solve(scale * K.mean(axis=0), [loss.null(y)], 1e-7)
    assert found.gap <= 1e-7
    assert (abs(found.rho.sum()) <= 1e-9 * np.abs(found.rho).sum()) == intercept
    assert intercept or found.intercept == 0.0
    np.testing.assert_allclose(loss.into_domain(y, found.rho), found.rho, atol=1e-9)
    np.testing.assert_allclose(found.scores, scale * K.mean(axis=0) @ found.rho, atol=1e-6 * scale)
    assert found.steps + found.svm_calls < 60


@EVERY
@pytest.mark.parametrize("intercept", [True, False])
def test_derivatives_of_the_value_in_the_matrix(name: str, intercept: bool) -> None:
    """`curvature` are second differences along other kernels, `response` is the change of rho."""
    K, y = gaussians(60)
    loss, y = made(name), targets(name, y)
    method = one_kernel.solver_of(loss, y, 1, intercept=intercept)
    assert method is not None
    base, size = 3 * K.mean(axis=0), 1e-4
    here = method.solve(base, [loss.null(y)], 1e-13)
    G = K[:3] @ here.rho
    H, response = method.curvature(G), method.response(size * G[0])

    def slope(by: float) -> np.ndarray:
        rho = method.solve(base + by * K[0], [here.rho], 1e-13).rho
        return np.array([-0.5 * rho @ k @ rho for k in K[:3]])

    np.testing.assert_allclose((slope(size) - slope(-size)) / (2 * size), H[0], rtol=2e-2, atol=2e-2 * np.abs(H).max())
    there = method.solve(base + size * K[0], [here.rho], 1e-13)
    np.testing.assert_allclose(there.rho - here.rho, response, atol=0.05 * np.abs(response).max())


@EVERY
def test_slopes_are_those_of_the_loss(name: str) -> None:
    if name not in ("logistic", "squared", "huber"):
        pytest.skip("a loss with kinks has none")
    y = targets(name, np.where(np.arange(9) % 2, 1.0, -1.0))
    loss, f, size = made(name).counting(np.linspace(0.5, 2.0, 9)), np.linspace(-3, 3, 9), 1e-6
    ahead, behind = (np.array([loss.total(y, f + step) for step in sign * size * np.eye(9)]) for sign in (1, -1))
    np.testing.assert_allclose(loss.slopes(y, f), (behind - ahead) / (2 * size), atol=1e-6)
    np.testing.assert_allclose(Loss.slopes(loss, y, f), loss.slopes(y, f), atol=1e-8)


def test_a_quadratic_program_with_bounds() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 8))
    matrix, right = root.T @ root + 1e-3 * np.eye(8), rng.normal(size=8)
    low, high = -rng.random(8), rng.random(8)
    low[0] = 0.1  # zero need not be inside
    high[0] = 0.5
    x = weight_newton.bounded_minimum(matrix, right, low, high)
    slopes = matrix @ x - right
    assert ((x >= low) & (x <= high)).all()
    free = (x > low) & (x < high)
    np.testing.assert_allclose(slopes[free], 0.0, atol=1e-8)
    assert (slopes[x == low] >= -1e-8).all()
    assert (slopes[x == high] <= 1e-8).all()


# The method.


@pytest.mark.parametrize("case", CASES, ids=[f"{case['loss']}-C{case['C']:g}" for case in CASES])
def test_few_evaluations_reach_the_gold_optima(case: dict[str, Any]) -> None:
    name, scaled, _ = case["kernels"].partition("*n")
    K = np.asarray(ARRAYS[name] * (ARRAYS[name].shape[1] if scaled else 1.0))
    loss = loss_of({"svr": "epsilon"}.get(case["loss"], case["loss"]), case.get("eps", 0.1))
    found = weight_newton.minimise(
        BlockKernels(K), ARRAYS[case["y"]].astype(float), loss, Penalty(case["C"], 0.0), 1e-8
    )
    assert found.gap <= 1e-8
    assert found.evaluations <= 12
    assert found.handovers == 0
    assert found.primal == pytest.approx(case["value"], rel=1e-6)


@EVERY
@pytest.mark.parametrize("C", [1e-2, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_noisy_labels_take_few_evaluations_at_any_strength(name: str, C: float, ridge: float) -> None:
    """Of several hundred support vectors, from a start that is off by orders of magnitude."""
    K, y = gaussians(150)
    y = targets(name, y)
    found = weight_newton.minimise(BlockKernels(K), y, made(name), Penalty(C, ridge), 1e-6)
    assert found.gap <= 1e-6
    assert found.evaluations <= 25
    assert (found.weights >= 0).all()


@EVERY
def test_hardly_any_regulariser(name: str) -> None:
    """Weights of 1e7 turn rounding into margins: there is an end to the digits."""
    K, y = gaussians(150)
    found = weight_newton.minimise(BlockKernels(K), targets(name, y), made(name), Penalty(1e-4, 0.0), 1e-4)
    assert found.gap <= 1e-4
    assert (found.weights >= 0).all()


@EVERY
@pytest.mark.parametrize("scale", [1e-10, 1e10])
def test_the_scale_of_kernels_does_not_matter(name: str, scale: float) -> None:
    K, y = gaussians(100)
    y = targets(name, y)
    plain = weight_newton.minimise(BlockKernels(K), y, made(name), Penalty(0.5, 0.1), 1e-6)
    scaled = weight_newton.minimise(
        BlockKernels(scale * K), y, made(name), Penalty(0.5 * np.sqrt(scale), 0.1 * scale), 1e-6
    )
    assert abs(scaled.evaluations - plain.evaluations) <= 2  # the last ones are a matter of rounding
    assert scaled.primal == pytest.approx(plain.primal, rel=1e-6)
    np.testing.assert_allclose(scaled.weights * scale, plain.weights, atol=1e-2 * plain.weights.max())


def test_the_scale_of_targets_does_not_matter() -> None:
    K, y = gaussians(100)
    y = targets("squared", y)
    fits = [
        dmkl.solve(KernelStack.from_array(K), scale * y, dmkl.SpicyMKL(C=0.5 * scale, loss="squared"), tol=1e-6)
        for scale in (1.0, 1e8)
    ]
    assert fits[1].objective == pytest.approx(1e16 * fits[0].objective, rel=1e-6)
    assert abs(len(fits[0].iterations) - len(fits[1].iterations)) <= 2  # the last ones are a matter of rounding


@EVERY
def test_strange_kernels(name: str) -> None:
    """Copies, a zero kernel, the identity, one of rank one, one that is a million times as large."""
    K, y = gaussians(90)
    y = targets(name, y)
    x = np.linspace(-1, 1, 90)
    strange = np.array([K[0], K[0], np.zeros((90, 90)), np.eye(90), np.outer(x, x), 1e6 * K[3], K[1]])
    for C in (0.01, 1.0):
        found = weight_newton.minimise(BlockKernels(strange), y, made(name), Penalty(C, 0.0), 1e-6)
        assert found.gap <= 1e-6
        assert found.weights[2] == 0


@EVERY
def test_kernels_that_are_all_zero(name: str) -> None:
    y = targets(name, np.where(np.arange(30) % 3, 1.0, -1.0))
    found = weight_newton.minimise(BlockKernels(np.zeros((2, 30, 30))), y, made(name), Penalty(1.0, 0.0), 1e-6)
    assert found.gap <= 1e-6
    assert not found.weights.any()


@EVERY
def test_without_a_norm_one_evaluation_is_all(name: str) -> None:
    K, y = gaussians(80)
    found = weight_newton.minimise(BlockKernels(K), targets(name, y), made(name), Penalty(0.0, 0.5), 1e-8)
    assert found.gap <= 1e-8
    assert found.evaluations == 1
    np.testing.assert_array_equal(found.weights, 2.0)


def test_many_optimal_rho_of_a_hinge() -> None:
    """Two features separate the classes up to noise: few samples are free, and the other kernels bind at the end."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, size=(200, 30)).astype(float)
    y = np.where(X[:, 0] + X[:, 1] >= 1, 1.0, -1.0)
    K = np.array([np.outer(x, x) for x in (2 * X - 1).T])
    found = weight_newton.minimise(BlockKernels(K), y, made("hinge"), Penalty(5.0, 0.0), 1e-4)
    assert found.gap <= 1e-4
    assert found.handovers == 0


@EVERY
def test_some_of_the_samples_are_solved_first(name: str) -> None:
    K, y = gaussians(1000, features=2)
    y = targets(name, y)
    counts = np.where(np.arange(1000) % 2, 0.5, 1.5)
    never = replace(weight_newton.OPTIONS, coarse=10**9)
    loss, penalty = made(name).counting(counts), Penalty(2.0, 0.0)
    warm = weight_newton.minimise(BlockKernels(K), y, loss, penalty, 1e-3)
    cold = weight_newton.minimise(BlockKernels(K), y, loss, penalty, 1e-3, options=never)
    assert max(warm.gap, cold.gap) <= 1e-3
    assert warm.evaluations <= cold.evaluations
    assert warm.primal == pytest.approx(cold.primal, rel=2e-3)


def test_a_method_that_stalls_hands_over() -> None:
    K, y = gaussians(80)
    hasty = replace(weight_newton.OPTIONS, evaluations=1)
    found = weight_newton.minimise(BlockKernels(K), y, made("logistic"), Penalty(0.5, 0.0), 1e-6, options=hasty)
    assert found.gap <= 1e-6
    assert (found.evaluations, found.handovers) == (1, 1)
    stack = KernelStack.from_array(K)
    nowhere = StreamedKernels(stack, np.eye(stack.s), np.arange(80), room=0)
    streamed = weight_newton.minimise(nowhere, y, made("logistic"), Penalty(0.5, 0.0), 1e-4)
    assert streamed.gap <= 1e-4
    assert (streamed.evaluations, streamed.handovers) == (0, 1)


def test_the_history_counts_handovers(monkeypatch: pytest.MonkeyPatch) -> None:
    K, y = gaussians(80)
    monkeypatch.setattr(
        weight_newton.minimise, "__defaults__", (None, 1, replace(weight_newton.OPTIONS, evaluations=1))
    )
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=0.5, loss="logistic"), tol=1e-6)
    assert fit.converged
    assert fit.history[-1]["handovers"] == 1
    assert fit.oracle_calls == 1


def test_a_deadline_ends_it_with_a_certified_point() -> None:
    K, y = gaussians(80)
    with deadline(-60.0):
        found = weight_newton.minimise(BlockKernels(K), y, made("hinge"), Penalty(0.5, 0.0), 1e-8)
    assert found.evaluations == 0
    assert np.isfinite(found.primal)
    assert found.dual <= found.primal


def test_svms_and_evaluations_are_counted() -> None:
    K, y = gaussians(80)
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=0.5), tol=1e-6)
    assert 0 < fit.oracle_calls == len(fit.iterations)
    assert fit.svm_calls >= fit.oracle_calls


def test_both_methods_agree() -> None:
    K, y = gaussians(100)
    stack = KernelStack.from_array(K)
    for formulation in (dmkl.SpicyMKL(C=0.5, loss="logistic"), dmkl.UniformMKL(C=3.0, loss="logistic")):
        newton, proximal = (dmkl.solve(stack, y, formulation, tol=1e-7, method=name) for name in ("newton", "proximal"))
        assert newton.objective == pytest.approx(proximal.objective, rel=2e-7)
        np.testing.assert_allclose(newton.weights, proximal.weights, atol=1e-2 * proximal.weights.max())
