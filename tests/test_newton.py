"""Newton's method in the kernel weights: its model, its certificates, its passes over kernels that do not fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dmkl
from dmkl import KernelStack
from dmkl.events import Event, Note
from dmkl.oracles import solve_svm
from dmkl.problems.norms import MixedNorm
from dmkl.runtime import Local
from dmkl.solvers import automatic, fixed_weights, newton, working_sets
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels
from dmkl.solvers.newton import WeightModel, ball_minimum, curvature_of, solve_newton
from dmkl.solvers.simplex_qp import simplex_qp
from dmkl.solvers.svm_by_parts import svm_by_parts
from dmkl.stack import open_stack
from dmkl.store import KernelStore
from tests.conftest import whole, with_options

GROUPS = np.array([0, 0, 1, 1, 2, 2])
FORMULATIONS: list[Any] = [
    dmkl.L1MKL(C=1.0),
    *(dmkl.VSKL(q=q, C=1.0) for q in (1, 1.5, 2, 8, np.inf)),
    *(dmkl.LpMKL(p=p, C=1.0) for p in (1.01, 1.5, 4, np.inf)),
]
NAMES = [repr(one) for one in FORMULATIONS]


def noisy(n: int = 120, seed: int = 0, flipped: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Gaussians of two widths on three features, and labels of which some are flipped."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.3, 1.0, -1.0)
    y[rng.random(n) < flipped] *= -1
    distances = [(X[:, None, c] - X[None, :, c]) ** 2 for c in range(3)]
    return np.stack([np.exp(-D / width) for D in distances for width in (0.5, 3.0)]), y


@pytest.mark.parametrize("formulation", FORMULATIONS, ids=NAMES)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_few_evaluations_certify_noisy_labels(formulation: Any, C: float) -> None:
    K, y = noisy()
    norm = replace(formulation, C=C).norm(GROUPS)
    found = solve_newton(BlockKernels(K), y, C, norm, 1e-6)
    assert found.gap <= 1e-6
    assert found.svm_calls <= 30
    proof = float(np.abs(found.proof).sum()) - norm.conjugate(np.einsum("i,aij,j->a", found.proof, K, found.proof))
    assert proof >= found.dual - 1e-9 * abs(found.dual)
    assert (found.proof * y >= 0).all()
    assert abs(found.proof.sum()) <= 1e-9 * C * len(y)


@pytest.mark.parametrize("formulation", FORMULATIONS, ids=NAMES)
@pytest.mark.parametrize("scale", [2.0**-33, 2.0**33])  # about 1e-10 and 1e10, without rounding
def test_the_scale_of_kernels_does_not_matter(formulation: Any, scale: float) -> None:
    K, y = noisy()
    norm = formulation.norm(GROUPS)
    plain = solve_newton(BlockKernels(K), y, 1.0, norm, 1e-4)
    scaled = solve_newton(BlockKernels(scale * K), y, 1.0 / scale, norm, 1e-4)
    assert scaled.svm_calls == plain.svm_calls
    np.testing.assert_allclose(scaled.primal * scale, plain.primal, rtol=1e-4)


def test_the_curvature_is_how_forms_answer_to_weights() -> None:
    """Forms at neighbouring weights against first differences, where the set of free samples stays."""
    K, y = noisy(60)
    theta, step = np.full(len(K), 1.0 / len(K)), 1e-5

    def beta_at(weights: np.ndarray) -> np.ndarray:
        return solve_svm(np.tensordot(weights, K, 1), y, 1.0, tol=1e-13).alpha * y

    beta = beta_at(theta)
    free = np.flatnonzero((np.abs(beta) > 1e-6) & (np.abs(beta) < 1 - 1e-6))
    products = np.einsum("aij,j->ai", K, beta)
    block = np.tensordot(theta, K, 1)[free[:, None], free]
    H = curvature_of(block, products[:, free])
    for a in range(len(K)):
        moved = theta.copy()
        moved[a] += step
        there = beta_at(moved)
        change = np.einsum("i,bij,j->b", there, K, there) - products @ beta
        np.testing.assert_allclose(-0.5 * change / step, H[a], rtol=0.02, atol=2e-3 * np.abs(H).max())


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([2.02, 2.5, 4.0, 20.0, 202.0]))
def test_the_minimum_in_a_ball_is_stationary(seed: int, rho: float) -> None:
    """Against points of the ball nearby: none is better."""
    rng = np.random.default_rng(seed)
    s, p = int(rng.integers(1, 8)), rho / (rho - 2)
    A = rng.normal(size=(s, s))
    slope, centre = rng.uniform(0.1, 1.0, s), rng.dirichlet(np.ones(s)) * 0.5
    Q = A @ A.T * float(rng.choice([0.0, 0.1, 10.0]))
    found = ball_minimum(slope, Q, np.arange(s), centre, rho)

    def value(theta: np.ndarray) -> float:
        return float(-slope @ theta + 0.5 * (theta - centre) @ Q @ (theta - centre))

    assert (found >= 0).all()
    assert (found**p).sum() <= 1 + 1e-9
    for _ in range(50):
        other = np.maximum(found + rng.normal(size=s) * rng.choice([1e-3, 1e-1]), 0.0)
        other /= max(1.0, (other**p).sum() ** (1 / p))
        assert value(other) >= value(found) - 1e-6 * max(1.0, abs(value(found)))


@settings(max_examples=30)
@given(st.integers(0, 10_000))
@example(136)  # here Mehrotra's correction alone turns in circles
def test_the_program_over_several_simplices(seed: int) -> None:
    """Feasible, and no neighbour is better; the multipliers prove the minimum where there is no quadratic."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(0, 3, 9))
    groups = np.unique(groups, return_inverse=True)[1]
    heights, slopes = rng.normal(size=4), rng.normal(size=(4, 9))
    centre = np.full(9, 0.3)
    A = rng.normal(size=(9, 3)) * float(rng.choice([0.0, 1.0]))
    p, multipliers = simplex_qp(heights, slopes, A @ A.T, centre, groups)

    def value(x: np.ndarray) -> float:
        return float((heights + slopes @ x).max() + 0.5 * ((x - centre) @ A) @ (A.T @ (x - centre)))

    np.testing.assert_allclose(np.bincount(groups, p), 1.0)
    assert (p >= 0).all()
    assert multipliers.sum() == pytest.approx(1.0)
    for _ in range(50):
        other = np.maximum(p + 0.1 * rng.normal(size=9), 0.0) + 1e-12
        other /= np.bincount(groups, other)[groups]
        assert value(other) >= value(p) - 1e-7


