"""OBSCURE under other losses: against generic solvers on explicit features, in special cases, and its certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import unsolved, with_options
from huber import Huber
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVR

import dmkl
from dmkl._util.types import Float64
from dmkl.errors import ConfigError, SolverError
from dmkl.model import make_model
from dmkl.problems.losses import LOSSES, Loss, Slack, Smooth, loss_of
from dmkl.problems.obscure_terms import ColumnLoss, RowLoss
from dmkl.runtime import Local
from dmkl.solvers import methods, working_sets
from dmkl.stack import KernelStack, open_stack
from dmkl.store import KernelStore

pytestmark = unsolved


@dataclass(frozen=True)
class Quantile(Loss):
    """A loss of somebody else's with kinks: q [y - f]+ + (1 - q) [f - y]+."""

    quantile: float = 0.8
    regression: ClassVar[bool] = True

    def total(self, y: Float64, f: Float64) -> float:
        return float((self.counts * np.maximum(self.quantile * (y - f), (self.quantile - 1) * (y - f))).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        return -float((y * rho).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        return np.clip(rho, (self.quantile - 1) * self.counts, self.quantile * self.counts)

    def smooth(self, y: Float64, rho: Float64) -> Smooth:
        return Smooth(self.conjugate(y, rho), -y, np.zeros(len(y)))

    def slacks(self, y: Float64) -> list[Slack]:
        one = np.ones(len(y))
        above = Slack(one, (1 - self.quantile) * self.counts, 0.0, np.inf)
        return [above, Slack(-one, self.quantile * self.counts, 0.0, np.inf)]

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        return [np.maximum(f - y, 0.0), np.maximum(y - f, 0.0)]

    def null(self, y: Float64) -> Float64:
        return np.zeros(len(y))

    def intercept(self, y: Float64, scores: Float64) -> float:
        return float(np.quantile(y - scores, self.quantile))


@dataclass(frozen=True)
class Tube(Quantile):
    """Curvature and a kink inside the domain, which no exact method knows: [|y - f| - 1/5]+^2."""

    def total(self, y: Float64, f: Float64) -> float:
        return float((self.counts * np.maximum(np.abs(y - f) - 0.2, 0.0) ** 2).sum())

    def conjugate(self, y: Float64, rho: Float64) -> float:
        return float((rho * (0.25 * rho / self.counts - y) + 0.2 * np.abs(rho)).sum())

    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        return rho

    def smooth(self, y: Float64, rho: Float64) -> Smooth:
        value = float((rho * (0.25 * rho / self.counts - y)).sum())
        return Smooth(value, 0.5 * rho / self.counts - y, np.full(len(y), 0.5) / self.counts)

    def slacks(self, y: Float64) -> list[Slack]:
        return [Slack(np.ones(len(y)), 0.0, -0.2, 0.2)]

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        return [np.clip(f - y, -0.2, 0.2)]


REAL: dict[str, Any] = {
    "squared": "squared",
    "epsilon": {"name": "epsilon", "epsilon": 0.3},
    "huber": Huber(delta=0.4),
    "quantile": Quantile(),
}
CLASSES: dict[str, Any] = {name: name for name in ("logistic", "squared", "hinge", "softmax")}
TASKS = [(name, 0) for name in REAL] + [(name, m) for name in CLASSES for m in (2, 3)]
EVERY = pytest.mark.parametrize(("name", "m"), TASKS, ids=[f"{name}-{m or 'targets'}" for name, m in TASKS])


class Case:
    """n samples with three groups of features, and their targets."""

    def __init__(self, name: str, m: int, n: int = 36, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.labels = n, rng.permutation(np.arange(n) % max(m, 2))
        self.X = [rng.normal(size=(n, d)) + self.labels[:, None] * (d == 2) for d in (2, 3, 1)]
        self.K = np.stack([x @ x.T for x in self.X])
        self.stack = KernelStack.from_array(self.K)
        if m == 0:
            self.loss = REAL[name]
            self.given = np.sin(self.X[0][:, 0]) + 0.5 * self.X[1][:, 1] + 0.3 * rng.normal(size=n)
            self.Y = self.given[:, None]
        else:
            self.loss, self.given = CLASSES[name], np.array(["a", "b", "c"])[self.labels]
            self.Y = np.where(self.labels[:, None] == np.arange(m), 1.0, -1.0)[:, 1 if m == 2 else 0 :]

    def objective(self, w: list[np.ndarray], p: float, lam: float) -> float:
        """By its definition, w_a (features, columns)."""
        norm = sum(np.linalg.norm(block) ** p for block in w) ** (1 / p)
        scores = np.sum([x @ block for x, block in zip(self.X, w, strict=True)], axis=0)
        if self.loss == "softmax":
            f = scores if self.Y.shape[1] > 1 else np.hstack([np.zeros((self.n, 1)), scores])
            total = (np.log(np.exp(f).sum(axis=1)) - f[np.arange(self.n), self.labels]).sum()
            lam = lam if self.Y.shape[1] > 1 else lam / 2  # ||w||^2 is half of that of the difference
            return float(0.5 * lam * norm**2 + total / self.n)
        loss = loss_of(self.loss)
        total = sum(loss.total(np.ascontiguousarray(y), f) for y, f in zip(self.Y.T, scores.T, strict=True))
        return float(0.5 * lam * norm**2 + total / self.n)

    def functions(self, fit: dmkl.Fit) -> list[np.ndarray]:
        """w_a of a fit."""
        return [u * x.T @ fit.coef_matrix for u, x in zip(fit.weights, self.X, strict=True)]

    def optimum(self, p: float, lam: float) -> float:
        """By BFGS over all features."""
        m, sizes, loss = self.Y.shape[1], [x.shape[1] for x in self.X], dmkl.Obscure(C=1.0, loss=self.loss)
        cuts = np.cumsum(sizes)[:-1]
        everything = np.concatenate(self.X, axis=1)

        def value(at: np.ndarray) -> tuple[float, np.ndarray]:
            blocks = np.split(at.reshape(-1, m), cuts)
            norms = np.array([max(np.linalg.norm(block), 1e-12) for block in blocks])
            size = (norms**p).sum() ** (1 / p)
            slopes = loss.row_loss(self.Y, 1.0).tangent(everything @ at.reshape(-1, m))
            own = [(norm / size) ** (p - 2) * block for norm, block in zip(norms, blocks, strict=True)]
            gradient = lam * np.concatenate(own) - everything.T @ slopes / self.n
            return self.objective(blocks, p, lam), gradient.ravel()

        start = np.full(sum(sizes) * m, 0.1)
        return float(minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}).fun)


# --- optima


@pytest.mark.parametrize(
    ("name", "m"), [("squared", 0), ("huber", 0), ("logistic", 2), ("logistic", 3), ("squared", 3), ("softmax", 3)]
)
@pytest.mark.parametrize("p", [1.05, 1.4, 2.0])
@pytest.mark.parametrize("lam", [0.3, 0.01])
def test_smooth_losses_reach_the_optimum_of_a_generic_solver(name: str, m: int, p: float, lam: float) -> None:
    case = Case(name, m)
    fit = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=p, lam=lam, loss=case.loss), tol=1e-8)
    assert fit.converged
    assert fit.objective == pytest.approx(case.optimum(p, lam), rel=1e-6)


