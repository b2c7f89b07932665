"""SpicyMKL's table 1, written from the text of Suzuki and Tomioka (2009), against the method `proximal`.

The first half of the file is the paper and does not use dmkl: the augmented Lagrangian (7) with its gradient (8) and
Hessian (9), for the hinge (10) to (12), Newton's method with Armijo's rule, and the outer loop. alpha are N numbers for
each kernel.

`proximal` keeps K_m alpha_m, the norms and the intercept, which is what is compared. It has rules of its own: inner
problems are solved to a share of the outer step, Newton matrices are damped, penalties grow by what the last step took.
Here its options solve inner problems to rounding, and the sequence of penalty parameters is given to both; then all
outer steps agree. Under its own rules a step is as near to the paper's as they promise, and the optimum is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

import dmkl
from dmkl._util.types import Float64
from dmkl.problems.losses import loss_of
from dmkl.solvers.kernel_operators import BlockKernels
from dmkl.solvers.loss_problem import Penalty
from dmkl.solvers.proximal import OPTIONS, _Centre, _Iterate, _Method, _PenaltyParameters

EXACT = replace(OPTIONS, inner=0.0, newton_steps=100)  # inner problems are solved to rounding
UNDAMPED = replace(OPTIONS, damping=0.0, jitter=1e-15)
LOSSES = ("logistic", "squared", "hinge")
every_loss = pytest.mark.parametrize("loss", LOSSES)

# The paper.


@dataclass(frozen=True)
class Point:
    """The primal variables that the proximal terms of (3) pull to; xi and zeta are the slacks of section 3.3."""

    alpha: Float64  # (M, N)
    b: float
    xi: Float64
    zeta: Float64


@dataclass(frozen=True)
class Gamma:
    """Penalty parameters: one for all kernels, of b, and of the slacks."""

    m: float
    b: float
    slacks: float


Lagrangian = Callable[[Float64], tuple[float, Float64, Float64]]


def norm(K: Float64, v: Float64) -> float:
    return float(np.sqrt(max(v @ K @ v, 0.0)))


def ST(K: Float64, level: float, v: Float64) -> Float64:
    """The soft threshold under (6)."""
    size = norm(K, v)
    return v * max(size - level, 0.0) / size if size > 0 else v


def conjugate(loss: str, y: Float64, rho: Float64) -> tuple[float, Float64, Float64]:
    """f*(-rho), its gradient in rho and the diagonal of its Hessian; of the hinge without its constraints."""
    if loss == "hinge":
        return -float(y @ rho), -y, np.zeros(len(y))
    if loss == "squared":
        return float((rho**2 / 4 - y * rho).sum()), rho / 2 - y, np.full(len(y), 0.5)
    u = y * rho
    if not ((u > 0) & (u < 1)).all():
        return np.inf, u, u
    return float((u * np.log(u) + (1 - u) * np.log(1 - u)).sum()), y * np.log(u / (1 - u)), 1 / (u * (1 - u))


def lagrangian(K: Float64, y: Float64, loss: str, C: float, at: Point, gamma: Gamma) -> Lagrangian:
    """(7) with (8) and (9), or (12) with its derivatives."""

    def phi(rho: Float64) -> tuple[float, Float64, Float64]:
        value, gradient, curvature = conjugate(loss, y, rho)
        gradient, hessian = gradient.copy(), np.diag(curvature)
        for K_m, alpha_m in zip(K, at.alpha, strict=True):
            v = alpha_m + gamma.m * rho
            size = norm(K_m, v)
            if size <= gamma.m * C:
                continue
            q = gamma.m * C / size
            value += (size - gamma.m * C) ** 2 / (2 * gamma.m)
            gradient += K_m @ ST(K_m, gamma.m * C, v)
            direction = K_m @ v / size
            hessian += gamma.m * ((1 - q) * K_m + q * np.outer(direction, direction))
        total = at.b + gamma.b * rho.sum()
        value += total**2 / (2 * gamma.b)
        gradient += total
        hessian += gamma.b
        if loss == "hinge":
            xi, zeta = slacks(y, rho, at, gamma)
            value += float(xi @ xi + zeta @ zeta) / (2 * gamma.slacks)
            gradient += y * xi - y * zeta
            hessian += gamma.slacks * np.diag((xi > 0) * 1.0 + (zeta > 0))
        return value, gradient, hessian

    return phi


def slacks(y: Float64, rho: Float64, at: Point, gamma: Gamma) -> tuple[Float64, Float64]:
    """(11)."""
    return np.maximum(0, at.xi - gamma.slacks * (1 - y * rho)), np.maximum(0, at.zeta - gamma.slacks * y * rho)


def minimiser(phi: Lagrangian, rho: Float64, steps: int = 100) -> Float64:
    """Newton's method with Armijo's rule (sections 3.2 and 3.4), until rounding hides any fall.

    (12) may have no curvature along some directions; a little of the gradient's size keeps its Newton matrix regular.
    """
    for _ in range(steps):
        value, gradient, hessian = phi(rho)
        regular = 1e-3 * np.abs(gradient).max() * np.eye(len(rho))
        direction = -np.linalg.solve(hessian + regular, gradient)
        c = 1.0
        while phi(rho + c * direction)[0] > value + 1e-4 * c * (gradient @ direction) + 1e-14 * abs(value):
            c /= 2
            if c < 1e-12:
                return rho
        rho = rho + c * direction
    return rho


def table_1(K: Float64, y: Float64, loss: str, C: float, start: Point, gammas: list[Gamma]) -> Iterator[Point]:
    """The outer loop; one step for each gamma."""
    at, rho = start, y / 2
    for gamma in gammas:
        rho = minimiser(lagrangian(K, y, loss, C, at, gamma), rho)
        alpha = np.array([ST(K[m], gamma.m * C, at.alpha[m] + gamma.m * rho) for m in range(len(K))])
        at = Point(alpha, at.b + gamma.b * float(rho.sum()), *slacks(y, rho, at, gamma))
        yield at


def objective(K: Float64, y: Float64, loss: str, C: float, at: Point) -> float:
    """(2)."""
    f = np.einsum("mij,mj->i", K, at.alpha) + at.b
    losses = {"hinge": np.maximum(1 - y * f, 0), "logistic": np.logaddexp(0, -y * f), "squared": (y - f) ** 2}
    return float(losses[loss].sum()) + C * sum(norm(K[m], at.alpha[m]) for m in range(len(K)))


# The comparison.


@pytest.fixture(scope="module")
def problem() -> tuple[Float64, Float64]:
    """Gaussians of three widths on each of two features, of which one matters, and a linear kernel."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 2))
    squares = (X[:, None] - X) ** 2
    K = [np.exp(-squares[:, :, a] / (2 * w**2)) for a in range(2) for w in (0.5, 1.0, 2.0)]
    y = np.where(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=30) > 0, 1.0, -1.0)
    return np.array([*K, X @ X.T]), y


