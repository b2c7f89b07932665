"""MIKL: gold optima, what each norm makes zero, kernels of any kind on any backend, models, and the command line."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import unsolved

import dmkl
from dmkl._util.machine import in_batches
from dmkl.cli.main import main
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_labels, make_view
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ConfigError, DataError, SolverError
from dmkl.kernels import plan_bank
from dmkl.model import load_model, make_model, save_model
from dmkl.problems.mikl import NORMS
from dmkl.problems.targets import Signs
from dmkl.runtime import Local
from dmkl.solvers import mikl, mikl_compact
from dmkl.solvers.mikl import (
    COMPACT,
    WAITING,
    ZERO,
    CoefficientSetOptions,
    PerKernelState,
    SelectionOptions,
)
from dmkl.solvers.problem import Problem
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore, build_store

GOLD = Path(__file__).parent / "gold"
CASES = json.loads((GOLD / "open.json").read_text())["mikl"]
ARRAYS = dict(np.load(GOLD / "open.npz"))
NAMES = {(p, q, 1 if p == q else r): name for name, (p, q, r) in NORMS.items()}
every_norm = pytest.mark.parametrize("norm", list(NORMS))


def formulation(case: dict[str, Any]) -> dmkl.MIKL:
    return dmkl.MIKL(norm=NAMES[case["p"], case["q"], case["r"]], lam=case["lam"])


def ids(case: dict[str, Any]) -> str:
    return f"{formulation(case).norm}-{case['lam']:g}"


def gold(case: dict[str, Any], tol: float, **options: Any) -> dmkl.Fit:
    return dmkl.solve(KernelStack.from_array(ARRAYS["ind_K"]), ARRAYS["bin_y"], formulation(case), tol=tol, **options)


def primal(K: np.ndarray, y: np.ndarray, formulation: dmkl.MIKL, alpha: np.ndarray) -> float:
    """The objective as FORMULATIONS writes it; alpha (n, s)."""
    P, Q, r = NORMS[formulation.norm]
    slack = np.maximum(1 - y * np.einsum("aij,ia->j", K, alpha), 0)
    inner = (np.abs(alpha) ** P).sum(axis=1 if r == 1 else 0) ** (1 / P)
    return float(slack @ slack + formulation.lam / Q * (inner**Q).sum())


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Working sets on problems that would be solved whole."""
    options = CoefficientSetOptions(SelectionOptions(fewest=5), whole=0, held=0.0)
    monkeypatch.setattr(mikl, "OPTIONS", options)


@pytest.mark.parametrize("tol", [1e-3, 1e-7])
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_gold_optima_are_met_and_certified(case: dict[str, Any], tol: float) -> None:
    fit, optimum = gold(case, tol), case["value"]
    assert fit.converged
    assert fit.gap <= tol
    assert fit.dual - 1e-7 * optimum <= optimum <= fit.objective + 1e-7 * optimum
    assert fit.coef.shape == (48, 5)
    objective = primal(ARRAYS["ind_K"], ARRAYS["bin_y"], formulation(case), fit.coef)
    assert fit.objective == pytest.approx(objective, rel=1e-9)


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_working_sets_meet_them_too(case: dict[str, Any]) -> None:
    fit, optimum = gold(case, 1e-7), case["value"]
    assert fit.converged
    assert fit.dual - 1e-7 * optimum <= optimum <= fit.objective + 1e-7 * optimum
    sets = fit.state.own_as(PerKernelState).sets[0]
    if formulation(case).norm in ("1", "21;1"):
        assert fit.rounds > 1
        assert (sets == ZERO).sum() > 0.2 * sets.size
    assert not fit.coef.T[sets == ZERO].any()


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_screened_is_zero_at_the_optimum(case: dict[str, Any]) -> None:
    """Screening at a loose gap removes nothing that the exact solution uses."""
    exact = gold(case, 1e-9).coef.T
    loose = gold(case, 0.05).state.own_as(PerKernelState).sets[0]
    assert np.abs(exact[loose == ZERO]).max(initial=0.0) <= 1e-12