@EVERY
@pytest.mark.parametrize("p", [1.01, 1.4, 2.0])
@pytest.mark.parametrize("C", [0.1, 30.0])
def test_every_loss_is_certified_and_the_objective_is_that_of_the_functions(
    name: str, m: int, p: float, C: float
) -> None:
    case = Case(name, m)
    fit = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=p, C=C, loss=case.loss), tol=1e-6)
    print(f"{fit.svm_calls} problems of one kernel")
    assert fit.converged
    assert fit.svm_calls <= 30
    assert fit.objective == pytest.approx(case.objective(case.functions(fit), p, 1 / (C * case.n)), rel=1e-9)


def test_p_two_is_ridge_regression_on_the_sum_of_the_kernels() -> None:
    case, C = Case("squared", 0), 0.7
    fit = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=2, C=C, loss="squared"), tol=1e-10)
    ridge = KernelRidge(alpha=1 / (2 * C), kernel="precomputed").fit(case.K.sum(axis=0), case.given)
    np.testing.assert_allclose(fit.coef, ridge.dual_coef_, atol=1e-5)
    assert fit.task == "regression"
    np.testing.assert_allclose(fit.weights, 1.0)


def test_p_two_is_logistic_regression_on_all_features() -> None:
    case, C = Case("logistic", 2), 0.7
    fit = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=2, C=C, loss="logistic"), tol=1e-10)
    plain = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=1000)
    plain.fit(np.concatenate(case.X, axis=1), case.given)
    found = np.concatenate(case.functions(fit))[:, 0]
    np.testing.assert_allclose(found, plain.coef_[0], atol=1e-4)


