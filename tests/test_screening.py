"""The interior point method on the kernels that may matter finds what it finds on all of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmkl
from dmkl.problems.norms import MixedNorm
from dmkl.solvers import interior_point as screening
from dmkl.solvers.interior_point import InteriorPointOptions, solve_interior
from dmkl.solvers.kernel_operators import combine, quadratic_forms, sweep

KERNELS, SAMPLES = 130, 90
GROUPS = {"l1": np.zeros(KERNELS, dtype=np.int64), "groups": np.arange(KERNELS) % 7}
RHO = {"l1": [2.0], "groups": [1.0, 4 / 3, 2.0]}
CASES = [(name, rho) for name in GROUPS for rho in RHO[name]]


def problem() -> tuple[Any, Any]:
    """Gaussians on single features, of which two tell the classes apart."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(SAMPLES, KERNELS))
    y = np.where(X[:, 3] + X[:, 77] + 0.5 * rng.normal(size=SAMPLES) > 0, 1.0, -1.0)
    return np.exp(-0.5 * (X.T[:, :, None] - X.T[:, None, :]) ** 2), y


def certified(K: Any, y: Any, C: float, norm: MixedNorm, found: Any) -> float:
    """Its relative gap, the lower bound computed anew over all kernels."""
    forms = np.einsum("aij,i,j->a", K, found.proof, found.proof)
    np.testing.assert_allclose(found.proof_forms, forms, rtol=1e-10)
    dual = float(y @ found.proof) - norm.conjugate(forms)
    assert found.dual == pytest.approx(dual, rel=1e-10)
    return (found.primal - dual) / found.primal


@pytest.mark.parametrize(("groups", "rho"), CASES)
@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_what_is_found_on_some_holds_for_all(C: float, groups: str, rho: float) -> None:
    (K, y), norm = problem(), MixedNorm(GROUPS[groups], rho)
    found, whole = screening.solve_screened(K, y, C, norm, 1e-5, "smo"), solve_interior(K, y, C, norm, 1e-7)
    assert certified(K, y, C, norm, found) < max(1e-3, 20 * certified(K, y, C, norm, whole))
    assert found.dual <= whole.primal * (1 + 1e-12)
    assert found.dual == pytest.approx(whole.dual, rel=1e-4)


@pytest.mark.parametrize(("groups", "rho"), CASES)
def test_kernels_that_were_left_out_come_back(groups: str, rho: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the nearest kernel of every group takes part at first, which is not enough."""
    (K, y), norm, sets = problem(), MixedNorm(GROUPS[groups], rho), []
    follow = screening.follow

    def watched(problem: Any, *arguments: Any) -> Any:
        sets.append(set(problem.kernels.tolist()))
        return follow(problem, *arguments)

    monkeypatch.setattr(screening, "follow", watched)
    options = InteriorPointOptions(few=0, first=0.999, second=0.999)
    found = screening.solve_screened(K, y, 1.0, norm, 1e-5, "smo", options)
    assert len(sets) > 2
    assert all(before < after for before, after in itertools.pairwise(sets[1:]))
    assert certified(K, y, 1.0, norm, found) < 1e-3
    assert found.dual == pytest.approx(solve_interior(K, y, 1.0, norm, 1e-6).dual, rel=1e-4)


def test_when_every_look_finds_more_all_take_part() -> None:
    (K, y), norm = problem(), MixedNorm(GROUPS["l1"], 2.0)
    options = InteriorPointOptions(looks=0)
    found, whole = (
        screening.solve_screened(K, y, 1.0, norm, 1e-5, "smo", options),
        solve_interior(K, y, 1.0, norm, 1e-5),
    )
    np.testing.assert_array_equal(found.weights, whole.weights)


@pytest.mark.parametrize(("groups", "rho"), CASES)
def test_a_point_that_leads_nowhere_is_not_gone_on_from(
    groups: str, rho: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among other kernels the point may be too near to its bounds: no step gets away (UCI wpbc, C = 1000)."""
    (K, y), norm, joined = problem(), MixedNorm(GROUPS[groups], rho), screening._joined

    def cornered(*arguments: Any) -> Any:
        point = joined(*arguments)
        return replace(point, beta=1e-9 * point.beta)

    monkeypatch.setattr(screening, "_joined", cornered)
    found, whole = screening.solve_screened(K, y, 1.0, norm, 1e-5, "smo"), solve_interior(K, y, 1.0, norm, 1e-7)
    assert found.solved
    assert certified(K, y, 1.0, norm, found) < 1e-3
    assert found.dual == pytest.approx(whole.dual, rel=1e-4)


def test_nothing_is_left_out_where_nothing_is_sparse() -> None:
    (K, y), norm = problem(), MixedNorm(np.arange(KERNELS), 4.0)
    found, whole = screening.solve_screened(K, y, 1.0, norm, 1e-5, "smo"), solve_interior(K, y, 1.0, norm, 1e-5)
    np.testing.assert_array_equal(found.weights, whole.weights)
    assert found.steps == whole.steps


def test_the_order_of_kernels_does_not_matter() -> None:
    K, y = problem()
    order = np.random.default_rng(0).permutation(KERNELS)
    fits = [dmkl.solve(dmkl.KernelStack.from_array(k), y, dmkl.L1MKL(C=1.0), tol=1e-6) for k in (K, K[order])]
    assert all(fit.converged for fit in fits)
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=2e-6)
    np.testing.assert_allclose(fits[0].weights.ravel()[order], fits[1].weights.ravel(), atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 31, 70])
def test_readings_of_some_kernels_and_rows(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    K = rng.normal(size=(6, n, n)).astype(dtype)
    K += K.transpose(0, 2, 1)
    exact, some, beta, weights = K.astype(np.float64), np.array([0, 2, 3, 4, 5]), rng.normal(size=n), rng.random(6)
    beta[::3] = 0.0
    combined, products = np.empty((n, n)), np.empty((5, n))
    sweep(K, some, beta, weights[some], combined, products)
    np.testing.assert_allclose(products, exact[some] @ beta, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(combined, np.tensordot(weights[some], exact[some], 1), rtol=1e-12, atol=1e-12)
    forms = np.maximum(np.einsum("aij,i,j->a", exact, beta, beta), 0.0)
    np.testing.assert_allclose(quadratic_forms(K, beta), forms, rtol=1e-10, atol=1e-10)
    K[:, :, 0] *= 2  # whoever combines need not have symmetric kernels
    combine(K, weights, combined)
    np.testing.assert_allclose(combined, np.tensordot(weights, K.astype(np.float64), 1), rtol=1e-12, atol=1e-12)
