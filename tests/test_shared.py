"""SharedMKL: gold optima, the sampled gradients, and agreement with its special cases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_working_sets, unsolved, whole, with_options
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import dmkl
from dmkl.errors import ConfigError, ResourceError
from dmkl.events import Event, Note
from dmkl.solvers import fixed_weights, working_sets
from dmkl.solvers.shared_max import ControlVariate, SaddleIterates, estimate, smoothed
from dmkl.solvers.shared_sum import CuttingPlanes
from dmkl.solvers.shared_svms import ClassSvm, solve_class
from dmkl.solvers.simplex_qp import simplex_qp
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore
from pipelines.benchmarks.shared_weights.synthetic import gaussian_kernels, synthetic

GOLD = Path(__file__).parent / "gold"
CASES = json.loads((GOLD / "open.json").read_text())["mlmkl"]
ARRAYS = dict(np.load(GOLD / "open.npz"))
NAMES = [f"{case['mode']}-C{case['C']:g}-{'b' if case['bias'] else 'no-b'}" for case in CASES]
MODES = pytest.mark.parametrize("mode", ["sum", "max"])


def formulation(case: dict[str, Any], **options: Any) -> dmkl.SharedMKL:
    return dmkl.SharedMKL(C=case["C"], mode=case["mode"], intercept=case["bias"], **options)


def solve(case: dict[str, Any], tol: float, **options: Any) -> dmkl.Fit:
    stack = KernelStack.from_array(ARRAYS[case["kernels"]])
    return dmkl.solve(stack, ARRAYS[case["Y"]], formulation(case), tol=tol, **options)


@pytest.mark.parametrize("tol", [1e-3, 3e-6, 1e-7])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_gold_optima_are_met_and_certified(case: dict[str, Any], tol: float) -> None:
    fit = solve(case, tol)
    optimum, rounding = case["value"], 1e-7 * case["value"]
    assert fit.converged
    assert fit.gap <= tol
    assert fit.dual - rounding <= optimum <= fit.objective + rounding
    assert fit.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("case", "method"), [(c, "mirror" if c["mode"] == "sum" else "sa-paper") for c in CASES])
def test_the_papers_methods_come_close_to_the_optimum(case: dict[str, Any], method: str) -> None:
    fit = solve(case, 0.05, method=method)
    assert fit.converged
    assert fit.dual <= case["value"] * (1 + 1e-7)
    assert case["value"] * (1 - 1e-7) <= fit.objective <= case["value"] * 1.06


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_objective_is_that_of_the_returned_functions(case: dict[str, Any]) -> None:
    fit = solve(case, 1e-4)
    K, Y = ARRAYS[case["kernels"]], np.where(ARRAYS[case["Y"]] > 0, 1.0, -1.0)
    scores = np.einsum("a,aij,jk->ik", fit.weights, K, fit.coef) + fit.intercept
    loss = case["C"] * np.maximum(1 - Y * scores, 0).sum(axis=0)
    forms = np.einsum("ik,aij,jk->ka", fit.coef, K, fit.coef)
    if case["mode"] == "sum":
        assert fit.objective == pytest.approx(0.5 * (fit.weights @ np.sqrt(forms.sum(axis=0))) ** 2 + loss.sum())
    else:
        assert fit.objective == pytest.approx((0.5 * forms @ fit.weights + loss).max())
    if not case["bias"]:
        assert not fit.intercept.any()


@MODES
def test_one_class_is_l1mkl(store: KernelStore, mode: str) -> None:
    stack = KernelStack.from_array(whole(store).astype(np.float64))
    assert store.labels is not None
    y = store.labels.signs()[:, 0]
    shared = dmkl.solve(stack, y, dmkl.SharedMKL(C=3.0, mode=mode), tol=1e-7)
    alone = dmkl.solve(stack, y, dmkl.L1MKL(C=3.0), tol=1e-7)
    assert shared.objective == pytest.approx(alone.objective, rel=2e-7)


@MODES
def test_permuting_classes_and_kernels_changes_nothing_but_their_order(store: KernelStore, mode: str) -> None:
    assert store.labels is not None
    K, Y = whole(store).astype(np.float64), (store.labels.signs() > 0).astype(int)
    kernels, classes = np.random.default_rng(0).permutation(store.s), [2, 0, 1]
    problem = dmkl.SharedMKL(C=3.0, mode=mode)
    fit = dmkl.solve(KernelStack.from_array(K), Y, problem, tol=1e-7)
    turned = dmkl.solve(KernelStack.from_array(K[kernels]), Y[:, classes], problem, tol=1e-7)
    assert turned.objective == pytest.approx(fit.objective, rel=2e-7)
    assert np.allclose(turned.weights, fit.weights[kernels], atol=2e-3)


@pytest.fixture(params=["outlined", "random"])
def compact(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    small_working_sets(monkeypatch, start=15, least_growth=20)
    if request.param == "random":
        with_options(monkeypatch, fixed_weights, whole_share=0.0)


@MODES
@pytest.mark.parametrize("C", [0.05, 10.0])
def test_working_sets_reach_the_same_optimum(store: KernelStore, mode: str, C: float, compact: None) -> None:
    assert store.labels is not None
    stack = KernelStack.from_array(whole(store).astype(np.float64))
    by_rounds = dmkl.solve(stack, store.labels, dmkl.SharedMKL(C=C, mode=mode), tol=1e-5)
    with pytest.MonkeyPatch.context() as patch:
        with_options(patch, working_sets, whole_up_to=800)
        at_once = dmkl.solve(stack, store.labels, dmkl.SharedMKL(C=C, mode=mode), tol=1e-6)
    assert by_rounds.converged
    assert at_once.dual * (1 - 1e-9) <= by_rounds.objective <= at_once.objective * (1 + 2e-5)


@MODES
def test_every_backend_gives_the_same_model(store: KernelStore, mode: str, compact: None, two_workers: Any) -> None:
    problem = dmkl.SharedMKL(C=10.0, mode=mode)
    fits = [
        dmkl.solve(open_stack(store.path, backend=backend, workers=workers), store.labels, problem)
        for backend, workers in (("memory", 1), ("disk", 2))
    ]
    fits.append(dmkl.solve(open_stack(store.path, runtime=two_workers), store.labels, problem))
    for fit in fits[1:]:
        assert np.array_equal(fits[0].coef, fit.coef)
        assert np.array_equal(fits[0].weights, fit.weights)


@unsolved
@MODES
def test_a_run_cut_short_goes_on_and_ends_the_same(
    store: KernelStore, mode: str, tmp_path: Path, compact: None
) -> None:
    problem, path = dmkl.SharedMKL(C=10.0, mode=mode), tmp_path / "checkpoint"
    undisturbed = dmkl.solve(open_stack(store.path), store.labels, problem, tol=1e-5)
    for rounds in range(1, undisturbed.rounds):
        cut = dmkl.solve(open_stack(store.path), store.labels, problem, tol=1e-5, max_rounds=rounds, checkpoint=path)
        assert not cut.converged
    fit = dmkl.solve(open_stack(store.path), store.labels, problem, tol=1e-5, checkpoint=path)
    assert np.array_equal(fit.coef, undisturbed.coef)
    assert (fit.rounds, fit.svm_calls) == (undisturbed.rounds, undisturbed.svm_calls)


def test_blocks_are_gathered_in_batches_that_fit(
    store: KernelStore, compact: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = open_stack(store.path, backend="disk", workers=1)
    free = dmkl.solve(stack, store.labels, dmkl.SharedMKL(C=10.0))
    room = 1.2 * store.s * 4 * free.state.working.sizes.max() ** 2  # one class, and not two
    monkeypatch.setattr("dmkl.solvers.shared_sum.block_room", lambda problem: int(room))
    batched = dmkl.solve(stack, store.labels, dmkl.SharedMKL(C=10.0))
    assert batched.passes > free.passes
    assert np.array_equal(batched.coef, free.coef)


def test_blocks_come_one_by_one_where_the_process_has_no_memory_left(
    store: KernelStore, compact: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another part of the process may have taken the memory that was planned for blocks."""
    stack = open_stack(store.path, backend="disk", workers=1)
    free = dmkl.solve(stack, store.labels, dmkl.SharedMKL(C=10.0))
    near, refused = KernelStack.block_near, []

    def block_near(self: KernelStack, sets: list[np.ndarray]) -> list[Any]:
        if len(sets) > 1:
            refused.append(len(sets))
            raise ResourceError("the blocks need 382 MB, 87 MB are left", "raise --memory")
        return near(self, sets)

    monkeypatch.setattr(KernelStack, "block_near", block_near)
    single = dmkl.solve(stack, store.labels, dmkl.SharedMKL(C=10.0))
    assert refused
    assert np.array_equal(single.coef, free.coef)


