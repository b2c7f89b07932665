"""Losses by what defines them: conjugacy, slacks that add up to the loss, intercepts that minimise.

The suite runs over the table of losses as it is, and over a loss of the tests with a parameter of its own. That one is
solved to a certificate, and its optimum is compared with an independent solver's.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from huber import Huber
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.base import clone

import dmkl
from dmkl.cli.main import main
from dmkl.errors import ConfigError
from dmkl.problems.losses import LOSSES, Loss, balanced, loss_of
from dmkl.problems.losses.standard import Epsilon, Hinge
from dmkl.solvers import describe
from dmkl.stack import KernelStack

WIDTH = 0.3
CASES = {name: loss_of(name, WIDTH) for name in LOSSES} | {"huber": Huber(delta=0.7)}
EVERY = pytest.mark.parametrize("name", [*CASES, *(f"{name}, counted" for name in CASES)])
numbers = st.floats(-5, 5, allow_subnormal=False)
SAMPLES = st.integers(2, 8).flatmap(lambda n: st.tuples(arrays(float, n, elements=numbers), st.just(n)))


@pytest.fixture
def huber(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that registers the loss of the tests."""
    monkeypatch.setattr(LOSSES, "_entries", dict(LOSSES._entries))
    LOSSES.register("huber", "huber:Huber")


def made(name: str, n: int) -> Loss:
    """A loss of n samples; of those that are counted, each another number of times."""
    name, _, counted = name.partition(", ")
    return CASES[name].counting(np.linspace(0.3, 2.5, n) if counted else np.ones(n))


