"""Mixed norms by what defines them: conjugacy, derivatives, homogeneity, and the formulas of FORMULATIONS section 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dmkl.problems.norms import MixedNorm
from dmkl.problems.vskl import VSKL

GROUPS = np.array([0, 1, 0, 2, 1, 0])
RHOS = [1.0, 16 / 15, 1.2, 4 / 3, 1.5, 2.0, 16 / 7, 4.0, 22.0]
positive = arrays(np.float64, 6, elements=st.floats(0.01, 100.0))
radii = arrays(np.float64, 3, elements=st.floats(0.01, 100.0))


@given(positive, positive, st.sampled_from(RHOS))
def test_regulariser_and_conjugate_are_conjugate(norms: np.ndarray, forms: np.ndarray, rho: float) -> None:
    """Fenchel-Young: sum_a ||w_a|| sqrt(D_a) <= R + Omega."""
    norm = MixedNorm(GROUPS, rho)
    inner = float(norms @ np.sqrt(forms))
    assert inner <= (norm.regulariser(norms) + norm.conjugate(forms)) * (1 + 1e-9)


@given(radii, st.sampled_from(RHOS))
def test_equality_holds_at_the_slope(N: np.ndarray, rho: float) -> None:
    norm = MixedNorm(np.arange(3), rho)
    slope = norm.slope(N)
    total = norm.regulariser(slope) + norm.conjugate(N**2)
    assert total == pytest.approx(float(slope @ N), rel=1e-9)


@given(radii, st.sampled_from(RHOS))
def test_slope_and_curvature_are_derivatives(N: np.ndarray, rho: float) -> None:
    norm = MixedNorm(np.arange(3), rho)
    step = 1e-6 * N.min()
    scale = norm.slope(N).max()
    for j in range(3):
        ahead, behind = N.copy(), N.copy()
        ahead[j] += step
        behind[j] -= step
        rise = (norm.conjugate(ahead**2) - norm.conjugate(behind**2)) / (2 * step)
        assert rise == pytest.approx(norm.slope(N)[j], rel=1e-3, abs=1e-4 * scale)
        bend = (norm.slope(ahead) - norm.slope(behind)) / (2 * step)
        np.testing.assert_allclose(norm.curvature(N)[:, j], bend, rtol=1e-2, atol=1e-3 * scale / N.min())


@given(positive, st.floats(1e-150, 1e150), st.sampled_from(RHOS))
def test_values_are_homogeneous_at_any_scale(norms: np.ndarray, factor: float, rho: float) -> None:
    norm = MixedNorm(GROUPS, rho)
    assert norm.regulariser(norms * factor) == pytest.approx(norm.regulariser(norms) * factor**2, rel=1e-9)


@pytest.mark.parametrize("q", [0.5, 0.51, 0.75, 0.99, 1.0, 1.5, 2.0, 8.0, np.inf])
def test_vskl_is_the_formula_of_the_paper(q: float) -> None:
    rng = np.random.default_rng(0)
    w, D = rng.random(6), rng.random(6)
    norm = VSKL(q=q).norm(GROUPS)
    u = np.array([w[j == GROUPS].sum() for j in range(3)])
    M = np.array([D[j == GROUPS].max() for j in range(3)])
    if np.isinf(q):
        primal, dual = 0.5 * u.max() ** 2, 0.5 * np.sqrt(M).sum() ** 2
    elif q == 0.5:
        primal, dual = 0.5 * u.sum() ** 2, 0.5 * M.max()
    else:
        primal = 0.5 * (u ** (2 * q)).sum() ** (1 / q)
        dual = 0.5 * (M ** (q / (2 * q - 1))).sum() ** ((2 * q - 1) / q)
    assert norm.regulariser(w) == pytest.approx(primal)
    assert norm.conjugate(D) == pytest.approx(dual)


@pytest.mark.parametrize("p", [1.1, 2.0, 8.0])
def test_lp_is_the_formula(p: float) -> None:
    rng = np.random.default_rng(0)
    w, D = rng.random(6), rng.random(6)
    norm = MixedNorm(np.arange(6), 2 * p / (p - 1))
    r, dual = 2 * p / (p + 1), p / (p - 1)
    assert norm.regulariser(w) == pytest.approx(0.5 * (w**r).sum() ** (2 / r))
    assert norm.conjugate(D) == pytest.approx(0.5 * (D**dual).sum() ** (1 / dual))


def test_nothing_is_nothing() -> None:
    norm = MixedNorm(GROUPS, 1.5)
    assert norm.regulariser(np.zeros(6)) == norm.conjugate(np.zeros(6)) == 0.0
