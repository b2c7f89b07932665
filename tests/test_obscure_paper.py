"""Algorithms 1 and 2 of Orabona, Jie and Caputo (2012), written from the paper with explicit vectors, against ours.

Feature vectors are real: kernel j is linear on features of its own, a joint feature map puts phi_j(x) into the block of
a class, and theta and w are lists of matrices (classes, features), one a kernel. Nothing of dmkl is used but the order
of the samples. R is an input of Algorithm 2: ours is tighter than what Algorithm 1 returns, and tightened later on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import unsolved

import dmkl
from dmkl.solvers.obscure_subgradient import ONLINE, PROXIMAL, Learner, ObscureState
from dmkl.stack import KernelStack

pytestmark = unsolved

Theta = list[np.ndarray]
Subgradient = Callable[[np.ndarray, Any], np.ndarray]  # of a loss in the scores of all classes
N, EPOCHS, SEED, LAM, ETA = 40, 3, 3, 0.02, 0.1


# --- the paper, from its text


def norm_2q(theta: Theta, q: float) -> float:
    """The group norm of section 2.1.5; the largest is taken out, as q may be 101."""
    norms = np.array([np.linalg.norm(block) for block in theta])
    return float(norms.max() * np.sum((norms / norms.max()) ** q) ** (1 / q)) if norms.max() > 0 else 0.0


def map_to_w(theta: Theta, q: float) -> Theta:
    """Line 7 of Algorithm 1, line 11 of Algorithm 2."""
    whole = norm_2q(theta, q)
    if whole == 0:
        return [0.0 * block for block in theta]
    return [(np.linalg.norm(block) / whole) ** (q - 2) * block / q for block in theta]


def gradient(loss: Subgradient, w: Theta, x: Theta, y: Any) -> Theta:
    """z, line 5 of both algorithms: a subgradient in the scores, times the joint features."""
    scores = sum(block @ features for block, features in zip(w, x, strict=True))
    slope = loss(np.asarray(scores), y)
    return [np.outer(slope, features) for features in x]


def algorithm_1(loss: Subgradient, q: float, eta: float, xs: list[Theta], ys: Any, theta: Theta) -> Theta:
    for x, y in zip(xs, ys, strict=True):
        z = gradient(loss, map_to_w(theta, q), x, y)
        theta = [block - eta * part for block, part in zip(theta, z, strict=True)]
    return theta


def algorithm_2(
    loss: Subgradient, q: float, R: float, lam: float, xs: list[Theta], ys: Any, theta: Theta, s: float, t: int
) -> tuple[Theta, float, int]:
    for x, y in zip(xs, ys, strict=True):
        t += 1
        z = gradient(loss, map_to_w(theta, q), x, y)
        d = lam * t + s
        s = s + 0.5 * (np.sqrt(d**2 + q * (lam / q * norm_2q(theta, q) + norm_2q(z, q)) ** 2 / R**2) - d)
        eta = q / (lam * t + s)
        half = [(1 - lam * eta / q) * block - eta * part for block, part in zip(theta, z, strict=True)]
        size = norm_2q(half, q)
        theta = [min(1.0, q * R / size if size else 1.0) * block for block in half]
    return theta, s, t


# --- losses: subgradients in the scores of all classes


def multiclass(f: np.ndarray, y: int) -> np.ndarray:
    """Equation (1)."""
    rival = max((r for r in range(len(f)) if r != y), key=lambda r: f[r])
    slope = np.zeros(len(f))
    if 1 - (f[y] - f[rival]) > 0:
        slope[rival], slope[y] = 1.0, -1.0
    return slope


def softmax(f: np.ndarray, y: int) -> np.ndarray:
    """Of log sum_r exp f_r - f_y."""
    slope = np.exp(f - f.max()) / np.exp(f - f.max()).sum()
    slope[y] -= 1.0
    return slope


def hinges(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(1 - y * f > 0, -y, 0.0)


def logistic(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -y / (1 + np.exp(y * f))


def squared(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 2 * (f - y)


def insensitive(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.abs(f - y) > 0.2, np.sign(f - y), 0.0)


CLASSES = {"multiclass": multiclass, "softmax": softmax, "hinge": hinges, "logistic": logistic, "squared": squared}
JOINT = ("multiclass", "softmax")  # of all classes together
CASES = [(loss, m) for loss in CLASSES for m in (2, 3)] + [("squared", 0), ("epsilon", 0)]
EVERY = pytest.mark.parametrize(("name", "m"), CASES, ids=[f"{name}-{m or 'targets'}" for name, m in CASES])
EVERY_P = pytest.mark.parametrize("p", [1.01, 1.25, 1.7, 2.0])


class Case:
    """A small problem of m classes, or real targets if m is 0, in the paper's terms and in ours."""

    def __init__(self, name: str, m: int, p: float, **options: Any) -> None:
        rng = np.random.default_rng(7)
        labels = rng.integers(0, max(m, 2), N)
        self.X = [rng.normal(size=(N, d)) + labels[:, None] * (d == 3) for d in (2, 3, 5)]
        self.q, self.single = p / (p - 1), m == 2 and name in JOINT
        self.loss, self.ys, given = CLASSES.get(name, insensitive), labels, np.array(["a", "b", "c"])[labels]
        if m == 0:
            given = self.X[0][:, 0] + 0.3 * rng.normal(size=N)
            self.ys = given[:, None]
        elif name not in JOINT:
            self.ys = (np.where(labels[:, None] == np.arange(m), 1.0, -1.0))[:, 1 if m == 2 else 0 :]
        self.rows = m if name in JOINT else self.ys.shape[1]
        loss = {"name": "epsilon", "epsilon": 0.2} if name == "epsilon" else name
        self.formulation = dmkl.Obscure(p=p, lam=LAM, loss=loss, **options)
        self.stack, self.given = KernelStack.from_array(np.stack([x @ x.T for x in self.X])), given

    def none(self) -> Theta:
        return [np.zeros((self.rows, x.shape[1])) for x in self.X]

    def samples(self, stage: int, epoch: int) -> tuple[list[Theta], Any]:
        """The samples of an epoch in our order."""
        batches = self.stack.source.on_demand.batches(np.random.default_rng([SEED, stage, epoch]))
        order = np.concatenate(batches)
        return [[x[i] for x in self.X] for i in order], self.ys[order]

    def learner(self, method: str, rounds: int) -> Learner:
        """Ours after so many epochs."""
        fit = dmkl.solve(
            self.stack, self.given, self.formulation, tol=1e-12, method=method, max_rounds=rounds, seed=SEED
        )
        return Learner.of(fit.state.own_as(ObscureState))

    def assert_same(self, theta: Theta, learner: Learner) -> None:
        """Ours has coefficients of theta / q; of two classes it has the difference alone."""
        norm_of = [self.q * learner.last.T @ x for x in self.X]
        if self.single:
            theta = [block[1:] - block[:1] for block in theta]
        scale = max(float(np.abs(block).max()) for block in theta)
        for mine, block in zip(norm_of, theta, strict=True):
            np.testing.assert_allclose(mine, block, rtol=0, atol=1e-10 * scale)
        assert scale > 0


