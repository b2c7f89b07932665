"""OBSCURE for structured outputs: chains of labels with Viterbi, enumerated outputs, and the paper's algorithms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from test_obscure_paper import Theta, algorithm_1, algorithm_2, multiclass

import dmkl
from dmkl.errors import ConfigError, DataError
from dmkl.solvers.obscure_structured import StructuredModel, _Learner

LABELS = 3
unsolved = pytest.mark.filterwarnings("ignore:the certified gap is")


class Chains:
    """Sequences whose labels follow each other, 0 1 2 0 1 2 with slips, and are seen through noise.

    Three kernels compare what is seen at two positions with the same label (one of them is of noise alone), the last
    one counts equal transitions.
    """

    def __init__(self, lengths: Sequence[int], seed: int = 0, noise: float = 1.4) -> None:
        rng = np.random.default_rng(seed)
        self.rows = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
        self.truths: list[tuple[int, ...]] = []
        for length in lengths:
            y = [int(rng.integers(LABELS))]
            while len(y) < length:
                y.append(int(y[-1] + rng.choice([1, 2, 0], p=[0.9, 0.05, 0.05])) % LABELS)
            self.truths.append(tuple(y))
        flat = np.concatenate([np.array(y) for y in self.truths])
        seen = np.eye(LABELS)[flat] + noise * rng.normal(size=(len(flat), LABELS))
        angles = flat * 2 * np.pi / LABELS + 0.7 * noise * rng.normal(size=len(flat))
        self.views = [seen, np.column_stack([np.cos(angles), np.sin(angles)]), rng.normal(size=(len(flat), 2))]
        self.E = np.stack([view @ view.T for view in self.views])
        self.labels = flat

    def kernel(self, pair: dmkl.Pair, pairs: Sequence[dmkl.Pair]) -> np.ndarray:
        own = self.E[:, :, self.rows[pair.sample]] @ np.eye(LABELS)[list(pair.output)]  # (3, positions, labels)
        values = np.empty((4, len(pairs)))
        for k, other in enumerate(pairs):
            values[:3, k] = own[:, self.rows[other.sample], list(other.output)].sum(axis=1)
            values[3, k] = (transitions(pair.output) * transitions(other.output)).sum()
        return values

    def decode(self, i: int, model: StructuredModel, costs: np.ndarray) -> tuple[int, ...]:
        """The output with the largest score plus costs (positions, labels)."""
        B, following = np.zeros((self.E.shape[1], LABELS)), np.zeros((LABELS, LABELS))
        for pair, c in zip(model.pairs, model.coef, strict=True):
            B[self.rows[pair.sample], list(pair.output)] += c
            following += c * transitions(pair.output)
        nodes = np.tensordot(model.weights[:3], self.E[:, self.rows[i]], 1) @ B
        return viterbi(nodes + costs, model.weights[3] * following)

    def worst(self, i: int, model: StructuredModel) -> tuple[tuple[int, ...], float]:
        truth = np.array(self.truths[i])
        found = self.decode(i, model, 1.0 - np.eye(LABELS)[truth])
        return found, float((np.array(found) != truth).sum())


def transitions(output: Any) -> np.ndarray:
    counts = np.zeros((LABELS, LABELS))
    np.add.at(counts, (list(output[:-1]), list(output[1:])), 1.0)
    return counts


def viterbi(nodes: np.ndarray, following: np.ndarray) -> tuple[int, ...]:
    best, back = nodes[0], []
    for node in nodes[1:]:
        reached = best[:, None] + following
        back.append(reached.argmax(axis=0))
        best = reached.max(axis=0) + node
    y = [int(best.argmax())]
    for step in reversed(back):
        y.append(int(step[y[-1]]))
    return tuple(reversed(y))


def test_viterbi_finds_the_best_output() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        nodes, following = rng.normal(size=(5, LABELS)), rng.normal(size=(LABELS, LABELS))

        def score(y: tuple[int, ...], nodes: np.ndarray = nodes, following: np.ndarray = following) -> float:
            return float(nodes[np.arange(5), list(y)].sum() + (following * transitions(y)).sum())

        assert viterbi(nodes, following) == max(itertools.product(range(LABELS), repeat=5), key=score)


@unsolved
def test_chains_are_labelled_better_than_their_positions_alone() -> None:
    lengths = [10] * 60
    chains = Chains(lengths)
    train, test = range(20), range(20, 60)
    fit = dmkl.structured(chains.truths[:20], chains.kernel, chains.worst, dmkl.Obscure(p=1.5, C=0.1, epochs=15))
    assert 0 < fit.dual <= fit.objective
    assert fit.gap < 0.2
    assert fit.model.weights[2] < fit.model.weights[:2].min()  # what is noise counts least
    nothing = np.zeros((10, LABELS))
    right = [np.mean(np.array(chains.decode(i, fit.model, nothing)) == chains.truths[i]) for i in test]
    rows, others = (np.concatenate([chains.rows[i] for i in some]) for some in (train, test))
    alone = []
    for C in (0.01, 0.1, 1.0):
        stack = dmkl.KernelStack.from_array(np.ascontiguousarray(chains.E[:, rows[:, None], rows]))
        single = dmkl.solve(stack, chains.labels[rows], dmkl.Obscure(p=1.5, C=C))
        scores = np.tensordot(single.weights, chains.E[:, others[:, None], rows], 1) @ single.coef
        alone.append(np.mean(scores.argmax(axis=1) == chains.labels[others]))
    print(f"positions right: {np.mean(right):.3f}, alone {alone}")
    assert np.mean(right) > max(alone) + 0.05


@pytest.mark.parametrize("p", [1.2, 2.0])
@unsolved
def test_the_optimum_is_between_the_bounds(p: float) -> None:
    """Of short chains all outputs are enumerated, and features are explicit: a problem with a slack for each sample."""
    chains, C = Chains([3] * 6, noise=0.8), 0.2
    fit = dmkl.structured(chains.truths, chains.kernel, chains.worst, dmkl.Obscure(p=p, C=C, epochs=300), tol=5e-3)
    sizes = [view.shape[1] * LABELS for view in chains.views] + [LABELS**2]
    cuts = np.cumsum(sizes)[:-1]

    def features(i: int, y: tuple[int, ...]) -> np.ndarray:
        seen = [(view[chains.rows[i]].T @ np.eye(LABELS)[list(y)]).ravel() for view in chains.views]
        return np.concatenate([*seen, transitions(y).ravel()])

    rows, costs, owners = [], [], []
    for i, truth in enumerate(chains.truths):
        for y in itertools.product(range(LABELS), repeat=3):
            rows.append(features(i, truth) - features(i, y))
            costs.append(float((np.array(y) != truth).sum()))
            owners.append(i)
    A, b, own = np.array(rows), np.array(costs), np.eye(6)[owners]
    n, d = 6, A.shape[1]

    def value(at: np.ndarray) -> tuple[float, np.ndarray]:
        blocks = np.split(at[:d], cuts)
        norms = np.array([max(np.linalg.norm(block), 1e-9) for block in blocks])
        size = (norms**p).sum() ** (1 / p)
        slope = [(norm / size) ** (p - 2) * block for norm, block in zip(norms, blocks, strict=True)]
        return 0.5 * size**2 + C * at[d:].sum(), np.concatenate([*slope, np.full(n, C)])

    both = np.hstack([A, own])
    found = minimize(
        value,
        np.concatenate([np.full(d, 0.01), np.full(n, 3.0)]),
        jac=True,
        constraints={"type": "ineq", "fun": lambda at: both @ at - b, "jac": lambda at: both},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    optimum = found.fun / (C * n)
    assert fit.dual <= optimum * (1 + 1e-6)
    assert optimum <= fit.objective * (1 + 1e-6)
    assert fit.converged
    sums = sum(c * features(*pair) for pair, c in zip(fit.model.pairs, fit.model.coef, strict=True))
    w = np.repeat(fit.model.weights, sizes) * sums
    worst = [max((b - A @ w)[np.array(owners) == i]) for i in range(6)]
    assert fit.objective == pytest.approx(value(np.concatenate([w, worst]))[0] / (C * n), rel=1e-9)


class Classes:
    """Three classes as the smallest structure, with explicit features."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self.y = rng.integers(0, 3, 30)
        self.X = [rng.normal(size=(30, d)) + self.y[:, None] for d in (2, 3)]
        self.K = np.stack([x @ x.T for x in self.X])

    def kernel(self, pair: dmkl.Pair, pairs: Sequence[dmkl.Pair]) -> np.ndarray:
        return np.array([self.K[:, pair.sample, other.sample] * (pair.output == other.output) for other in pairs]).T

    def worst(self, i: int, model: StructuredModel) -> tuple[int, float]:
        gains = 1.0 - np.eye(3)[self.y[i]]
        for pair, c in zip(model.pairs, model.coef, strict=True):
            gains[pair.output] += c * model.weights @ self.K[:, i, pair.sample]
        found = int(gains.argmax())
        return found, float(found != self.y[i])