def labels(name: str, n: int, seed: int) -> Any:
    """Signs of both kinds, or real targets."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) if made(name, n).regression else np.where(np.arange(n) % 2 == rng.integers(2), 1.0, -1.0)


def derivative(function: Any, at: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.eye(len(at))
    return np.array([(function(at + step) - function(at - step)) / 2e-6 for step in steps])


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_fenchel_young(name: str, drawn: Any, seed: int) -> None:
    """l(f) + l*(-rho) >= -rho f, with equality at rho = -l'(f): that is what makes dual values lower bounds."""
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    rho = loss.into_domain(y, np.random.default_rng(seed).normal(size=n))
    assert loss.total(y, f) + loss.conjugate(y, rho) + rho @ f >= -1e-9
    tangent = loss.into_domain(y, -derivative(lambda at: loss.total(y, at), f))
    gap = loss.total(y, f) + loss.conjugate(y, tangent) + tangent @ f
    assert gap <= 1e-4  # numerical differences, also across a kink


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_slacks_make_up_the_loss(name: str, drawn: Any, seed: int) -> None:
    """`smooth` is the conjugate of a convex function; the loss is the least price of the slacks plus that function."""
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    slacks = loss.slacks(y)
    if not slacks:
        return
    values = loss.slack_values(y, f)
    for slack, value in zip(slacks, values, strict=True):
        assert (value >= slack.low - 1e-12).all()
        assert (value <= slack.high + 1e-12).all()
    price = sum((slack.cost * value).sum() for slack, value in zip(slacks, values, strict=True))
    left = f - sum(s.sign * v for s, v in zip(slacks, values, strict=True))
    rho = loss.into_domain(y, -derivative(lambda at: loss.total(y, at), f))
    smooth = loss.smooth(y, rho)
    assert smooth is not None
    if not smooth.curvature.any():  # a linear conjugate: the slacks make up all of the loss
        np.testing.assert_allclose(left, y, atol=1e-12)
        assert price == pytest.approx(loss.total(y, f), abs=1e-9)
    else:
        np.testing.assert_allclose(smooth.gradient, -left, atol=1e-4)
        assert price - rho @ left - smooth.value == pytest.approx(loss.total(y, f), abs=1e-4)


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_the_smooth_part_has_its_derivatives(name: str, drawn: Any, seed: int) -> None:
    _, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    rho = 0.9 * loss.into_domain(y, np.random.default_rng(seed).uniform(0.1, 0.9, n) * np.sign(y))
    smooth = loss.smooth(y, rho)
    assert smooth is not None

    def value(at: np.ndarray) -> float:
        here = loss.smooth(y, at)
        assert here is not None
        return here.value

    def slope(at: np.ndarray) -> float:
        here = loss.smooth(y, at)
        assert here is not None
        return float(here.gradient.sum())

    np.testing.assert_allclose(derivative(value, rho), smooth.gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(derivative(slope, rho), smooth.curvature, rtol=1e-3, atol=1e-4)


@EVERY
@given(SAMPLES, SAMPLES, st.integers(0, 99))
def test_slopes_are_subgradients(name: str, drawn: Any, others: Any, seed: int) -> None:
    """l(g) >= l(f) - rho (g - f) for every g, also where f is at a kink."""
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    for here in (f, y, y + np.linspace(-1, 1, n).round() * WIDTH):
        rho = loss.slopes(y, here)
        assert rho.shape == here.shape
        for there in (np.resize(others[0], n), np.zeros(n), y):
            assert loss.total(y, there) >= loss.total(y, here) - rho @ (there - here) - 1e-8


@EVERY
@given(SAMPLES, st.integers(0, 99), st.floats(-3, 3))
def test_the_intercept_is_the_best_one(name: str, drawn: Any, seed: int, other: float) -> None:
    scores, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    b = loss.intercept(y, scores)
    assert loss.total(y, scores + b) <= loss.total(y, scores + b + other) + 1e-9


@EVERY
@given(SAMPLES, st.integers(0, 99))
def test_rho_may_be_zero_where_margins_say_so(name: str, drawn: Any, seed: int) -> None:
    f, n = drawn
    loss, y = made(name, n), labels(name, n, seed)
    left_alone = loss.margins(y, f) >= 1.0
    np.testing.assert_allclose(derivative(lambda at: loss.total(y, at), f)[loss.margins(y, f) > 1.001], 0.0, atol=1e-6)
    assert loss.sparse or not left_alone.any()


@EVERY
def test_the_null_point_is_a_dual_point(name: str) -> None:
    loss, y = made(name, 9), labels(name, 9, 3)
    rho = loss.null(y)
    assert rho.sum() == pytest.approx(0.0, abs=1e-12)
    assert rho.any()
    np.testing.assert_allclose(loss.into_domain(y, rho), rho, atol=1e-9)


@given(arrays(float, 6, elements=numbers))
def test_balancing_shrinks_one_side(rho: np.ndarray) -> None:
    result = balanced(rho)
    assert result.sum() == pytest.approx(0.0, abs=1e-9)
    assert (np.abs(result) <= np.abs(rho) + 1e-12).all()
    assert (result * rho >= 0).all()


@pytest.mark.parametrize(
    ("value", "loss"),
    [
        ("epsilon", Epsilon(epsilon=WIDTH)),
        ({"name": "epsilon"}, Epsilon(epsilon=WIDTH)),
        ({"name": "epsilon", "epsilon": 2}, Epsilon(epsilon=2.0)),
        (Epsilon(epsilon=2.0).counting(np.ones(3)), Epsilon(epsilon=2.0)),
        ({"name": "hinge"}, Hinge()),
        ({"name": "huber", "delta": 2}, Huber(delta=2.0)),
        ("huber", Huber()),
    ],
)
def test_a_loss_is_a_name_a_table_or_itself(value: Any, loss: Loss, huber: None) -> None:
    found = loss_of(value, WIDTH)
    assert found == loss
    assert found.counts == 1.0
    formulation = dmkl.SpicyMKL(loss=value, epsilon=WIDTH)
    assert formulation.own_loss() == loss
    plain = json.loads(json.dumps(formulation.constants()))
    assert dmkl.SpicyMKL(**plain) == formulation
    assert hash(dmkl.SpicyMKL(**plain)) == hash(formulation)


def test_equal_losses_make_equal_formulations(huber: None) -> None:
    assert dmkl.UniformMKL(loss=Hinge()) == dmkl.UniformMKL(loss={"name": "hinge"}) == dmkl.UniformMKL()
    assert dmkl.UniformMKL(loss=Hinge(), intercept=False).intercept is False
    assert dmkl.SpicyMKL(loss=Huber(delta=2.0)) != dmkl.SpicyMKL(loss="huber")
    table = {"name": "huber", "delta": 2.0}
    assert describe(dmkl.SpicyMKL(loss=table)) == "SpicyMKL C=1 loss=Huber(delta=2.0)"
    assert describe(dmkl.SpicyMKL()) == "SpicyMKL C=1 loss=hinge"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("hubert", "unknown loss 'hubert'; did you mean 'huber'"),
        ({"delta": 1.0}, "has no name"),
        (3, "has no name"),
        ({"name": "huber", "epsilon": 1.0}, "unknown key 'epsilon' in the loss huber"),
        ({"name": "huber", "counts": 1.0}, "unknown key 'counts' in the loss huber"),
        ({"name": "huber", "delta": "wide"}, "the loss huber: delta should be a number"),
        ({"name": "huber", "delta": -1.0}, "delta should be positive"),
        ({"name": "epsilon", "epsilon": -1.0}, "epsilon should be at least 0"),
    ],
)
def test_wrong_losses_are_refused(value: Any, message: str, huber: None) -> None:
    with pytest.raises(ConfigError, match=message):
        dmkl.UniformMKL(loss=value)


def test_an_epsilon_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon should be at least 0"):
        loss_of("epsilon", -1.0)