@pytest.mark.parametrize("case", [c for c in CASES if c["lam"] == 5.0], ids=ids)
def test_products_by_passes_do_the_same(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not fit in memory: every product is a pass, Newton's systems are solved by conjugate gradients."""
    monkeypatch.setattr(mikl, "_bytes", lambda problem, members: 1 << 60)
    monkeypatch.setattr(KernelStack, "in_one_array", False)
    fit = gold(case, 1e-5)
    assert fit.converged
    assert case["value"] * (1 - 1e-7) <= fit.objective <= case["value"] * (1 + 1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if c["lam"] == 5.0], ids=ids)
def test_conjugate_gradients_replace_matrices_that_are_too_large(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mikl_compact, "NEWTON", replace(mikl_compact.NEWTON, direct_flops=0.0))
    assert gold(case, 1e-6).gap <= 1e-6


@every_norm
def test_acceleration_takes_fewer_steps(norm: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 3))
    K = np.stack([X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(2)), np.tanh(X @ X.T)]) / 10
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=60))
    steps = {}
    for method in ("fista", "plain"):
        fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.MIKL(norm=norm, lam=0.5), tol=1e-3, method=method)
        assert fit.converged
        steps[method] = int(fit.state.own_as(PerKernelState).steps[0])
    assert steps["fista"] < steps["plain"]


