"""mirrorVSKL, Algorithms 1 to 3 of Aflalo et al. (2011), written anew from the paper, against `mirror-paper`.

Here groups and kernels are loops over lists, as in the paper. Nothing is imported but the code under test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact_svm import ExactOracle, Vector, exact_alpha

import dmkl
from dmkl.errors import ConfigError
from dmkl.oracles import ORACLES
from dmkl.problems.norms import MixedNorm
from dmkl.problems.vskl import L1MKL, VSKL
from dmkl.solvers.mirror import MirrorIterate, MirrorOptions, solve_mirror
from dmkl.stack import KernelStack

C = 2.0
QS = [1.0, 1.5, 2.0, 3.0, np.inf]
GROUPS = [[0, 1, 2], [3, 4], [5]]  # the kernels of every group


@pytest.fixture
def problem() -> tuple[Vector, Vector]:
    """Gaussian kernels of three widths of one view, two of another, one of a third; all positive definite."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 3))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.normal(size=30) > 0, 1.0, -1.0)
    views, widths = (0, 0, 0, 1, 1, 2), (0.3, 1.0, 3.0, 0.5, 2.0, 1.0)
    K = [np.exp(-((X[:, None, v] - X[None, :, v]) ** 2) / (2 * w**2)) for v, w in zip(views, widths, strict=True)]
    return np.stack(K) + 0.05 * np.eye(30), y


@pytest.fixture(autouse=True)
def _exact_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORACLES._entries, "exact", ExactOracle())


# The paper.


def best_gamma(D: list[float], q: float) -> Vector:
    """Proposition 3.3, with q* = q / (q - 1)."""
    if q == 1:
        return np.ones(len(D))
    dual = 1.0 if np.isinf(q) else q / (q - 1)
    return np.array([d ** (1 / (dual + 1)) for d in D]) / sum(d ** (dual / (dual + 1)) for d in D) ** (1 / dual)


def block_coordinate_ascent(
    K: Vector, y: Vector, groups: list[list[int]], q: float, lam: Vector, gamma: Vector, steps: int
) -> tuple[Vector, Vector]:
    """Algorithm 2: alpha by the SVM and gamma by Proposition 3.3, in turn."""
    for _ in range(steps):
        combined = sum(lam[k] / gamma[j] * K[k] for j, members in enumerate(groups) for k in members)
        alpha = exact_alpha(combined, y, C)
        gamma = best_gamma([sum(lam[k] * form(K[k], alpha, y) for k in members) for members in groups], q)
    return alpha, gamma


def form(kernel: Vector, alpha: Vector, y: Vector) -> float:
    """alpha' Q alpha with Q = Y K Y."""
    return float(alpha @ (np.outer(y, y) * kernel) @ alpha)


def mirror_vskl(
    K: Vector, y: Vector, groups: list[list[int]], q: float, steps: int, block_steps: int, A: float = 1.0
) -> list[tuple[Vector, Vector]]:
    """Algorithm 3, which is Algorithm 1 with Algorithm 2 as its oracle: every lambda, and the gamma found there.

    The step is that of section 3.2.1. In the descent line the paper writes s_t alpha' Q alpha / gamma, which is twice
    s_t times the subgradient of its footnote 6; here it is the subgradient.
    """
    lam = np.zeros(len(K))
    for members in groups:
        lam[members] = 1 / len(members)
    gamma, found = best_gamma([1.0] * len(groups), q), []  # gamma^1 is the same for every group
    for t in range(1, steps + 1):
        alpha, gamma = block_coordinate_ascent(K, y, groups, q, lam, gamma, block_steps)
        found.append((lam.copy(), gamma))
        gradient = subgradient(K, y, groups, alpha, gamma)
        s_t = A * np.sqrt(np.log(max(map(len, groups)))) / np.abs(gradient).max() / np.sqrt(t)
        for members in groups:
            moved = np.log(lam[members]) + 1 - s_t * gradient[members]
            lam[members] = np.exp(moved) / np.exp(moved).sum()
    return found


def subgradient(K: Vector, y: Vector, groups: list[list[int]], alpha: Vector, gamma: Vector) -> Vector:
    """Footnote 6: -1/2 alpha' Q_jk alpha / gamma_j."""
    gradient = np.zeros(len(K))
    for j, members in enumerate(groups):
        for k in members:
            gradient[k] = -0.5 * form(K[k], alpha, y) / gamma[j]
    return gradient


# Our code.


def iterates(
    K: Vector, y: Vector, norm: MixedNorm, steps: int, block_steps: int, A: float = 1.0
) -> list[MirrorIterate]:
    """What `mirror-paper` shows of itself, with a fixed number of block steps an oracle call."""
    found: list[MirrorIterate] = []
    options = MirrorOptions(
        rule="paper",
        step=A,
        oracle_tol=0.0,
        max_block_steps=block_steps,
        max_svm_calls=steps * block_steps,
        patience=steps * block_steps,
    )
    solve_mirror(K, y, C, norm, 1e-14, "exact", options, watch=found.append)
    return found[:steps]