@pytest.fixture(params=["sums fit", "parts of sums fit"])
def little_room(request: pytest.FixtureRequest, store: KernelStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """No block of all kernels fits: one of the weighted sum does, or not even that."""
    sums = request.param == "sums fit"
    room = int(working_sets.BLOCK_MEMORY.in_flight * 8 * store.n**2) if sums else 1
    assert room < store.s * 4 * store.n**2
    for module in ("shared_sum", "shared_max", "working_sets"):
        monkeypatch.setattr(f"dmkl.solvers.{module}.block_room", lambda problem: room)
    monkeypatch.setattr(
        "dmkl.solvers.kernel_operators.BLOCK_MEMORY", replace(working_sets.BLOCK_MEMORY, smallest_part=60)
    )
    with_options(monkeypatch, working_sets, whole_up_to=20)
    with_options(monkeypatch, fixed_weights, whole_share=0.0)
    return str(request.param)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("mode", "method"), [("sum", "bundle"), ("sum", "mirror"), ("max", "sa")])
def test_classes_whose_blocks_do_not_fit_are_solved_in_passes(
    store: KernelStore, mode: str, method: str, intercept: bool, little_room: str, tmp_path: Path
) -> None:
    """The same optimum, certified; killed after every round, the same bits."""
    problem, events = dmkl.SharedMKL(C=2.0, mode=mode, intercept=intercept), list[Event]()
    fit = dmkl.solve(open_stack(store.path), store.labels, problem, method=method, observer=events.append)
    assert fit.converged
    plan = next(event.text for event in events if isinstance(event, Note))
    assert "every step of the weights reads the kernels in two or three passes" in plan
    best = dmkl.solve(KernelStack.from_array(whole(store).astype(np.float64)), store.labels, problem, tol=1e-6)
    assert best.dual * (1 - 1e-6) <= fit.objective <= best.objective * (1 + 2e-3)
    for _ in range(fit.rounds):
        cut = dmkl.solve(
            open_stack(store.path),
            store.labels,
            problem,
            method=method,
            max_seconds=0,
            checkpoint=tmp_path / "cut",
            warn=False,
        )
    assert np.array_equal(cut.coef, fit.coef)
    assert np.array_equal(cut.weights, fit.weights)