def test_a_model_that_was_saved_goes_on_as_it_would_have() -> None:
    K, y = noisy()
    norm = dmkl.VSKL(q=2, C=1.0).norm(GROUPS)
    kernels, C = BlockKernels(K), np.ones(len(y))
    search = newton.Search(kernels, y, C, norm, 1e-7, "smo")
    model = WeightModel(norm, len(y), 1e-7, norm.uniform())
    for _ in range(2):
        model.advance(search)
    again = WeightModel.restored(norm, 1e-7, {name: values.copy() for name, values in model.arrays().items()})
    for one in (model, again):
        one.advance(newton.Search(kernels, y, C, norm, 1e-7, "smo"))
    assert model.gap == again.gap
    assert np.array_equal(model.theta, again.theta)


@pytest.mark.parametrize("most", [20, 60, 119])
def test_an_svm_by_parts_is_that_of_all_samples(most: int) -> None:
    K, y = noisy()

    class Few(BlockKernels):
        largest_sum = most

    theta, C = np.full(len(K), 1.0 / len(K)), np.linspace(0.5, 2.0, len(y))
    whole = solve_svm(np.tensordot(theta, K, 1), y, C, tol=1e-8)
    beta, products = np.zeros(len(y)), None
    for _ in range(20):  # a call has a limit of rounds
        beta, products = svm_by_parts(Few(K), theta, y, C, np.abs(beta), 1e-5, products)
        assert np.allclose(products, K @ beta)
    alpha = beta * y
    assert (alpha >= 0).all()
    assert (alpha <= C).all()
    assert abs(beta.sum()) <= 1e-9
    dual = alpha.sum() - 0.5 * beta @ np.tensordot(theta, K, 1) @ beta
    assert dual == pytest.approx(whole.dual, rel=1e-3)