def test_p_two_is_multinomial_regression_on_all_features() -> None:
    case, C = Case("softmax", 3), 0.7
    fit = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=2, C=C, loss="softmax"), tol=1e-10)
    plain = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=1000)
    plain.fit(np.concatenate(case.X, axis=1), case.given)
    np.testing.assert_allclose(np.concatenate(case.functions(fit)).T, plain.coef_, atol=1e-4)


def test_p_two_is_support_vector_regression_on_all_features() -> None:
    case, C = Case("epsilon", 0), 0.7
    fit = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=2, C=C, loss=case.loss), tol=1e-9)
    plain = LinearSVR(epsilon=0.3, C=C, fit_intercept=False, tol=1e-9, max_iter=100_000, random_state=0)
    plain.fit(np.concatenate(case.X, axis=1), case.given)
    found = np.concatenate(case.functions(fit))[:, 0]
    np.testing.assert_allclose(found, plain.coef_, atol=1e-4)


@pytest.mark.parametrize("loss", [REAL["squared"], REAL["epsilon"], REAL["huber"], "logistic", "hinge"], ids=str)
def test_on_mirrored_samples_it_is_uniform_and_spicy(loss: Any) -> None:
    """With -x and -y for every x and y no intercept is the best intercept, for kernels that are linear."""
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(25, d)) for d in (2, 4)]
    y = X[0][:, 0] - 0.4 * X[1][:, 1] + 0.5 * rng.normal(size=25)
    y = np.sign(y) if loss in ("logistic", "hinge") else y
    X, y = [np.concatenate([x, -x]) for x in X], np.concatenate([y, -y])
    stack, C = KernelStack.from_array(np.stack([x @ x.T for x in X])), 0.8
    sums = dmkl.solve(stack, y, dmkl.Obscure(p=2, C=C, loss=loss), tol=1e-8)
    uniform = dmkl.solve(stack, y, dmkl.UniformMKL(C=2 * C, loss=loss), tol=1e-8)
    assert 2 * C * len(y) * sums.objective == pytest.approx(uniform.objective, rel=1e-7)
    sparse = dmkl.solve(stack, y, dmkl.Obscure(p=1 + 1e-7, C=C, loss=loss), tol=1e-7)
    forms = np.einsum("i,aij,j->a", sparse.coef, np.stack([x @ x.T for x in X]), sparse.coef)
    size = float((sparse.weights * np.sqrt(forms)).sum())
    spicy = dmkl.solve(stack, y, dmkl.SpicyMKL(C=size / C, loss=loss), tol=1e-7)
    assert C * len(y) * sparse.objective + 0.5 * size**2 == pytest.approx(C * spicy.objective, rel=1e-5)


# --- the stages


@EVERY
def test_the_papers_stages_learn_with_every_loss(name: str, m: int) -> None:
    case, p = Case(name, m), 1.2
    formulation = dmkl.Obscure(p=p, C=1.0, loss=case.loss)
    best = dmkl.solve(case.stack, case.given, formulation, tol=1e-5)
    nothing = case.objective([np.zeros((x.shape[1], case.Y.shape[1])) for x in case.X], p, 1.0)
    for method, near in (("online", 0.8), ("stochastic", 0.15), ("pegasos", 0.15)):
        if method not in [one.name for one in methods.methods_of(formulation)]:
            assert name == "squared"  # whose slopes have no limit
            continue
        fit = dmkl.solve(case.stack, case.given, formulation, tol=1e-3, method=method, max_rounds=65)
        assert fit.dual <= best.objective * (1 + 1e-9)
        assert fit.objective >= best.dual * (1 - 1e-9)
        assert fit.objective - best.objective <= near * (nothing - best.objective), method
        assert fit.dual > 0


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_the_slopes_of_smooth_losses_prove_a_gap(name: str) -> None:
    case = Case(name, 2)
    fit = dmkl.solve(
        case.stack, case.given, dmkl.Obscure(p=1.5, C=1.0, loss=name), tol=0.02, method="stochastic", max_rounds=600
    )
    assert fit.converged


