"""MIKL's two algorithms, written from the text of Kowalski et al. (2009), against the method `plain`.

The first half of the file is the paper and does not use dmkl. Two formulas are not as printed: the (1, 2) proximal map
is without its factor ||u||_2, and scores are those of (1), which for nonsymmetric kernels are not those of (3).
Algorithm 2 is as printed, with half the gradient of the loss, so that it solves (2) with twice its lambda.

`plain` differs on purpose where a step is too long: it is halved until the quadratic bound of the loss holds. At steps
of at most 1 / L it never is, and all iterates are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import dmkl
from dmkl._util.types import Float64
from dmkl.problems.mikl import NORMS
from dmkl.solvers.mikl import PerKernelState
from dmkl.solvers.mikl_compact import CompactPoint, HeldRows, descend, first_step, start_at

every_norm = pytest.mark.parametrize("norm", list(NORMS))

# The paper.


def proximity(u: Float64, mu: float, p: int, q: int) -> Float64:
    """Proposition 3 for the coefficients u of one group, the l of `u_{l, m}`."""
    sizes = np.abs(u)
    if (p, q) == (1, 1):
        return np.sign(u) * np.maximum(sizes - mu, 0)
    if (p, q) == (2, 2):
        return u / (1 + mu)
    if (p, q) == (2, 1):
        norm = np.sqrt((u**2).sum())
        return u * max(1 - mu / norm, 0) if norm > 0 else u
    ordered = -np.sort(-sizes)
    M = max(m for m in range(1, len(u) + 1) if m == 1 or ordered[m - 1] > mu * (ordered[:m] - ordered[m - 1]).sum())
    return np.sign(u) * np.maximum(sizes - mu * ordered[:M].sum() / (1 + mu * M), 0)


def proximity_of_all(alpha: Float64, mu: float, p: int, q: int, r: int) -> Float64:
    """The same for alpha (kernels, samples); the groups are samples for r = 1 and kernels for r = 2."""
    if p == q:  # whatever the groups are
        return proximity(alpha, mu, p, q)
    groups = alpha.T if r == 1 else alpha
    found = np.array([proximity(u, mu, p, q) for u in groups])
    return found.T if r == 1 else found


def norm_to_the_q(alpha: Float64, p: int, q: int, r: int) -> float:
    """(4) and (5), to the power q."""
    sums = (np.abs(alpha) ** p).sum(axis=0 if r == 1 else 1)
    return float((sums ** (q / p)).sum())


def margins(K: Float64, y: Float64, alpha: Float64) -> Float64:
    """K_y alpha: y_i f(x_i) by (1)."""
    return y * sum(K[t].T @ alpha[t] for t in range(len(K)))


def adjoint(K: Float64, y: Float64, u: Float64) -> Float64:
    """K_y' u."""
    return np.array([K[t] @ (y * u) for t in range(len(K))])


def algorithm_1(
    prox: Callable[[Float64], Float64], gradient: Callable[[Float64], Float64], gamma: float, alpha: Float64
) -> Iterator[Float64]:
    """Forward-backward: `prox` is that of gamma f1, `gradient` that of f2."""
    while True:
        alpha = prox(alpha - gamma * gradient(alpha))
        yield alpha


def algorithm_2(
    K: Float64, y: Float64, lam: float, gamma: float, norm: tuple[int, int, int], alpha: Float64
) -> Iterator[Float64]:
    """Forward-backward for the squared hinge loss."""
    while True:
        inside = alpha + gamma * adjoint(K, y, np.maximum(1 - margins(K, y, alpha), 0))
        alpha = proximity_of_all(inside, gamma * lam, *norm)
        yield alpha


def objective(K: Float64, y: Float64, lam: float, norm: tuple[int, int, int], alpha: Float64) -> float:
    """(2)."""
    slack = np.maximum(1 - margins(K, y, alpha), 0)
    return float(slack @ slack) + lam / norm[1] * norm_to_the_q(alpha, *norm)


def norm_of(K: Float64) -> float:
    """||K_y||, which does not depend on y."""
    return float(np.linalg.norm(np.vstack(list(K)), 2))


# The comparison.


