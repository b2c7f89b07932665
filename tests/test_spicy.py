"""SpicyMKL: gold optima, agreement with other solvers and with scikit-learn, kernels as a working set, streaming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import unsolved, whole, with_options
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVR

import dmkl
from dmkl._util.machine import Budget, resident
from dmkl.errors import ConfigError, DataError
from dmkl.problems.losses import LOSSES
from dmkl.solvers import spicy, working_sets
from dmkl.solvers.kernel_operators import BlockKernels, StreamedKernels
from dmkl.solvers.loss_problem import Penalty
from dmkl.solvers.proximal import ProximalOptions, minimise
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

GOLD = Path(__file__).parent / "gold"
CASES = json.loads((GOLD / "open.json").read_text())["spicy"]
ARRAYS = dict(np.load(GOLD / "open.npz"))
NAMES = [f"{case['loss']}-C{case['C']:g}-{case['kernels'][:3]}" for case in CASES]
LOSS_OF = {"svr": "epsilon"}


def kernels_of(case: dict[str, Any]) -> np.ndarray:
    """`bin_K*n` is the array times n."""
    name, scaled, _ = case["kernels"].partition("*n")
    return np.asarray(ARRAYS[name] * (ARRAYS[name].shape[1] if scaled else 1.0))


def formulation(case: dict[str, Any], **more: Any) -> dmkl.SpicyMKL:
    loss = LOSS_OF.get(case["loss"], case["loss"])
    return dmkl.SpicyMKL(C=case["C"], loss=loss, epsilon=case.get("eps", 0.1), **more)


def scores(K: np.ndarray, fit: dmkl.Fit) -> np.ndarray:
    return np.asarray(np.tensordot(np.ravel(fit.weights), K @ fit.coef, 1) + fit.intercept)


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray]:
    """300 Gaussians on single features of 90 samples, of which three features matter."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 60))
    y = np.where(X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] ** 2 - 1 + 0.5 * rng.normal(size=90) > 0, 1.0, -1.0)
    d = (X[:, None, :] - X[None, :, :]) ** 2
    return np.array([np.exp(-d[:, :, a] / (2 * w**2)) for a in range(60) for w in (0.3, 0.6, 1.0, 2.0, 4.0)]), y


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_gold_optima_are_met_and_certified(case: dict[str, Any]) -> None:
    fit = dmkl.solve(KernelStack.from_array(kernels_of(case)), ARRAYS[case["y"]], formulation(case), tol=1e-7)
    optimum = case["value"]
    rounding = (1e-9 + case["solver_tol"]) * optimum
    assert fit.converged
    assert abs(fit.objective - optimum) <= 1e-6 * optimum
    assert fit.dual - rounding <= optimum <= fit.objective + 100 * rounding


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_objective_is_that_of_the_returned_point(case: dict[str, Any]) -> None:
    K, y = kernels_of(case), ARRAYS[case["y"]].astype(float)
    fit = dmkl.solve(KernelStack.from_array(K), y, formulation(case, ridge=0.3), tol=1e-5)
    norms = np.ravel(fit.weights) * np.sqrt(np.einsum("i,aij,j->a", fit.coef, K, fit.coef))
    loss = formulation(case).own_loss().total(y, scores(K, fit))
    assert fit.objective == pytest.approx(loss + case["C"] * norms.sum() + 0.15 * (norms**2).sum(), rel=1e-9)


@pytest.mark.parametrize("C", [0.5, 5.0, 50.0])
def test_the_same_function_as_l1_mkl(many: Any, C: float) -> None:
    """Weak regularisation (C = 50) included, where the authors' code diverges."""
    K, y = many
    stack = KernelStack.from_array(K)
    other = dmkl.solve(stack, y, dmkl.L1MKL(C=C), tol=1e-7)
    norms = np.ravel(other.weights) * np.sqrt(np.einsum("i,aij,j->a", other.coef, K, other.coef, optimize=True))
    fit = dmkl.solve(stack, y, dmkl.SpicyMKL(C=norms.sum() / C), tol=1e-7)
    assert fit.converged
    np.testing.assert_allclose(scores(K, fit), scores(K, other), atol=2e-4 * np.ptp(scores(K, other)))