@pytest.mark.parametrize("p", [1.01, 1.5, 2.0])
def test_the_steps_are_those_of_the_papers_algorithms(p: float) -> None:
    one, q, eta, lam, R = Classes(), p / (p - 1), 0.1, 0.02, 3.0
    learner = _Learner(one.y.tolist(), one.kernel, one.worst, dmkl.Obscure(p=p, lam=lam))
    order = np.random.default_rng(0).permutation(30)
    xs: list[Theta] = [[x[i] for x in one.X] for i in order]

    def assert_same(theta: Theta) -> None:
        for x, block in zip(one.X, theta, strict=True):
            mine = np.zeros(block.shape)
            for pair, c in zip(learner._pairs, learner._coef, strict=True):
                mine[pair.output] += q * c * x[pair.sample]
            np.testing.assert_allclose(mine, block, rtol=0, atol=1e-10 * np.abs(block).max())

    theta = algorithm_1(multiclass, q, eta, xs, one.y[order], [np.zeros((3, x.shape[1])) for x in one.X])
    for i in order:
        learner._step(int(i), eta / q, np.inf)
    assert_same(theta)
    theta, *_ = algorithm_2(multiclass, q, R, lam, xs * 2, np.tile(one.y[order], 2), theta, 0.0, 0)
    learner._numbers[:] = 0.0
    for i in np.tile(order, 2):
        learner._step(int(i), 0.0, R)
    assert_same(theta)