def test_steps_that_leave_the_range_of_numbers_are_refused() -> None:
    case = Case("squared", 0)
    for C in (1e-3, 1e6):  # by itself no step does
        dmkl.solve(case.stack, case.given, dmkl.Obscure(C=C, loss="squared"), method="online", max_rounds=40)
    formulation = dmkl.Obscure(C=1.0, loss="squared", eta=1e3)
    with pytest.raises(SolverError, match=r"the online stage has left the range of numbers.*use a smaller eta"):
        dmkl.solve(case.stack, case.given, formulation, method="online", max_rounds=200)
    with pytest.raises(ConfigError, match="unknown method 'pegasos' of Obscure"):
        dmkl.solve(case.stack, case.given, dmkl.Obscure(C=1.0, loss="squared"), method="pegasos")


@pytest.mark.parametrize("unit", [1e-10, 1e10])
@pytest.mark.parametrize("name", ["squared", "epsilon"])
@pytest.mark.parametrize("method", ["exact", "stochastic"])
def test_units_of_targets_and_kernels_do_not_matter(name: str, method: str, unit: float) -> None:
    """c y and d K, with the epsilon and C that go with them, have the same solution."""
    case, n = Case(name, 0), 36
    loss = {"name": "epsilon", "epsilon": 0.3 * unit} if name == "epsilon" else name
    options: dict[str, Any] = {"tol": 1e-6, "method": method, "max_rounds": 9}
    plain = dmkl.solve(case.stack, case.given, dmkl.Obscure(p=1.3, lam=0.1, loss=case.loss), **options)
    for d in (1.0, 1e6):
        lam = 0.1 * d if name == "squared" else 0.1 * d / unit
        scaled = dmkl.solve(
            KernelStack.from_array(d * case.K), unit * case.given, dmkl.Obscure(p=1.3, lam=lam, loss=loss), **options
        )
        factor = unit**2 if name == "squared" else unit
        rel = 2e-6 if method == "exact" else 1e-6
        assert scaled.objective / factor == pytest.approx(plain.objective, rel=rel)
        assert scaled.dual / factor == pytest.approx(plain.dual, rel=rel)
    assert n == case.n


def test_a_loss_that_the_exact_stage_does_not_know_has_the_stages() -> None:
    case = Case("squared", 0)
    formulation = dmkl.Obscure(p=1.5, C=1.0, loss=Tube())
    assert methods.find(formulation).name == "stochastic"
    fit = dmkl.solve(case.stack, case.given, formulation, tol=0.05, max_rounds=600)
    assert fit.converged
    w = case.functions(fit)
    scores = np.sum([x @ block for x, block in zip(case.X, w, strict=True)], axis=0)[:, 0]
    norm = sum(np.linalg.norm(block) ** 1.5 for block in w) ** (1 / 1.5)
    total = (np.maximum(np.abs(case.given - scores) - 0.2, 0) ** 2).sum()
    assert fit.objective == pytest.approx(0.5 * norm**2 / case.n + total / case.n, rel=1e-9)


# --- certificates


@settings(max_examples=25)
@given(
    st.integers(0, 1000),
    st.sampled_from(TASKS),
    st.sampled_from([1.001, 1.2, 2.0]),
    st.floats(-2, 2),
    st.sampled_from(["exact", "obscure", "stochastic", "online"]),
    st.integers(1, 4),
)
def test_no_function_is_below_the_bound(
    seed: int, task: tuple[str, int], p: float, exponent: float, method: str, rounds: int
) -> None:
    """Whenever a run ends: the objective is that of its functions, and near ones and zero are not below the bound."""
    case, rng = Case(*task, n=14, seed=seed), np.random.default_rng(seed)
    lam = 1 / (10**exponent * case.n)
    fit = dmkl.solve(
        case.stack,
        case.given,
        dmkl.Obscure(p=p, lam=lam, loss=case.loss),
        tol=1e-7,
        method=method,
        max_rounds=rounds,
    )
    w = case.functions(fit)
    assert fit.objective == pytest.approx(case.objective(w, p, lam), rel=1e-7)
    for size in (0.0, 1e-3, 0.1, 1.0):
        near = [block + size * np.abs(block).max() * rng.normal(size=block.shape) for block in w]
        for share in (0.0, 0.5, 1.0, 1.1):
            assert fit.dual <= case.objective([share * block for block in near], p, lam) * (1 + 1e-9)