def mixed_kernels(n: int = 80, s: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Gaussians on single features, two of which matter."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, s))
    K = np.stack([np.exp(-((X[:, [a]] - X[:, a]) ** 2)) for a in range(s)])
    return K, np.sign(X[:, 0] * X[:, 1] + 0.3 * X[:, 1])


def pattern(norm: str, share: float) -> np.ndarray:
    """Which of the coefficients (n, s) are not zero."""
    K, y = mixed_kernels()
    stack = KernelStack.from_array(K)
    lam = share * dmkl.MIKL.largest(stack, y, norm)
    return np.asarray(dmkl.solve(stack, y, dmkl.MIKL(norm=norm, lam=lam), tol=1e-6).coef != 0)


def test_figure_1a_every_sample_uses_few_kernels() -> None:
    used = pattern("12;1", 0.01)
    by_sample = used.sum(axis=1)
    assert by_sample.min() >= 1
    assert np.median(by_sample) <= 2
    assert used.any(axis=0).all()


def test_figure_1b_few_samples_with_all_kernels() -> None:
    used = pattern("21;1", 0.1)
    by_sample = used.sum(axis=1)
    assert set(np.unique(by_sample)) == {0, 6}
    assert 0 < (by_sample == 6).sum() < 40


def test_figure_1c_every_kernel_uses_few_samples() -> None:
    used = pattern("12;2", 0.01)
    by_kernel = used.sum(axis=0)
    assert by_kernel.min() >= 1
    assert by_kernel.max() < 40


def test_figure_1d_few_kernels_with_all_samples() -> None:
    used = pattern("21;2", 0.4)
    by_kernel = used.sum(axis=0)
    assert set(np.unique(by_kernel)) == {0, 80}
    assert 0 < (by_kernel == 80).sum() < 6


def test_the_lasso_is_sparse_everywhere_and_the_ridge_nowhere() -> None:
    assert 0 < pattern("1", 0.1).sum() < 0.1 * 480
    assert pattern("2", 0.01).all()


@every_norm
def test_paths_begin_where_nothing_is_learnt(norm: str) -> None:
    K, y = mixed_kernels()
    stack = KernelStack.from_array(K)
    path = dmkl.MIKL.path(stack, y, norm, count=5, ratio=1e-2)
    warm = list(dmkl.solve_path(stack, y, path, tol=1e-4))
    assert warm[0].objective >= 0.99 * len(y) * (1 - 1e-4)
    if norm in ("1", "21;1", "21;2"):
        assert not warm[0].coef.any()
        assert dmkl.solve(stack, y, dmkl.MIKL(norm=norm, lam=0.99 * path[0].lam), tol=1e-6).coef.any()
    for fit in warm:
        cold = dmkl.solve(stack, y, fit.formulation, tol=1e-4)
        assert fit.converged
        assert max(fit.dual, cold.dual) <= min(fit.objective, cold.objective) * (1 + 1e-12)
    assert all(before.objective >= after.dual for before, after in itertools.pairwise(warm))


@every_norm
def test_classes_are_one_against_the_rest(norm: str) -> None:
    K, _ = mixed_kernels()
    labels = np.arange(80) % 3
    together = dmkl.solve(KernelStack.from_array(K), labels, dmkl.MIKL(norm=norm, lam=0.5), tol=1e-6)
    assert together.coef.shape == (3, 80, 6)
    assert together.weights.shape == (3, 6)
    for k in range(3):
        alone = dmkl.solve(KernelStack.from_array(K), np.where(labels == k, 1, -1), together.formulation, tol=1e-6)
        assert together.objective[k] == pytest.approx(alone.objective, rel=2e-6)
        assert together.weights[k].sum() == pytest.approx(1.0)


def test_products_of_whole_kernels_give_the_same_newton_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several classes share them for the norm 21;2."""
    K, _ = mixed_kernels()
    labels, problem = np.arange(80) % 3, dmkl.MIKL(norm="21;2", lam=0.5)
    tols = (1e-4, 1e-8)  # beyond the first, rounding decides how many steps it takes
    shared = [dmkl.solve(KernelStack.from_array(K), labels, problem, tol=tol) for tol in tols]
    monkeypatch.setattr(mikl_compact, "_from_grams", lambda rows, norm, jacobian, F: None)
    apart = [dmkl.solve(KernelStack.from_array(K), labels, problem, tol=tol) for tol in tols]
    np.testing.assert_array_equal(
        shared[0].state.own_as(PerKernelState).steps, apart[0].state.own_as(PerKernelState).steps
    )
    np.testing.assert_allclose(shared[0].objective, apart[0].objective, rtol=1e-8)
    np.testing.assert_allclose(shared[1].objective, apart[1].objective, rtol=1e-8)


def test_a_constant_kernel_is_the_bias() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.sign(X[:, 0] + 1.5)
    with_one = np.stack([X @ X.T, np.ones((40, 40))])
    fit = dmkl.solve(KernelStack.from_array(with_one), y, dmkl.MIKL(norm="2", lam=0.1), tol=1e-6)
    assert (np.sign(np.einsum("aij,ia->j", with_one, fit.coef)) == y).mean() > 0.95
    assert fit.intercept == 0.0


@pytest.mark.parametrize("room", [0.0, 2e5, 3e5, 1e9])
def test_classes_whose_rows_fit_together_are_solved_together(room: float) -> None:
    """The rows of a batch are the union of its classes' coefficients, each counted once."""
    K, y = mixed_kernels()
    stack = KernelStack.from_array(K)
    sets = np.random.default_rng(0).choice([ZERO, WAITING, COMPACT], size=(7, stack.s, stack.n)).astype(np.int8)
    problem = Problem(stack, Signs(SampleSets.alike(y > 0, 7)), 1e-3, "smo", Local(1))
    batches = list(in_batches(range(7), mikl._UnionSize(problem, sets), room))
    assert [k for batch in batches for k in batch] == list(range(7))

    def size(batch: list[int]) -> int:
        return int((sets[batch] == COMPACT).any(axis=0).sum()) * stack.n * 8

    for batch, following in itertools.pairwise(batches):
        assert len(batch) == 1 or size(batch) <= room
        assert size([*batch, following[0]]) > room


def test_unknown_constants_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown norm '21'"):
        dmkl.MIKL(norm="21")
    with pytest.raises(ConfigError, match="lam should be positive"):
        dmkl.MIKL(lam=0.0)
    with pytest.raises(ConfigError, match="unknown method 'newto' of MIKL"):
        gold(CASES[0], 1e-3, method="newto")
    with pytest.raises(ConfigError, match="unknown method 'pegasos' of MIKL; known: fista, interior, newton, plain"):
        gold(CASES[0], 1e-3, method="pegasos")


def test_a_fit_with_other_coefficients_is_no_start() -> None:
    K, y = mixed_kernels(s=2)
    stack = KernelStack.from_array(K)
    other = dmkl.solve(stack, y, dmkl.UniformMKL())
    with pytest.raises(ConfigError, match="the fit to start from is not of"):
        dmkl.solve(stack, y, dmkl.MIKL(), start=other)


@unsolved
@pytest.mark.usefixtures("small_sets")
def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    K, _ = mixed_kernels()
    labels = np.arange(80) % 3
    stack, problem = KernelStack.from_array(K), dmkl.MIKL(norm="21;1", lam=0.5)
    straight = dmkl.solve(stack, labels, problem, tol=1e-6)
    for rounds in (1, 3):
        cut = dmkl.solve(stack, labels, problem, tol=1e-6, checkpoint=tmp_path / "c", max_rounds=rounds)
        assert cut.rounds == rounds < straight.rounds
    resumed = dmkl.solve(stack, labels, problem, tol=1e-6, checkpoint=tmp_path / "c")
    assert resumed.rounds == straight.rounds
    assert np.array_equal(resumed.coef, straight.coef)
    assert np.array_equal(resumed.dual, straight.dual)


@every_norm
def test_permuted_kernels_permute_coefficients(norm: str) -> None:
    K, y = mixed_kernels()
    order = np.random.default_rng(0).permutation(len(K))
    problem = dmkl.MIKL(norm=norm, lam=1.0)
    fits = [dmkl.solve(KernelStack.from_array(array), y, problem, tol=1e-9) for array in (K, K[order])]
    np.testing.assert_allclose(fits[1].coef, fits[0].coef[:, order], atol=1e-3)
    np.testing.assert_allclose(fits[1].objective, fits[0].objective, rtol=1e-8)


@every_norm
def test_workers_of_a_cluster_give_the_same(store: KernelStore, norm: str, two_workers: Any) -> None:
    labels = np.arange(100) % 3
    here = dmkl.solve(open_stack(store.path), labels, dmkl.MIKL(norm=norm, lam=2.0))
    there = dmkl.solve(open_stack(store.path, runtime=two_workers), labels, dmkl.MIKL(norm=norm, lam=2.0))
    np.testing.assert_allclose(here.coef, there.coef, atol=1e-9)


# kernels of any kind


def similarity(P: np.ndarray) -> np.ndarray:
    """Neither symmetric nor semidefinite."""
    return P @ np.diag([1.0, 2.0, 0.5, -1.0]) @ (P + 0.3).T


def any_kernels(n: int = 150, seed: int = 1) -> Dataset:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    P = rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[y]
    words = rng.dirichlet(np.ones(6), n) + 0.3 * np.eye(6)[y]
    views = [
        make_view("points", "features", P),
        make_view("words", "features", words),
        make_view("align", "kernel", similarity(P), symmetric=False),
    ]
    return Dataset({view.name: view for view in views}, make_labels(y))


KERNELS = [
    KernelConfig("rbf", views=("points",), params={"width": "1 median"}),
    KernelConfig("kl", views=("words",)),
    KernelConfig("sigmoid", views=("points",)),
    KernelConfig("precomputed", views=("align",)),
    KernelConfig("linear", views=("points",), normalise=("centre", "unit-trace")),
]


@pytest.fixture(scope="module")
def data() -> tuple[Dataset, Dataset]:
    return any_kernels().train_test(np.arange(100), np.arange(100, 150))


@pytest.fixture(scope="module")
def store(data: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    path = tmp_path_factory.mktemp("mikl") / "kernels.zarr"
    return build_store(path, plan_bank(KERNELS, data[0]), data[0], Local(2), largest_tile=34)


def every_value(stack: KernelStack) -> np.ndarray:
    return stack.pick(np.ones((stack.s, stack.n), dtype=bool)).reshape(stack.s, stack.n, stack.n)


def test_a_store_keeps_all_tiles_where_a_kernel_is_not_symmetric(
    store: KernelStore, data: tuple[Dataset, Dataset]
) -> None:
    assert store.grid.full
    assert len(store.pairs) == store.grid.blocks**2
    K = every_value(open_stack(store.path, backend="disk"))
    np.testing.assert_allclose(K[3], np.asarray(data[0].views["align"].values), rtol=1e-6)
    skew = np.abs(K - K.transpose(0, 2, 1)).max(axis=(1, 2))
    assert (skew[[1, 3]] > 0.1).all()
    assert (skew[[0, 2, 4]] < 1e-6).all()


@pytest.mark.parametrize("backend", ["memory", "disk", "computed", "cluster", "choose"])
def test_every_backend_answers_k_and_its_transpose(
    store: KernelStore, backend: str, request: pytest.FixtureRequest, rng: np.random.Generator
) -> None:
    if backend == "cluster":
        stack = open_stack(store.path, runtime=request.getfixturevalue("two_workers"))
    else:
        stack = open_stack(store.path, backend="disk" if backend == "choose" else backend, workers=2)
    K = every_value(open_stack(store.path, backend="disk", workers=1))
    assert np.array_equal(every_value(stack), K)
    if backend == "choose":
        stack, K = stack.choose([3, 0, 1]), K[[3, 0, 1]]
    exact, n, s = K.astype(np.float64), stack.n, stack.s
    alpha, beta = rng.normal(size=(s, n, 2)), rng.normal(size=(n, 2))
    np.testing.assert_allclose(stack.expand(alpha), np.einsum("aij,aik->jk", exact, alpha), atol=1e-10)
    np.testing.assert_allclose(stack.correlate(beta), np.einsum("aij,jk->aik", exact, beta), atol=1e-10)
    np.testing.assert_allclose(stack.correlate(beta, kernels=[2, 0]), stack.correlate(beta)[[2, 0]], atol=1e-12)
    np.testing.assert_allclose(stack.row_norms(), np.linalg.norm(exact, axis=2), rtol=1e-12)
    members = rng.random((s, n)) < 0.3
    assert np.array_equal(stack.pick(members), K[members])


def test_stores_of_symmetric_kernels_keep_half_and_answer_the_same(tmp_path: Path, rng: np.random.Generator) -> None:
    train = any_kernels(90)
    store = build_store(
        tmp_path / "k.zarr", plan_bank([KERNELS[0], KERNELS[2]], train), train, Local(1), largest_tile=40
    )
    assert not store.grid.full
    stack = open_stack(store.path, backend="disk")
    K = every_value(stack)
    assert np.array_equal(K, K.transpose(0, 2, 1))
    alpha, beta = rng.normal(size=(2, 90, 2)), rng.normal(size=(90, 2))
    exact = K.astype(np.float64)
    np.testing.assert_allclose(stack.expand(alpha), np.einsum("aij,aik->jk", exact, alpha), atol=1e-10)
    np.testing.assert_allclose(stack.correlate(beta), np.einsum("aij,jk->aik", exact, beta), atol=1e-10)
    np.testing.assert_allclose(stack.row_norms(), np.linalg.norm(exact, axis=2), rtol=1e-12)


@every_norm
def test_disk_and_array_give_the_same_fit(store: KernelStore, data: tuple[Dataset, Dataset], norm: str) -> None:
    stack = open_stack(store.path, backend="disk")
    array = KernelStack.from_array(every_value(stack))
    fits = [dmkl.solve(s, data[0].labels, dmkl.MIKL(norm=norm, lam=2.0), tol=1e-6) for s in (stack, array)]
    np.testing.assert_allclose(fits[0].objective, fits[1].objective, rtol=1e-9)
    np.testing.assert_allclose(fits[0].coef, fits[1].coef, atol=1e-9)


@every_norm
def test_a_saved_model_predicts_what_the_kernels_say(
    store: KernelStore, data: tuple[Dataset, Dataset], norm: str, tmp_path: Path
) -> None:
    """New samples are the second argument of every kernel: computed, given, and centred ones."""
    train, test = data
    fit = dmkl.solve(open_stack(store.path), train.labels, dmkl.MIKL(norm=norm, lam=2.0), tol=1e-5)
    save_model(tmp_path / "m.zip", make_model(store, fit))
    model = load_model(tmp_path / "m.zip")
    assert model.per_kernel
    scores = model.decision(test, Local(1))
    whole = any_kernels()
    bank = plan_bank(KERNELS, train)
    alpha = fit.coef
    expected = np.zeros((50, 3))
    P, H = (np.asarray(whole.views[name].values) for name in ("points", "words"))
    width = bank.kernels[0].function.width
    distances = ((P[:100, None] - P[None, 100:]) ** 2).sum(2)
    expected += np.exp(-distances / (2 * width**2)).T @ alpha[:, :, 0].T
    Q = 0.999 * H / H.sum(1, keepdims=True) + 0.001 / 6
    divergence = (Q[:100, None] * np.log(Q[:100, None] / Q[None, 100:])).sum(2)
    expected += np.exp(-divergence / bank.kernels[1].function.width).T @ alpha[:, :, 1].T
    gamma = bank.kernels[2].function.gamma
    expected += np.tanh(gamma * P[:100] @ P[100:].T).T @ alpha[:, :, 2].T
    expected += similarity(P)[:100, 100:].T @ alpha[:, :, 3].T
    centred = P - P[:100].mean(0)
    expected += (centred[:100] @ centred[100:].T / (centred[:100] ** 2).sum()).T @ alpha[:, :, 4].T
    np.testing.assert_allclose(scores, expected, atol=2e-5)
    assert (model.predict(scores).values == test.labels.values).mean() > 0.7  # type: ignore[union-attr]


def test_a_nonsymmetric_view_must_be_declared() -> None:
    values = similarity(np.random.default_rng(0).normal(size=(20, 4)))
    with pytest.raises(DataError, match="is not symmetric"):
        plan_bank([KernelConfig("precomputed")], Dataset({"k": make_view("k", "kernel", values)}))
    with pytest.raises(ConfigError, match="only kernel views may have symmetric = false"):
        make_view("k", "distance", values, symmetric=False)
    bank = plan_bank([KernelConfig("precomputed")], Dataset({"k": make_view("k", "kernel", values, symmetric=False)}))
    assert not bank.symmetric
    with pytest.raises(ConfigError, match="cannot be centred"):
        plan_bank([KernelConfig("kl", views=("words",), normalise=("centre",))], any_kernels(20))


def test_other_formulations_refuse_such_kernels_and_say_where_to_go(store: KernelStore) -> None:
    stack = open_stack(store.path)
    with pytest.raises(SolverError, match=r"'words/kl\(\)' is not one.*mikl"):
        dmkl.solve(stack, np.arange(100) % 2, dmkl.VSKL())
    with pytest.raises(DataError, match=r"is not symmetric.*mikl"):
        dmkl.solve(KernelStack.from_array(ARRAYS["ind_K"]), ARRAYS["bin_y"], dmkl.UniformMKL())


@pytest.mark.parametrize("how", ["clip", "shift"])
@pytest.mark.parametrize("source", ["array", "store"])
def test_given_kernels_are_looked_at_and_can_be_repaired(how: str, source: str, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400, 5))
    good, bad = X @ X.T, np.tanh(X @ X.T)
    labels = np.where(X[:, 0] > 0, 1, -1)

    def stack_of(K: np.ndarray) -> KernelStack:
        if source == "array":
            return KernelStack.from_array(np.stack([good, K]), names=["good", "bad"])
        views = {"good": make_view("good", "kernel", good), "bad": make_view("bad", "kernel", K)}
        data = Dataset(views, make_labels(labels))
        path = tmp_path / f"{np.linalg.norm(K)}.zarr"
        return open_stack(
            build_store(path, plan_bank([KernelConfig("precomputed")], data), data, Local(1)).path, backend="disk"
        )

    with pytest.raises(SolverError, match=r"'bad.*' is not one: over 300 samples its eigenvalues go from -.*repair"):
        dmkl.solve(stack_of(bad), labels, dmkl.L1MKL(C=1.0), tol=0.1)
    repaired = dmkl.repair(bad, how)
    assert np.linalg.eigvalsh(repaired)[0] >= -1e-9
    if how == "shift":
        assert np.array_equal(repaired[~np.eye(400, dtype=bool)], bad[~np.eye(400, dtype=bool)])
    assert dmkl.solve(stack_of(repaired), labels, dmkl.L1MKL(C=1.0), tol=0.1).converged


def test_wrong_repairs_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown repair 'flip'"):
        dmkl.repair(np.eye(3), "flip")
    with pytest.raises(DataError, match="finite square matrix"):
        dmkl.repair(np.ones((2, 3)))
    K = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    np.testing.assert_allclose(dmkl.repair(K), [[[0.5, 0.5], [0.5, 0.5]]], atol=1e-12)


CONFIG = """
[data]
path = "data.npz"
test = 0.25
[views.points]
[views.words]
[views.align]
kind = "kernel"
symmetric = false
[[kernels]]
kernel = "rbf"
views = "points"
width = ["0.5 median", "1 median"]
[[kernels]]
kernel = "kl"
views = "words"
[[kernels]]
kernel = "precomputed"
views = "align"
[formulation]
name = "mikl"
norm = "21;1"
lam = 2.0
[solve]
baselines = true
[run]
tile = 40
"""


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = any_kernels(160)
    arrays = {name: np.asarray(view.values) for name, view in data.views.items()}
    assert data.labels is not None
    np.savez(tmp_path / "data.npz", y=data.labels.values, **arrays)
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "config.toml", "-o", "run"]) == 0
    shown = capsys.readouterr().out
    assert "MIKL norm=21;1 lam=2   3 classes" in shown
    assert "(proved)" in shown
    report = (tmp_path / "run" / "report.html").read_text()
    assert "<h2>Relevance</h2>" in report
    assert report.count("Coefficients of ") == 2 * 3  # a caption and a label of its box for each of three classes
    assert main(["train", "config.toml", "-o", "other", "-s", "formulation.name=vskl"]) != 0
    assert "mikl" in capsys.readouterr().err
    model = load_model(tmp_path / "run" / "model.zarr.zip")
    new = any_kernels(160).take(np.arange(5))
    arrays = {name: np.asarray(view.values) for name, view in new.views.items()}
    arrays["align"] = arrays["align"][:, : model.about["widths"]["align"]]  # against the training samples
    np.savez(tmp_path / "new.npz", **arrays)
    assert main(["predict", "run", "new.npz", "-o", "out.npz"]) == 0