def test_a_step_of_the_weights_takes_two_passes_for_all_classes_on_a_cluster(
    store: KernelStore, little_room: str, two_workers: Any
) -> None:
    """Mirror descent in the coordinator: SVMs of all classes on the sum in one pass, the products in another."""
    problem = dmkl.SharedMKL(C=2.0)
    here = dmkl.solve(open_stack(store.path), store.labels, problem, method="mirror")
    before = two_workers.submitted
    fit = dmkl.solve(open_stack(store.path, runtime=two_workers), store.labels, problem, method="mirror")
    if little_room == "sums fit":
        assert np.array_equal(fit.coef, here.coef)
        assert fit.passes == 2 * fit.oracle_calls + fit.rounds
    else:  # workers have room to hold the sum, so the last bits are others
        np.testing.assert_allclose(fit.objective, here.objective, rtol=2e-3)
    assert two_workers.submitted - before >= fit.passes


def test_a_batch_of_classes_is_solved_at_once(store: KernelStore) -> None:
    fits = [
        dmkl.solve(open_stack(store.path), store.labels, dmkl.SharedMKL(C=10.0, mode="max", batch=b), tol=1e-4)
        for b in (1, 3)
    ]
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=2e-4)


# the sampling


def classes_at(case: dict[str, Any], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """H_k and D_a(beta_k) of every class at these weights."""
    K, Y = ARRAYS[case["kernels"]], np.where(ARRAYS[case["Y"]] > 0, 1.0, -1.0)
    solutions = [
        solve_class(K, ClassSvm(y, case["C"], case["bias"], weights, np.zeros(len(y)), 1e-9, "smo", False))
        for y in np.ascontiguousarray(Y.T)
    ]
    forms = np.array([solution.forms for solution in solutions])
    return np.array([solution.total for solution in solutions]) - 0.5 * forms @ weights, forms


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("known", [False, True])
def test_sampled_gradients_average_to_the_full_ones(batch: int, known: bool) -> None:
    """Proposition 1, for single classes and for batches, with and without a control variate."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(6))
    values, forms = classes_at(CASES[4], weights)
    m, draws = len(values), 20_000
    gamma = rng.dirichlet(np.ones(m))
    chances = smoothed(gamma, 0.2)
    before = ControlVariate(0.8 * values, 1.3 * forms) if known else ControlVariate(np.zeros(m), np.zeros_like(forms))
    estimates = []
    for _ in range(draws):
        sampled = rng.choice(m, batch, p=chances)
        by_weight, by_class = estimate(sampled, values[sampled], forms[sampled], gamma, chances, before)
        estimates.append(np.concatenate([by_weight, by_class]))
    mean, spread = np.mean(estimates, axis=0), np.std(estimates, axis=0) / np.sqrt(draws)
    full = np.concatenate([-0.5 * gamma @ forms, values])
    assert (np.abs(mean - full) < 4.5 * spread + 1e-9 * np.abs(full)).all()


def test_a_control_variate_reduces_the_variance() -> None:
    weights = np.full(6, 1 / 6)
    values, forms = classes_at(CASES[4], weights)
    m = len(values)
    gamma = np.full(m, 1 / m)
    spreads = []
    for before in (ControlVariate(np.zeros(m), np.zeros_like(forms)), ControlVariate(0.9 * values, 0.9 * forms)):
        found = [estimate(np.array([k]), values[[k]], forms[[k]], gamma, gamma, before)[1] for k in range(m)]
        spreads.append(np.std(found, axis=0).sum())
    assert spreads[1] < 0.2 * spreads[0]


def test_nothing_overflows_with_many_classes_and_vanishing_gamma() -> None:
    s, m = 5, 10_000
    iterates = SaddleIterates.start(s, m)
    iterates.log_gamma = -np.linspace(0, 3000, m)  # most are zero in floating point
    rng = np.random.default_rng(0)
    for eta in (0.0, 1e3):
        for scale in (1e-200, 1.0, 1e200):
            chances = smoothed(iterates.gamma, 0.2)
            sampled = rng.choice(m, 1, p=chances)
            nothing = ControlVariate(np.zeros(m), np.zeros((m, s)))
            step = estimate(sampled, np.array([scale]), scale * rng.random((1, s)), iterates.gamma, chances, nothing)
            iterates.move(*step, eta)
            for shares in (iterates.weights, iterates.gamma, *iterates.average):
                assert np.isfinite(shares).all()
                assert shares.sum() == pytest.approx(1.0)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 30), st.floats(-6, 6))
def test_the_small_program_is_solved_like_a_linear_program(seed: int, s: int, rows: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    heights, slopes = rng.normal(size=rows) * 10**exponent, rng.normal(size=(rows, s)) * 10**exponent
    p, shares = simplex_qp(heights, slopes, np.zeros((s, s)), np.full(s, 1 / s))
    scale = 10**exponent
    A = np.hstack([slopes / scale, -np.ones((rows, 1))])
    simplex = {"A_eq": [[1.0] * s + [0.0]], "b_eq": [1.0], "bounds": [(0, None)] * s + [(None, None)]}
    optimum = scale * linprog([0.0] * s + [1.0], A, -heights / scale, **simplex).fun
    reached = (heights + slopes @ p).max()
    proved = shares @ heights + (shares @ slopes).min()
    assert reached - optimum <= 1e-5 * scale
    assert optimum - proved <= 1e-5 * scale
    assert (p >= 0).all()
    assert (shares >= 0).all()


def test_cuts_never_exceed_the_objective() -> None:
    rng = np.random.default_rng(1)
    case = CASES[6]
    cuts = CuttingPlanes.none(6)
    for _ in range(3):
        weights = rng.dirichlet(np.ones(6))
        values, forms = classes_at(case, weights)
        cuts = cuts.plus(values + 0.5 * forms @ weights, forms, np.arange(len(values)))
    for _ in range(5):
        weights = rng.dirichlet(np.ones(6))
        assert (cuts.highest_of_each(weights, 4) <= classes_at(case, weights)[0] * (1 + 1e-8)).all()
    assert cuts.minimum(np.full(6, 1 / 6), np.zeros((6, 6))).bound <= case["value"]


def test_curvature_is_how_the_gradient_changes() -> None:
    case, h = CASES[0], 1e-5
    K, y = ARRAYS[case["kernels"]], np.where(ARRAYS[case["Y"]][:, 0] > 0, 1.0, -1.0)
    weights, step = np.full(6, 1 / 6), np.array([1, -1, 0.5, -0.5, 0, 0])
    for intercept in (False, True):

        def at(p: np.ndarray, b: bool = intercept) -> Any:
            return solve_class(K, ClassSvm(y, 10.0, b, p, np.zeros(len(y)), 1e-13, "smo", True))

        change = -0.5 * (at(weights + h * step).forms - at(weights - h * step).forms) / (2 * h)
        assert np.allclose(at(weights).curvature @ step, change, rtol=1e-3, atol=1e-3 * np.abs(change).max())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "mean"}, "sum or max"),
        ({"C": -1.0}, "C should be positive"),
        ({"delta": 2.0}, "delta should be in"),
        ({"eta": -1.0}, "eta should be positive"),
        ({"batch": 0}, "batch should be"),
    ],
)
def test_wrong_constants_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dmkl.SharedMKL(**options)


@MODES
def test_an_unknown_method_is_refused_before_any_work(store: KernelStore, mode: str) -> None:
    stack = open_stack(store.path)
    with pytest.raises(ConfigError, match="method"):
        dmkl.solve(stack, store.labels, dmkl.SharedMKL(mode=mode), method="nonsense")
    assert stack.passes == 0


@unsolved
@pytest.mark.parametrize("method", ["sa", "sa-paper"])
def test_a_run_that_ends_early_leaves_no_class_untrained(store: KernelStore, method: str, compact: None) -> None:
    Y = np.hstack([np.random.default_rng(0).random((store.n, 12)) < 0.05 * (1 + np.arange(12))]).astype(int)
    fit = dmkl.solve(
        open_stack(store.path), Y, dmkl.SharedMKL(C=10.0, mode="max"), tol=1e-6, max_rounds=1, method=method
    )
    assert not fit.converged
    assert fit.coef.any(axis=0).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_duplicate_samples_are_solved(seed: int) -> None:
    """Free samples that repeat each other make the curvature's matrix indefinite, up to rounding."""
    rng = np.random.default_rng(seed)
    X = rng.random((40, 3))
    X[X < 0.6] = 0.0
    distances = ((X[:, None] - X) ** 2).sum(axis=2)
    K = np.stack([np.exp(-distances / width) for width in (1.0, 4.0)]).astype(np.float32)
    assert dmkl.solve(KernelStack.from_array(K), rng.integers(0, 3, 40), dmkl.SharedMKL(C=1.0)).converged


@pytest.mark.parametrize("size", [30.0, 1000.0])
def test_kernels_of_very_different_sizes_do_not_stall_the_bundle_method(size: float) -> None:
    """At equal weights the functions found are far better at weights of their own: no H(p) that a step reached was less
    than their primal, so every step was short and the centre never moved."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 20))
    distances = ((X[:, None] - X) ** 2).sum(axis=2)
    K = [np.exp(-distances / (width**2 * np.median(distances))) for width in (0.25, 0.5, 1.0, 2.0)]
    Y = (X @ rng.normal(size=(20, 3)) + rng.normal(size=(100, 3)) > 0).astype(int)
    stack = KernelStack.from_array(np.stack([*K, size * X @ X.T]).astype(np.float32))
    fit = dmkl.solve(stack, Y, dmkl.SharedMKL(C=100.0, mode="sum"), tol=1e-3, max_rounds=3)
    assert fit.converged
    assert fit.svm_calls <= 36  # it takes 18


def test_a_class_slightly_above_the_bound_becomes_hard() -> None:
    """No class of 300 exceeds the bound by more than the tolerance; the bound once stopped rising there."""
    data = synthetic(1000, 300, 1)
    stack = KernelStack.from_array(gaussian_kernels(data.views))
    fit = dmkl.solve(stack, data.Y, dmkl.SharedMKL(C=10.0, mode="max"), tol=1e-2)
    assert fit.worst_gap <= 1e-2