@unsolved
def test_classes_have_the_optimum_of_the_multiclass_loss() -> None:
    one = Classes()
    formulation = dmkl.Obscure(p=1.3, C=1.0, epochs=60)
    fit = dmkl.structured(one.y.tolist(), one.kernel, one.worst, formulation, tol=0.02)
    exact = dmkl.solve(dmkl.KernelStack.from_array(one.K), one.y, formulation, tol=1e-6)
    assert fit.dual <= exact.objective * (1 + 1e-9)
    assert exact.dual <= fit.objective * (1 + 1e-9)
    assert fit.objective <= 1.05 * exact.objective


def test_what_cannot_be_learnt_from_is_refused() -> None:
    one = Classes()
    y, formulation = one.y.tolist(), dmkl.Obscure(C=1.0)
    with pytest.raises(ConfigError, match="a loss of their own, not 'hinge'"):
        dmkl.structured(y, one.kernel, one.worst, dmkl.Obscure(C=1.0, loss="hinge"))
    with pytest.raises(DataError, match="no samples"):
        dmkl.structured([], one.kernel, one.worst, formulation)
    with pytest.raises(DataError, match=r"shape \(1, 2\) for 1 pairs"):
        dmkl.structured(y, lambda pair, pairs: np.ones((len(pairs), 2)), one.worst, formulation)
    with pytest.raises(DataError, match="not finite"):
        dmkl.structured(y, lambda pair, pairs: np.full((2, len(pairs)), np.nan), one.worst, formulation)


def test_a_fit_without_time_or_epochs_says_so() -> None:
    one = Classes()
    with pytest.warns(ConvergenceWarning, match=r"the certified gap is .* after 1 epochs, above tol = 1e-06"):
        fit = dmkl.structured(one.y.tolist(), one.kernel, one.worst, dmkl.Obscure(C=1.0, epochs=0), tol=1e-6)
    assert not fit.converged
    assert 0 < fit.dual < fit.objective <= 1.0
    assert fit.epochs == 1


def test_the_example_of_the_guide_runs() -> None:
    page = (Path(dmkl.__file__).parent / "docs/guide/structured.md").read_text()
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    fit, seen, truths = (names[name] for name in ("fit", "seen", "truths"))
    assert fit.converged
    assert np.mean([np.equal(names["best"](seen[i], fit.model, 0.0), truths[i]).mean() for i in range(20, 30)]) > 0.9