@pytest.mark.long
@pytest.mark.parametrize("norm", ["1", "21;1", "12;1", "12;2", "21;2"])
def test_three_thousand_samples_on_disk(tmp_path: Path, norm: str) -> None:
    """144 MB of kernels, one not symmetric, in a process of its own with 450 MB."""
    from test_memory import dmkl as run

    data = any_kernels(3000)
    assert data.labels is not None
    arrays = {name: np.asarray(data.views[name].values) for name in ("points", "words")}
    np.savez(tmp_path / "data.npz", y=data.labels.values == 0, **arrays)
    config = (
        CONFIG[: CONFIG.index("[views.points]")] + CONFIG[CONFIG.index("[[kernels]]") : CONFIG.rindex("[[kernels]]")]
    )
    kernels = '[[kernels]]\nkernel = "sigmoid"\nviews = "points"\n'
    views = '[views.points]\narray = "points"\n[views.words]\narray = "words"\n'
    lam = {"1": 300, "21;1": 300, "12;1": 4e7, "12;2": 1e5, "21;2": 5e4}[norm]
    formulation = f'[formulation]\nname = "mikl"\nnorm = "{norm}"\nlam = {lam}\n[run]\nkernels = "store"\n'
    text = (config + views + kernels + formulation).replace("test = 0.25", "test = 0")
    (tmp_path / "config.toml").write_text(text)
    run(tmp_path, "kernels", "config.toml", "-o", "k.zarr")
    trained, peak = run(tmp_path, "train", "k.zarr", "-o", "run", "--memory", "450 MB")
    facts = trained["train"]
    assert isinstance(facts, dict)
    print(f"\n{norm}: peak {peak / 1e6:,.0f} MB, {facts['passes']} passes, {facts['seconds']:.1f} s")
    assert facts["converged"]
    assert facts["backend"] == "disk"
    assert peak < 450e6
