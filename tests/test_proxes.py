"""Mixed norms of coefficients by what defines them: minimisation, conjugacy, derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from dmkl.problems.norms import GroupNorm, groups_of
from dmkl.solvers.mikl_compact import lower_bound

S, N = 3, 4  # kernels, samples
PQ = [(1, 1), (2, 1), (1, 2), (2, 2)]
norms = pytest.mark.parametrize("r", [1, 2])
kinds = pytest.mark.parametrize(("inner", "outer"), PQ)
values = arrays(np.float64, S * N, elements=st.floats(-5, 5).map(lambda x: round(x, 3)))
steps = st.floats(0.05, 5.0)


def norm_of(inner: int, outer: int, r: int, lam: float, members: np.ndarray | None = None) -> GroupNorm:
    groups, count = groups_of(np.ones((S, N), dtype=bool) if members is None else members, r)
    return GroupNorm(inner, outer, lam, groups, count)


def plain(inner: int, outer: int, r: int, lam: float, alpha: np.ndarray) -> float:
    """The penalty of an array (s, n) as FORMULATIONS writes it."""
    inside = (np.abs(alpha) ** inner).sum(axis=0 if r == 1 else 1) ** (outer / inner)
    return lam / outer * float(inside.sum())


@norms
@kinds
@given(values, st.floats(0.1, 3.0))
def test_the_value_is_the_formula(inner: int, outer: int, r: int, alpha: np.ndarray, lam: float) -> None:
    assert norm_of(inner, outer, r, lam).value(alpha) == pytest.approx(
        plain(inner, outer, r, lam, alpha.reshape(S, N)), rel=1e-9, abs=1e-12
    )


@norms
@kinds
@given(values, values, steps)
def test_three_point_inequality(inner: int, outer: int, r: int, u: np.ndarray, other: np.ndarray, step: float) -> None:
    """What defines a proximal point p: h(p) + 1/2 |p - z|^2 <= h(z) for every z, h(z) = 1/2 |u - z|^2 + step pen(z)."""
    norm = norm_of(inner, outer, r, 0.7)

    def h(z: np.ndarray) -> float:
        return 0.5 * float((u - z) @ (u - z)) + step * norm.value(z)

    p = norm.prox(u, step)
    for z in (other, p + 1e-3 * other, np.zeros_like(u), u):
        assert h(p) + 0.5 * float((p - z) @ (p - z)) <= h(z) + 1e-9 * (1 + h(z))


@kinds
@given(arrays(np.float64, 2, elements=st.floats(-4, 4).map(lambda x: round(x, 3))), steps)
def test_brute_force_on_one_small_group(inner: int, outer: int, u: np.ndarray, step: float) -> None:
    norm = GroupNorm(inner, outer, 1.0, np.zeros(2, dtype=np.int64), 1)

    def h(z: np.ndarray) -> float:
        return 0.5 * float((u - z) @ (u - z)) + step * norm.value(z)

    lengths = np.linspace(0, 1, 41)
    found = min(h(u * np.array([a, b])) for a in lengths for b in lengths)
    refined = minimize(h, norm.prox(u, step) + 1e-3, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13}).fun
    ours = h(norm.prox(u, step))
    assert ours <= min(found, refined) + 1e-9


@norms
@kinds
@given(values, values)
def test_fenchel_young(inner: int, outer: int, r: int, alpha: np.ndarray, V: np.ndarray) -> None:
    """<alpha, V> <= pen(alpha) + pen*(V), for Q = 1 where pen*(V) is 0; `reach` says how far that is."""
    norm = norm_of(inner, outer, r, 0.7)
    V = V * min(norm.reach(V), 1.0)
    assert float(alpha @ V) <= norm.value(alpha) + norm.conjugate(V) + 1e-9


@norms
@kinds
@given(values, steps)
def test_moreau(inner: int, outer: int, r: int, u: np.ndarray, step: float) -> None:
    """Equality holds for p = prox(u) and the slope (u - p) / step: p is optimal, and V dual feasible."""
    norm = norm_of(inner, outer, r, 0.7)
    p = norm.prox(u, step)
    V = (u - p) / step
    assert norm.reach(V) >= 1.0 - 1e-9
    assert float(p @ V) == pytest.approx(norm.value(p) + norm.conjugate(V), rel=1e-7, abs=1e-9)


@norms
@kinds
@given(values, values, steps)
def test_jacobian_is_a_derivative(inner: int, outer: int, r: int, u: np.ndarray, v: np.ndarray, step: float) -> None:
    norm, size = norm_of(inner, outer, r, 0.7), 1e-6
    p, J = norm.prox_jacobian(u, step)
    ahead, behind = norm.prox(u + size * v, step), norm.prox(u - size * v, step)
    smooth = np.allclose(ahead - p, p - behind, atol=1e-9)
    if not smooth or not np.array_equal(ahead != 0, p != 0) or not np.array_equal(behind != 0, p != 0):
        return  # a kink: a derivative of any side will do
    sums = np.bincount(norm.groups, J.vector * v, norm.count)
    image = J.diagonal * v + (J.factor * sums)[norm.groups] * J.vector
    np.testing.assert_allclose((ahead - behind) / (2 * size), image, atol=1e-4)


@norms
@kinds
def test_some_coefficients_are_the_whole_with_zeros(inner: int, outer: int, r: int, rng: np.random.Generator) -> None:
    members = rng.random((S, N)) < 0.6
    part, whole = norm_of(inner, outer, r, 0.7, members), norm_of(inner, outer, r, 0.7)
    u = np.where(members, rng.normal(size=(S, N)), 0.0)
    assert part.value(u[members]) == pytest.approx(whole.value(u.ravel()))
    np.testing.assert_allclose(part.prox(u[members], 0.5), whole.prox(u.ravel(), 0.5).reshape(S, N)[members])
    assert part.largest(u[members]) == pytest.approx(whole.largest(u.ravel()))


@norms
@kinds
@given(arrays(np.float64, 6, elements=st.floats(0, 3).map(lambda x: round(x, 3))), st.floats(0.01, 100.0))
def test_the_scale_of_a_dual_point_is_the_best(inner: int, outer: int, r: int, u: np.ndarray, other: float) -> None:
    norm = norm_of(inner, outer, r, 0.7)
    V = np.random.default_rng(0).normal(size=(S * N, 6)) @ u
    best, scale = lower_bound(norm, u, V)
    assert scale <= norm.reach(V) * (1 + 1e-12)
    t = min(other * max(scale, 1e-3), norm.reach(V))
    assert t * u.sum() - t**2 * (u @ u / 4 + norm.conjugate(V)) <= best + 1e-9 * (1 + abs(best))