@pytest.mark.parametrize("where", ["threads", "workers"])
def test_an_svm_by_parts_adds_the_kernels_up_once(
    store: KernelStore, where: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiles of the sum are held where tasks run: the kernels are read in two passes, whatever the rounds are."""
    small = replace(working_sets.BLOCK_MEMORY, smallest_part=20)
    monkeypatch.setattr("dmkl.solvers.kernel_operators.BLOCK_MEMORY", small)
    runtime = Local(2) if where == "threads" else request.getfixturevalue("two_workers")
    stack = open_stack(store.path, runtime=runtime)
    y, C = np.where(np.arange(store.n) % 3 == 1, 1.0, -1.0), np.full(store.n, 2.0)
    kernels = StreamedKernels(stack, np.eye(store.s), np.arange(store.n), room=130_000)
    assert kernels.largest_sum < store.n
    theta = np.full(store.s, 1.0 / store.s)
    beta, products = svm_by_parts(kernels, theta, y, C, np.zeros(store.n), 1e-4)
    assert stack.passes == 2
    K = whole(store)
    np.testing.assert_allclose(products, K @ beta, rtol=1e-6, atol=1e-6)
    best = solve_svm(np.tensordot(theta, K, 1), y, C, tol=1e-8)
    dual = np.abs(beta).sum() - 0.5 * beta @ (theta @ products)
    assert dual == pytest.approx(best.dual, rel=2e-4)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block fits, and of a weighted sum only a part."""
    small = replace(working_sets.BLOCK_MEMORY, share=1e-9, smallest_part=200)
    monkeypatch.setattr(working_sets, "BLOCK_MEMORY", small)
    monkeypatch.setattr("dmkl.solvers.kernel_operators.BLOCK_MEMORY", small)
    with_options(monkeypatch, working_sets, whole_up_to=20)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("formulation", [dmkl.L1MKL(C=1.0), dmkl.VSKL(q=2, C=1.0), dmkl.LpMKL(p=1.5, C=1.0)], ids=repr)
def test_kernels_that_do_not_fit_are_read_in_passes(formulation: Any, tmp_path: Path) -> None:
    """The same optimum, certified; killed after every round, the same bits."""
    K, y = noisy(400)
    stack = KernelStack.from_array(K, groups=GROUPS, largest_tile=150)
    stack.source.as_array = lambda: None  # type: ignore[method-assign]  # as tiles on a disk
    events: list[Event] = []
    straight = dmkl.solve(stack, y, formulation, tol=1e-3, observer=events.append)
    (plan,) = [event.text for event in events if isinstance(event, Note)]
    assert re.fullmatch(r"\d+ samples of class 0 take \d+ MB, 0 MB are there: the kernels are read in 15 .*", plan)
    assert straight.converged
    assert straight.passes > 2 * straight.rounds
    for _ in range(straight.rounds):
        cut = dmkl.solve(stack, y, formulation, tol=1e-3, max_seconds=0, checkpoint=tmp_path / "cut", warn=False)
    assert np.array_equal(straight.coef, cut.coef)
    assert np.array_equal(straight.weights, cut.weights)
    held = dmkl.solve(KernelStack.from_array(K, groups=GROUPS), y, formulation, tol=1e-5)
    assert held.dual <= straight.objective <= held.objective * (1 + 1e-3)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("method", ["mirror", "mirror-paper"])
@pytest.mark.parametrize("formulation", [dmkl.L1MKL(C=1.0), dmkl.VSKL(q=2, C=1.0), dmkl.LpMKL(p=1.5, C=1.0)], ids=repr)
def test_mirror_descent_reads_kernels_that_do_not_fit_in_passes(formulation: Any, method: str, tmp_path: Path) -> None:
    """The same optimum, certified; killed after every round, the same bits."""
    K, y = noisy(400)
    stack = KernelStack.from_array(K, groups=GROUPS, largest_tile=150)
    stack.source.as_array = lambda: None  # type: ignore[method-assign]  # as tiles on a disk
    options: dict[str, Any] = {"method": method, "tol": 0.02}
    straight = dmkl.solve(stack, y, formulation, **options)
    assert straight.converged
    assert straight.passes > straight.rounds
    for _ in range(straight.rounds):
        cut = dmkl.solve(stack, y, formulation, **options, max_seconds=0, checkpoint=tmp_path / "cut", warn=False)
    assert np.array_equal(straight.coef, cut.coef)
    assert np.array_equal(straight.weights, cut.weights)
    held = dmkl.solve(KernelStack.from_array(K, groups=GROUPS), y, formulation, tol=1e-5)
    assert held.dual * (1 - 1e-9) <= straight.objective <= held.objective * 1.02


@pytest.mark.parametrize("method", ["mirror", "mirror-paper"])
def test_an_svm_of_mirror_descent_takes_two_passes_on_a_cluster(
    store: KernelStore, method: str, two_workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outer loop is in the coordinator: tasks add the kernels up for an SVM, and multiply all of them."""
    room = int(working_sets.BLOCK_MEMORY.in_flight * 8 * store.n**2)
    assert room < store.s * 4 * store.n**2
    monkeypatch.setattr(working_sets, "block_room", lambda problem: room)
    with_options(monkeypatch, working_sets, whole_up_to=20)
    with_options(monkeypatch, fixed_weights, whole_share=0.0)
    options: dict[str, Any] = {"method": method, "tol": 0.02}
    problem = dmkl.LpMKL(p=2.0, C=1.0)  # every kernel has weight, so no block of fewer kernels ever fits
    here = dmkl.solve(open_stack(store.path), store.labels, problem, **options)
    before = two_workers.submitted
    fit = dmkl.solve(open_stack(store.path, runtime=two_workers), store.labels, problem, **options)
    assert fit.converged
    assert np.array_equal(fit.coef, here.coef)
    assert np.array_equal(fit.weights, here.weights)
    streamed = sum(int(values) for name, values in fit.state.own.arrays().items() if name.endswith(".svm_calls"))
    assert 0 < 2 * streamed <= fit.passes <= 2 * fit.svm_calls
    assert two_workers.submitted - before >= fit.passes


def test_a_method_that_stalls_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    K, y = noisy(600)
    stack = KernelStack.from_array(K, groups=GROUPS)
    monkeypatch.setattr(newton, "OPTIONS", replace(newton.OPTIONS, evaluations=1))
    monkeypatch.setattr(automatic, "has_low_rank", lambda ranks, n, norm: False)
    fit = dmkl.solve(stack, y, dmkl.VSKL(q=2, C=1.0), tol=1e-4)
    assert fit.converged
    assert fit.history[-1]["handovers"] == 1
    assert automatic.Rule(K, MixedNorm(GROUPS, 2.0)).names[0] == "newton"


def test_parts_of_the_samples_come_first_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    K, y = noisy(900)
    norm = MixedNorm(np.zeros(6, dtype=np.int64), 2.0)
    plain = solve_newton(BlockKernels(K), y, 1.0, norm, 1e-4)
    monkeypatch.setattr(newton, "OPTIONS", replace(newton.OPTIONS, levels_from=500, smallest_level=50))
    parts = solve_newton(BlockKernels(K), y, 1.0, norm, 1e-4)
    assert parts.gap <= 1e-4
    assert parts.primal == pytest.approx(plain.primal, rel=2e-4)