def nothing(n: int, s: int) -> Point:
    return Point(np.zeros((s, n)), 0.1, np.zeros(n), np.zeros(n))


def method(K: Float64, y: Float64, loss: str, C: float, options: object = EXACT) -> _Method:
    return _Method(BlockKernels(K), y, loss_of(loss), Penalty(C, 0.0), 0.0, options)  # type: ignore[arg-type]


def centre_of(K: Float64, at: Point, loss: str) -> _Centre:
    products = np.einsum("mij,mj->mi", K, at.alpha)
    squares = np.einsum("mi,mi->m", products, at.alpha)
    return _Centre(products, squares, at.b, [at.xi, at.zeta] if loss == "hinge" else [])


def parameters_of(gamma: Gamma) -> _PenaltyParameters:
    return _PenaltyParameters(gamma.m, gamma.b, gamma.slacks)


def growing(steps: int, first: float = 0.5) -> list[Gamma]:
    return [Gamma(first * 2.0**t, 0.1 * 2.0**t, 0.3 * 2.0**t) for t in range(steps)]


def assert_same(K: Float64, ours: _Centre, at: Point, loss: str, tol: float) -> None:
    theirs = centre_of(K, at, loss)
    scale = np.abs(theirs.products).max()
    np.testing.assert_allclose(ours.products, theirs.products, rtol=0, atol=tol * scale)
    np.testing.assert_allclose(np.sqrt(ours.squares), np.sqrt(theirs.squares), rtol=0, atol=tol * scale)
    assert ours.intercept == pytest.approx(theirs.intercept, abs=tol * scale)
    for own, other in zip(ours.slacks, theirs.slacks, strict=True):
        np.testing.assert_allclose(own, other, rtol=0, atol=tol * scale)