@EVERY
@EVERY_P
def test_stage_1_is_algorithm_1(name: str, m: int, p: float) -> None:
    case = Case(name, m, p, eta=ETA)
    theta = case.none()
    for epoch in range(EPOCHS):
        theta = algorithm_1(case.loss, case.q, ETA, *case.samples(ONLINE, epoch), theta)
        case.assert_same(theta, case.learner("online", epoch + 1))


@EVERY
@EVERY_P
def test_stage_2_is_algorithm_2(name: str, m: int, p: float) -> None:
    case = Case(name, m, p, eta=ETA)
    theta = algorithm_1(case.loss, case.q, ETA, *case.samples(ONLINE, 0), case.none())
    s, t = 0.0, 0
    for epoch in range(EPOCHS):
        R = case.learner("stochastic", epoch + 1).radius
        R = R / np.sqrt(2) if case.single else R  # ||w_1 - w_0||^2 = 2 ||w||^2
        theta, s, t = algorithm_2(case.loss, case.q, R, LAM, *case.samples(PROXIMAL, epoch), theta, s, t)
        case.assert_same(theta, case.learner("stochastic", epoch + 2))


@pytest.mark.parametrize(("name", "m"), [("multiclass", 2), ("multiclass", 3), ("hinge", 2), ("logistic", 3)])
@EVERY_P
def test_without_a_radius_it_is_pegasos(name: str, m: int, p: float) -> None:
    """Section 5.3: R = inf, so that s_t = 0."""
    case, theta, t = Case(name, m, p), None, 0
    for epoch in range(EPOCHS):
        start = case.none() if theta is None else theta
        theta, _, t = algorithm_2(case.loss, case.q, np.inf, LAM, *case.samples(PROXIMAL, epoch), start, 0.0, t)
        case.assert_same(theta, case.learner("pegasos", epoch + 1))


@pytest.mark.parametrize("p", [1.05, 2.0])
def test_our_radius_is_between_the_optimum_and_the_papers(p: float) -> None:
    case = Case("multiclass", 3, p, eta=ETA)
    w = map_to_w(algorithm_1(case.loss, case.q, ETA, *case.samples(ONLINE, 0), case.none()), case.q)
    f = np.sum([x @ block.T for x, block in zip(case.X, w, strict=True)], axis=0)
    own = f[np.arange(N), case.ys]
    f[np.arange(N), case.ys] = -np.inf
    losses = np.maximum(1 - own + f.max(axis=1), 0)
    size = sum(np.linalg.norm(block) ** p for block in w) ** (1 / p)
    papers = np.sqrt(size**2 + 2 / (LAM * N) * losses.sum())  # line 10
    best = dmkl.solve(case.stack, case.given, case.formulation, tol=1e-6)
    forms = np.einsum("ir,aij,jr->a", best.coef, np.stack([x @ x.T for x in case.X]), best.coef)
    optimum = ((best.weights * np.sqrt(forms)) ** p).sum() ** (1 / p)
    assert optimum * (1 - 1e-3) <= case.learner("stochastic", 1).radius <= papers * (1 + 1e-12)