def numbers(groups: list[list[int]]) -> Any:
    return np.array([j for j, members in enumerate(groups) for _ in members])


def agree(ours: list[MirrorIterate], paper: list[tuple[Vector, Vector]]) -> None:
    assert len(ours) == len(paper)
    for one, (lam, gamma) in zip(ours, paper, strict=True):
        np.testing.assert_allclose(one.lam, lam, rtol=0, atol=1e-10)
        np.testing.assert_allclose(1 / one.sums, gamma, rtol=1e-10)


@pytest.mark.parametrize("block_steps", [1, 2, 4])
@pytest.mark.parametrize("q", QS)
def test_mirror_vskl_has_the_papers_iterates(problem: Any, q: float, block_steps: int) -> None:
    K, y = problem
    ours = iterates(K, y, VSKL(q=q).norm(numbers(GROUPS)), 12, block_steps)
    agree(ours, mirror_vskl(K, y, GROUPS, q, 12, block_steps))
    assert np.abs(ours[-1].lam - ours[0].lam).max() > 0.1  # it went somewhere


@pytest.mark.parametrize("A", [0.3, 2.5])
def test_the_constant_of_the_steps_is_the_papers(problem: Any, A: float) -> None:
    K, y = problem
    ours = iterates(K, y, VSKL(q=2).norm(numbers(GROUPS)), 12, 4, A)
    agree(ours, mirror_vskl(K, y, GROUPS, 2.0, 12, 4, A))


def test_a_formulation_sets_the_constant_of_the_steps(problem: Any) -> None:
    """The default is A = 1; another A takes another number of SVMs to a solution that is proved as well."""
    K, y = problem
    stack = KernelStack.from_array(K, groups=numbers(GROUPS))
    for kind in (VSKL, L1MKL):
        fits = {A: dmkl.solve(stack, y, kind(C=C, step=A), method="mirror-paper") for A in (0.2, 1.0)}
        plain = dmkl.solve(stack, y, kind(C=C), method="mirror-paper")
        assert all(fit.converged for fit in fits.values())
        assert fits[0.2].svm_calls != fits[1.0].svm_calls
        assert np.array_equal(plain.coef, fits[1.0].coef)
        with pytest.raises(ConfigError, match="step should be positive and finite, not 0"):
            kind(step=0)


def test_mkl_is_the_same_with_one_group(problem: Any) -> None:
    """The paper's section 3.2.2: with n = 1 the oracle is one SVM, whatever q."""
    K, y = problem
    ours = iterates(K, y, L1MKL().norm(numbers(GROUPS)), 12, 1)
    for q in (1.0, 3.0):
        agree(ours, mirror_vskl(K, y, [[0, 1, 2, 3, 4, 5]], q, 12, 1))


@pytest.mark.parametrize("q", QS)
def test_the_oracle_has_the_papers_steps(problem: Any, q: float) -> None:
    """Algorithm 2 alone: alpha and gamma after one, two, three ... steps at the first weights."""
    K, y = problem
    norm = VSKL(q=q).norm(numbers(GROUPS))
    lam = np.array([1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2, 1.0])
    for steps in (1, 2, 3, 6):
        one = iterates(K, y, norm, 1, steps)[0]
        alpha, gamma = block_coordinate_ascent(K, y, GROUPS, q, lam, best_gamma([1.0] * 3, q), steps)
        np.testing.assert_allclose(one.alpha, alpha, rtol=0, atol=1e-10 * C)
        np.testing.assert_allclose(1 / one.sums, gamma, rtol=1e-10)


@pytest.mark.parametrize("q", QS)
def test_the_subgradient_is_that_of_the_footnote(problem: Any, q: float) -> None:
    """Differences of G: the 1/2 that the descent line drops belongs there."""
    K, y = problem
    rng = np.random.default_rng(1)
    lam = np.concatenate([rng.dirichlet(np.ones(len(members))) for members in GROUPS])
    start = best_gamma([1.0] * 3, q)

    def G(lam: Vector) -> float:
        alpha, gamma = block_coordinate_ascent(K, y, GROUPS, q, lam, start, 100)
        return float(alpha.sum()) + float(lam @ subgradient(K, y, GROUPS, alpha, gamma))

    alpha, gamma = block_coordinate_ascent(K, y, GROUPS, q, lam, start, 100)
    gradient = subgradient(K, y, GROUPS, alpha, gamma)
    for k in range(len(K)):
        step = 1e-5 * np.eye(len(K))[k]
        slope = (G(lam + step) - G(lam - step)) / 2e-5
        assert slope == pytest.approx(gradient[k], rel=1e-4)
        assert abs(slope + form(K[k], alpha, y) / gamma[numbers(GROUPS)[k]]) > 0.4 * abs(slope)  # as printed