def test_without_a_norm_it_is_kernel_ridge() -> None:
    case = next(case for case in CASES if case["loss"] == "squared" and case["kernels"].startswith("reg"))
    K, y = kernels_of(case), ARRAYS[case["y"]]
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=0.0, loss="squared", ridge=0.7), tol=1e-9)
    n = len(y)
    system = np.block([[K.sum(axis=0) + 0.35 * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.append(y, 0.0))
    np.testing.assert_allclose(scores(K, fit), K.sum(axis=0) @ solution[:n] + solution[n], atol=1e-4)


def test_logistic_on_the_average_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 4))
    y = np.where(X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=60) > 0.3, 1.0, -1.0)
    stack = KernelStack.from_array(np.array([X @ X.T, X @ X.T]))
    fit = dmkl.solve(stack, y, dmkl.UniformMKL(C=3.0, loss="logistic"), tol=1e-10)
    theirs = LogisticRegression(C=3.0, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(X @ X.T @ fit.coef + fit.intercept, theirs.decision_function(X), atol=1e-3)


def test_epsilon_on_the_average_is_scikit_learns() -> None:
    case = next(case for case in CASES if case["loss"] == "svr")
    K, y = kernels_of(case), ARRAYS[case["y"]]
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.UniformMKL(C=2.0, loss="epsilon", epsilon=0.2), tol=1e-8)
    svr = SVR(kernel="precomputed", C=2.0, epsilon=0.2, tol=1e-8).fit(K.mean(axis=0), y)
    np.testing.assert_allclose(K.mean(axis=0) @ fit.coef + fit.intercept, svr.predict(K.mean(axis=0)), atol=1e-3)
    assert np.count_nonzero(fit.coef) < len(y)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_permuting_kernels_permutes_weights_and_duplicates_change_nothing(many: Any, loss: str) -> None:
    K, y = many[0][:40], many[1]
    order = np.random.default_rng(0).permutation(40)
    problem = dmkl.SpicyMKL(C=4.0, loss=loss)
    plain, permuted, doubled = (
        dmkl.solve(KernelStack.from_array(array), y, problem, tol=1e-8)
        for array in (K, K[order], np.concatenate([K, K]))
    )
    size = np.ravel(plain.weights).max()
    np.testing.assert_allclose(np.ravel(permuted.weights), np.ravel(plain.weights)[order], atol=1e-3 * size)
    assert doubled.objective == pytest.approx(plain.objective, rel=2e-8)


def test_blocks_hold_the_kernels_that_matter_only(many: Any) -> None:
    K, y = many
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=2.0, loss="logistic"), tol=1e-6)
    assert fit.converged
    assert 0 < np.count_nonzero(fit.weights) < fit.state.active.sum() < len(K) / 2
    forms = np.einsum("i,aij,j->a", fit.coef, K, fit.coef, optimize=True)
    assert np.sqrt(forms.max()) <= 2.0 * (1 + 1e-3)  # dual feasible over all kernels, not only those of the block


def test_the_trace_tells_gap_and_kernels_of_every_iteration(many: Any) -> None:
    K, y = many
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=2.0), tol=1e-5)
    rounds, classes, gaps, active, steps = fit.state.own.trace.T
    assert set(rounds) == set(range(1, fit.rounds + 1))
    assert not classes.any()
    assert gaps[-1] <= 1e-5
    assert active[-1] == np.count_nonzero(fit.weights)
    assert (steps >= 1).all()