@every_loss
@pytest.mark.parametrize("C", [0.3, 2.0])
def test_all_outer_steps_are_those_of_table_1(problem: tuple[Float64, Float64], loss: str, C: float) -> None:
    K, y = problem
    ours, start = method(K, y, loss, C), nothing(len(y), len(K))
    rho = loss_of(loss).into_domain(y, y / 2)
    products, centre, used = BlockKernels(K).products(rho), centre_of(K, start, loss), []
    for gamma, at in zip(growing(8), table_1(K, y, loss, C, start, growing(8)), strict=True):
        rho, products, _ = ours._inner(rho, products, centre, parameters_of(gamma))
        centre, norms = ours._moved(rho, products, centre, parameters_of(gamma))
        assert_same(K, centre, at, loss, 1e-10)
        used.append(np.count_nonzero(norms))
    assert 0 < used[-1] < len(K)


@every_loss
def test_the_newton_direction_is_that_of_8_and_9(problem: tuple[Float64, Float64], loss: str) -> None:
    """At any point, where the loss does not shorten it; phi falls by the same along it."""
    K, y = problem
    rng = np.random.default_rng(1)
    C, gamma, n = 0.5, Gamma(2.0, 0.2, 0.6), len(y)
    at = Point(0.3 * rng.normal(size=(len(K), n)), 0.4, rng.uniform(size=n), rng.uniform(size=n))
    rho = y * rng.uniform(0.4, 0.6, size=n)
    phi = lagrangian(K, y, loss, C, at, gamma)
    value, gradient, hessian = phi(rho)
    wanted = -np.linalg.solve(hessian, gradient)
    ours, centre = method(K, y, loss, C, UNDAMPED), centre_of(K, at, loss)

    def iterate(rho: Float64) -> _Iterate:
        return _Iterate(rho, centre.products @ rho, BlockKernels(K).products(rho) @ rho)

    found, fall = ours._direction(iterate(rho), BlockKernels(K).products(rho), centre, parameters_of(gamma))
    wanted = loss_of(loss).shortened(y, rho, wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
    assert fall == pytest.approx(-gradient @ wanted, rel=1e-10)
    ahead = rho + 0.1 * wanted
    values = [ours._value(iterate(point), centre, parameters_of(gamma)) for point in (rho, ahead)]
    assert values[1] - values[0] == pytest.approx(phi(ahead)[0] - value, rel=1e-9)


@every_loss
def test_under_its_own_rules_an_inner_problem_is_solved_to_a_share_of_the_step(
    problem: tuple[Float64, Float64], loss: str
) -> None:
    """What phi lacks to its minimum is at most `inner` of the proximal terms of the step."""
    K, y = problem
    C, gamma, start = 0.3, Gamma(4.0, 0.2, 0.6), nothing(len(y), len(K))
    phi, centre = lagrangian(K, y, loss, C, start, gamma), centre_of(K, start, loss)
    ours, rho = method(K, y, loss, C, OPTIONS), loss_of(loss).into_domain(y, y / 2)
    rho, products, _ = ours._inner(rho, BlockKernels(K).products(rho), centre, parameters_of(gamma))
    here = _Iterate(rho, centre.products @ rho, products @ rho)
    lacking = phi(rho)[0] - phi(minimiser(phi, y / 2))[0]
    assert -1e-12 < lacking <= OPTIONS.inner * ours._distance(here, centre, parameters_of(gamma))


@every_loss
@pytest.mark.parametrize("name", ["proximal", "newton"])
def test_both_methods_have_the_optimum_of_table_1(problem: tuple[Float64, Float64], loss: str, name: str) -> None:
    K, y = problem
    C = 0.6
    *_, last = table_1(K, y, loss, C, nothing(len(y), len(K)), growing(16))
    optimum = objective(K, y, loss, C, last)
    fit = dmkl.solve(dmkl.KernelStack.from_array(K), y, dmkl.SpicyMKL(C=C, loss=loss), method=name, tol=1e-9)
    assert fit.objective == pytest.approx(optimum, rel=1e-8)
    assert fit.dual <= optimum * (1 + 1e-9)


def test_a_dual_point_in_the_papers_order_may_violate_the_norm_constraint() -> None:
    """Section 5.1 scales, then centres; `proximal` balances, then scales."""
    v, rho, C = np.array([1.0, 2.0]), np.array([2.0, -1.0]), 0.1
    K = np.outer(v, v)[None]
    theirs = rho / max(norm(K[0], rho) / C, 1.0)
    assert norm(K[0], theirs - theirs.mean()) > 10 * C
    ours = method(K, np.array([1.0, -1.0]), "squared", C)
    proof = ours._solution(rho, BlockKernels(K).products(rho), np.zeros(1)).proof
    assert norm(K[0], proof) == pytest.approx(C)
    assert abs(proof.sum()) <= 1e-15