@pytest.fixture(scope="module")
def problem() -> tuple[Float64, Float64]:
    """A semidefinite, an indefinite and a nonsymmetric kernel, and the constant one, on 24 samples."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(24, 3))
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    turned = X @ rng.normal(size=(3, 3)) @ X.T
    K = np.array([np.exp(-squares / 2), np.tanh(X @ X.T - 1), turned, np.ones((24, 24))])
    K /= np.linalg.norm(K, 2, axis=(1, 2))[:, None, None]
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=24) > 0, 1.0, -1.0)
    return K, y


def plain(K: Float64, y: Float64, norm: str, lam: float, step: float, steps: int) -> CompactPoint:
    """So many steps of the method `plain` from zero."""
    everything = np.ones(K.shape[:2], dtype=bool)
    penalty, rows = dmkl.MIKL(norm, lam).penalty(everything), HeldRows(K.reshape(-1, K.shape[2]), y)
    start = start_at(rows, penalty, np.zeros(everything.sum()))
    start = CompactPoint(start.alpha, start.margins, start.primal, start.u, start.dual, step=step)
    return descend(rows, penalty, start, 0.0, steps, accelerated=False)


def after(iterates: Iterator[Float64], steps: int) -> Float64:
    return next(alpha for number, alpha in enumerate(iterates, 1) if number == steps)


@every_norm
@pytest.mark.parametrize("steps", [1, 2, 3, 20, 200])
def test_plain_has_the_iterates_of_algorithm_1(problem: tuple[Float64, Float64], norm: str, steps: int) -> None:
    K, y = problem
    lam, step = 0.1, 1 / (2 * norm_of(K) ** 2)
    iterates = algorithm_1(
        lambda u: proximity_of_all(u, step * lam, *NORMS[norm]),
        lambda alpha: -2 * adjoint(K, y, np.maximum(1 - margins(K, y, alpha), 0)),
        step,
        np.zeros(K.shape[:2]),
    )
    wanted, found = after(iterates, steps), plain(K, y, norm, lam, step, steps)
    assert found.step == step
    assert found.iterations == steps
    np.testing.assert_allclose(found.alpha.reshape(wanted.shape), wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
    assert found.primal == pytest.approx(objective(K, y, lam, NORMS[norm], wanted), rel=1e-12)


@every_norm
def test_algorithm_2_as_printed_is_plain_with_twice_lambda_and_half_the_step(
    problem: tuple[Float64, Float64], norm: str
) -> None:
    K, y = problem
    lam, gamma = 0.05, 1 / norm_of(K) ** 2
    for steps in (1, 2, 5, 100):
        wanted = after(algorithm_2(K, y, lam, gamma, NORMS[norm], np.zeros(K.shape[:2])), steps)
        found = plain(K, y, norm, 2 * lam, gamma / 2, steps)
        np.testing.assert_allclose(found.alpha.reshape(wanted.shape), wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())


@every_norm
def test_a_step_that_is_too_long_is_that_of_algorithm_1_at_the_step_it_is_halved_to(
    problem: tuple[Float64, Float64], norm: str
) -> None:
    K, y = problem
    lam, longest = 0.1, 1 / (2 * norm_of(K) ** 2)
    found = plain(K, y, norm, lam, 64 * longest, 1)
    assert longest / 2 < found.step < 64 * longest
    inside = 2 * found.step * adjoint(K, y, np.ones(len(y)))
    wanted = proximity_of_all(inside, found.step * lam, *NORMS[norm])
    np.testing.assert_allclose(found.alpha.reshape(wanted.shape), wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())


@every_norm
def test_solve_takes_the_steps_of_algorithm_1(problem: tuple[Float64, Float64], norm: str) -> None:
    """From kernels and labels to coefficients; the step size is the one that `solve` estimates."""
    K, y = problem
    formulation = dmkl.MIKL(norm, 0.2)
    fit = dmkl.solve(dmkl.KernelStack.from_array(K), y, formulation, method="plain", tol=1e-2)
    steps = int(fit.state.own_as(PerKernelState).steps[0])
    step = first_step(HeldRows(K.reshape(-1, K.shape[2]), y))
    assert step == pytest.approx(1 / (2 * norm_of(K) ** 2), rel=0.01)
    wanted = after(algorithm_2(K, y, 0.1, 2 * step, NORMS[norm], np.zeros(K.shape[:2])), steps)
    np.testing.assert_allclose(fit.coef.T, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())


@every_norm
def test_the_default_has_the_optimum_of_algorithm_2(problem: tuple[Float64, Float64], norm: str) -> None:
    K, y = problem
    lam, steps = 0.5, 6000 if norm == "1" else 1500
    fit = dmkl.solve(dmkl.KernelStack.from_array(K), y, dmkl.MIKL(norm, lam), tol=1e-9)
    alpha = after(algorithm_2(K, y, lam / 2, 1.9 / norm_of(K) ** 2, NORMS[norm], np.zeros(K.shape[:2])), steps)
    optimum = objective(K, y, lam, NORMS[norm], alpha)
    assert np.count_nonzero(alpha)
    assert fit.dual <= optimum * (1 + 1e-12)
    assert fit.objective == pytest.approx(optimum, rel=1e-8)


@pytest.mark.parametrize("mu", [0.1, 1.0, 10.0])
def test_the_printed_map_with_its_factor_is_no_minimiser(mu: float) -> None:
    """Definition 2 decides: the map without the factor ||u||_2 is below the printed one and its own neighbours."""
    rng = np.random.default_rng(4)
    u = 3 * rng.normal(size=8)

    def value(alpha: Float64) -> float:
        return 0.5 * float(((u - alpha) ** 2).sum()) + mu / 2 * float(np.abs(alpha).sum()) ** 2

    right = proximity(u, mu, 1, 2)
    ordered = -np.sort(-np.abs(u))
    M = np.count_nonzero(right)
    printed = mu * ordered[:M].sum() / ((1 + mu * M) * np.linalg.norm(u))
    assert value(right) < value(np.sign(u) * np.maximum(np.abs(u) - printed, 0))
    assert all(value(right) < value(right + 1e-3 * rng.normal(size=8)) for _ in range(100))