@pytest.fixture
def outliers() -> tuple[np.ndarray, np.ndarray]:
    """Three kernels of 40 samples, and targets of which some are far off."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)
    y[::9] += rng.choice([-8.0, 8.0], len(y[::9]))
    return np.stack([np.exp(-((x[:, None] - x) ** 2)) for x in X.T]), y


def test_spicy_solves_a_loss_of_somebody_elses(outliers: Any) -> None:
    """The dual,  max sum y rho - rho^2 / 2  over |rho| <= delta, sum rho = 0, rho' K_a rho <= C^2,  by SLSQP."""
    (K, y), C, delta = outliers, 2.0, 0.5
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=C, loss=Huber(delta=delta)), tol=1e-6)
    assert fit.converged
    assert fit.gap <= 1e-6
    found = minimize(
        lambda rho: 0.5 * rho @ rho - y @ rho,
        np.zeros(len(y)),
        jac=lambda rho: rho - y,
        bounds=[(-delta, delta)] * len(y),
        constraints=[
            {"type": "eq", "fun": np.sum, "jac": np.ones_like},
            *(
                {"type": "ineq", "fun": lambda rho, k=k: C**2 - rho @ k @ rho, "jac": lambda rho, k=k: -2 * k @ rho}
                for k in K
            ),
        ],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert found.success
    assert fit.objective == pytest.approx(-found.fun, rel=1e-5)
    assert 0 < np.count_nonzero(fit.weights) < 3


def test_uniform_solves_a_loss_of_somebody_elses(outliers: Any) -> None:
    """The primal over coefficients and intercept, by BFGS."""
    (K, y), C, delta = outliers, 5.0, 0.5
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.UniformMKL(C=C, loss=Huber(delta=delta)), tol=1e-6)
    assert fit.converged
    root = np.linalg.cholesky(K.mean(axis=0) + 1e-10 * np.eye(len(y)))

    def value(at: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = np.clip(y - root @ at[:-1] - at[-1], -delta, delta)
        loss = Huber(delta=delta).total(y, root @ at[:-1] + at[-1])
        return 0.5 * at[:-1] @ at[:-1] + C * loss, np.append(at[:-1] - C * root.T @ slopes, -C * slopes.sum())

    found = minimize(value, np.zeros(len(y) + 1), jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 5000})
    assert fit.objective == pytest.approx(found.fun, rel=1e-5)


CONFIG = """
[data]
path = "data.npz"
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median"]
[formulation]
name = "spicy"
C = 0.5
loss = { name = "huber", delta = 0.5 }
"""


def test_the_whole_way(tmp_path: Any, monkeypatch: Any, capsys: Any, huber: None) -> None:
    """From a table in a file over training, prediction, tuning and a rerun; each keeps the parameter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    np.savez(tmp_path / "data.npz", X_a=X[:, :1], X_b=X[:, 1:], y=np.sin(X[:, 0]) + 0.1 * rng.normal(size=80))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "config.toml", "--print-config"]) == 0
    assert 'loss = {name = "huber", delta = 0.5}' in capsys.readouterr().out
    assert main(["train", "config.toml", "-o", "run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["train"]["formulation"] == "SpicyMKL C=0.5 loss=Huber(delta=0.5)"
    assert facts["train"]["converged"]
    assert json.loads((tmp_path / "run/config.json").read_text())["formulation"]["params"]["loss"]["delta"] == 0.5
    assert main(["rerun", "run"]) == 0
    assert "the same: model bit for bit" in capsys.readouterr().out
    assert main(["predict", "run", "data.npz", "-o", "p.csv"]) == 0
    assert main(["train", "config.toml", "-o", "wide", "-s", "formulation.loss.delta=9", "--json"]) == 0
    assert "delta=9.0" in capsys.readouterr().out
    table = '[{ name = "huber", delta = 0.1 }, { name = "huber", delta = 1.0 }, "squared"]'
    assert (
        main(["tune", "config.toml", "-o", "best", "-s", f"tune.grid.loss={table}", "-g", "C=0.5", "--folds", "2"]) == 0
    )
    rows = json.loads((tmp_path / "best/tuning.json").read_text())["table"]
    assert [row["formulation"]["loss"] for row in rows] == [
        {"name": "huber", "delta": 0.1},
        {"name": "huber", "delta": 1.0},
        "squared",
    ]


def test_an_estimator_takes_a_table(outliers: Any, huber: None) -> None:
    K, y = outliers
    estimator = dmkl.SpicyMKLRegressor(kernels="precomputed", C=2.0, loss={"name": "huber", "delta": 0.5}, tol=1e-5)
    copied = clone(estimator).fit(np.moveaxis(K, 0, -1), y)
    fit = dmkl.solve(KernelStack.from_array(K), y, dmkl.SpicyMKL(C=2.0, loss=Huber(delta=0.5)), tol=1e-5)
    np.testing.assert_allclose(copied.kernel_weights_, fit.weights, rtol=1e-4)