@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[-3], CASES[-1]], ids=lambda case: case["loss"])
def test_conjugate_gradients_and_streaming_reach_the_same(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    K, y = kernels_of(case), ARRAYS[case["y"]].astype(float)
    stack = KernelStack.from_array(K)
    everything = np.arange(stack.n)
    options = ProximalOptions(cholesky_up_to=0)
    for kernels in (
        BlockKernels(K),
        StreamedKernels(stack, np.eye(stack.s), everything, room=10**9),
        StreamedKernels(stack, np.eye(stack.s), everything, room=0),
    ):
        found = minimise(kernels, y, formulation(case).own_loss(), Penalty(case["C"], 0.0), 1e-4, options=options)
        assert found.gap <= 1e-4
        assert found.dual <= case["value"] * (1 + 1e-8)
        assert case["value"] * (1 - 1e-8) <= found.primal <= case["value"] * (1 + 1.01e-4)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_what_does_not_fit_is_streamed(store: KernelStore, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.labels is not None
    with_options(monkeypatch, working_sets, whole_up_to=40)
    problem = dmkl.SpicyMKL(C=1.0, loss=loss)
    held = dmkl.solve(open_stack(store.path), store.labels, problem, tol=1e-3)
    with_options(monkeypatch, spicy, near=0.0)  # all six kernels enter
    monkeypatch.setattr(
        working_sets, "block_room", lambda problem: 5 * 4 * store.n**2
    )  # one matrix fits, a block does not
    streamed = dmkl.solve(open_stack(store.path, backend="disk"), store.labels, problem, tol=1e-3)
    assert streamed.converged
    assert streamed.passes > 3 * held.passes
    np.testing.assert_allclose(streamed.objective, held.objective, rtol=2e-3)


def test_every_backend_gives_the_same_model(store: KernelStore, two_workers: Any) -> None:
    assert store.labels is not None
    problem = dmkl.SpicyMKL(C=1.0, loss="logistic")
    stacks = [open_stack(store.path, backend=backend) for backend in ("memory", "disk", "computed")]
    stacks.append(open_stack(store.path, client=two_workers.client))
    fits = [dmkl.solve(stack, store.labels, problem, tol=1e-4) for stack in stacks]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.weights, fits[0].weights)
        np.testing.assert_array_equal(fit.coef, fits[0].coef)
    exact = dmkl.solve(KernelStack.from_array(whole(store).astype(float)), store.labels, problem, tol=1e-4)
    np.testing.assert_allclose(exact.objective, fits[0].objective, rtol=2e-4)


@unsolved
def test_a_run_cut_short_goes_on_bit_for_bit(many: Any, tmp_path: Path) -> None:
    K, y = many
    stack, problem = KernelStack.from_array(K), dmkl.SpicyMKL(C=2.0)
    straight = dmkl.solve(stack, y, problem, tol=1e-6)
    assert straight.rounds > 2
    kept = tmp_path / "checkpoint"
    dmkl.solve(stack, y, problem, tol=1e-6, checkpoint=kept, max_rounds=2)
    resumed = dmkl.solve(stack, y, problem, tol=1e-6, checkpoint=kept)
    np.testing.assert_array_equal(resumed.coef, straight.coef)
    np.testing.assert_array_equal(resumed.state.own.trace, straight.state.own.trace)


def test_a_path_starts_where_its_neighbour_ended(many: Any) -> None:
    K, y = many
    stack = KernelStack.from_array(K)
    path = list(dmkl.solve_path(stack, y, [dmkl.SpicyMKL(C=C) for C in (4.0, 3.0, 2.5)], tol=1e-4))
    cold = [dmkl.solve(stack, y, fit.formulation, tol=1e-4) for fit in path]
    assert sum(fit.passes for fit in path) < sum(fit.passes for fit in cold)
    for warm, fit in zip(path, cold, strict=True):
        assert warm.converged
        assert warm.objective == pytest.approx(fit.objective, rel=2e-4)


def test_whole_numbers_are_targets_for_a_regression_loss() -> None:
    case = next(case for case in CASES if case["kernels"].startswith("reg"))
    K, y = kernels_of(case), np.round(3 * ARRAYS[case["y"]])
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(loss="squared"))
    assert fit.task == "regression"
    assert dmkl.solve(KernelStack.from_array(K), np.sign(y - y.mean()), dmkl.SpicyMKL(loss="squared")).task == "binary"


def test_one_compact_problem_is_solved_within_the_memory_limit(store: KernelStore) -> None:
    """What streams holds no block: the room is what the limit leaves, however little."""
    stack = open_stack(store.path, backend="disk", memory=Budget.default().limit)
    stream = StreamedKernels(
        stack, np.eye(stack.s), np.arange(stack.n), room=int(working_sets.BLOCK_MEMORY.in_flight * 4 * stack.n**2) - 1
    )
    assert stream.matrix(np.ones(stack.s), np.float32) is None


def test_wrong_constants_are_refused() -> None:
    for constants, message in (
        ({"C": 0.0}, "C should be positive"),
        ({"C": np.inf}, "C should be positive"),
        ({"ridge": -1.0}, "ridge should be at least 0"),
        ({"loss": "hing"}, "unknown loss 'hing'; did you mean 'hinge'"),
        ({"loss": "epsilon", "epsilon": -1.0}, "epsilon should be at least 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            dmkl.SpicyMKL(**constants)
    with pytest.raises(ConfigError, match="only the hinge loss can do without an intercept"):
        dmkl.UniformMKL(loss="squared", intercept=False)
    with pytest.raises(DataError, match="no classes to tell apart"):
        dmkl.solve(KernelStack.from_array(np.eye(3)[None]), [0.1, 0.2, 0.4], dmkl.SpicyMKL(loss="hinge"))


@pytest.mark.long
def test_copies_of_some_kernels_count_as_memory() -> None:
    """Classes are taken in batches whose blocks fit, also where the stack is an array: a block of some is a copy."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 20
    points = rng.normal(size=(60, 400)) + rng.normal(size=(60, 20))[:, y]
    K = np.exp(-((points[:, :, None] - points[:, None, :]) ** 2))
    needed = 20 * 40 * 8 * 400**2  # all classes' first blocks together
    stack = KernelStack.from_array(K, memory=resident() + working_sets.BLOCK_MEMORY.process_bytes + needed // 2)
    fit = dmkl.solve(stack, y, dmkl.SpicyMKL(C=2.0), tol=0.05)
    assert fit.converged
    assert fit.state.active.sum(axis=1).max() < 60