@given(st.integers(0, 1000), st.sampled_from(TASKS), st.floats(-3, 3))
def test_the_best_scale_and_the_bound_of_a_share_are_the_best(
    seed: int, task: tuple[str, int], exponent: float
) -> None:
    case, rng = Case(*task, n=9, seed=seed), np.random.default_rng(seed)
    loss = dmkl.Obscure(C=1.0, loss=case.loss).row_loss(case.Y, 10**exponent)
    scores, square = 10 ** rng.uniform(-4, 4) * rng.normal(size=case.Y.shape), 10 ** rng.uniform(-3, 3)
    t = loss.best_scale(square, scores)
    best = loss.primal(t * t * square, t * scores)
    B = loss.nearest(10**exponent * rng.normal(size=case.Y.shape))
    np.testing.assert_allclose(loss.nearest(B), B, atol=1e-12 * np.abs(B).max())
    bound = loss.bound(B, square)
    for other in [*np.linspace(0, 2 * t, 25), 0.99 * t, 1.01 * t]:
        assert best <= loss.primal(other * other * square, other * scores) * (1 + 1e-9)
    for share in np.linspace(0, 1, 25):
        value = loss.gain(share * B) - 0.5 * share**2 * square
        assert bound >= value - 1e-3 * (abs(value) + square)


@given(st.integers(0, 1000), st.sampled_from([1.0, 0.01]))
def test_hinges_of_the_table_are_the_compiled_ones(seed: int, C: float) -> None:
    rng = np.random.default_rng(seed)
    Y = np.where(rng.integers(0, 3, 9)[:, None] == np.arange(3), 1.0, -1.0)
    one, other = RowLoss.of(Y, False, C), ColumnLoss.made(Y, loss_of("hinge"), C)
    scores, B = rng.normal(size=Y.shape), C * rng.normal(size=Y.shape)
    np.testing.assert_allclose(one.nearest(B), other.nearest(B), atol=1e-10 * C)
    B = one.nearest(B)
    assert one.gain(B) == pytest.approx(other.gain(B))
    assert one.primal(2.0, scores) == pytest.approx(other.primal(2.0, scores))
    assert one.bound(B, 3.0) == pytest.approx(other.bound(B, 3.0), rel=1e-4)
    assert one.best_scale(0.5, scores) == pytest.approx(other.best_scale(0.5, scores), rel=1e-6)
    np.testing.assert_array_equal(one.margins(scores), other.margins(scores))


# --- stores, models, registry


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_store_gives_what_an_array_gives(store: KernelStore, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formulation = dmkl.Obscure(p=1.3, C=1.0, loss=loss)
    whole = dmkl.solve(open_stack(store.path, backend="memory"), store.labels, formulation, tol=1e-4)
    with_options(monkeypatch, working_sets, whole_up_to=20)
    disk = dmkl.solve(open_stack(store.path, backend="computed"), store.labels, formulation, tol=1e-4)
    assert whole.converged
    assert disk.converged
    assert disk.objective == pytest.approx(whole.objective, rel=2e-4)


def test_a_regression_on_a_store_predicts_as_trained(store: KernelStore, data: Any) -> None:
    y = np.asarray(data.views["points"].values)[:, 0]
    fit = dmkl.solve(open_stack(store.path), y, dmkl.Obscure(p=1.3, C=10.0, loss="squared"), tol=1e-5)
    scores = make_model(store, fit).decision(data, Local(1))[:, 0]
    assert np.corrcoef(scores, y)[0, 1] > 0.9


def test_every_registered_loss_is_one_of_obscure() -> None:
    for name in LOSSES:
        formulation = dmkl.Obscure(C=1.0, loss=name)
        assert methods.find(formulation).name == "exact"
        assert formulation.bounded == (name != "squared")
        assert dmkl.Obscure(**formulation.constants()) == formulation
    with pytest.raises(ConfigError, match=r"unknown loss 'multiclas'; did you mean 'multiclass'"):
        dmkl.Obscure(C=1.0, loss="multiclas")
